"""Row streams over real connections: many updates at once, refusals, garbage, ends, and servers that refuse them.

What a transport does with rows in general is in the conformance suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.errors import DeviceFailed, NodeError, NodeTimeout, NodeUnreachable, NotFound
from swiftlet.listing import late_sync
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.servers.containers import row_stream
from swiftlet.servers.containers.row_decode import Arrived
from swiftlet.servers.tests.listing_cluster import KEY, ListingCluster, device, http_cluster
from swiftlet.timestamp import Timestamp
from swiftlet.transport import row_wire
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.node_streams import NOT_OPENED
from swiftlet.transport.row_wire import Update
from swiftlet.transport.signing import ClusterKey


def row(name: str) -> ObjectRow:
    return ObjectRow(name, Timestamp(2), 1, "e", "t")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListingCluster]:
    async with http_cluster(tmp_path, 1) as made:
        for number in range(3):
            await made.transport.put_container(made.devices[0], 0, "a", f"c{number}", Timestamp(1), {}, None, 0)
        yield made


async def listed(cluster: ListingCluster, container: str) -> list[str]:
    _, rows = await cluster.transport.list_objects(cluster.devices[0], 0, "a", container, ListingQuery())
    return [row.name for row in rows]


async def test_updates_of_many_containers_at_once(cluster: ListingCluster) -> None:
    bring, where = cluster.transport.bring_rows, cluster.devices[0]
    taken = await asyncio.gather(
        *(bring(where, 0, "a", f"c{n % 3}", [row(f"{n:03}")], n % 3 != 0) for n in range(60)),
        bring(where, 0, "a", "missing", [row("o")], True),
        bring(replace(where, device="other"), 0, "a", "c0", [row("o")], True),
        return_exceptions=True,
    )
    assert isinstance(taken[60], NotFound)
    assert isinstance(taken[61], DeviceFailed)
    assert taken[:60:3] == [None] * 20
    durable = [future for future in taken[:60] if isinstance(future, asyncio.Future)]
    assert durable, "some did not wait"
    await asyncio.gather(*durable)
    for number in range(3):
        assert await listed(cluster, f"c{number}") == [f"{n:03}" for n in range(60) if n % 3 == number]


async def test_a_device_that_fails_to_sync_says_that_rows_are_lost(
    cluster: ListingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_path: Path) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(late_sync, "_datasync", failing)
    durable = await cluster.transport.bring_rows(cluster.devices[0], 0, "a", "c0", [row("o")], True)
    assert durable is not None
    with pytest.raises(NodeError, match="may not be durable"):
        await durable


async def test_an_update_that_fails_in_an_unexpected_way_is_answered_and_the_stream_goes_on(
    cluster: ListingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("unexpected")

    where = cluster.devices[0]
    await cluster.transport.bring_rows(where, 0, "a", "c0", [row("first")], False)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.stores[where.name], "submit_rows", fails)
        with pytest.raises(NodeError, match="unexpected error"):
            await cluster.transport.bring_rows(where, 0, "a", "c0", [row("second")], False)
    await cluster.transport.bring_rows(where, 0, "a", "c0", [row("third")], False)
    assert await listed(cluster, "c0") == ["first", "third"]


def stranger(key: bytes) -> Callable[[Update], bytes]:
    return lambda update: row_wire.message([row_wire.update_bytes(update)], ClusterKey(key), HOST)


HOST = "container-1:6300"
UPDATE = Update(0, "d0", 0, "a", "c0", False, [row("o")])


@pytest.mark.parametrize(
    "message",
    [
        stranger(b"another key")(UPDATE),
        stranger(KEY)(replace(UPDATE, container="")),
        stranger(KEY)(replace(UPDATE, rows=[row("nul\0")])),
        stranger(KEY)(replace(UPDATE, partition=1 << 32)),
        stranger(KEY)(replace(UPDATE, number=-1)),
        b"",
        b"\n\xff",
        row_wire.message([b"7"], ClusterKey(KEY), HOST),
    ],
    ids=["key", "container", "name", "partition", "number", "empty", "unsigned", "no-update"],
)
async def test_what_is_no_message_of_ours_ends_the_stream_and_changes_nothing(
    cluster: ListingCluster, message: bytes
) -> None:
    url = f"http://127.0.0.1:{cluster.devices[0].port}{row_wire.PATH}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(url)
        assert refused.value.status == 401
        signature = {"X-Swiftlet-Signature": ClusterKey(KEY).sign("GET", HOST, row_wire.PATH), "Host": HOST}
        async with session.ws_connect(url, headers=signature) as socket:
            await socket.send_bytes(message)
            ended = await socket.receive(timeout=10)
            assert ended.type is aiohttp.WSMsgType.CLOSE
            assert ended.data == 1008
    assert await listed(cluster, "c0") == []


class Peer(asyncio.Transport):
    """One that takes no answers until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.written: list[bytes] = []
        self.aborted = False
        self.heard = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: object) -> None:
        self.written.append(bytes(data))  # type: ignore[call-overload]
        self.heard.set()

    def abort(self) -> None:
        self.aborted = True
        self.heard.set()


async def test_a_peer_that_takes_no_answers_is_sent_no_more_and_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_stream, "_AGAIN_S", 0.001)
    peer = Peer()
    stream = row_stream._Stream(row_stream.RowStreams({}, {}, None), web.WebSocketResponse(), peer)
    arrived = Arrived(7, "d0", 0, "a", "c", True, [], False)
    stream._begin(arrived)
    await asyncio.sleep(0)
    assert len(peer.written) == 1, "refused: there is no such device here"
    peer.waiting = 1
    stream._begin(arrived)
    await asyncio.sleep(0.02)
    assert len(peer.written) == 1
    peer.heard.clear()
    peer.waiting = 0
    await asyncio.wait_for(peer.heard.wait(), 20)
    assert len(peer.written) == 2
    peer.heard.clear()
    monkeypatch.setattr(row_stream, "SEND_S", 0.005)
    peer.waiting = 1
    stream._begin(arrived)
    await asyncio.wait_for(peer.heard.wait(), 20)
    assert peer.aborted
    assert len(peer.written) == 2


async def test_answers_of_any_size_are_messages_of_the_protocol() -> None:
    sizes = [1, 125, 126, 65_535, 65_536, 200_000]

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.transport is not None
        for size in sizes:
            request.transport.write(row_stream._frame(b"x" * size))
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        session.ws_connect(server.make_url("/")) as socket,
    ):
        messages = [message async for message in socket]
    assert [len(message.data) for message in messages] == sizes
    assert {message.type for message in messages} == {aiohttp.WSMsgType.BINARY}


class Server:
    """One that answers streams as a test has it."""

    def __init__(self, handle: Callable[[web.WebSocketResponse], object] | None) -> None:
        app = web.Application()
        if handle is not None:
            app.router.add_get(row_wire.PATH, self._stream)
        app.router.add_post("/v1/containers/{device}/{partition}/rows", self._rows)
        self._handle = handle
        self.posted = self.streams = 0
        self.server = TestServer(app)

    async def _stream(self, request: web.Request) -> web.WebSocketResponse:
        self.streams += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert self._handle is not None
        await self._handle(socket)  # type: ignore[misc]
        return socket

    async def _rows(self, request: web.Request) -> web.Response:
        self.posted += 1
        await request.read()
        return web.json_response({})


async def asked(server: Server, times: int = 1, **settings: float) -> list[object]:
    """What comes of so many updates, one after the other."""
    transport = HttpListingTransport(NodeClient(HttpSettings(connect_timeout_s=10.0, **settings)))  # type: ignore[arg-type]
    try:
        await server.server.start_server()
        where = replace(device(0), port=server.server.port or 0)
        found: list[object] = []
        for _ in range(times):
            try:
                found.append(await transport.bring_rows(where, 0, "a", "c", [row("o")], True))
            except NodeError as error:
                found.append(error)
        return found
    finally:
        await transport.close()
        await server.server.close()


async def test_a_server_that_refuses_streams_has_failed_and_is_sent_no_requests_instead() -> None:
    server = Server(None)
    counter = NOT_OPENED.labels(row_wire.PATH)
    before = counter._value.get()
    found = await asked(server, 3)
    assert [str(one).partition(" ")[2] for one in found] == ["refused a WebSocket at /v1/rows with 404"] * 3
    assert {type(one) for one in found} == {NodeError}
    assert server.posted == 0
    assert counter._value.get() == before + 3


async def test_too_much_for_a_message_goes_as_requests(cluster: ListingCluster) -> None:
    rows = [replace(row(f"{number:03}"), content_type="t" * 4000) for number in range(300)]
    assert await cluster.transport.bring_rows(cluster.devices[0], 0, "a", "c0", rows, True) is None
    assert len(await listed(cluster, "c0")) == 300


async def test_an_update_that_meets_the_end_of_a_stream_goes_once_more() -> None:
    async def one_answer(socket: web.WebSocketResponse) -> None:
        update = row_wire.updates_of((await socket.receive()).data, None, HOST)[0]
        await socket.send_bytes(row_wire.answers_bytes(row_wire.Answers(taken={update.number: True})))
        await socket.receive()
        await socket.close()

    server = Server(one_answer)
    assert await asked(server, 3) == [None, None, None]
    assert server.streams == 3


async def test_ends_garbage_and_silence_are_the_nodes_failures() -> None:
    async def ends(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.close()

    async def garbage(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_bytes(b'{"taken":[[0]]}')
        await socket.receive()

    async def silence(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.receive()

    (ended,) = await asked(Server(ends))
    assert isinstance(ended, NodeUnreachable)
    (wrong,) = await asked(Server(garbage))
    assert isinstance(wrong, NodeError)
    assert "can't be decoded" in str(wrong)
    server = Server(silence)
    late = await asked(server, 2, answer_timeout_s=1.0)  # What opening a stream takes on a busy machine is much less.
    assert [type(error) for error in late] == [NodeTimeout, NodeTimeout]
    assert server.streams == 2, "a stream on which nothing is heard is given up"


async def test_rows_taken_when_a_stream_ends_count_as_lost() -> None:
    async def half(socket: web.WebSocketResponse) -> None:
        update = row_wire.updates_of((await socket.receive()).data, None, HOST)[0]
        await socket.send_bytes(row_wire.answers_bytes(row_wire.Answers(taken={update.number: False})))
        await socket.close()

    transport = HttpListingTransport(NodeClient())
    server = Server(half)
    await server.server.start_server()
    durable = await transport.bring_rows(
        replace(device(0), port=server.server.port or 0), 0, "a", "c", [row("o")], True
    )
    assert durable is not None
    with pytest.raises(NodeUnreachable):
        await durable
    await transport.close()
    await server.server.close()
