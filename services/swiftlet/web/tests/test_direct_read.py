"""Bodies read past the HTTP server: whole, in pieces of any size, refused in the middle, cut, and without memory."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
import uvloop
from aiohttp import web

from swiftlet.errors import NodeBusy
from swiftlet.transport.native_bodies import NativeBodies
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.web.direct_read import LEAST_BYTES, DirectRead, begin_direct_read

MIB = 1 << 20
BLOCK = 4096
BODY = random.Random(5).randbytes(5 * MIB + 12345)
WITHIN_S = 30.0

Story = Callable[["Service"], Awaitable[None]]


@dataclass
class Service:
    """A server whose handler does with bodies what a test says, and one connection to it."""

    bodies: NativeBodies
    port: int = 0
    direct_read: DirectRead | None = None
    patience_s: float = WITHIN_S
    timeout_s: float = WITHIN_S
    take: Callable[[DirectRead], Awaitable[None]] | None = None
    """Instead of reading all of it."""
    failed: list[BaseException] = field(default_factory=list)
    beginning: int = 0
    """Bytes that had arrived before."""
    came: list[int | None] = field(default_factory=list)
    """Of each body so many bytes had come when it was read; None where the HTTP library read it."""
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """A body is being read."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """One has failed."""

    async def handle(self, request: web.Request) -> web.Response:
        """The MD5 of the body, or 409 with what went wrong."""
        digest = hashlib.md5(usedforsecurity=False)
        size = request.content_length or 0
        beginning, direct_read = begin_direct_read(request, size, self.bodies, self.patience_s)
        digest.update(beginning)
        self.beginning = len(beginning)
        self.direct_read = direct_read
        self.began.set()
        if direct_read is None:
            self.came.append(None)
            digest.update(await request.read())
            return web.Response(text=digest.hexdigest())
        try:
            if self.take is not None:
                await self.take(direct_read)
            while (piece := await direct_read.piece(self.timeout_s)) is not None:
                digest.update(piece)
        except (Exception, asyncio.CancelledError) as error:
            self.failed.append(error)
            self.ended.set()
            direct_read.leave()
            return web.Response(status=409, text=str(error))
        self.came.append(request.content.total_bytes)
        return web.Response(text=digest.hexdigest())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)


def head(size: int) -> bytes:
    """The head of an upload of so many bytes."""
    return f"PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Status and text of the next answer."""
    async with asyncio.timeout(WITHIN_S):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
        return int(lines[0].split()[1]), (await reader.readexactly(length)).decode()


def md5(data: bytes) -> str:
    """As the handler has it."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


async def _tell(story: Story, pool_bytes: int) -> None:
    client = NativeClient(NativeSettings(pool_bytes=pool_bytes), [b"key"])
    service = Service(NativeBodies(client))
    app = web.Application(client_max_size=64 * MIB)
    app.router.add_put("/", service.handle)
    runner = web.AppRunner(app, read_bufsize=64 * 1024, auto_decompress=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        service.port = runner.addresses[0][1]
        await story(service)
    finally:
        await runner.cleanup()
        await client.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def tell(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a story in either event loop."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(story: Story, pool_bytes: int = 32 * MIB) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_tell(story, pool_bytes))

    return run


def test_bodies_arrive_whole_one_after_the_other_on_one_connection(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        reader, writer = await service.connect()
        bodies = [BODY[number:] for number in range(3)]
        for body in bodies:
            # The next request's head comes right behind the body.
            writer.write(head(len(body)) + body + head(3) + b"abc")
            assert await answer(reader) == (200, md5(body))
            assert await answer(reader) == (200, md5(b"abc"))
        assert service.came == [come for body in bodies for come in (len(body), None)]
        writer.close()

    tell(story)


def test_a_slow_client_s_bytes_are_handed_on_before_a_buffer_is_full(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        pieces: list[int] = []
        seen = asyncio.Event()

        async def take(direct_read: DirectRead) -> None:
            piece = await direct_read.piece(WITHIN_S)
            assert piece is not None
            pieces.append(len(piece))
            seen.set()

        service.take = take
        reader, writer = await service.connect()
        writer.write(head(LEAST_BYTES * 2))
        async with asyncio.timeout(WITHIN_S):
            await service.began.wait()
            writer.write(b"x")
            await seen.wait()
        assert pieces == [1]
        writer.write(b"y" * (LEAST_BYTES * 2 - 1))
        assert (await answer(reader))[0] == 200
        writer.close()

    tell(story)


def _ends(pieces: list[int]) -> list[int]:
    """Where in the body each piece ends."""
    return list(accumulate(pieces))


@pytest.mark.parametrize("first", [1, 4096, 100_001])
def test_pieces_begin_at_a_block_again_behind_a_pause(
    tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """What has come before a pause may end in the middle of a block; the piece behind it ends with that block."""
    body = BODY[: 3 * MIB + 5]

    async def story(service: Service) -> None:
        pieces: list[int] = []
        seen = asyncio.Event()

        async def take(direct_read: DirectRead) -> None:
            while sum(pieces) < len(body):
                piece = await direct_read.piece(WITHIN_S)
                assert piece is not None
                pieces.append(len(piece))
                if sum(pieces) >= first:
                    seen.set()

        service.take = take
        reader, writer = await service.connect()
        writer.write(head(len(body)))
        async with asyncio.timeout(WITHIN_S):
            await service.began.wait()
            writer.write(body[:first])
            await seen.wait()
        monkeypatch.setattr("swiftlet.web.direct_read._PATIENCE_S", WITHIN_S)
        writer.write(body[first:])
        assert (await answer(reader))[0] == 200
        writer.close()
        ends = _ends(pieces)
        assert first in ends
        assert {end for end in ends[:-1] if end % BLOCK} <= {first}
        assert first % BLOCK == 0 or first + -first % BLOCK in ends

    tell(story)


def test_pieces_begin_at_a_block_behind_a_beginning_that_found_no_memory(
    tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectRead, "begin_with", lambda *_: False)
    monkeypatch.setattr("swiftlet.web.direct_read._PATIENCE_S", WITHIN_S)
    body = BODY[: 2 * MIB + 5]

    async def story(service: Service) -> None:
        pieces: list[int] = []

        async def take(direct_read: DirectRead) -> None:
            pieces.append(service.beginning)
            while sum(pieces) < len(body):
                piece = await direct_read.piece(WITHIN_S)
                assert piece is not None
                pieces.append(len(piece))

        service.take = take
        reader, writer = await service.connect()
        writer.write(head(len(body)) + body[:1001])
        async with asyncio.timeout(WITHIN_S):
            await service.began.wait()
        writer.write(body[1001:])
        assert (await answer(reader))[0] == 200
        writer.close()
        ends = _ends(pieces)
        assert ends[:2] == [1001, BLOCK]
        assert not any(end % BLOCK for end in ends[1:-1])

    tell(story)


def test_what_nobody_wants_is_dropped_and_the_connection_goes_on(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        async def refuse(direct_read: DirectRead) -> None:
            await direct_read.piece(WITHIN_S)
            raise ValueError("not wanted")

        service.take = refuse
        reader, writer = await service.connect()
        writer.write(head(len(BODY)) + BODY[: 2 * MIB])
        assert await answer(reader) == (409, "not wanted")
        service.take = None
        writer.write(BODY[2 * MIB :] + head(len(BODY)) + BODY)
        assert await answer(reader) == (200, md5(BODY))
        writer.close()

    tell(story)


@pytest.mark.parametrize("how", ["closes", "sends no more"])
def test_a_client_that_goes_away_is_noticed(tell: Callable[..., None], how: str) -> None:
    async def story(service: Service) -> None:
        _, writer = await service.connect()
        writer.write(head(len(BODY)) + BODY[: 3 * MIB])
        await writer.drain()
        if how == "closes":
            writer.transport.abort()
        else:
            writer.write_eof()
        async with asyncio.timeout(WITHIN_S):
            await service.ended.wait()
        assert isinstance(service.failed[0], ConnectionResetError | asyncio.CancelledError)
        writer.close()

    tell(story)


def test_a_client_that_stops_is_waited_for_within_a_limit(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        service.timeout_s = 0.3
        reader, writer = await service.connect()
        writer.write(head(len(BODY)) + BODY[:MIB])
        assert (await answer(reader))[0] == 409
        assert isinstance(service.failed[0], TimeoutError)
        writer.close()

    tell(story)


def test_no_more_is_read_than_is_taken(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        go_on = asyncio.Event()

        async def wait(direct_read: DirectRead) -> None:
            await go_on.wait()

        service.take = wait
        reader, writer = await service.connect()
        body = BODY * 8
        writer.write(head(len(body)) + body)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await writer.drain()
        hoard = []
        while (buffer := service.bodies.buffer(MIB)) is not None:
            hoard.append(buffer)
        # Of 32 MiB four are for small bodies, and half of the others for uploads.
        assert len(hoard) >= 11
        hoard.clear()
        assert service.direct_read is not None
        go_on.set()
        assert await answer(reader) == (200, md5(body))
        writer.close()

    tell(story)


def test_clients_that_send_nothing_hold_no_memory(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        clients = []
        for _ in range(20):
            service.began.clear()
            clients.append(await service.connect())
            clients[-1][1].write(head(len(BODY)))
            async with asyncio.timeout(WITHIN_S):
                await service.began.wait()
        reader, writer = clients[0]
        writer.write(BODY[:1])
        hoard: list[object] = []
        async with asyncio.timeout(WITHIN_S):
            while len(hoard) < 14:
                # The byte's buffer is handed on after a moment.
                hoard.clear()
                while (buffer := service.bodies.buffer(MIB)) is not None:
                    hoard.append(buffer)
                await asyncio.sleep(0.01)
        hoard.clear()
        writer.write(BODY[1:])
        assert await answer(reader) == (200, md5(BODY))
        for _, writer in clients:
            writer.close()

    tell(story)


def test_memory_is_waited_for_within_a_limit(tell: Callable[..., None]) -> None:
    async def story(service: Service) -> None:
        hoard = []
        while (buffer := service.bodies.buffer(MIB)) is not None:
            hoard.append(buffer)
        assert hoard
        reader, writer = await service.connect()
        writer.write(head(len(BODY)) + BODY)
        async with asyncio.timeout(WITHIN_S):
            await service.began.wait()
        hoard.clear()
        assert await answer(reader) == (200, md5(BODY))
        service.patience_s, service.direct_read = 0.1, None
        while (buffer := service.bodies.buffer(MIB)) is not None:
            hoard.append(buffer)
        writer.write(head(len(BODY)) + BODY)
        status, text = await answer(reader)
        assert status == 409
        assert "no memory" in text
        assert isinstance(service.failed[0], NodeBusy)
        hoard.clear()
        writer.close()

    tell(story, 8 * MIB)
