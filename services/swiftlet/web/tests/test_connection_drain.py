"""A service that ends: what each of its connections sees."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from swiftlet.web import connection_drain
from swiftlet.web.app import create_base_app
from swiftlet.web.health import READINESS
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

PATIENCE_S = 20.0


class Service:
    """A running service, and connections to it."""

    def __init__(self, app: web.Application, port: int, asked: StopRequest, task: asyncio.Task[None]) -> None:
        self.app = app
        self.port = port
        self.asked = asked
        self.task = task

    async def connect(self, tls: ssl.SSLContext | None = None) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))

    async def end(self) -> None:
        """Ask it to, and wait until it has noticed."""
        self.asked.again()
        await until(lambda: self.app[READINESS].draining)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, text: str) -> None:
        self.writer.write(text.encode())

    async def answer(self) -> tuple[int, bool, bytes]:
        """Status, whether it says that it is the last, and the body."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].split("\r\n")[0])
            return int(head.split()[1]), "connection: close" in head, await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """All until the end; ConnectionResetError when it is none in order."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - connections make it true
            await asyncio.sleep(0.005)


GET = "GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"


@asynccontextmanager
async def running(idle_s: float, drain_s: float = 15.0) -> AsyncIterator[Service]:
    async def quick(request: web.Request) -> web.Response:
        return web.Response(text="quick")

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = create_base_app("small", trust_request_ids=False)
    app.router.add_get("/quick", quick)
    app.router.add_put("/echo", echo)
    sock, asked = listen("127.0.0.1", 0), StopRequest()
    task = asyncio.ensure_future(serve(app, [sock], ServeOptions(drain_s=drain_s, idle_s=idle_s), asked))
    try:
        yield Service(app, sock.getsockname()[1], asked, task)
    finally:
        asked.again()
        asked.again()
        await task


async def test_a_kept_connection_is_told_with_its_next_answer() -> None:
    async with running(idle_s=10.0) as service:
        client = await service.connect()
        client.send(GET)
        assert await client.answer() == (200, False, b"quick")
        await service.end()
        client.send(GET)
        assert await client.answer() == (200, True, b"quick")
        assert await client.rest() == b""
        client.writer.close()
        # Nobody is left to be waited for.
        async with asyncio.timeout(5.0):
            await service.task


async def test_a_new_connection_is_answered_while_kept_ones_are_waited_for() -> None:
    async with running(idle_s=10.0) as service:
        kept = await service.connect()
        kept.send(GET)
        await kept.answer()
        await service.end()
        late = await service.connect()
        late.send(GET)
        assert await late.answer() == (200, True, b"quick")
        assert await late.rest() == b""
        for client in (late, kept):
            client.writer.close()


async def test_requests_that_have_come_are_answered_before_the_last_one() -> None:
    async with running(idle_s=10.0) as service:
        client = await service.connect()
        client.send(GET)
        await client.answer()
        await service.end()
        client.send(GET * 3)
        assert [await client.answer() for _ in range(3)] == [(200, last, b"quick") for last in (False, False, True)]
        assert await client.rest() == b""
        client.writer.close()


async def test_bytes_behind_the_last_answer_reset_nothing() -> None:
    async with running(idle_s=10.0) as service:
        client = await service.connect()
        client.send(GET)
        await client.answer()
        await service.end()
        client.send(GET)
        assert (await client.answer())[:2] == (200, True)
        for _ in range(5):
            client.send(GET)
            await asyncio.sleep(0.01)
        assert await client.rest() == b""
        client.writer.close()


@pytest.mark.parametrize("idle_s", [0.0, 0.2])
async def test_an_idle_connection_ends_in_order(idle_s: float) -> None:
    async with running(idle_s) as service:
        client = await service.connect()
        client.send(GET)
        await client.answer()
        await service.end()
        assert await client.rest() == b""
        # Too late for an answer, but no reset: it is read and dropped.
        client.send(GET)
        await asyncio.sleep(0.05)
        client.writer.close()
        await client.writer.wait_closed()


async def test_a_request_that_has_begun_to_come_is_waited_for() -> None:
    async with running(idle_s=0.0) as service:
        head, upload = await service.connect(), await service.connect()
        head.send(GET[:20])
        upload.send("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345")
        await until(lambda: len(_handlers(service)) == 2)
        await asyncio.sleep(0.05)
        await service.end()
        await asyncio.sleep(0.3)
        head.send(GET[20:])
        upload.send("67890")
        assert await head.answer() == (200, True, b"quick")
        assert await upload.answer() == (200, True, b"1234567890")
        for client in (head, upload):
            assert await client.rest() == b""
            client.writer.close()


def _handlers(service: Service) -> list[object]:
    import gc

    from swiftlet.web.raw_heads import RawHandler

    return [one for one in gc.get_objects() if isinstance(one, RawHandler) and one.transport is not None]


async def test_a_client_that_never_closes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_drain, "LINGER_S", 0.2)
    async with running(idle_s=0.0) as service:
        client = await service.connect()
        client.send(GET)
        await client.answer()
        await service.end()
        async with asyncio.timeout(10.0):
            await service.task
        client.writer.transport.abort()


async def test_what_is_not_over_in_time_is_cut() -> None:
    async with running(idle_s=0.0, drain_s=0.3) as service:
        client = await service.connect()
        client.send("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345")
        await until(lambda: bool(_handlers(service)))
        await asyncio.sleep(0.05)
        await service.end()
        async with asyncio.timeout(10.0):
            await service.task
        client.writer.transport.abort()
