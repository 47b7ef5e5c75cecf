"""PUTs of several MiB through the front: as Python stores them, and Python's wherever anything is odd."""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
from collections.abc import Mapping

import pytest

from swiftlet.api.tests.proxy import Answer
from swiftlet.front.tests.conftest import EACH_WAY, PATIENCE_S, FrontedProxy, end, until
from swiftlet.front.tests.test_writes import OF_ONE_ANSWER, TYPE, listed, native, write
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster
from swiftlet.timestamp import Timestamp

MIB = 1 << 20
COLD = {"X-Trans-Id-Extra": "cold"}
"""A header that makes a request Python's."""

pytestmark = EACH_WAY


def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def head(fronted: FrontedProxy, name: str, size: int, *more: str) -> bytes:
    token = fronted.proxy.token["X-Auth-Token"]
    lines = [f"PUT /v1/{ACCOUNT}/{CONTAINER}/{name} HTTP/1.1", "Host: h", f"X-Auth-Token: {token}"]
    lines += ["Content-Type: a/b", f"Content-Length: {size}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


async def put(fronted: FrontedProxy, name: str, data: bytes, headers: Mapping[str, str] = TYPE) -> Answer:
    return await fronted.proxy.call("PUT", f"c/{name}", headers, io.BytesIO(data))


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return int((await reader.readuntil(b"\r\n\r\n")).split()[1])


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB, 3 * MIB + 4097, 5 * MIB])
async def test_like_pythons(fronted: FrontedProxy, cluster: MemoryCluster, size: int) -> None:
    """The same object, written by the front and by Python: equal answers, versions on all devices, rows and bytes."""
    await write(fronted)
    data = body(size)
    given = TYPE | {"X-Object-Meta-Color": "red", "ETag": hashlib.md5(data).hexdigest()}
    found = []
    for more in ({}, COLD):
        before = await fronted.noted()
        answer = await put(fronted, "o", data, given | more)
        assert await fronted.noted() == before + (not more)
        path = Path(ACCOUNT, CONTAINER, "o")
        infos = [cluster.info(device, path) for device in cluster.primaries(path)]
        assert infos[0] is not None
        assert infos == [infos[0]] * 3
        stored = (infos[0].etag, infos[0].size, infos[0].xxh3, infos[0].content_type, infos[0].metadata)
        shown = {name: value for name, value in answer.headers.items() if name not in OF_ONE_ANSWER}
        row = (await listed(fronted))["o"]
        del row["last_modified"]
        read = await fronted.proxy.call("GET", "c/o", query="x=cold")
        assert read.body == data
        found.append((answer.status, shown, answer.body, stored, row))
    assert found[0] == found[1]
    assert found[0][0] == 201


async def test_what_differs_is_refused(fronted: FrontedProxy) -> None:
    """As Python does, which is handed the whole body."""
    await write(fronted)
    data = body(2 * MIB)
    wrong = TYPE | {"ETag": hashlib.md5(b"other").hexdigest()}
    answers = [await put(fronted, "o", data, wrong | more) for more in ({}, COLD)]
    assert [answer.status for answer in answers] == [422, 422]
    assert answers[0].body == answers[1].body
    assert (await fronted.proxy.call("GET", "c/o")).body == b"data"


async def test_the_next_request_behind_it(fronted: FrontedProxy) -> None:
    await write(fronted)
    data = body(2 * MIB + 5)
    reader, writer = await fronted.connect()
    request = head(fronted, "next", len(data)) + data
    token = fronted.proxy.token["X-Auth-Token"]
    get = f"GET /v1/{ACCOUNT}/c/next HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\nConnection: close\r\n\r\n"
    before = await fronted.noted()
    writer.write(request + request + get.encode())
    async with asyncio.timeout(PATIENCE_S):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 201 ") == 2
    assert answers.endswith(b"\r\n\r\n" + data)
    assert await fronted.noted() >= before + 2


async def test_many_at_once(fronted: FrontedProxy) -> None:
    """More than there is memory for: the rest is Python's, and all are stored."""
    await write(fronted)
    data = {f"many{number}": body(MIB + number) for number in range(12)}
    puts = [put(fronted, name, one) for name, one in data.items()]
    assert {answer.status for answer in await asyncio.gather(*puts)} == {201}
    rows = await listed(fronted)
    for name, one in data.items():
        assert rows[name]["hash"] == hashlib.md5(one).hexdigest()
        assert (await fronted.proxy.call("GET", f"c/{name}")).body == one


async def test_more_than_there_is_memory_for(fronted: FrontedProxy) -> None:
    """Python streams it, with less memory than it has bytes."""
    await write(fronted)
    data = body(9 * MIB)
    reader, writer = await fronted.connect()
    before = await fronted.noted()
    writer.write(head(fronted, "large", len(data)) + data)
    assert await status(reader) == 201
    assert await fronted.noted() == before
    # Then the front has the connection again.
    async with asyncio.timeout(PATIENCE_S):
        while await fronted.noted() == before:
            writer.write(head(fronted, "long", 2 * MIB) + body(2 * MIB))
            assert await status(reader) == 201
    writer.close()
    assert (await fronted.proxy.call("GET", "c/large")).body == data
    assert (await fronted.proxy.call("GET", "c/long")).body == body(2 * MIB)


async def test_clients_that_stop_and_go(fronted: FrontedProxy) -> None:
    """A body that pauses is Python's to wait for; of one that is cut off nothing is stored."""
    await write(fronted)
    data = body(3 * MIB)
    reader, writer = await fronted.connect()
    writer.write(head(fronted, "late", len(data)) + data[: MIB + 7])
    await until(lambda: _is_pythons(fronted))
    writer.write(data[MIB + 7 :])
    assert await status(reader) == 201
    assert (await fronted.proxy.call("GET", "c/late")).body == data
    writer.write(head(fronted, "cut", len(data)) + data[: 2 * MIB])
    end(writer)
    async with asyncio.timeout(PATIENCE_S):
        await reader.read()
    writer.close()
    assert "cut" not in await listed(fronted)


async def test_clients_that_wait_until_they_are_told_to_send(fronted: FrontedProxy) -> None:
    """They are told once, whoever stores it then."""
    await write(fronted)
    data = body(2 * MIB)
    reader, writer = await fronted.connect()
    for name, waits in (("told", False), ("late", True)):
        before = await fronted.noted()
        writer.write(head(fronted, name, len(data), "Expect: 100-continue"))
        assert await status(reader) == 100
        writer.write(data[:100_000])
        if waits:
            await until(lambda: _is_pythons(fronted))
        writer.write(data[100_000:])
        assert await status(reader) == 201
        assert await fronted.noted() == before + (not waits)
        assert (await fronted.proxy.call("GET", f"c/{name}")).body == data
    writer.close()
    reader, writer = await fronted.connect()
    writer.write(head(fronted, "eager", len(data), "Expect: 100-continue") + data)
    while (found := await status(reader)) == 100:
        pass
    assert found == 201
    writer.close()
    assert (await fronted.proxy.call("GET", "c/eager")).body == data


def _is_pythons(fronted: FrontedProxy) -> bool:
    server = fronted.running.connections._server
    return server is not None and any(one._current_request is not None for one in server.connections)


async def test_a_device_that_is_gone(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Python finds a handoff; the body that the front has received is not lost, nor are the next ones received."""
    await write(fronted)
    data = body(2 * MIB)
    fronted.devices.stop(cluster.primaries(Path(ACCOUNT, CONTAINER, "gone0"))[0], cluster)
    for number in range(3):
        assert (await put(fronted, f"gone{number}", data)).status == 201
        assert (await fronted.proxy.call("GET", f"c/gone{number}")).body == data
    assert {f"gone{number}" for number in range(3)} <= set(await listed(fronted))


async def test_devices_that_have_something_newer(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """The clock of another process is ahead: what is stored is newer still."""
    await write(fronted)
    data, path = body(2 * MIB), Path(ACCOUNT, CONTAINER, "ahead")
    assert (await fronted.proxy.call("PUT", "c/ahead", TYPE, b"before")).status == 201
    ahead = fronted.proxy.api.clock.next().value + (30 * 100_000 << 14)
    for device in cluster.primaries(path)[1:]:
        native(cluster, device).delete(cluster.key(path), Timestamp(ahead), str(path))
    assert (await put(fronted, "ahead", data)).status == 201
    assert (await fronted.proxy.call("GET", "c/ahead")).body == data


async def test_a_container_that_went_away_elsewhere(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    await write(fronted)
    for name in await listed(fronted):
        assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204
    await fronted.proxy.api.listings.delete_container(ACCOUNT, CONTAINER, fronted.proxy.api.clock.next())
    assert (await put(fronted, "late", body(2 * MIB))).status == 404
    path = Path(ACCOUNT, CONTAINER, "late")
    assert [cluster.info(device, path) for device in cluster.primaries(path)] == [None] * 3


async def test_only_where_there_is_none(fronted: FrontedProxy) -> None:
    await write(fronted)
    data = body(2 * MIB)
    only_new = TYPE | {"If-None-Match": "*"}
    answers = [await put(fronted, "new", data, only_new) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 412]
    assert (await fronted.proxy.call("GET", "c/new")).body == data


async def test_quotas(fronted: FrontedProxy) -> None:
    """What does not fit is refused, and what fits is stored, whoever has room for it."""
    await write(fronted)
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Meta-Quota-Bytes": str(4 * MIB)})).status == 204
    for name, expected in (("a", 201), ("b", 413), ("c", 413)):
        assert (await put(fronted, name, body(2 * MIB + MIB // 2))).status == expected
    assert not {"b", "c"} & set(await listed(fronted))
