"""Answers of more than 1 MiB, which the front passes on from devices as they come: right to the last byte, whatever
becomes of the devices, and with as much in memory as a device sends ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as Directory

import pytest
from prometheus_client import REGISTRY

from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.served import Relay
from swiftlet.front.tests.test_reads import by_front, by_python
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster

MIB = 1 << 20
LONG = 24 * MIB + 4097
"""More than kernels hold of an answer on its way."""
FREE_MIB = 7
"""What uploads could have of the front's memory while nothing is in it."""
WINDOW_MIB = 2
"""What the transport receives of one answer before it is taken."""


@functools.cache
def body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def put(fronted: FrontedProxy, name: str, data: bytes) -> None:
    headers = {"Content-Type": "a/b", "X-Object-Meta-A": "b"}
    assert (await fronted.proxy.call("PUT", f"c/{name}", headers, io.BytesIO(data), query="x=y")).status == 201


@pytest.fixture
async def stored(fronted: FrontedProxy) -> FrontedProxy:
    """A proxy with one long object, whose container the front knows."""
    await put(fronted, "heating", b"")
    await put(fronted, "long", body(LONG))
    await by_front(fronted, "GET", "c/heating")
    return fronted


class Client:
    """A client that has little room for what it does not take."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def asking(cls, fronted: FrontedProxy, *names: str) -> AsyncIterator[Client]:
        """A client that has sent GETs of these objects."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", fronted.proxy.port))
        name = None if fronted.trusting is None else "localhost"
        reader, writer = await asyncio.open_connection(sock=connection, ssl=fronted.trusting, server_hostname=name)
        token = fronted.proxy.token["X-Auth-Token"]
        for object_name in names:
            lines = f"GET /v1/{ACCOUNT}/{CONTAINER}/{object_name} HTTP/1.1", "Host: h", f"X-Auth-Token: {token}", "", ""
            writer.write("\r\n".join(lines).encode())
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def head(self) -> int:
        """The status of the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """What comes until the connection ends, in whatever way."""
        found = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(MIB):
                    found += data
        return bytes(found)


def counted(status: int) -> float:
    labels = {"service": "proxy", "method": "GET", "status": str(status)}
    return REGISTRY.get_sample_value("swiftlet_http_requests_total", labels) or 0.0


SIZES = [MIB + 1, 2 * MIB, 4 * MIB, 4 * MIB + 1, 9 * MIB + 5]


async def test_like_pythons(stored: FrontedProxy) -> None:
    """The same answers as Python's, of objects of any size and of parts of them, by as many bytes."""
    for size in SIZES:
        await put(stored, "o", body(size))
        for line in (
            "Accept: */*",
            "If-None-Match: x",
            "If-Match: x",
            "If-None-Match: *",
            f"Range: bytes=0-{size}",
            f"Range: bytes=1-{size - 2}",
            f"Range: bytes={size // 3}-",
            f"Range: bytes=-{size // 2}",
            f"Range: bytes=-{size + 1}",
            f"Range: bytes={MIB - 1}-{size}",
            "Range: bytes=5-9\r\nIf-Range: x",
            f"Range: bytes=1-{size}\r\nIf-None-Match: x",
        ):
            found = await by_front(stored, "GET", "c/o", line)
            assert found == await by_python(stored, "GET", "c/o", line), (size, line)


def in_flight() -> float:
    return REGISTRY.get_sample_value("swiftlet_http_requests_in_flight", {"service": "proxy"}) or 0.0


async def test_requests_in_flight_are_counted(stored: FrontedProxy) -> None:
    """Of clients that have not taken all of their answers yet, beside those of Python."""
    await until(lambda: not in_flight())
    async with Client.asking(stored, "long") as first, Client.asking(stored, "long") as second:
        assert await first.head() == await second.head() == 200
        await until(lambda: in_flight() == 2)
        assert await first.take(LONG) == body(LONG)
        await until(lambda: in_flight() == 1)
    await until(lambda: not in_flight())


async def test_one_behind_the_other(stored: FrontedProxy) -> None:
    """On one connection, asked for at once."""
    await put(stored, "short", b"short")
    before = stored.answered
    async with Client.asking(stored, "long", "short", "long", "short") as client:
        for name in ("long", "short", "long", "short"):
            assert await client.head() == 200
            expected = body(LONG) if name == "long" else b"short"
            assert await client.take(len(expected)) == expected
    await until(lambda: stored.answered == before + 4)


async def test_slow_clients_hold_little(stored: FrontedProxy) -> None:
    """What a device sends ahead for one, and nothing for those that find no room; all get all bytes."""
    assert stored.devices.spare() == FREE_MIB
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client.asking(stored, "long")) for _ in range(6)]
        for client in clients:
            assert await client.head() == 200
        for _ in range(20):
            assert stored.devices.spare() >= FREE_MIB - WINDOW_MIB
            await asyncio.sleep(0.02)
        assert stored.devices.spare() < FREE_MIB, "one of them is the front's"
        # A short answer, and one of up to 1 MiB, have room beside.
        await put(stored, "medium", body(MIB))
        assert (await by_front(stored, "GET", "c/medium"))[1].endswith(body(MIB))
        for client in clients:
            assert await client.take(LONG) == body(LONG)
    assert stored.devices.spare() == FREE_MIB
    await by_front(stored, "GET", "c/long")


def _has_answered_more(stored: FrontedProxy, before: int) -> bool:
    return stored.answered > before


async def test_clients_that_go_away(stored: FrontedProxy) -> None:
    """Nothing of their answers stays, and they are logged."""
    begun = counted(499)
    for gone in range(1, 4):
        before = stored.answered
        async with Client.asking(stored, "long") as client:
            await client.take(MIB)
        await until(functools.partial(_has_answered_more, stored, before))
        assert counted(499) == begun + gone
    await until(lambda: stored.devices.at_work() == 0)
    assert stored.devices.spare() == FREE_MIB
    await by_front(stored, "GET", "c/long")


async def test_an_object_is_replaced_while_it_is_read(stored: FrontedProxy) -> None:
    """The version that was begun is sent to its end."""
    before = stored.answered
    async with Client.asking(stored, "long") as client:
        assert await client.head() == 200
        first = await client.take(MIB)
        await put(stored, "long", b"short")
        assert first + await client.take(LONG - MIB) == body(LONG)
    await until(lambda: stored.answered > before)
    assert (await by_front(stored, "GET", "c/long"))[1].endswith(b"short")


@asynccontextmanager
async def relayed(fronted: FrontedProxy, cluster: MemoryCluster) -> AsyncIterator[list[Relay]]:
    """Relays before all devices."""
    async with contextlib.AsyncExitStack() as stack:
        opened = [Relay.open(fronted.devices, device) for device in cluster.devices]
        yield [await stack.enter_async_context(relay) for relay in opened]


def sending(relays: list[Relay]) -> Relay:
    """The one that has passed on most since the last call."""
    found = max(relays, key=lambda relay: relay.passed)
    for relay in relays:
        relay.passed = 0
    return found


@pytest.fixture
async def through_relays(
    cluster: MemoryCluster, tmp_path: Directory
) -> AsyncIterator[tuple[FrontedProxy, list[Relay]]]:
    """A proxy whose devices can be cut off, with a long object."""
    async with fronted_proxy(cluster, tmp_path) as fronted, relayed(fronted, cluster) as relays:
        await put(fronted, "heating", b"")
        await put(fronted, "long", body(LONG))
        await by_front(fronted, "GET", "c/heating")
        sending(relays)
        yield fronted, relays


@pytest.mark.parametrize("is_silent", [False, True])
async def test_devices_are_replaced(through_relays: tuple[FrontedProxy, list[Relay]], is_silent: bool) -> None:
    """One dies while it sends, or falls silent, then the next one; the client gets the right bytes."""
    fronted, relays = through_relays
    before = fronted.answered
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        for part in (8 * MIB, 8 * MIB):
            one = sending(relays)
            relays.remove(one)
            if is_silent:
                one.mute()
            else:
                one.cut()
            found += await client.take(part)
        found += await client.take(LONG - len(found))
        assert found == body(LONG)
    await until(lambda: fronted.answered > before)


async def test_all_devices_are_restarted(through_relays: tuple[FrontedProxy, list[Relay]]) -> None:
    """Whoever sends is, again and again: those that were are asked again."""
    fronted, relays = through_relays
    before = fronted.answered
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        for _ in range(2 * len(relays)):
            sending(relays).restart()
            found += await client.take(3 * MIB)
        found += await client.take(LONG - len(found))
        assert found == body(LONG)
    await until(lambda: fronted.answered > before)


async def test_a_device_that_failed_lately_has_the_rest(tmp_path: Directory) -> None:
    """Others are asked before it, until nobody else is left."""
    async with memory_cluster(tmp_path, devices=3, suppress_after=1) as cluster:
        await cluster.make_container()
        async with fronted_proxy(cluster, tmp_path) as fronted:
            for name, data in ("heating", b""), ("long", body(LONG)):
                await put(fronted, name, data)
            failed = cluster.devices[1]
            cluster.health.failed(failed)
            async with relayed(fronted, cluster) as relays:
                await by_front(fronted, "GET", "c/heating")
                before, last = fronted.answered, relays[1]
                async with Client.asking(fronted, "long") as client:
                    assert await client.head() == 200
                    found = await client.take(MIB)
                    for _ in range(2):
                        one = sending(relays)
                        assert one is not last
                        one.cut()
                        found += await client.take(8 * MIB)
                    assert sending(relays) is last
                    assert found + await client.take(LONG - len(found)) == body(LONG)
                await until(lambda: fronted.answered > before)


async def test_no_device_is_left(through_relays: tuple[FrontedProxy, list[Relay]]) -> None:
    """The client is not told that it has all."""
    fronted, relays = through_relays
    begun, before = counted(503), fronted.answered
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        for relay in relays:
            relay.cut()
        found += await client.rest()
        assert len(found) < LONG
        assert body(LONG).startswith(found)
    await until(lambda: fronted.answered > before)
    assert counted(503) == begun + 1
    assert fronted.devices.spare() == FREE_MIB


async def test_another_version_is_no_replacement(
    through_relays: tuple[FrontedProxy, list[Relay]], cluster: MemoryCluster
) -> None:
    """The device that has begun it is the last one with that version."""
    fronted, relays = through_relays
    async with Client.asking(fronted, "long") as client:
        assert await client.head() == 200
        found = await client.take(MIB)
        one = sending(relays)
        await put(fronted, "long", body(LONG - 1))
        one.cut()
        found += await client.rest()
        assert len(found) < LONG
        assert body(LONG).startswith(found)


def damage(root: Directory) -> None:
    """Change a byte in the middle of two of three replicas."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size >= LONG]
    assert len(files) == 3
    for path in files[:2]:
        with path.open("r+b") as file:
            at = path.stat().st_size - LONG // 2
            file.seek(at)
            [byte] = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1]))


async def test_a_damaged_replica(stored: FrontedProxy, tmp_path: Directory) -> None:
    """A device finds the damage in the middle, and another one has the rest."""
    damage(tmp_path)
    for _ in range(6):
        assert (await by_front(stored, "GET", "c/long"))[1].endswith(b"\r\n\r\n" + body(LONG))
        assert (await by_front(stored, "GET", "c/long", "Range: bytes=7-"))[1].endswith(b"\r\n\r\n" + body(LONG)[7:])


async def test_clients_that_take_nothing(cluster: MemoryCluster, tmp_path: Directory) -> None:
    """Their connections end after a while, however much of the answer is left."""
    async with fronted_proxy(cluster, tmp_path, client_timeout_s=0.6) as fronted:
        await put(fronted, "heating", b"")
        await put(fronted, "long", body(LONG))
        await by_front(fronted, "GET", "c/heating")
        begun, before = counted(408), fronted.answered
        async with Client.asking(fronted, "long") as client:
            assert await client.head() == 200
            found = await client.take(MIB)
            await until(lambda: fronted.answered > before)
            found += await client.rest()
            assert len(found) < LONG
        assert counted(408) == begun + 1
        assert fronted.devices.spare() == FREE_MIB
