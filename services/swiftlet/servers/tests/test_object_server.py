"""What the object server does over HTTP with peers that misbehave, with slow disks, and with the doubts of devices."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
import pytest
from aiohttp import web
from swiftlet_native import Doubts

from swiftlet.boundaries.objects import Verdict
from swiftlet.context import request_id
from swiftlet.errors import DeviceFailed, NodeBusy, NodeError, NodeTimeout, NodeUnreachable, NotFound, Unavailable
from swiftlet.ring import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.objects.object_server import ObjectServer, ObjectServerSettings, add_object_routes
from swiftlet.servers.shared.sync_answers import PlacedBy, nowhere, placed_by
from swiftlet.store import sethash
from swiftlet.sync.session.messages import (
    UNKNOWN_RING,
    AskSuffixes,
    Compare,
    Equal,
    Roots,
    Suffixes,
    decode_reply,
    encode,
)
from swiftlet.sync.session.roots import over
from swiftlet.testing.storage.object_conformance import RowRecorder
from swiftlet.testing.store.conformance import NAME, key_of, put
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp
from swiftlet.transport import sync_wire
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.node_streams import NOT_OPENED
from swiftlet.transport.object_messages import judge_path
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import MAX_JSON_BODY

KEY = ClusterKey(b"the cluster's key")


@dataclass
class Served:
    """A running server and what is around it."""

    store: MemoryStore
    doubts: Doubts
    server: ObjectServer
    device: Device
    devices: HttpDevices


@asynccontextmanager
async def serving(
    settings: ObjectServerSettings | None = None,
    key: ClusterKey | None = None,
    client_key: ClusterKey | None = None,
    placed: PlacedBy = nowhere,
) -> AsyncIterator[Served]:
    store, doubts = MemoryStore(), Doubts()
    server = ObjectServer({"d1": store}, RowRecorder(), settings, key, placed={"d1": placed}, doubts={"d1": doubts})
    app = web.Application(client_max_size=0)
    add_object_routes(app, server)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    device = Device(0, "one", "127.0.0.1", runner.addresses[0][1], "d1", "r1", "z1", "n1", 1.0)
    devices = HttpDevices(NodeClient(HttpSettings(connect_timeout_s=30.0), client_key or key))
    try:
        yield Served(store, doubts, server, device, devices)
    finally:
        await devices.close()
        await runner.cleanup()


async def test_old_tombstones_are_forgotten_and_young_ones_are_not() -> None:
    store, now_s = MemoryStore(), [1_000_000.0]
    settings = ObjectServerSettings(reclaim_age_s=7200.0)
    server = ObjectServer({"d1": store}, RowRecorder(), settings, now_s=lambda: now_s[0])
    for number, moment_s in ((1, 989_000.0), (2, 999_000.0)):
        with pytest.raises(NotFound):
            store.delete(key_of(number), Timestamp.at(moment_s), NAME)
    device = server.devices["d1"]
    try:
        assert await server.reclaim(device) == 1
        assert len(list(store.keys(0, key_of(2).partition))) == 1
        now_s[0] += 10_000.0
        assert await server.reclaim(device) == 1
        assert await server.reclaim(device) == 0
    finally:
        device.pool.close()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of other parties set no event
            await asyncio.sleep(0.005)


async def test_a_device_is_told_what_it_missed_and_what_is_proved() -> None:
    async with serving(key=KEY) as served:
        assert await served.devices.judge(served.device, Verdict()) is None
        told = await served.devices.judge(served.device, Verdict(doubted=[(0, 7), (1, 9)]))
        assert told is not None
        assert served.doubts.has(0, 7)
        assert served.doubts.has(1, 9)
        left = await served.devices.judge(served.device, Verdict(proved=[(0, 7)], epoch=told.epoch))
        assert left is not None
        assert not served.doubts.has(0, 7)
        assert served.doubts.has(1, 9)


async def told(device: Device, body: bytes, signature: str = "") -> int:
    """Tell a device something over HTTP by hand; the status."""
    url = f"http://127.0.0.1:{device.port}{judge_path(device.device)}"
    headers = {"X-Swiftlet-Signature": signature} if signature else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, data=body) as response:
        return response.status


WHOLE = b'{"doubted":[[0,7]],"proved":[],"epoch":0,"whole":false}'


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b"[]",
        b"{}",
        b"[" * 50_000,
        WHOLE.replace(b"[0,7]", b"[0,-7]"),
        WHOLE.replace(b"[0,7]", b"7"),
        WHOLE.replace(b"[0,7]", b",".join([b"[0,7]"] * 2049)),
        WHOLE + b" " * MAX_JSON_BODY,
    ],
)
async def test_garbage(body: bytes) -> None:
    """400, and the device believes nothing of it."""
    async with serving() as served:
        assert await told(served.device, body) == 400
        assert served.doubts.pending() is None
        assert await told(served.device, WHOLE) == 200


async def test_signatures() -> None:
    """Without the right key, at the right time, a device is told nothing."""
    wrong = ClusterKey(b"another key")
    late = ClusterKey(b"the cluster's key", now_s=lambda: time.time() - 3600)
    for client_key in (wrong, late):
        async with serving(key=KEY, client_key=client_key) as served:
            with pytest.raises(NodeError, match="Unauthorized"):
                await served.devices.judge(served.device, Verdict(doubted=[(0, 7)]))
            assert await told(served.device, WHOLE) == 401
            assert served.doubts.pending() is None


async def test_a_signature_covers_what_is_told() -> None:
    """An overheard signature does not fit another message."""
    async with serving(key=KEY) as served:
        target = judge_path("d1")
        signature = KEY.sign("POST", f"127.0.0.1:{served.device.port}", target, WHOLE)
        assert await told(served.device, WHOLE.replace(b"7", b"8"), signature) == 401
        assert await told(served.device, WHOLE, signature) == 200


async def test_objects_are_not_served_over_http() -> None:
    async with serving() as served, aiohttp.ClientSession() as session:
        put(served.store, key_of(1), 1, b"data")
        url = f"http://127.0.0.1:{served.device.port}/v1/objects/d1/0/7/{key_of(1).hex}"
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            async with session.request(method, url) as response:
                assert response.status == 404


async def test_a_question_of_a_session_is_answered_if_it_is_signed_short_and_makes_sense() -> None:
    def compare(value: bytes) -> bytes:
        return encode(Compare(0, 7, (3, 4), value))

    async with serving(key=KEY) as served:
        ask = served.devices.ask
        put(served.store, key_of(1), 1, b"data")
        roots = tuple(sethash.root(served.store.suffix_hashes(0, partition)) for partition in (3, 4))
        assert decode_reply(await ask(served.device, compare(b"\xff" * 16))) == Roots(0, UNKNOWN_RING, roots)
        assert decode_reply(await ask(served.device, compare(over(roots)))) == Equal(0, UNKNOWN_RING)
        for bad in (b"", b"\x02" + compare(over(roots))[1:], encode(Equal(0, 1))):
            with pytest.raises(NodeError):
                await ask(served.device, bad)
        with pytest.raises(NodeError, match="1048577 bytes are more than a request's 1048576"):
            await ask(served.device, bytes(sync_wire.MAX_PAYLOAD + 1))
        with pytest.raises(DeviceFailed, match="d9"):
            await ask(replace(served.device, device="d9"), compare(over(roots)))
    async with serving(key=KEY, client_key=ClusterKey(b"another key")) as served:
        with pytest.raises(NodeError, match="401"):
            await served.devices.ask(served.device, compare(over(roots)))


async def test_a_server_without_streams_has_failed_and_answers_other_requests() -> None:
    server = ObjectServer({"d1": MemoryStore()}, RowRecorder(), key=KEY)
    app = web.Application(client_max_size=0)
    app.add_routes(server.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    device = Device(0, "one", "127.0.0.1", runner.addresses[0][1], "d1", "r1", "z1", "n1", 1.0)
    devices = HttpDevices(NodeClient(HttpSettings(connect_timeout_s=30.0), KEY))
    counter = NOT_OPENED.labels(sync_wire.PATH)
    before = counter._value.get()
    try:
        empty = over([sethash.root({})] * 2)
        for asking in (
            devices.ask(device, encode(Compare(0, 7, (3, 4), empty))),
            devices.read_copies(device, b"\0"),
            devices.take_copies(device, b"\0"),
        ):
            with pytest.raises(NodeError, match="refused a WebSocket at /v1/sync with 404"):
                await asking
        assert counter._value.get() == before + 3
        assert await devices.judge(device, Verdict()) is None
    finally:
        await devices.close()
        await runner.cleanup()


async def test_a_server_says_by_its_newest_ring_whether_it_is_a_primary() -> None:
    rings: list[Ring] = []

    def newest(policy: int) -> Ring:
        if policy or not rings:
            raise Unavailable("no ring yet")
        return rings[-1]

    looked_at: list[Device] = []

    def local(device: Device) -> bool:
        looked_at.append(device)
        return device.host == "h1"

    async def says(policy: int = 0) -> tuple[int, list[bool]]:
        reply = decode_reply(await asked.devices.ask(asked.device, encode(AskSuffixes(policy, 7, (0, 1, 2)))))
        assert isinstance(reply, Suffixes)
        return reply.ring_version, [found.primary for found in reply.found]

    devices = [Device(n, f"n{n}", f"h{n}", 1, "d1", "r", f"z{n}", f"n{n}", 1.0) for n in range(3)]
    async with serving(placed=placed_by(newest, "d1", local)) as asked:
        assert await says() == (UNKNOWN_RING, [False] * 3)
        rings.append(Ring(4, 1, 2, devices, [array("H", [0, 1]), array("H", [1, 2])]))
        assert await says() == (4, [True, True, False]), "the ring has two partitions only"
        looked_at.clear()
        assert await says() == (4, [True, True, False])
        assert not looked_at, "places are looked up once for a ring"
        assert await says(1) == (UNKNOWN_RING, [False] * 3)
        rings.append(Ring(5, 1, 2, devices, [array("H", [0, 1]), array("H", [2, 2])]))
        assert await says() == (5, [False, True, False])
        rings.append(Ring(6, 1, 1, [devices[0], None, devices[2]], [array("H", [0, 2])]))
        assert await says() == (UNKNOWN_RING, [False] * 3), "this device is in no ring"


async def test_unknown_device() -> None:
    async with serving() as served:
        with pytest.raises(DeviceFailed, match="not served here"):
            await served.devices.judge(replace(served.device, device="d2"), Verdict())


async def test_request_id_travels() -> None:
    """Every request carries the id of the one it is made for."""
    heads: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        device = Device(0, "x", "127.0.0.1", server.sockets[0].getsockname()[1], "d", "r", "z", "n", 1.0)
        devices = HttpDevices(NodeClient())
        request_id.set("tx-of-this-test")
        with pytest.raises(NodeUnreachable):
            await devices.judge(device, Verdict())
        await devices.close()
    assert len(heads) == 1
    assert b"\r\nX-Trans-Id: tx-of-this-test\r\n" in heads[0]


def hold(release: threading.Event) -> None:
    release.wait(30)


async def test_hung_disk_sheds_load() -> None:
    """A device that answers nothing holds a bounded number of messages; further ones hear so at once."""
    async with serving(ObjectServerSettings(max_requests_per_device=2, threads_per_device=1)) as served:
        question = encode(AskSuffixes(0, 7, (0, 1)))
        release = threading.Event()
        served.store.faults.sleep = lambda _: hold(release)
        served.store.faults.delay_s = 1
        pool, waiting = served.server.devices["d1"].pool, []
        for _ in range(2):
            waiting.append(asyncio.create_task(served.devices.ask(served.device, question)))
            await until(lambda: pool.requests == len(waiting))
        with pytest.raises(NodeBusy):
            await served.devices.ask(served.device, question)
        with pytest.raises(NodeBusy):
            await served.devices.judge(served.device, Verdict())
        served.store.faults.delay_s = 0
        release.set()
        assert all(isinstance(decode_reply(answer), Suffixes) for answer in await asyncio.gather(*waiting))


async def test_nobody_there() -> None:
    devices = HttpDevices(NodeClient())
    with pytest.raises(NodeUnreachable):
        await devices.judge(Device(0, "x", "127.0.0.1", 1, "d", "r", "z", "n", 1.0), Verdict())
    await devices.close()


async def test_silent_node() -> None:
    """A node that accepts and never answers costs the answer timeout, not more."""
    ended = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        device = Device(0, "x", "127.0.0.1", server.sockets[0].getsockname()[1], "d", "r", "z", "n", 1.0)
        devices = HttpDevices(NodeClient(HttpSettings(answer_timeout_s=0.1)))
        with pytest.raises(NodeTimeout):
            await devices.judge(device, Verdict())
        await devices.close()
        ended.set()
