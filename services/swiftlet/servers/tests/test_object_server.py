"""What the object server does with peers that misbehave, slow disks and missing containers."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from swiftlet.boundaries.objects import UpdateOutcome
from swiftlet.context import request_id
from swiftlet.errors import (
    ChecksumMismatch,
    DeviceFailed,
    NodeBusy,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotFound,
    Unavailable,
)
from swiftlet.model import ObjectKey, PostRecord, PutFooter
from swiftlet.ring import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.objects.object_server import ObjectServer, ObjectServerSettings, add_object_routes
from swiftlet.servers.objects.outbox import Outbox
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
from swiftlet.testing.storage.object_conformance import ROW, RowRecorder, drain, record
from swiftlet.testing.store.conformance import NAME, at, footer_of, key_of, some_bytes
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp
from swiftlet.transport import sync_wire
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.http_objects import HttpObjectTransport
from swiftlet.transport.node_streams import NOT_OPENED
from swiftlet.transport.object_messages import footer_json, object_path, put_json
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import END_OF_DATA, MAX_DATA_FRAME, frame, json_bytes, length_prefix

KEY = ClusterKey(b"the cluster's key")


@dataclass
class Served:
    """A running server and what is around it."""

    store: MemoryStore
    rows: RowRecorder
    outbox: Outbox
    server: ObjectServer
    app: web.Application
    device: Device
    transport: HttpObjectTransport


@asynccontextmanager
async def serving(
    directory: Path,
    settings: ObjectServerSettings | None = None,
    key: ClusterKey | None = None,
    client: HttpSettings | None = None,
    client_key: ClusterKey | None = None,
    placed: PlacedBy = nowhere,
) -> AsyncIterator[Served]:
    store, rows, outbox = MemoryStore(), RowRecorder(), Outbox(directory / "outbox", limit=3)
    server = ObjectServer({"d1": store}, {"d1": outbox}, rows, settings, key, placed={"d1": placed})
    app = web.Application(client_max_size=0)
    add_object_routes(app, server)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    device = Device(0, "one", "127.0.0.1", runner.addresses[0][1], "d1", "r1", "z1", "n1", 1.0)
    transport = HttpObjectTransport(client or HttpSettings(connect_timeout_s=30.0), client_key or key)
    try:
        yield Served(store, rows, outbox, server, app, device, transport)
    finally:
        await transport.close()
        await runner.cleanup()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, ObjectServerSettings(idle_timeout_s=0.3, outbox_interval_s=0.02)) as served:
        yield served


async def test_old_tombstones_are_forgotten_and_young_ones_are_not(tmp_path: Path) -> None:
    store, now_s = MemoryStore(), [1_000_000.0]
    outboxes = {"d1": Outbox(tmp_path / "outbox")}
    settings = ObjectServerSettings(reclaim_age_s=7200.0)
    server = ObjectServer({"d1": store}, outboxes, RowRecorder(), settings, now_s=lambda: now_s[0])
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


def hold(release: threading.Event) -> None:
    release.wait(30)


async def raw_put(device: Device, body: bytes, length: int | None = None, query: str = "") -> tuple[int, bytes]:
    """Send bytes as a PUT; the status and all that follows, or (0, b"") when the server hung up."""
    reader, writer = await asyncio.open_connection(device.host, device.port)
    target = object_path("d1", key_of(1)) + query
    head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length or len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    if length is not None:
        writer.write_eof()
    try:
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    writer.close()
    return (int(answer.split()[1]) if answer else 0), answer


def whole_body(data: bytes = b"data", moment: float = 1) -> bytes:
    head = frame(json_bytes(put_json(record(moment), len(data), None)))
    return head + frame(data) + END_OF_DATA + frame(json_bytes(footer_json(footer_of(data))))


async def test_truncated_put_leaves_nothing(served: Served) -> None:
    """Wherever the connection ends: nothing is stored, the server lives on."""
    body = whole_body()
    for query in ("", "?stream=1"):
        for cut in range(0, len(body), 7):
            status, answer = await raw_put(served.device, body[:cut], len(body), query)
            assert status in (0, 400) or (status == 200 and b"WireError" in answer)
    assert served.store.policies() == []
    assert (await raw_put(served.device, body))[0] == 200
    assert served.store.stat(key_of(1)).size == 4


HEADER = frame(json_bytes(put_json(record(1), 4, None)))
FOOTER = frame(json_bytes(footer_json(footer_of(b"data"))))


@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b"\xff" * 100,
        frame(b"not json") + FOOTER,
        frame(b"[]") + END_OF_DATA + FOOTER,
        frame(b"{}") + END_OF_DATA + FOOTER,
        frame(b"[" * 50_000) + END_OF_DATA + FOOTER,
        frame(json_bytes(put_json(record(1), 4, None) | {"timestamp": -1})) + frame(b"data") + END_OF_DATA + FOOTER,
        frame(json_bytes(put_json(record(1), 4, None) | {"metadata": {"a": 1}}))
        + frame(b"data")
        + END_OF_DATA
        + FOOTER,
        frame(json_bytes(put_json(record(1), 4, ROW) | {"name": "/other/c/o"})) + frame(b"data") + END_OF_DATA + FOOTER,
        length_prefix(64 * 1024 + 1) + b"x" * (64 * 1024 + 1),
        HEADER + length_prefix(MAX_DATA_FRAME + 1) + b"data",
        HEADER + frame(b"data") + FOOTER,
        HEADER + frame(b"data") + END_OF_DATA + frame(b"x" * 2000),
        HEADER + frame(b"data") + END_OF_DATA + FOOTER + b"more",
    ],
)
async def test_garbage(served: Served, body: bytes) -> None:
    """400 and nothing stored."""
    assert (await raw_put(served.device, body))[0] == 400
    status, answer = await raw_put(served.device, body, query="?stream=1")
    assert status == 400 or (status == 200 and b"WireError" in answer)
    assert served.store.policies() == []


@pytest.mark.parametrize(
    "path", ["x/7/" + "0" * 32, "0/-1/" + "0" * 32, "0/7/zz", "0/7/" + "G" * 32, "0/99999999999/00"]
)
async def test_strange_paths(served: Served, path: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served.device.port}/v1/objects/d1/{path}") as response,
    ):
        assert response.status == 400


async def test_sender_that_stalls(served: Served) -> None:
    """A sender that keeps its connection open and sends nothing more is given up."""
    reader, writer = await asyncio.open_connection(served.device.host, served.device.port)
    target = object_path("d1", key_of(1))
    writer.write(f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n".encode() + whole_body()[:-20])
    async with asyncio.timeout(5):
        assert b"400" in await reader.readline()
    writer.close()
    assert served.store.policies() == []


async def test_reader_that_stalls(tmp_path: Path) -> None:
    """A reader that takes nothing is cut off, and what it held is let go."""
    async with serving(tmp_path, ObjectServerSettings(idle_timeout_s=0.2)) as served:
        data = some_bytes(16_000_000)
        await served.transport.put(served.device, key_of(1), record(1), data, footer_of(data), None)
        stream = await served.transport.get(served.device, key_of(1))
        pool = served.server.devices["d1"].pool
        assert pool.requests == 1
        await until(lambda: pool.requests == 0)
        with pytest.raises(NodeError):
            await drain(stream)
        await stream.close()


async def test_wrong_footer_through_a_stream_of_many_frames(served: Served) -> None:
    data = some_bytes(3_000_000)
    good = footer_of(data)
    stream = await served.transport.open_put(served.device, key_of(1), record(1), len(data), None)
    await stream.write(data)
    with pytest.raises(ChecksumMismatch):
        await stream.commit(PutFooter(good.size, good.etag, good.xxh3 ^ 1))
    assert served.store.policies() == []


async def test_signatures(tmp_path: Path) -> None:
    """Without the right key nothing is read or written, in either style of PUT."""
    wrong = ClusterKey(b"another key")
    late = ClusterKey(b"the cluster's key", now_s=lambda: time.time() - 3600)
    for client_key in (wrong, late):
        async with serving(tmp_path, key=KEY, client_key=client_key) as served:
            transport, device = served.transport, served.device
            for attempt in (
                transport.put(device, key_of(1), record(1), b"data", footer_of(b"data"), None),
                transport.open_put(device, key_of(1), record(1), 4, None),
                transport.get(device, key_of(1)),
                transport.head(device, key_of(1)),
                transport.delete(device, key_of(1), at(1), NAME, None),
                transport.policies(device),
                transport.entries(device, 0, 7, "001"),
            ):
                with pytest.raises(NodeError, match="Unauthorized"):
                    await attempt
            assert (await raw_put(device, whole_body()))[0] == 401
            assert served.store.policies() == []


async def test_a_question_of_a_session_is_answered_if_it_is_signed_short_and_makes_sense(tmp_path: Path) -> None:
    def compare(value: bytes) -> bytes:
        return encode(Compare(0, 7, (3, 4), value))

    async with serving(tmp_path, key=KEY) as served:
        ask = served.transport.ask
        await served.transport.put(served.device, key_of(1), record(1), b"data", footer_of(b"data"), None)
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
    async with serving(tmp_path, key=KEY, client_key=ClusterKey(b"another key")) as served:
        with pytest.raises(NodeError, match="401"):
            await served.transport.ask(served.device, compare(over(roots)))


async def test_a_server_without_streams_has_failed_and_answers_other_requests(tmp_path: Path) -> None:
    server = ObjectServer({"d1": MemoryStore()}, {"d1": Outbox(tmp_path)}, RowRecorder(), key=KEY)
    app = web.Application(client_max_size=0)
    app.add_routes(server.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    device = Device(0, "one", "127.0.0.1", runner.addresses[0][1], "d1", "r1", "z1", "n1", 1.0)
    transport = HttpObjectTransport(HttpSettings(connect_timeout_s=30.0), KEY)
    counter = NOT_OPENED.labels(sync_wire.PATH)
    before = counter._value.get()
    try:
        empty = over([sethash.root({})] * 2)
        for asking in (
            transport.ask(device, encode(Compare(0, 7, (3, 4), empty))),
            transport.read_copies(device, b"\0"),
            transport.take_copies(device, b"\0"),
        ):
            with pytest.raises(NodeError, match="refused a WebSocket at /v1/sync with 404"):
                await asking
        assert counter._value.get() == before + 3
        assert await transport.policies(device) == []
    finally:
        await transport.close()
        await runner.cleanup()


async def test_a_server_says_by_its_newest_ring_whether_it_is_a_primary(tmp_path: Path) -> None:
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
        reply = decode_reply(await asked.transport.ask(asked.device, encode(AskSuffixes(policy, 7, (0, 1, 2)))))
        assert isinstance(reply, Suffixes)
        return reply.ring_version, [found.primary for found in reply.found]

    devices = [Device(n, f"n{n}", f"h{n}", 1, "d1", "r", f"z{n}", f"n{n}", 1.0) for n in range(3)]
    async with serving(tmp_path, placed=placed_by(newest, "d1", local)) as asked:
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


async def test_signature_covers_the_record(tmp_path: Path) -> None:
    """An overheard signature does not fit another record."""
    async with serving(tmp_path, key=KEY) as served:
        target = object_path("d1", key_of(1))
        header = json_bytes(put_json(record(1), 4, None))
        signature = KEY.sign("PUT", f"127.0.0.1:{served.device.port}", target, header)
        url = f"http://127.0.0.1:{served.device.port}{target}"
        async with aiohttp.ClientSession(headers={"X-Swiftlet-Signature": signature}) as session:
            async with session.put(url, data=whole_body(moment=2)) as response:
                assert response.status == 401
            async with session.put(url, data=whole_body(moment=1)) as response:
                assert response.status == 200


async def test_unknown_device(served: Served) -> None:
    other = Device(1, "two", served.device.host, served.device.port, "d2", "r1", "z1", "n1", 1.0)
    with pytest.raises(DeviceFailed, match="not served here"):
        await served.transport.head(other, key_of(1))


async def test_request_id_travels() -> None:
    """Every request carries the id of the one it is made for."""
    heads: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        device = Device(0, "x", "127.0.0.1", server.sockets[0].getsockname()[1], "d", "r", "z", "n", 1.0)
        transport = HttpObjectTransport()
        request_id.set("tx-of-this-test")
        with pytest.raises(NodeUnreachable):
            await transport.post(device, key_of(1), PostRecord(at(1), {}))
        await transport.close()
    assert len(heads) == 1
    assert b"\r\nX-Trans-Id: tx-of-this-test\r\n" in heads[0]


async def test_hung_disk_sheds_load(tmp_path: Path) -> None:
    """A device that answers nothing holds a bounded number of requests; further ones hear so at once."""
    async with serving(tmp_path, ObjectServerSettings(max_requests_per_device=8, threads_per_device=2)) as served:
        release = threading.Event()
        served.store.faults.sleep = lambda _: hold(release)
        served.store.faults.delay_s = 1
        waiting = [asyncio.create_task(served.transport.head(served.device, key_of(1))) for _ in range(8)]
        pool = served.server.devices["d1"].pool
        await until(lambda: pool.requests == 8)
        with pytest.raises(NodeBusy):
            await served.transport.head(served.device, key_of(1))
        served.store.faults.delay_s = 0
        release.set()
        assert all(isinstance(e, NotFound) for e in await asyncio.gather(*waiting, return_exceptions=True))


async def test_slow_disk_holds_back_the_sender(tmp_path: Path) -> None:
    """With a disk that stands still, a sender gets rid of what fits in the windows and no more."""
    release = threading.Event()
    settings = HttpSettings(window_bytes=1_000_000, idle_timeout_s=60)
    async with serving(tmp_path, client=settings) as served:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stream = await served.transport.open_put(served.device, key_of(1), record(1), None, None)
        served.store.faults.sleep = lambda _: hold(release)
        served.store.faults.delay_s = 1
        piece, sent = some_bytes(250_000), 0

        async def send() -> None:
            nonlocal sent
            for _ in range(400):
                await stream.write(piece)
                sent += len(piece)

        sending = asyncio.create_task(send())
        seen = -1
        while seen != sent:
            seen = sent
            await asyncio.sleep(0.3)
        assert not sending.done()
        assert sent < 20_000_000, "of 100 MB: the rest waits with the sender"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 60_000
        served.store.faults.delay_s = 0
        release.set()
        await sending
        whole = piece * 400
        await stream.commit(footer_of(whole))
        assert served.store.stat(key_of(1)).size == len(whole)


async def test_hundred_puts_at_once(tmp_path: Path) -> None:
    patient = HttpSettings(connect_timeout_s=60, answer_timeout_s=60, idle_timeout_s=60)
    async with serving(tmp_path, client=patient) as served:

        async def one(number: int) -> UpdateOutcome:
            data = some_bytes(10_000 + number)
            reply = await served.transport.put(served.device, key_of(number), record(1), data, footer_of(data), ROW)
            return reply.row

        assert set(await asyncio.gather(*map(one, range(100)))) == {UpdateOutcome.LISTED}
        assert len(list(served.store.keys(0, 7))) == 100


async def test_rows_wait_in_the_outbox(served: Served) -> None:
    """A container that can't be asked: the write succeeds, the row follows once it can, newest only."""
    served.rows.error = NodeUnreachable("down")
    for moment in (1, 2):
        data = b"x" * moment
        reply = await served.transport.put(served.device, key_of(1), record(moment), data, footer_of(data), ROW)
        assert reply.row is UpdateOutcome.QUEUED
    assert len(served.outbox) == 2, "one for each replica"
    served.rows.error = None
    await until(lambda: len(served.outbox) == 0)
    assert [(replica, row.size) for _, _, replica, row in sorted(served.rows.rows, key=lambda r: r[2])] == [
        (0, 2),
        (2, 2),
    ]


async def test_slow_container_does_not_hold_up_a_write(tmp_path: Path) -> None:
    async with serving(tmp_path, ObjectServerSettings(row_wait_s=0.05)) as served:
        served.rows.delay_s = 5
        reply = await served.transport.put(served.device, key_of(1), record(1), b"", footer_of(b""), ROW)
        assert reply.row is UpdateOutcome.QUEUED


async def test_full_outbox_refuses_before_the_write(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.rows.error = NodeUnreachable("down")
        for number in (1, 2):
            await served.transport.put(served.device, key_of(number), record(1), b"", footer_of(b""), ROW)
            await served.transport.delete(served.device, key_of(number), at(2), f"/account/container/{number}", ROW)
            if served.outbox.full:
                break
        with pytest.raises(NodeBusy, match="listing rows"):
            await served.transport.put(served.device, key_of(3), record(1), b"", footer_of(b""), ROW)
        with pytest.raises(NotFound):
            served.store.stat(key_of(3))


async def test_nobody_there() -> None:
    transport = HttpObjectTransport()
    with pytest.raises(NodeUnreachable):
        await transport.head(Device(0, "x", "127.0.0.1", 1, "d", "r", "z", "n", 1.0), key_of(1))
    await transport.close()


async def test_silent_node() -> None:
    """A node that accepts and never answers costs the answer timeout, not more."""
    ended = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        device = Device(0, "x", "127.0.0.1", server.sockets[0].getsockname()[1], "d", "r", "z", "n", 1.0)
        transport = HttpObjectTransport(HttpSettings(answer_timeout_s=0.1))
        key = ObjectKey(0, 0, bytes(16))
        with pytest.raises(NodeTimeout):
            await transport.head(device, key)
        with pytest.raises(NodeTimeout):
            await transport.open_put(device, key, record(1), 10_000_000, None)
        with pytest.raises(NodeTimeout):
            await transport.put(device, key, record(1), some_bytes(5_000_000), footer_of(b""), None)
        await transport.close()
        ended.set()
