"""Long bodies of answers past the HTTP library: the same bytes and errors, and connections that are used again."""

from __future__ import annotations

import asyncio
import inspect
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, cast

import pytest
import uvloop

from swiftlet.client import bypass
from swiftlet.client.bodies import BytesBody
from swiftlet.client.credentials import Token
from swiftlet.client.errors import ConnectionFailed
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectRequest

DATA = os.urandom(3 << 20)
NAME = ObjectRequest("c", "o")
CREATED = b"HTTP/1.1 201 Created\r\nEtag: x\r\nContent-Length: 0\r\n\r\n"


def in_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in the event loop of the standard library, and in uvloop's."""
    asked = inspect.signature(test)
    loop = inspect.Parameter("new_loop", inspect.Parameter.KEYWORD_ONLY)

    @pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    @wraps(test)
    def run(*, new_loop: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(**given))

    signature = asked.replace(parameters=[*asked.parameters.values(), loop], return_annotation=None)
    setattr(run, "__signature__", signature)  # noqa: B010 (functions have no such attribute for mypy)
    return cast("Callable[..., None]", run)


def head(size: int, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{extra}\r\n".encode()


class Server:
    """Answers requests by a function; knows how many connections there were, and what was stored."""

    def __init__(self, answer: Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[bool]]):
        self._answer = answer
        self.connections = 0
        self.stored: list[bytes] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until the function says that it is over."""
        self.connections += 1
        try:
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                if not await self._answer(self, reader, writer, asked):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def way_to(answer: Callable[..., Awaitable[bool]], **options: float) -> AsyncIterator[tuple[HttpWay, Server]]:
    """Yield the way to a server that answers so."""
    known = Server(answer)
    listening = await asyncio.start_server(known.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    http = Http(Token(storage_url=f"http://127.0.0.1:{port}/v1/a", token="t"), Options(**options))  # type: ignore[arg-type]
    try:
        yield HttpWay(http), known
    finally:
        await http.close()
        listening.close()


async def stores(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bool:
    """Store what comes, and give back what was stored last."""
    if asked.startswith(b"PUT"):
        size = int(asked.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        server.stored.append(await reader.readexactly(size))
        writer.write(CREATED)
    else:
        writer.write(head(len(server.stored[-1])) + server.stored[-1])
    await writer.drain()
    return True


async def read(way: HttpWay) -> bytes:
    stream = await way.get(NAME, None)
    try:
        return b"".join([piece async for piece in stream])
    finally:
        await stream.close()


@pytest.mark.parametrize("size", [bypass.LEAST_BYTES - 1, bypass.LEAST_BYTES, len(DATA)])
@in_both_loops
async def test_a_connection_is_used_again_behind_a_body(size: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with way_to(stores) as (way, server):
        for number in range(3):
            data = DATA[number:size]
            await way.put(NAME, BytesBody(memoryview(data)))
            assert server.stored[-1] == data
            assert await read(way) == data
        assert server.connections == 1
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before + 3


@in_both_loops
async def test_bodies_go_past_the_library() -> None:
    async with way_to(stores) as (way, server):
        server.stored.append(DATA)
        stream = await way.get(NAME, None)
        # The library reads no more of it than came with the head.
        come = await anext(aiter(stream))
        assert stream._receiving is not None
        assert len(come) <= stream._answer.content.total_bytes + bypass.READ_BYTES < len(DATA)
        await stream.close()


async def test_the_library_reads_when_its_connections_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bypass, "FIELDS", (*bypass.FIELDS, "gone_in_a_later_version"))
    async with way_to(stores) as (way, server):
        server.stored.append(DATA)
        stream = await way.get(NAME, None)
        assert b"".join([piece async for piece in stream]) == DATA
        assert stream._receiving is None
        await stream.close()
        assert await read(way) == DATA
        assert server.connections == 1


@in_both_loops
async def test_others_have_their_turn_beside_a_fast_sender() -> None:
    turns = 0

    async def takes_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with way_to(stores) as (way, server):
        server.stored.append(DATA * 8)
        stream = await way.get(NAME, None)
        other = asyncio.create_task(takes_turns())
        pieces = 0
        async for _ in stream:
            pieces += 1
        other.cancel()
        await stream.close()
        assert turns >= pieces // (bypass.AT_ONCE + 1)


@pytest.mark.parametrize("kept", [0, 1, len(DATA) - 1])
@in_both_loops
async def test_an_answer_that_ends_early(kept: int) -> None:
    async def cuts(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bool:
        writer.write(head(len(DATA)) + DATA[:kept])
        await writer.drain()
        return False

    come = []

    async def take(way: HttpWay) -> None:
        stream = await way.get(NAME, None)
        try:
            async for piece in stream:
                come.append(piece)
        finally:
            await stream.close()

    async with way_to(cuts) as (way, _):
        with pytest.raises(ConnectionFailed):
            await take(way)
        assert b"".join(come) == DATA[:kept]


@in_both_loops
async def test_silence_in_the_middle_of_an_answer_ends_it() -> None:
    async def stops(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bool:
        writer.write(head(len(DATA)) + DATA[:100_000])
        await reader.read(1)
        return False

    async with way_to(stops, read_timeout_s=0.3) as (way, server):
        with pytest.raises(ConnectionFailed, match="Timeout"):
            await read(way)
        await asyncio.wait_for(server.ended.wait(), 30)


@in_both_loops
async def test_what_comes_slowly_comes_whole() -> None:
    async def trickles(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bool:
        writer.write(head(len(DATA)))
        for start in range(0, len(DATA), 100_000):
            writer.write(DATA[start : start + 100_000])
            await writer.drain()
            await asyncio.sleep(0)
        return True

    async with way_to(trickles) as (way, server):
        assert await read(way) == DATA
        assert await read(way) == DATA
        assert server.connections == 1


@in_both_loops
async def test_a_reader_that_leaves_closes_the_connection() -> None:
    async with way_to(stores) as (way, server):
        await way.put(NAME, BytesBody(DATA * 8))
        stream = await way.get(NAME, None)
        async for _ in stream:
            break
        await stream.close()
        await asyncio.wait_for(server.ended.wait(), 30)
        assert await read(way) == DATA * 8
        assert server.connections == 2


@in_both_loops
async def test_bodies_in_pieces_are_left_to_the_library() -> None:
    async def chunked(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA))
        await writer.drain()
        return True

    async with way_to(chunked) as (way, server):
        assert await read(way) == DATA
        assert await read(way) == DATA
        assert server.connections == 1


def test_a_transport_with_tls_is_left_to_the_library() -> None:
    class Encrypted(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return ssl.create_default_context() if name == "sslcontext" else default

        def is_closing(self) -> bool:
            return False

    assert bypass._duplicate(Encrypted()) is None
    assert bypass._duplicate(None) is None
