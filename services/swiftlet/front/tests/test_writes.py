"""FrontedProxy PUTs: durable everywhere, listed before they are answered, and Python's wherever anything is odd."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path as Directory
from typing import cast

import pytest

from swiftlet.api.tests.proxy import Answer
from swiftlet.errors import NotFound
from swiftlet.expiry.tests.support import all_tasks
from swiftlet.front.tests.conftest import EACH_WAY, PATIENCE_S, FrontedProxy, end, fronted_proxy, until
from swiftlet.main.certificates import Certificates
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster
from swiftlet.ring.model import Device
from swiftlet.store.native import NativeStore
from swiftlet.timestamp import Timestamp

TYPE = {"Content-Type": "text/plain"}
OF_ONE_ANSWER = {"Date", "X-Trans-Id", "X-Openstack-Request-Id", "Last-Modified"}


pytestmark = EACH_WAY


async def write(fronted: FrontedProxy, data: bytes = b"data", name: str = "o", **headers: str) -> Answer:
    """Until the front is the one that answers; then with these bytes."""
    given = {**TYPE, **{key.replace("_", "-"): value for key, value in headers.items()}}
    async with asyncio.timeout(PATIENCE_S):
        for count in range(1_000_000):
            before = fronted.answered, fronted.rows["taken"]
            answer = await fronted.proxy.call("PUT", f"c/heating-{name}", given, b"x%d" % count)
            assert answer.status == 201
            if fronted.answered > before[0] and (fronted.containers is None or fronted.rows["taken"] > before[1]):
                break
            await asyncio.sleep(0.01)
        return await fronted.proxy.call("PUT", f"c/{name}", given, data)


def native(cluster: MemoryCluster, device: Device) -> NativeStore:
    return cast("NativeStore", cluster.stores[device.address])


async def listed(fronted: FrontedProxy) -> dict[str, dict[str, object]]:
    answer = await fronted.proxy.call("GET", "c", query="format=json")
    return {row["name"]: row for row in json.loads(answer.body)}


async def test_like_pythons(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    before = fronted.answered
    answer = await write(fronted, b"some data", X_Object_Meta_SOME_Color="red")
    await until(lambda: fronted.answered >= before + 2)
    cold = await fronted.proxy.call("PUT", "c/p", TYPE, b"some data", query="x=y")
    plain = [
        sorted((name, value) for name, value in one.headers.items() if name not in OF_ONE_ANSWER)
        for one in (answer, cold)
    ]
    assert (answer.status, plain[0], answer.body) == (cold.status, plain[1], cold.body)
    assert set(answer.headers) == set(cold.headers)
    path = Path(ACCOUNT, CONTAINER, "o")
    infos = [cluster.info(device, path) for device in cluster.primaries(path)]
    assert infos[0] is not None
    assert infos == [infos[0]] * 3
    assert infos[0].metadata == {"X-Object-Meta-Some-Color": "red"}
    assert (infos[0].etag, infos[0].size) == (hashlib.md5(b"some data").hexdigest(), 9)
    row = (await listed(fronted))["o"]
    assert (row["bytes"], row["hash"], row["content_type"]) == (9, infos[0].etag, "text/plain")
    read = await fronted.proxy.call("GET", "c/o")
    assert (read.body, read.headers["Last-Modified"]) == (b"some data", answer.headers["Last-Modified"])


@pytest.mark.parametrize("size", [0, 65_536, 65_537, 1 << 20])
async def test_sizes(fronted: FrontedProxy, size: int) -> None:
    data = random.Random(size).randbytes(size)
    before = fronted.answered
    assert (await write(fronted, data)).status == 201
    await until(lambda: fronted.answered >= before + 2)
    assert (await fronted.proxy.call("GET", "c/o")).body == data
    assert (await fronted.proxy.call("GET", "c/o")).headers["Etag"] == hashlib.md5(data).hexdigest()
    big = bytes((1 << 20) + 1)
    assert (await fronted.proxy.call("PUT", "c/big", TYPE, io.BytesIO(big))).status == 201
    assert (await fronted.proxy.call("GET", "c/big")).body == big


async def test_a_long_body_with_the_next_request_behind_it(fronted: FrontedProxy) -> None:
    await write(fronted)
    data = random.Random(8).randbytes(100_000)
    token, target = fronted.proxy.token["X-Auth-Token"], f"/v1/{ACCOUNT}/c/next"
    fields = f"Host: h\r\nX-Auth-Token: {token}\r\n"
    reader, writer = await fronted.connect()
    put = f"PUT {target} HTTP/1.1\r\n{fields}Content-Type: a/b\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
    writer.write(put + put + f"GET {target} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 201 ") == 2
    assert answers.endswith(b"\r\n\r\n" + data)


async def test_many_in_a_row_and_at_once(fronted: FrontedProxy) -> None:
    await write(fronted)

    async def one(number: int) -> None:
        for turn in range(5):
            assert (await fronted.proxy.call("PUT", f"c/many{number}", TYPE, b"%d" % turn)).status == 201
            assert (await fronted.proxy.call("GET", f"c/many{number}")).body == b"%d" % turn

    await asyncio.gather(*(one(number) for number in range(20)))
    assert {f"many{number}" for number in range(20)} <= set(await listed(fronted))


async def test_etag(fronted: FrontedProxy) -> None:
    await write(fronted)
    good = {**TYPE, "ETag": hashlib.md5(b"data").hexdigest()}
    assert (await fronted.proxy.call("PUT", "c/e", good, b"data")).status == 201
    assert (await fronted.proxy.call("PUT", "c/e", good, b"other")).status == 422
    assert (await fronted.proxy.call("GET", "c/e")).body == b"data"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Container-Meta-Quota-Count": "100"},  # Too little to have any of it ahead.
        {"X-Versions-Enabled": "true"},
        {"X-Versions-Location": "archive"},
    ],
)
async def test_containers_with_more_to_do(fronted: FrontedProxy, headers: dict[str, str]) -> None:
    await fronted.proxy.call("PUT", "archive")
    await write(fronted)
    assert (await fronted.proxy.call("POST", "c", headers)).status == 204
    for _ in range(5):
        before = fronted.answered
        assert (await fronted.proxy.call("PUT", "c/o", TYPE, b"x")).status == 201
        assert fronted.answered == before
        await asyncio.sleep(0.02)


async def test_what_expires_is_replaced_by_python(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Which takes its task off the expirer's queue; other objects of the same container are the front's."""
    expiring = TYPE | {"X-Delete-At": "4000000000"}
    for name in ("again", "no-more", "posted"):
        assert (await fronted.proxy.call("PUT", f"c/{name}", expiring, b"x")).status == 201
    assert (await fronted.proxy.call("POST", "c/posted", {"X-Object-Meta-A": "b"})).status == 202

    async def put_by_front(name: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                before = await fronted.noted()
                assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, b"y")).status == 201
                if await fronted.noted() > before:
                    break

    await put_by_front("plain")
    assert {task.path.obj for task in await all_tasks(cluster)} == {"again", "no-more"}
    before = fronted.answered
    assert (await fronted.proxy.call("PUT", "c/again", expiring, b"z")).status == 201
    assert (await fronted.proxy.call("PUT", "c/no-more", TYPE, b"z")).status == 201
    assert fronted.answered == before
    [task] = await all_tasks(cluster)
    assert task.path.obj == "again"
    for name in ("posted", "no-more", "new"):
        await put_by_front(name)
        assert (await fronted.proxy.call("GET", f"c/{name}")).body == b"y"
    assert await all_tasks(cluster) == [task]


async def test_nobody_says_whether_it_expires(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """A device that is asked before a write is gone."""
    expiring = TYPE | {"X-Delete-At": "4000000000"}
    assert (await fronted.proxy.call("PUT", "c/o", expiring, b"x")).status == 201
    await write(fronted)
    fronted.devices.stop(cluster.primaries(Path(ACCOUNT, CONTAINER, "o"))[0], cluster)
    for _ in range(2):
        assert (await fronted.proxy.call("PUT", "c/o", TYPE, b"y")).status == 201
        assert (await fronted.proxy.call("GET", "c/o")).body == b"y"


async def test_quota_reached(fronted: FrontedProxy) -> None:
    await write(fronted)
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Meta-Quota-Bytes": "1"})).status == 204
    assert (await fronted.proxy.call("PUT", "c/q", TYPE, b"data")).status == 413


async def test_rights(fronted: FrontedProxy) -> None:
    await write(fronted)
    sue = fronted.proxy.token_of("other:sue")
    assert (await fronted.proxy.call("PUT", "c/o", {**TYPE, **sue}, b"x")).status == 403
    assert (await fronted.proxy.anonymous("PUT", "c/o", TYPE, b"x")).status == 401
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Write": "other:sue"})).status == 204
    assert (await fronted.proxy.call("PUT", "c/o", {**TYPE, **sue}, b"x")).status == 201
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Write": ""})).status == 204
    assert (await fronted.proxy.call("PUT", "c/o", {**TYPE, **sue}, b"y")).status == 403
    assert (await fronted.proxy.call("GET", "c/o")).body == b"x"


async def test_a_container_that_went_away_elsewhere(fronted: FrontedProxy) -> None:
    await write(fronted)
    for name in await listed(fronted):
        assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204
    await fronted.proxy.api.listings.delete_container(ACCOUNT, CONTAINER, fronted.proxy.api.clock.next())
    assert (await fronted.proxy.call("PUT", "c/late", TYPE, b"x")).status == 404
    path = Path(ACCOUNT, CONTAINER, "late")
    assert [fronted.proxy.cluster.info(device, path) for device in fronted.proxy.cluster.primaries(path)] == [None] * 3


async def test_a_device_that_is_gone(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    await write(fronted)
    fronted.devices.stop(cluster.devices[0], cluster)
    for number in range(5):
        assert (await fronted.proxy.call("PUT", f"c/gone{number}", TYPE, b"x")).status == 201
    assert {f"gone{number}" for number in range(5)} <= set(await listed(fronted))


async def test_newer_than_what_is_there(fronted: FrontedProxy) -> None:
    """The clock of another process is ahead: nothing older than what is there counts as stored."""
    await write(fronted)
    fronted.proxy.clock.now = 4_000_000_000.0
    assert (await fronted.proxy.call("PUT", "c/ahead", TYPE, b"python", query="x=y")).status == 201
    assert (await fronted.proxy.call("PUT", "c/ahead", TYPE, b"front")).status == 201
    assert (await fronted.proxy.call("GET", "c/ahead")).body == b"front"


async def test_bodies_in_pieces_and_cut_off(fronted: FrontedProxy) -> None:
    await write(fronted)
    reader, writer = await fronted.connect()
    token = fronted.proxy.token["X-Auth-Token"]
    head = f"PUT /v1/{ACCOUNT}/c/%s HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\nContent-Type: a/b\r\n"
    head += "Content-Length: 30000\r\n\r\n"

    async def status() -> int:
        async with asyncio.timeout(PATIENCE_S):
            return int((await reader.readuntil(b"\r\n\r\n")).split()[1])

    for pause_s, name in ((0.0, "pieces"), (0.01, "slow")):
        writer.write((head % name).encode())
        for _ in range(30):
            writer.write(b"x" * 1000)
            await asyncio.sleep(pause_s)
        assert await status() == 201
    # The rest comes so late that it is Python's to wait for.
    writer.write((head % "late").encode() + b"y" * 10_000)
    await asyncio.sleep(1.2)
    writer.write(b"y" * 20_000)
    assert await status() == 201
    writer.write((head % "cut").encode() + b"z" * 10_000)
    end(writer)
    async with asyncio.timeout(PATIENCE_S):
        await reader.read()
    writer.close()
    await until(lambda: fronted.connections <= 1)
    assert {"pieces", "slow", "late"} <= set(await listed(fronted))
    assert "cut" not in await listed(fronted)
    assert (await fronted.proxy.call("GET", "c/late")).body == b"y" * 30_000


async def test_like_pythons_whatever_is_said_of_it(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Each request twice, once with a header that makes it Python's: the same answer, and the same is stored."""
    await write(fronted)
    data = b"x" * 300
    known = {"ETag": hashlib.md5(data).hexdigest()}
    cases: list[tuple[str, dict[str, str], bytes]] = [
        ("plain", TYPE, data),
        ("typed", {"Content-Type": 'text/html; charset="utf-8"'}, data),
        ("empty", TYPE, b""),
        ("checked", TYPE | known, data),
        ("wrong", TYPE | known, b"other"),
        ("loud", TYPE | {"ETag": known["ETag"].upper()}, data),
        ("dressed", TYPE | {"X-Object-Meta-Mtime": "1700000000.5", "X-Object-Meta-a-B": "c; d"}, data),
        ("nothing", TYPE | {"X-Object-Meta-Empty": ""}, data),
        ("kept", TYPE | {"Cache-Control": "no-cache", "Content-Disposition": 'attachment; filename="a b.txt"'}, data),
        ("encoded", TYPE | {"content-encoding": "gzip", "X-Object-Meta-A": "b", "EXPIRES": "soon"}, data),
        ("described", TYPE | {"Content-Language": "de", "X-Robots-Tag": "noindex", "Pragma": "no-cache"}, data),
        ("nothing-kept", TYPE | {"Content-Disposition": "", "Cache-Control": ""}, data),
        ("reserved", {"Content-Type": "a/b; swift_bytes=1"}, data),
        ("a%20name/%C3%A4%22%5C%0A", TYPE, data),
        ("d.o.t.s..", TYPE, data),
        ("%ff", TYPE, data),
        ("x" * 1025, TYPE, data),
    ]
    for name, headers, body in cases:
        found = []
        for more in ({}, {"X-Trans-Id-Extra": "cold"}):
            answer = await fronted.proxy.call("PUT", f"c/{name}", headers | more, body)
            shown = {k: v for k, v in answer.headers.items() if k not in OF_ONE_ANSWER}
            read = await fronted.proxy.call("GET", f"c/{name}", query="x=cold") if answer.status == 201 else None
            described = read and {k: v for k, v in read.headers.items() if k not in OF_ONE_ANSWER | {"X-Timestamp"}}
            rows = await listed(fronted)
            row = {key: value for key, value in rows.get(name, {}).items() if key != "last_modified"}
            found.append(
                (answer.status, shown, answer.status == 201 or answer.body, described, read and read.body, row)
            )
        assert found[0] == found[1], name


async def test_what_is_kept_with_an_object(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """By the same names and in the same order as what Python stores."""
    await write(fronted)
    given = TYPE | {
        "content-disposition": 'attachment; filename="a b.txt"',
        "X-Object-Meta-B": "c",
        "CACHE-CONTROL": "no-cache",
        "Content-Encoding": "gzip",
        "X-robots-tag": "noindex",
        "Expires": "soon",
        "X-Object-Meta-a": "d",
        "Content-Language": "de",
    }
    before = fronted.answered
    assert (await fronted.proxy.call("PUT", "c/front", given, b"not gzip")).status == 201
    await until(lambda: fronted.answered > before)
    assert (await fronted.proxy.call("PUT", "c/python", given, b"not gzip", query="x=y")).status == 201
    kept = []
    for name in ("front", "python"):
        path = Path(ACCOUNT, CONTAINER, name)
        info = cluster.info(cluster.primaries(path)[0], path)
        assert info is not None
        read = await fronted.read(f"c/{name}")
        assert read.body == b"not gzip"
        shown = [item for item in read.headers.items() if item[0] in info.metadata]
        assert shown == list(info.metadata.items())
        kept.append(shown)
    assert kept[0] == kept[1]
    assert len(kept[0]) == len(given) - 1


async def test_a_type_that_nobody_gave(fronted: FrontedProxy) -> None:
    """Names without endings have one and the same; of others Python knows it."""
    await write(fronted)
    token = fronted.proxy.token["X-Auth-Token"]
    for name, expected in (("plain", "application/octet-stream"), ("a.txt", "text/plain")):
        reader, writer = await fronted.connect()
        head = f"PUT /v1/{ACCOUNT}/c/{name} HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\nContent-Length: 3\r\n\r\n"
        writer.write(head.encode() + b"abc")
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readuntil(b"\r\n")).split()[1] == b"201"
        writer.close()
        assert (await fronted.proxy.call("GET", f"c/{name}")).headers["Content-Type"].startswith(expected)


async def test_tokens_revoked_meanwhile(fronted: FrontedProxy) -> None:
    await write(fronted)
    headers = {**fronted.proxy.token, "X-Subject-Token": fronted.proxy.token["X-Auth-Token"]}
    async with fronted.proxy.client.delete("/v3/auth/tokens", headers=headers) as response:
        assert response.status == 204
    assert (await fronted.proxy.call("PUT", "c/late", TYPE, b"x")).status == 401


async def test_container_servers_are_down(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """The row stays pending at all devices, and there alone."""
    await write(fronted)
    if fronted.containers is not None:
        fronted.containers.stop()
    with cluster.databases_down(*cluster.container_devices()):
        before = fronted.answered
        assert (await fronted.proxy.call("PUT", "c/pending", TYPE, b"x")).status == 201
        await until(lambda: fronted.answered > before)
    assert "pending" not in await listed(fronted)
    digest = cluster.key(Path(ACCOUNT, CONTAINER, "pending")).digest
    for device in cluster.primaries(Path(ACCOUNT, CONTAINER, "pending")):
        assert digest in {key.digest for key, _, _ in native(cluster, device).pending_updates(0.0, 1000)}


async def test_the_proxy_dies_before_the_row_is_sent(with_pythons_rows: FrontedProxy, cluster: MemoryCluster) -> None:
    """Nobody is told that it is stored, the update is pending at all devices, and their shares name every replica."""
    fronted = with_pythons_rows
    await fronted.grant_writes()
    await write(fronted)
    await fronted.grant_writes()  # What was written may have withdrawn it.
    running = fronted.running
    running.row_batches.take = lambda: None  # type: ignore[method-assign] # as if it ran no more
    path = Path(ACCOUNT, CONTAINER, "dead")
    request = asyncio.ensure_future(fronted.proxy.call("PUT", "c/dead", TYPE, b"x"))
    await until(lambda: cluster.holders(path) == {device.host for device in cluster.primaries(path)})
    assert not request.done()
    shares = [
        bits
        for device in cluster.primaries(path)
        for key, _, bits in native(cluster, device).pending_updates(0.0, 1000)
        if key.digest == cluster.key(path).digest
    ]
    assert len(shares) == 3
    assert shares[0] | shares[1] | shares[2] == 0b111
    del running.row_batches.take
    running.row_batches.take()
    assert (await request).status == 201


async def test_acknowledged_when_all_have_it(
    with_pythons_rows: FrontedProxy, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, list[tuple[bytes, int]]] = {}

    async def acknowledge(device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        told.setdefault(device.address, []).extend((key.digest, timestamp.value) for key, timestamp in written)

    monkeypatch.setattr(cluster.transport, "acknowledge", acknowledge)
    await write(with_pythons_rows, b"acknowledged")
    path = Path(ACCOUNT, CONTAINER, "o")
    info = cluster.info(cluster.primaries(path)[0], path)
    assert info is not None
    version = cluster.key(path).digest, info.timestamp.value
    await until(lambda: all(version in told.get(device.address, []) for device in cluster.primaries(path)))


async def test_devices_that_refuse(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Python's write then finds others, or says why there are none, or is newer than what most have."""
    await write(fronted)
    path = Path(ACCOUNT, CONTAINER, "full")
    ahead = fronted.proxy.api.clock.next().value + (30 * 100_000 << 14)
    for device in cluster.primaries(path)[1:]:
        with contextlib.suppress(NotFound):  # Of what it has deleted it says that it was not there.
            native(cluster, device).delete(cluster.key(path), Timestamp(ahead), str(path))
    assert (await fronted.proxy.call("PUT", "c/full", TYPE, b"x")).status == 201
    assert (await fronted.proxy.call("GET", "c/full")).body == b"x"
    assert "full" in await listed(fronted)


@pytest.mark.parametrize(
    "lengths",
    [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Content-Length: -1",
        "Content-Length: 99999999999999999999999",
        "Content-Length: 3,4",
        "Content-Length: 0x3",
    ],
)
async def test_two_readings_of_a_length(fronted: FrontedProxy, lengths: str) -> None:
    """None of them is the front's: nothing is stored by it, and what stands behind the body is no request of its."""
    await write(fronted)
    reader, writer = await fronted.connect()
    token = fronted.proxy.token["X-Auth-Token"]
    head = f"PUT /v1/{ACCOUNT}/c/smuggled HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\n{lengths}\r\n\r\n"
    writer.write(head.encode() + b"abc")
    async with asyncio.timeout(PATIENCE_S):
        status = (await reader.readuntil(b"\r\n")).split()[1]
    writer.close()
    assert status in {b"400", b"413", b"422"}
    assert "smuggled" not in await listed(fronted)


async def test_a_process_that_ends_lists_what_it_has_stored(
    cluster: MemoryCluster, tmp_path: Directory, certificate: Certificates | None
) -> None:
    async with fronted_proxy(cluster, tmp_path, certificate=certificate) as ending:
        await write(ending)
        requests = [
            asyncio.ensure_future(ending.proxy.call("PUT", f"c/last{number}", TYPE, b"x")) for number in range(20)
        ]
        running = ending.running
        await until(lambda: bool(running.front.storing()) or all(one.done() for one in requests))
        await ending.front.leave()
        assert not running.front.storing()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        stored = [n for n, answer in enumerate(answers) if isinstance(answer, Answer) and answer.status == 201]
    # A replica that was too slow for its answer has the rows later.
    names = {name for device in cluster.container_devices() for name in await cluster.listed(device)}
    assert {f"last{number}" for number in stored} <= names
