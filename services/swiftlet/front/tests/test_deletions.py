"""DELETEs through the front: gone everywhere and off the listing before they are answered, Python's wherever anything
is odd, and never "not found" for an object that was there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.large import put_manifest, put_segments
from swiftlet.api.tests.proxy import Answer
from swiftlet.expiry.tests.support import all_tasks
from swiftlet.front.tests.conftest import EACH_WAY, PATIENCE_S, FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.served import Relay
from swiftlet.front.tests.test_writes import OF_ONE_ANSWER, TYPE, listed, native, write
from swiftlet.main.certificates import Certificates
from swiftlet.model import Kind
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster

pytestmark = EACH_WAY
SILENT_S = (6.0, 3.0)
"""How long a front waits for a device's answer, and for all to have deleted an object, where some keep silent: no other
device takes so long, however busy the machine is.
"""
COLD = {"X-Trans-Id-Extra": "cold"}
"""A header that makes a request Python's and changes nothing."""


def path_of(name: str) -> Path:
    return Path(ACCOUNT, CONTAINER, name)


async def put(fronted: FrontedProxy, name: str, data: bytes = b"data") -> None:
    assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE, data)).status == 201


async def deleted_by_front(fronted: FrontedProxy, name: str) -> Answer:
    """The answer of the front, which has been granted writes."""
    before = await fronted.noted()
    answer = await fronted.proxy.call("DELETE", f"c/{name}")
    assert await fronted.noted() == before + 1
    return answer


async def totals(fronted: FrontedProxy) -> tuple[int, int]:
    headers = (await fronted.proxy.call("HEAD", "c")).headers
    return int(headers["X-Container-Object-Count"]), int(headers["X-Container-Bytes-Used"])


def tombstones(cluster: MemoryCluster, name: str) -> set[tuple[Kind, int]]:
    """What the devices have of an object, once each."""
    path = path_of(name)
    found = [cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)]
    return {(entry.kind, entry.timestamp.value) for entry in found if entry is not None}


async def test_like_pythons(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    await write(fronted)
    before = await totals(fronted)
    await put(fronted, "warm", b"12345")
    await put(fronted, "cold", b"12345")
    await fronted.grant_writes()
    warm = await deleted_by_front(fronted, "warm")
    cold = await fronted.proxy.call("DELETE", "c/cold", COLD)
    shown = [{k: v for k, v in one.headers.items() if k not in OF_ONE_ANSWER} for one in (warm, cold)]
    assert (warm.status, shown[0], warm.body) == (cold.status, shown[1], cold.body) == (204, shown[0], b"")
    assert set(warm.headers) == set(cold.headers)
    for name in ("warm", "cold"):
        [(kind, _)] = tombstones(cluster, name)
        assert kind is Kind.TOMBSTONE
        assert (await fronted.proxy.call("GET", f"c/{name}")).status == 404
    assert not {"warm", "cold"} & set(await listed(fronted))
    assert await totals(fronted) == before


async def test_each_twice(fronted: FrontedProxy) -> None:
    """By the front, and with a header that makes it Python's: the same answers, and the same is left."""
    await write(fronted)
    await fronted.proxy.call("PUT", "c/target", TYPE, b"target")
    entries = await put_segments(fronted.proxy, [b"a" * 10, b"b"])

    async def plain(name: str) -> None:
        await put(fronted, name)

    async def gone(name: str) -> None:
        await put(fronted, name)
        assert (await fronted.proxy.call("DELETE", f"c/{name}", COLD)).status == 204

    async def gone_by_front(name: str) -> None:
        await put(fronted, name)
        assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204

    async def overwritten(name: str) -> None:
        for data in (b"one", b"and another", b"3"):
            await put(fronted, name, data)

    async def back_again(name: str) -> None:
        await gone_by_front(name)
        await put(fronted, name)

    async def posted(name: str) -> None:
        await put(fronted, name)
        assert (await fronted.proxy.call("POST", f"c/{name}", {"X-Object-Meta-A": "b"})).status == 202

    async def big(name: str) -> None:
        await put(fronted, name, bytes(100_000))

    async def link(name: str) -> None:
        assert (await fronted.proxy.call("PUT", f"c/{name}", {"X-Symlink-Target": "c/target"})).status == 201

    async def manifest(name: str) -> None:
        assert (await put_manifest(fronted.proxy, entries, name)).status == 201

    async def nothing(name: str) -> None:
        return

    there = (plain, overwritten, back_again, posted, big, link, manifest)
    cases = [(prepare.__name__, prepare, 204) for prepare in there]
    cases += [(prepare.__name__, prepare, 404) for prepare in (nothing, gone, gone_by_front)]
    cases += [(name, plain, 204) for name in ("a%20name/%C3%A4%22%5C%0A", "d.o.t.s..", "a//b/", "%2F")]
    cases += [("%ff", nothing, 412), ("x" * 1025, nothing, 400)]
    for name, prepare, status in cases:
        found = []
        for headers in ({}, COLD):
            await prepare(name)
            answer = await fronted.proxy.call("DELETE", f"c/{name}", headers)
            shown = {k: v for k, v in answer.headers.items() if k not in OF_ONE_ANSWER}
            if status in {204, 404}:
                assert (await fronted.proxy.call("GET", f"c/{name}", query="x=cold")).status == 404
            found.append((answer.status, shown, answer.body, set(await listed(fronted)), await totals(fronted)))
        assert found[0] == found[1], name
        assert found[0][0] == status, name
    assert (await fronted.proxy.call("GET", "c/target")).body == b"target"


async def test_many_in_a_row_and_at_once(fronted: FrontedProxy) -> None:
    await write(fronted)
    before, answered = await totals(fronted), fronted.answered

    async def one(number: int) -> None:
        name = f"c/many{number}"
        for turn in range(5):
            assert (await fronted.proxy.call("PUT", name, TYPE, b"%d" % turn)).status == 201
            assert (await fronted.proxy.call("DELETE", name)).status == 204
            assert (await fronted.proxy.call("GET", name)).status == 404
            assert (await fronted.proxy.call("DELETE", name)).status == 404

    await one(0)
    await asyncio.gather(*(one(number) for number in range(20)))
    assert await totals(fronted) == before
    assert fronted.answered > answered
    for number in range(50):
        await put(fronted, f"all{number}")
    answers = await asyncio.gather(*(fronted.proxy.call("DELETE", f"c/all{number}") for number in range(50)))
    assert {answer.status for answer in answers} == {204}
    assert await totals(fronted) == before


async def test_one_object_from_many_clients(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """One of them has deleted it at least, and it is gone."""
    await write(fronted)
    for turn in range(5):
        await put(fronted, "shared", b"%d" % turn)
        answers = await asyncio.gather(*(fronted.proxy.call("DELETE", "c/shared") for _ in range(10)))
        assert {answer.status for answer in answers} <= {204, 404}
        assert 204 in {answer.status for answer in answers}
        assert (await fronted.proxy.call("GET", "c/shared")).status == 404
        assert "shared" not in await listed(fronted)
        assert len(tombstones(cluster, "shared")) == 1


async def test_a_connection_that_is_kept(fronted: FrontedProxy) -> None:
    await write(fronted)
    for number in range(12):
        await put(fronted, f"kept{number}")
    token = fronted.proxy.token["X-Auth-Token"]
    reader, writer = await fronted.connect()

    def request(method: str, name: str, more: str = "") -> bytes:
        return f"{method} /v1/{ACCOUNT}/c/{name} HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\n{more}\r\n".encode()

    async def status() -> int:
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(length[0].split()[1]))
            return int(head.split()[1])

    before = fronted.answered
    for more in ("", "Content-Length: 0\r\n"):
        name = f"kept{len(more)}"
        await put(fronted, name)
        for expected in (204, 404, 404):
            writer.write(request("DELETE", name, more))
            assert await status() == expected
    writer.close()
    await until(lambda: fronted.answered > before)
    reader, writer = await fronted.connect()
    before = fronted.answered
    writer.write(b"".join(request("DELETE", f"kept{number}") for number in range(1, 11)))
    assert [await status() for _ in range(10)] == [204] * 10
    writer.write(request("PUT", "kept1", "Content-Length: 1\r\nContent-Type: a/b\r\n") + b"x")
    writer.write(
        request("DELETE", "kept1") + request("GET", "kept1") + request("DELETE", "kept11", "Connection: close\r\n")
    )
    assert [await status() for _ in range(4)] == [201, 204, 404, 204]
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
    await until(lambda: fronted.answered > before)
    assert not {name for name in await listed(fronted) if name.startswith("kept")}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": '"other"'}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-Unmodified-Since": "Thu, 01 Jan 2015 00:00:00 GMT"}, 412),
        ({"X-If-Delete-At": "1"}, 412),
        ({"X-If-Delete-At": "soon"}, 400),
    ],
)
async def test_conditions_are_pythons(fronted: FrontedProxy, headers: dict[str, str], status: int) -> None:
    await write(fronted, b"stays")
    before = await fronted.noted()
    assert (await fronted.proxy.call("DELETE", "c/o", headers)).status == status
    assert await fronted.noted() == before
    assert (await fronted.proxy.call("GET", "c/o")).body == b"stays"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Versions-Enabled": "true"},
        {"X-Versions-Location": "archive"},
        {"X-History-Location": "archive"},
    ],
)
async def test_containers_with_more_to_do(fronted: FrontedProxy, headers: dict[str, str]) -> None:
    await fronted.proxy.call("PUT", "archive")
    await write(fronted)
    for number in range(3):
        await put(fronted, f"more{number}")
    assert (await fronted.proxy.call("POST", "c", headers)).status == 204
    for number in range(3):
        before = await fronted.noted()
        assert (await fronted.proxy.call("DELETE", f"c/more{number}")).status == 204
        assert await fronted.noted() == before
        await asyncio.sleep(0.02)


async def test_containers_with_objects_that_expire(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Its task goes with the object, which only Python sees to; what does not expire is deleted as anywhere."""
    assert (await fronted.proxy.call("PUT", "c/o", {**TYPE, "X-Delete-At": "4000000000"}, b"x")).status == 201
    assert len(await all_tasks(cluster)) == 1
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await put(fronted, "plain")
            before = await fronted.noted()
            assert (await fronted.proxy.call("DELETE", "c/plain")).status == 204
            if await fronted.noted() > before:
                break
    assert "plain" not in await listed(fronted)
    before = await fronted.noted()
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 204
    assert await fronted.noted() == before
    assert not await all_tasks(cluster)
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 404


async def test_rights(fronted: FrontedProxy, cluster: MemoryCluster, tmp_path: Directory) -> None:
    await write(fronted)
    sue, rita = fronted.proxy.token_of("other:sue"), fronted.proxy.token_of("test:rita")
    for who in (sue, rita):
        assert (await fronted.proxy.call("DELETE", "c/o", who)).status == 403
    assert (await fronted.proxy.anonymous("DELETE", "c/o")).status == 401
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Write": "other:sue"})).status == 204
    for _ in range(3):
        await put(fronted, "hers")
        assert (await fronted.proxy.call("DELETE", "c/hers", sue)).status == 204
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Write": ""})).status == 204
    assert (await fronted.proxy.call("DELETE", "c/o", sue)).status == 403
    assert (await fronted.proxy.call("GET", "c/o")).body == b"data"


async def test_tokens_revoked_meanwhile(fronted: FrontedProxy) -> None:
    await write(fronted)
    headers = {**fronted.proxy.token, "X-Subject-Token": fronted.proxy.token["X-Auth-Token"]}
    async with fronted.proxy.client.delete("/v3/auth/tokens", headers=headers) as response:
        assert response.status == 204
    assert (await fronted.proxy.call("DELETE", "c/o")).status == 401


async def test_container_servers_are_down(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """The row stays pending at all devices."""
    await write(fronted)
    await put(fronted, "pending")
    await fronted.grant_writes()
    if fronted.containers is not None:
        fronted.containers.stop()
    with cluster.databases_down(*cluster.container_devices()):
        assert (await deleted_by_front(fronted, "pending")).status == 204
    assert "pending" in await listed(fronted)
    digest = cluster.key(path_of("pending")).digest
    for device in cluster.primaries(path_of("pending")):
        assert digest in {key.digest for key, _, _ in native(cluster, device).pending_updates(0.0, 1000)}


async def test_the_proxy_dies_before_the_row_is_sent(with_pythons_rows: FrontedProxy, cluster: MemoryCluster) -> None:
    """Nobody is told that it is gone, the update is pending at all devices, and their shares name every replica."""
    fronted = with_pythons_rows
    await write(fronted)
    await fronted.grant_writes()
    await put(fronted, "dead")
    await fronted.grant_writes()  # What was written may have withdrawn it.
    running = fronted.running
    running.row_batches.take = lambda: None  # type: ignore[method-assign] # as if it ran no more
    path = path_of("dead")
    request = asyncio.ensure_future(fronted.proxy.call("DELETE", "c/dead"))
    await until(lambda: not cluster.holders(path))
    assert not request.done()
    [(_, deleted)] = tombstones(cluster, "dead")
    shares = [
        bits
        for device in cluster.primaries(path)
        for key, timestamp, bits in native(cluster, device).pending_updates(0.0, 1000)
        if key.digest == cluster.key(path).digest and timestamp.value == deleted
    ]
    assert len(shares) == 3
    assert shares[0] | shares[1] | shares[2] == 0b111
    del running.row_batches.take
    running.row_batches.take()
    assert (await request).status == 204
    assert "dead" not in await listed(fronted)


async def test_newer_than_what_is_there(fronted: FrontedProxy) -> None:
    """The clock of another process is ahead: what it has written is deleted all the same."""
    await write(fronted)
    fronted.proxy.clock.now = 4_000_000_000.0
    assert (await fronted.proxy.call("PUT", "c/ahead", TYPE, b"python", query="x=y")).status == 201
    assert (await fronted.proxy.call("DELETE", "c/ahead")).status == 204
    assert (await fronted.proxy.call("GET", "c/ahead")).status == 404


@pytest.mark.parametrize("having", [1, 2])
async def test_replicas_that_lack_it(fronted: FrontedProxy, cluster: MemoryCluster, having: int) -> None:
    """As for Python it existed if any of them had it."""
    await write(fronted)
    for name, headers in (("some", {}), ("cold", COLD)):
        for device in cluster.primaries(path_of(name))[:having]:
            cluster.place(device, 5, path=path_of(name))
        assert (await fronted.proxy.call("DELETE", f"c/{name}", headers)).status == 204
        [(kind, _)] = tombstones(cluster, name)
        assert kind is Kind.TOMBSTONE


@pytest.mark.parametrize("what", ["an object", "a deletion"])
async def test_a_device_that_refuses(fronted: FrontedProxy, cluster: MemoryCluster, what: str) -> None:
    """The others have deleted it by then, and there is none for Python; yet there was one."""
    await write(fronted)
    for turn, device in enumerate(cluster.primaries(path_of("full"))):
        ahead = (fronted.proxy.api.clock.next().value >> 14) / 100_000 + 30 * (turn + 1)
        name = f"full{turn}"
        await put(fronted, name)
        if what == "an object":
            cluster.place(device, ahead, path=path_of(name))
        else:
            cluster.place_tombstone(device, ahead, path=path_of(name))
        assert (await fronted.proxy.call("DELETE", f"c/{name}")).status == 204
        assert name not in await listed(fronted)
        # As after Python's, what one device has from the future stays.
        expected = 404 if what == "a deletion" else 200
        assert (await fronted.proxy.call("GET", f"c/{name}", {"X-Newest": "true"})).status == expected


@pytest.mark.parametrize("stopped", [1, 2])
async def test_devices_that_are_gone(fronted: FrontedProxy, cluster: MemoryCluster, stopped: int) -> None:
    await write(fronted)
    for number in range(5):
        await put(fronted, f"gone{number}")
    for device in cluster.devices[:stopped]:
        fronted.devices.stop(device, cluster)
    for number in range(5):
        assert (await fronted.proxy.call("DELETE", f"c/gone{number}")).status == 204
        assert (await fronted.proxy.call("DELETE", f"c/gone{number}")).status == 404
    assert not {f"gone{number}" for number in range(5)} & set(await listed(fronted))


@pytest.fixture
async def relayed(
    cluster: MemoryCluster, tmp_path: Directory, certificate: Certificates | None
) -> AsyncIterator[tuple[FrontedProxy, list[Relay]]]:
    """A front that speaks to its devices through relays."""
    async with contextlib.AsyncExitStack() as stack:
        fronted = await stack.enter_async_context(
            fronted_proxy(cluster, tmp_path, timeouts_s=SILENT_S, certificate=certificate)
        )
        relays = [await stack.enter_async_context(Relay.open(fronted.devices, device)) for device in cluster.devices]
        await write(fronted)
        await put(fronted, "there")
        yield fronted, relays


async def begun_by_front(fronted: FrontedProxy, silent: Sequence[Relay], *names: str) -> list[int]:
    """Delete objects over one connection while devices are silent, the first one surely through the front."""
    running, token, prefix = fronted.running, fronted.proxy.token["X-Auth-Token"], f"/v1/{ACCOUNT}/{CONTAINER}/"
    await fronted.grant_writes()
    for relay in silent:
        relay.mute()
    reader, writer = await fronted.connect()
    for name in names:
        writer.write(f"DELETE {prefix}{name} HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\n\r\n".encode())
    await until(lambda: running.front.storing() > 0)
    before = fronted.answered
    async with asyncio.timeout(PATIENCE_S):
        found = []
        for _ in names:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            found.append(int(head.split()[1]))
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
    writer.close()
    assert fronted.answered == before
    return found


async def test_a_device_that_deletes_without_a_word(
    relayed: tuple[FrontedProxy, list[Relay]], cluster: MemoryCluster
) -> None:
    """The object is gone when Python repeats the request, yet there was one: of the next request that says nothing."""
    fronted, relays = relayed
    assert await begun_by_front(fronted, relays[:1], "there", "missing") == [204, 404]
    assert not cluster.holders(path_of("there"))
    assert "there" not in await listed(fronted)


async def test_all_devices_delete_without_a_word(
    relayed: tuple[FrontedProxy, list[Relay]], cluster: MemoryCluster
) -> None:
    fronted, relays = relayed
    assert await begun_by_front(fronted, relays, "there", "there") == [204, 404]
    assert not cluster.holders(path_of("there"))
    assert "there" not in await listed(fronted)


@pytest.mark.parametrize(("silent", "status"), [(1, 404), (3, 204)])
async def test_nothing_to_delete_and_devices_that_are_silent(
    relayed: tuple[FrontedProxy, list[Relay]], silent: int, status: int
) -> None:
    """What most devices say counts, as in Python; where they say nothing there may have been an object."""
    fronted, relays = relayed
    assert await begun_by_front(fronted, relays[:silent], "missing") == [status]


async def test_a_process_that_ends_lists_what_it_has_deleted(
    cluster: MemoryCluster, tmp_path: Directory, certificate: Certificates | None
) -> None:
    async with fronted_proxy(cluster, tmp_path, certificate=certificate) as ending:
        await write(ending)
        names = [f"last{number}" for number in range(20)]
        for name in names:
            await put(ending, name)
        requests = [asyncio.ensure_future(ending.proxy.call("DELETE", f"c/{name}")) for name in names]
        running = ending.running
        await until(lambda: bool(running.front.storing()) or all(one.done() for one in requests))
        await ending.front.leave()
        assert not running.front.storing()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        gone = {name for name, answer in zip(names, answers, strict=True) if getattr(answer, "status", 0) == 204}
    # A replica that was too slow for its answer has the rows later.
    for name in gone:
        assert any([name not in await cluster.listed(device) for device in cluster.container_devices()])
