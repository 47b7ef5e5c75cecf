"""Connections in any state, clients of any kind, and devices in trouble: an answer is whole and right, or Python's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from swiftlet_native import Front

from swiftlet.front import connections, proxy_front
from swiftlet.front.proxy_front import check_alive
from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, end, until
from swiftlet.placement.tests.cluster import ACCOUNT, PATH, MemoryCluster

DATA = b"some data"


class Raw:
    """A client that says exactly what it is told to."""

    def __init__(self, fronted: FrontedProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._fronted = fronted
        self.reader = reader
        self.writer = writer

    def request(self, *more: str, method: str = "GET", name: str = "o", line: str = "") -> bytes:
        token = self._fronted.proxy.token["X-Auth-Token"]
        head = [line or f"{method} /v1/{ACCOUNT}/c/{name} HTTP/1.1", "Host: h", f"X-Auth-Token: {token}", *more]
        return "\r\n".join([*head, "", ""]).encode()

    async def answer(self, method: str = "GET") -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            size = int(headers.get("content-length", "0")) if method != "HEAD" else 0
            return int(head[0].split()[1]), await self.reader.readexactly(size)

    async def ask(self, *more: str, method: str = "GET", name: str = "o") -> tuple[int, bytes]:
        self.writer.write(self.request(*more, method=method, name=name))
        return await self.answer(method)

    async def heat(self) -> None:
        """Until the front has the connection, and answers on it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                before = await self._fronted.noted()
                assert await self.ask() == (200, DATA)
                if await self._fronted.noted() > before:
                    return
                await asyncio.sleep(0.01)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
            return True


Connect = Callable[[], Awaitable[Raw]]


@pytest.fixture
async def connect(fronted: FrontedProxy) -> AsyncIterator[Connect]:
    opened = []

    async def connect() -> Raw:
        opened.append(Raw(fronted, *await fronted.connect()))
        return opened[-1]

    assert (await fronted.proxy.call("PUT", "c/o", data=DATA)).status == 201
    yield connect
    for one in opened:
        one.writer.transport.abort()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await one.writer.wait_closed()


async def test_a_connection_that_came_back_too_often_is_tried_again(
    fronted: FrontedProxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_MAX_BOUNCES", 0)
    monkeypatch.setattr(connections, "_COLD_S", 60.0)
    client, before = await connect(), await fronted.noted()
    assert (await client.ask("Range: bytes = 1-2"))[0] == 206  # which the front leaves to Python
    for _ in range(20):
        assert await client.ask() == (200, DATA)
        await asyncio.sleep(0.01)
    assert fronted.answered == before
    monkeypatch.setattr(connections, "_COLD_S", 0.1)
    await client.heat()


@pytest.fixture
async def raw(connect: Connect) -> Raw:
    return await connect()


async def test_there_and_back_many_times(fronted: FrontedProxy, raw: Raw) -> None:
    for _ in range(5):
        await raw.heat()
        assert (await raw.ask("Range: bytes = 1-2"))[0] == 206
        assert (await raw.ask("If-None-Match: *", "If-Modified-Since: today"))[0] == 304
        assert await raw.ask(method="HEAD") == (200, b"")


async def test_bodies_go_along(fronted: FrontedProxy, raw: Raw) -> None:
    await raw.heat()
    body = b"x" * 300_000
    raw.writer.write(raw.request(f"Content-Length: {len(body)}", method="PUT", name="p") + body)
    assert (await raw.answer())[0] == 201
    assert (await raw.ask(name="p")) == (200, body)
    await raw.heat()
    raw.writer.write(raw.request("Transfer-Encoding: chunked", method="PUT", name="q") + b"3\r\nabc\r\n0\r\n\r\n")
    assert (await raw.answer())[0] == 201
    assert await raw.ask(name="q") == (200, b"abc")


async def test_pipelined(fronted: FrontedProxy, raw: Raw) -> None:
    await raw.heat()
    before = fronted.answered
    raw.writer.write(raw.request() * 20 + raw.request("Range: bytes = 0-0") + raw.request() * 3)
    for _ in range(20):
        assert await raw.answer() == (200, DATA)
    assert await raw.answer() == (206, DATA[:1])
    for _ in range(3):
        assert await raw.answer() == (200, DATA)
    assert fronted.answered - before >= 20


@pytest.mark.parametrize("size", [1, 7, 60])
async def test_heads_that_come_in_pieces(fronted: FrontedProxy, raw: Raw, size: int) -> None:
    await raw.heat()
    request = raw.request()
    for start in range(0, len(request), size):
        raw.writer.write(request[start : start + size])
        await asyncio.sleep(0.001)
    assert await raw.answer() == (200, DATA)
    await raw.heat()


async def test_close_is_kept(fronted: FrontedProxy, raw: Raw) -> None:
    await raw.heat()
    before = fronted.answered
    assert await raw.ask("Connection: close") == (200, DATA)
    assert await raw.is_closed()
    assert fronted.answered == before + 1


# A client in Python can't end one direction of TLS alone; `native/crates/front` has the tests with one that can.
@pytest.mark.parametrize("scheme", ["http"], indirect=True)
async def test_half_closed(fronted: FrontedProxy, raw: Raw) -> None:
    await raw.heat()
    raw.writer.write(raw.request())
    raw.writer.write_eof()
    assert await raw.answer() == (200, DATA)
    assert await raw.is_closed()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"GET \x00\r\n\r\n"])
async def test_no_request_at_all(connect: Connect, raw: Raw, data: bytes) -> None:
    await raw.heat()
    raw.writer.write(data)
    end(raw.writer)
    async with asyncio.timeout(PATIENCE_S):
        # OpenSSL does not expect an answer from the other side once it has said that it sends no more.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await raw.reader.read()
    assert await (await connect()).ask() == (200, DATA)


@pytest.fixture
def little_house(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four connections at most; to be asked for before `fronted`."""

    class LittleFront:
        asked = staticmethod(Front.asked)

        def __new__(cls, *parts: object, **settings: object) -> Any:
            return cast("Any", Front)(*parts, **settings, max_connections=4)

    monkeypatch.setattr(proxy_front, "Front", LittleFront)


@pytest.mark.usefixtures("little_house")
async def test_idle_connections_make_room_in_a_full_house(connect: Connect) -> None:
    idle = [await connect() for _ in range(4)]
    for client in [await connect() for _ in range(3)]:
        assert await client.ask() == (200, DATA)
    assert await idle[0].is_closed(), "the one that is idle for longest"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
async def test_headers_stand_in_the_order_of_pythons(fronted: FrontedProxy, connect: Connect, method: str) -> None:
    body = DATA if method == "PUT" else b""
    said = [f"Content-Length: {len(body)}", "Content-Type: a/b"] if body else []

    async def names(*more: str) -> list[str]:
        client = await connect()
        client.writer.write(client.request(*said, "Connection: close", *more, method=method) + body)
        async with asyncio.timeout(PATIENCE_S):
            head = (await client.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        return [head[0], *(line.split(":")[0] for line in head[1:])]

    first, before = await connect(), fronted.answered
    async with asyncio.timeout(PATIENCE_S):
        while fronted.answered == before:
            first.writer.write(first.request(*said, method=method) + body)
            await first.answer(method)
            await asyncio.sleep(0.01)
    before = await fronted.noted()
    found = await names()
    await until(lambda: fronted.answered == before + 1)
    assert found == await names("X-Newest: no")
    assert fronted.answered == before + 1


async def test_headers_of_deletions_stand_in_the_order_of_pythons(fronted: FrontedProxy, connect: Connect) -> None:
    def names(head: bytes) -> list[bytes]:
        first, *rest = head.split(b"\r\n")
        return [first, *(line.split(b":")[0] for line in rest)]

    async def deleted(*more: str) -> tuple[list[bytes], bool]:
        """The names in the answer, and whether the front gave it."""
        assert (await fronted.proxy.call("PUT", "c/p", {"Content-Type": "a/b"}, DATA)).status == 201
        client, before = await connect(), await fronted.noted()
        client.writer.write(client.request(*more, method="DELETE", name="p"))
        head = await client.reader.readuntil(b"\r\n\r\n")
        return names(head), await fronted.noted() > before

    for close in ([], ["Connection: close"]):
        cold, _ = await deleted(*close, "X-Newest: no")
        is_warm = False
        async with asyncio.timeout(PATIENCE_S):
            while not is_warm:
                found, is_warm = await deleted(*close)
                assert found == cold


async def test_clients_that_vanish(fronted: FrontedProxy, raw: Raw, connect: Connect) -> None:
    await raw.heat()
    for _ in range(50):
        one = await connect()
        one.writer.write(one.request() * 3)
        one.writer.transport.abort()
    await until(lambda: fronted.connections <= 2)
    assert await raw.ask() == (200, DATA)


async def test_a_client_that_takes_nothing_holds_one_answer(fronted: FrontedProxy, raw: Raw) -> None:
    big = b"x" * 65_536
    assert (await fronted.proxy.call("PUT", "c/big", data=big)).status == 201
    await raw.heat()
    before, count = fronted.answered, 500
    raw.reader._transport.pause_reading()  # type: ignore[attr-defined]
    raw.writer.write(raw.request(name="big") * count)
    await asyncio.sleep(0.5)
    assert fronted.answered - before < count, "the kernel's buffers are full, and the front waits"
    raw.reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        assert await raw.answer() == (200, big)


async def test_devices_that_are_gone(fronted: FrontedProxy, raw: Raw, cluster: MemoryCluster) -> None:
    await raw.heat()
    for device in cluster.devices[:2]:
        fronted.devices.stop(device, cluster)
    for _ in range(30):
        assert await raw.ask() == (200, DATA)
    await raw.heat()
    fronted.devices.stop(cluster.devices[2], cluster)
    for _ in range(5):
        assert await raw.ask() == (200, DATA), "the stores are still there, and Python asks them"


async def test_devices_that_are_not_native(fronted: FrontedProxy, raw: Raw, cluster: MemoryCluster) -> None:
    await raw.heat()
    fronted.devices.away = {device.address for device in cluster.devices}
    await asyncio.sleep(0.5)
    before = fronted.answered
    for _ in range(20):
        assert await raw.ask() == (200, DATA)
    assert fronted.answered == before


async def test_a_replica_that_lacks_it(fronted: FrontedProxy, raw: Raw, cluster: MemoryCluster) -> None:
    await raw.heat()
    first, second, _ = cluster.primaries(PATH)
    for device in (first, second):
        found = cluster.entry(device)
        assert found is not None
        cluster.store(device).remove(cluster.key(PATH), found)
    for _ in range(20):
        assert await raw.ask() == (200, DATA)


async def test_logged_and_counted(fronted: FrontedProxy, raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    def counted() -> float:
        labels = {"service": "proxy", "method": "GET", "status": "200"}
        return REGISTRY.get_sample_value("swiftlet_http_requests_total", labels) or 0.0

    await raw.heat()
    before, answered = counted(), fronted.answered
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            await raw.ask()
        # The front notes an answer after it has sent it.
        async with asyncio.timeout(PATIENCE_S):
            while fronted.answered - answered < 10:  # noqa: ASYNC110 - another thread makes it true
                await asyncio.sleep(0.01)
    assert fronted.answered - answered == 10
    assert counted() - before == 10


class Dead:
    """A front whose thread has died."""

    def is_alive(self) -> bool:
        return False


async def test_a_front_that_died_ends_the_process(fronted: FrontedProxy, raw: Raw) -> None:
    running = fronted.running
    check_alive(running.front)
    with pytest.raises(RuntimeError, match="has ended unexpectedly"):
        check_alive(cast("Front", Dead()))


async def test_the_end(fronted: FrontedProxy, raw: Raw) -> None:
    """Who is idle at the front is Python's from then on; new connections are for whoever accepts them next."""
    await raw.heat()
    answered = fronted.answered
    await fronted.front.leave()
    await until(lambda: fronted.connections == 0)
    for _ in range(3):
        assert await raw.ask() == (200, DATA)
    assert fronted.answered == answered
    # The listening socket is the caller's to close.
    _, late = await asyncio.open_connection("127.0.0.1", fronted.proxy.port)
    late.write(raw.request())
    await asyncio.sleep(0.2)
    assert fronted.connections == 0
    late.close()


async def test_heads_with_bytes_beyond_ascii(raw: Raw) -> None:
    """The front leaves them to Python, on a connection that was the front's before, and takes it back."""
    client = raw
    await client.heat()
    name = "\u00e4"
    assert await client.ask(f"X-Object-Meta-{name}: x", "Content-Length: 0", method="PUT", name=name) == (201, b"")
    client.writer.write(client.request(method="HEAD", name=name))
    head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert "X-Object-Meta-\u00c4: x\r\n".encode() in head
    await client.heat()
