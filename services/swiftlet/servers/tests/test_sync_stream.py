"""Sync streams over real connections: many requests at once, refusals, garbage, ends, and servers that refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.errors import DeviceFailed, NodeError, NodeTimeout, NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.servers.objects import sync_stream
from swiftlet.servers.objects.sync_stream import Responder, SyncEndpoint, one_by_one
from swiftlet.transport import sync_streams, sync_wire
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.node_streams import NOT_OPENED
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.sync_streams import SyncStreams
from swiftlet.transport.sync_wire import Answer, Answerer, Asker, Request

KEY = ClusterKey(b"the cluster's key")
DEVICE = Device(0, "one", "127.0.0.1", 1, "d0", "r1", "z1", "n1", 1.0)


async def echo(device: str, request: Request) -> bytes:
    if request.payload.startswith(b"full"):
        raise DeviceFailed(f"{device} is broken")
    if request.payload == b"bug":
        raise RuntimeError
    return device.encode() + b":" + request.payload


@asynccontextmanager
async def served(
    app: web.Application, key: ClusterKey = KEY, answer_timeout_s: float = 10.0
) -> AsyncIterator[SyncStreams]:
    """Streams to a server with this application; it listens where `streams.device` says."""
    server = TestServer(app)
    await server.start_server()
    client = NodeClient(HttpSettings(connect_timeout_s=10.0, answer_timeout_s=answer_timeout_s), key)
    streams = SyncStreams(client)
    where = replace(DEVICE, port=server.port or 0)
    asking = streams.ask

    async def ask(device: Device, kind: int, payload: bytes) -> bytes:
        return await asking(replace(where, device=device.device), kind, payload)

    streams.ask = ask  # type: ignore[method-assign]
    try:
        yield streams
    finally:
        await streams.close()
        await client.close()
        await server.close()


def application(responder: Responder | None = None) -> web.Application:
    app = web.Application()
    SyncEndpoint(KEY, responder or one_by_one(echo)).add_to(app)
    return app


async def test_many_requests_of_one_moment_share_a_message() -> None:
    messages: list[tuple[str, int]] = []

    async def counting(device: str, requests: Sequence[Request]) -> AsyncIterator[Sequence[Answer]]:
        messages.append((device, len(requests)))
        async for answers in one_by_one(echo)(device, requests):
            yield answers

    async with served(application(counting)) as streams:
        payloads = [b"%d" % number for number in range(600)]
        found = await asyncio.gather(
            *(streams.ask(DEVICE, 1, payload) for payload in payloads),
            streams.ask(replace(DEVICE, device="d1"), 1, b"other"),
            streams.ask(DEVICE, 1, b"full"),
            return_exceptions=True,
        )
    assert found[:600] == [b"d0:" + payload for payload in payloads]
    assert found[600] == b"d1:other"
    assert isinstance(found[601], DeviceFailed)
    assert sorted(messages) == [("d0", 89), ("d0", 256), ("d0", 256), ("d1", 1)]


async def test_what_is_under_way_is_bounded_and_all_of_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_wire, "MAX_UNANSWERED", 10)
    monkeypatch.setattr(sync_stream, "_OUT_BYTES", 100)
    gate = asyncio.Event()
    working = most = 0

    async def slow(device: str, request: Request) -> bytes:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await gate.wait()
        working -= 1
        return await echo(device, request)

    async with served(application(one_by_one(slow))) as streams:
        asked = [asyncio.create_task(streams.ask(DEVICE, 1, bytes(100))) for _ in range(100)]
        await asyncio.sleep(0)
        gate.set()
        assert set(await asyncio.gather(*asked)) == {b"d0:" + bytes(100)}
    assert most <= 10


async def test_one_that_is_slow_holds_up_no_other() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def some_slow(device: str, request: Request) -> bytes:
        if request.payload == b"slow":
            begun.set()
            await gate.wait()
        return request.payload

    async with served(application(one_by_one(some_slow))) as streams:
        slow = asyncio.create_task(streams.ask(DEVICE, 1, b"slow"))
        # Two requests of one message would be answered in turn.
        await begun.wait()
        assert await streams.ask(DEVICE, 1, b"quick") == b"quick"
        assert not slow.done()
        gate.set()
        assert await slow == b"slow"


async def test_a_bug_is_an_error_of_that_message_alone() -> None:
    async with served(application()) as streams:
        with pytest.raises(NodeError, match="not answered"):
            await streams.ask(DEVICE, 1, b"bug")
        assert await streams.ask(DEVICE, 1, b"x") == b"d0:x"


async def test_a_server_that_refuses_streams_has_failed_and_is_asked_again_by_the_next_request() -> None:
    refusals = [404, 405, 501]

    async def some_refused(request: web.Request) -> web.StreamResponse:
        if refusals:
            return web.Response(status=refusals.pop(0))
        return await SyncEndpoint(KEY, one_by_one(echo)).handle(request)

    app = web.Application()
    app.router.add_get(sync_wire.PATH, some_refused)
    counter = NOT_OPENED.labels(sync_wire.PATH)
    before = counter._value.get()
    async with served(app) as streams:
        for status in (404, 405, 501):
            with pytest.raises(NodeError, match=f"refused a WebSocket at {sync_wire.PATH} with {status}"):
                await streams.ask(DEVICE, 1, b"x")
        assert counter._value.get() == before + 3
        assert await streams.ask(DEVICE, 1, b"x") == b"d0:x"
    assert counter._value.get() == before + 3


async def test_what_is_too_large_is_refused_and_the_stream_goes_on() -> None:
    async with served(application()) as streams:
        with pytest.raises(NodeError, match="more than a request's"):
            await streams.ask(DEVICE, 1, bytes(sync_wire.MAX_PAYLOAD + 1))
        assert len(await streams.ask(DEVICE, 1, bytes(sync_wire.MAX_PAYLOAD - 3))) == sync_wire.MAX_PAYLOAD
        with pytest.raises(NodeError, match="more than"):
            await streams.ask(DEVICE, 1, bytes(sync_wire.MAX_PAYLOAD))


async def test_a_stranger_is_not_let_in() -> None:
    async with served(application(), ClusterKey(b"another key")) as streams:
        with pytest.raises(NodeError, match="401"):
            await streams.ask(DEVICE, 1, b"x")


@asynccontextmanager
async def connected(app: web.Application) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A stream as somebody without our code would open it, with a signature that was overheard."""
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        headers = {"X-Swiftlet-Signature": KEY.sign("GET", "server:1", sync_wire.PATH), "Host": "server:1"}
        async with session.ws_connect(server.make_url(sync_wire.PATH), headers=headers) as socket:
            yield socket


@pytest.mark.parametrize("message", [b"", bytes(16), bytes(32), bytes(100), b"\xff" * 200])
async def test_what_does_not_prove_the_key_ends_the_stream_unheard(message: bytes) -> None:
    heard: list[Request] = []

    async def listening(device: str, request: Request) -> bytes:
        heard.append(request)
        return b""

    async with connected(application(one_by_one(listening))) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(message)
        ended = await socket.receive(timeout=10)
        assert (ended.type, ended.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    assert not heard


async def test_an_overheard_beginning_begins_nothing_and_a_message_counts_once() -> None:
    app = application()
    overheard = Asker(KEY, sync_wire.PATH, Answerer(KEY, sync_wire.PATH).greeting).message("d0", [Request(1, b"x")])
    async with connected(app) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(overheard)
        assert (await socket.receive(timeout=10)).data == 1008
    async with connected(application()) as socket:
        asker = Asker(KEY, sync_wire.PATH, await socket.receive_bytes())
        message = asker.message("d0", [Request(1, b"x")])
        await socket.send_bytes(message)
        assert asker.answers(await socket.receive_bytes(timeout=10)) == [(0, b"d0:x")]
        await socket.send_bytes(message)
        assert (await socket.receive(timeout=10)).data == 1008


async def test_a_message_over_the_limit_ends_the_stream() -> None:
    async with connected(application()) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(bytes(sync_wire.MAX_MESSAGE + 1))
        assert (await socket.receive(timeout=10)).data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


async def test_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_stream, "_FIRST_S", 0.02)
    async with connected(application()) as socket:
        await socket.receive_bytes()
        assert (await socket.receive(timeout=10)).data == 1008


async def test_only_so_many_streams_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_stream, "MAX_STREAMS", 0)
    async with served(application()) as streams:
        with pytest.raises(NodeError, match="503"):
            await streams.ask(DEVICE, 1, b"x")


Handle = Callable[[web.WebSocketResponse, Answerer], Awaitable[object]]


def acting(handle: Handle) -> tuple[web.Application, list[int]]:
    """A server that does as a test has it, and how many streams it had."""
    app, streams = web.Application(), [0]

    async def stream(request: web.Request) -> web.WebSocketResponse:
        streams[0] += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        answerer = Answerer(KEY, sync_wire.PATH)
        await socket.send_bytes(answerer.greeting)
        await handle(socket, answerer)
        return socket

    app.router.add_get(sync_wire.PATH, stream)
    return app, streams


async def outcomes(app: web.Application, times: int, answer_timeout_s: float = 10.0) -> list[bytes | BaseException]:
    """What comes of asking so many times, one after the other."""
    found: list[bytes | BaseException] = []
    async with served(app, answer_timeout_s=answer_timeout_s) as streams:
        for _ in range(times):
            found += await asyncio.gather(streams.ask(DEVICE, 1, b"x"), return_exceptions=True)
    return found


async def test_a_request_that_meets_the_end_of_a_stream_is_made_once_more() -> None:
    async def one_answer(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        answerer.requests((await socket.receive()).data)
        await socket.send_bytes(answerer.answers([(0, b"first")]))
        await socket.receive()
        await socket.close()

    app, streams = acting(one_answer)
    assert await outcomes(app, 3) == [b"first"] * 3
    assert streams == [3]


async def test_ends_garbage_double_answers_and_silence_are_the_nodes_failures() -> None:
    async def ends(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        await socket.receive()
        await socket.close()

    async def garbage(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        await socket.receive()
        await socket.send_bytes(b"\x00\xff\xff")
        await socket.receive()

    async def text(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        await socket.receive()
        await socket.send_str("?")
        await socket.receive()

    async def twice(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        answerer.requests((await socket.receive()).data)
        await socket.send_bytes(answerer.answers([(0, b"one")]))
        answerer.requests((await socket.receive()).data)
        await socket.send_bytes(answerer.answers([(0, b"two")]))
        await socket.receive()

    async def silence(socket: web.WebSocketResponse, answerer: Answerer) -> None:
        while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass

    (ended,) = await outcomes(acting(ends)[0], 1)
    assert isinstance(ended, NodeUnreachable)
    (ended,) = await outcomes(acting(text)[0], 1)
    assert isinstance(ended, NodeUnreachable)
    (wrong,) = await outcomes(acting(garbage)[0], 1)
    assert isinstance(wrong, NodeError)
    assert "can't be decoded" in str(wrong)
    (first, second) = await outcomes(acting(twice)[0], 2)
    assert first == b"one"
    assert isinstance(second, NodeError)
    assert "a second time" in str(second)
    app, streams = acting(silence)
    late = await outcomes(app, 2, answer_timeout_s=0.05)
    assert [type(error) for error in late] == [NodeTimeout, NodeTimeout]
    assert streams == [2], "a stream on which nothing is heard is given up"


async def test_no_greeting_is_no_stream() -> None:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"hello")
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get(sync_wire.PATH, handle)
    (found,) = await outcomes(app, 1)
    assert isinstance(found, NodeError)
    assert "greeting" in str(found)


async def test_what_is_under_way_fails_when_a_server_ends_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_stream, "_END_S", 0.02)
    started = asyncio.Event()

    async def never(device: str, request: Request) -> bytes:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    made = SyncEndpoint(KEY, one_by_one(never))
    made.add_to(app)
    async with served(app) as streams:
        asked = asyncio.create_task(streams.ask(DEVICE, 1, b"x"))
        await started.wait()
        await made.close(app)
        with pytest.raises(NodeUnreachable):
            await asked


async def test_who_waits_in_a_long_queue_is_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_streams, "MAX_WAITING", 5)
    async with served(application()) as streams:
        await streams.ask(DEVICE, 1, b"open")
        found = await asyncio.gather(*(streams.ask(DEVICE, 1, b"x") for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(one, SwiftletError) for one in found) == 3


async def test_a_server_ends_in_peace_when_a_peer_has_died_with_answers_under_way() -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    async def late(device: str, request: Request) -> bytes:
        started.set()
        await gate.wait()
        return b"late"

    app = web.Application()
    made = SyncEndpoint(KEY, one_by_one(late))
    made.add_to(app)
    async with connected(app) as socket:
        asker = Asker(KEY, sync_wire.PATH, await socket.receive_bytes())
        await socket.send_bytes(asker.message("d0", [Request(1, b"x")]))
        await started.wait()
        (stream,) = made._open
        transport = socket._writer.transport
        assert transport is not None
        transport.abort()
        await asyncio.sleep(0)
        ending = asyncio.create_task(made.close(app))
        await asyncio.sleep(0)
        stream._socket._writer.transport.abort()  # type: ignore[union-attr]
        gate.set()
        await ending
