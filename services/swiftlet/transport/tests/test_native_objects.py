"""The conformance suite over the native transport, and what is its own: faults of devices, of peers, of the way."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import swiftlet_native
from prometheus_client import REGISTRY

from swiftlet.context import request_id
from swiftlet.errors import ChecksumMismatch, DeviceFailed, DiskFull, NodeError, NodeTimeout, NodeUnreachable, NotFound
from swiftlet.ring.model import Device
from swiftlet.servers.objects.native_pending import NativePending
from swiftlet.store.native import NativeStore
from swiftlet.testing.storage.object_conformance import (
    ROW,
    ObjectTransportConformance,
    Peer,
    drain,
    record,
)
from swiftlet.testing.store.conformance import footer_of, key_of, some_bytes
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.testing.store.faulty_native import RAM, FaultyNativeStore
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.modes import Encryption
from swiftlet.transport.native_caller import machine
from swiftlet.transport.native_calls import NativeSettings, NotMade
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_metrics import NativeMetrics, by_transport
from swiftlet.transport.native_objects import NativeObjectTransport

KEY = b"the cluster's key"
PORT = 6200
"""Of HTTP, where nobody listens here."""
MANY = 56_000
"""Entries that no window of a transport holds."""


def device_at(native_port: int, name: str = "d1") -> tuple[Device, int]:
    """A device whose server has this native port, and the offset between its ports."""
    return Device(0, "one", "127.0.0.1", PORT, name, "r1", "z1", "n1", 1.0), native_port - PORT


@contextmanager
def full_store() -> Iterator[NativeStore]:
    """A device whose reserve is larger than it is."""
    root = Path(tempfile.mkdtemp(dir=RAM))
    store = NativeStore(root, reserve_bytes=1 << 60)
    try:
        yield store
    finally:
        store.close()
        shutil.rmtree(root)


@contextmanager
def served(
    stores: dict[str, NativeStore],
    unused: dict[str, str] | None = None,
    sockets: Path | None = None,
    doubts: dict[str, swiftlet_native.Doubts] | None = None,
    encryption: Encryption = "none",
) -> Iterator[tuple[int, swiftlet_native.ObjectServer]]:
    """A native server over open stores: its port, and itself."""
    opened = {name: store.native for name, store in stores.items()}
    server = swiftlet_native.ObjectServer(
        f"127.0.0.1:{PORT}",
        machine(),
        [KEY],
        opened,
        unused or {},
        pool_bytes=32 << 20,
        socket_directory=sockets,
        doubts=doubts or {},
        encryption=encryption,
    )
    try:
        yield server.listen("127.0.0.1", 0), server
    finally:
        server.stop()


@asynccontextmanager
async def client_of(
    offset: int,
    key: bytes = KEY,
    patience_s: float = 10.0,
    sockets: Path | None = None,
    encryption: Encryption = "none",
    silence_s: float = NativeSettings().silence_s,
) -> AsyncIterator[NativeObjectTransport]:
    """A transport."""
    settings = NativeSettings(
        port_offset=offset,
        pool_bytes=32 << 20,
        answer_timeout_s=patience_s,
        idle_timeout_s=patience_s,
        socket_directory=sockets,
        encryption=encryption,
        silence_s=silence_s,
    )
    transport = NativeObjectTransport(NativeClient(settings, [key]), HttpDevices(NodeClient()))
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture(scope="module")
def many_entries() -> Iterator[FaultyNativeStore]:
    """A device with `MANY` tombstones in one suffix."""
    with contextlib.closing(FaultyNativeStore()) as store:

        def fill(share: int) -> None:
            for number in range(share, MANY, 8):
                # A tombstone is kept although there was nothing.
                with contextlib.suppress(swiftlet_native.StoreError):
                    store.native.delete((0, 7, b"%014d\0\1" % number), 1, b"/a/c/o")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fill, range(8)))
        yield store


class TestNative(ObjectTransportConformance):
    encryption: Encryption = "none"

    def fresh_store(self) -> FaultyStore:
        return FaultyNativeStore()

    @asynccontextmanager
    async def connected(self, store: FaultyStore) -> AsyncIterator[Peer]:
        assert isinstance(store, FaultyNativeStore)
        doubts = swiftlet_native.Doubts()
        with served({"d1": store}, doubts={"d1": doubts}, encryption=self.encryption) as (port, _):
            device, offset = device_at(port)
            async with client_of(offset, encryption=self.encryption) as transport:
                yield Peer(transport, device, store, NativePending(store), doubts)

    # Native code does not ask Python's faults: the same is checked with devices that are full, failed or damaged.

    async def test_device_trouble(self, peer: Peer) -> None:
        """The device's own errors arrive as what they are."""
        assert isinstance(peer.store, FaultyNativeStore)
        with (
            full_store() as full,
            served({"d1": peer.store, "full": full}, {"gone": "it is not mounted"}) as (port, _),
        ):
            _, offset = device_at(port)
            async with client_of(offset) as transport:
                device, _ = device_at(port, "full")
                with pytest.raises(DiskFull):
                    await transport.put(device, key_of(1), record(1), b"data", footer_of(b"data"), ROW)
                with pytest.raises(DiskFull):
                    await transport.open_put(device, key_of(1), record(1), 5_000_000, ROW)
                sick, _ = device_at(port, "d1")
                peer.store.native.close()
                for one in (sick, device_at(port, "gone")[0], device_at(port, "other")[0]):
                    with pytest.raises(DeviceFailed):
                        await transport.put(one, key_of(1), record(1), b"data", footer_of(b"data"), ROW)
                    with pytest.raises(DeviceFailed):
                        await transport.head(one, key_of(1))
                    with pytest.raises(DeviceFailed):
                        await transport.partitions(one, 0)

    async def test_disk_fills_up_under_a_stream(self, peer: Peer) -> None:
        """What the device says in the middle of a body reaches its writer, at the latest when it commits."""
        assert isinstance(peer.store, FaultyNativeStore)
        stream = await peer.transport.open_put(peer.device, key_of(1), record(1), None, ROW)
        await stream.write(some_bytes(1_000_000))
        peer.store.native.close()

        async def rest() -> None:
            for _ in range(8):
                await stream.write(some_bytes(1_000_000))
            await stream.commit(footer_of(some_bytes(9_000_000)))

        with pytest.raises(DeviceFailed):
            await rest()
        assert not list(peer.store.root.glob("large/*/*"))

    async def test_read_error_under_a_stream(self, peer: Peer) -> None:
        """Damage in the middle is a failed node to the reader, never a short or a wrong object."""
        assert isinstance(peer.store, FaultyNativeStore)
        data = some_bytes(9_000_000)
        await peer.put(key_of(1), 1, data)
        (path,) = peer.store.root.glob("large/*/*")
        with path.open("r+b") as file:
            file.seek(7_000_000)
            file.write(bytes([data[7_000_000] ^ 1]))
        stream = await peer.transport.get(peer.device, key_of(1))
        pieces = stream.chunks()
        assert await anext(pieces) == data[: 1 << 20]
        with pytest.raises(NodeError):
            b"".join([piece async for piece in pieces])
        await stream.close()
        with pytest.raises(NotFound):
            await peer.transport.get(peer.device, key_of(1))

    async def test_damage_of_a_small_object_is_never_served(self, peer: Peer) -> None:
        """It is set aside, and not there."""
        await peer.put(key_of(1), 1, b"data")
        peer.store.flip_data(key_of(1))
        with pytest.raises((NotFound, ChecksumMismatch)):
            await peer.content(key_of(1))

    async def test_bytes_of_several_kinds(self, peer: Peer) -> None:
        """Immutable ones are sent from where they are, others are copied: a caller may change them afterwards."""
        whole = some_bytes(300_000)
        changing = bytearray(whole)
        stream = await peer.transport.open_put(peer.device, key_of(1), record(1), 4 * len(whole), None)
        await stream.write(whole)
        await stream.write(memoryview(whole)[:1])
        await stream.write(memoryview(whole)[1:])
        await stream.write(memoryview(changing))
        changing[:] = bytes(len(changing))
        await stream.write(memoryview(memoryview(whole))[:0])
        await stream.write(memoryview(whole))
        await stream.commit(footer_of(whole * 4))
        assert await peer.content(key_of(1)) == whole * 4

    async def test_slow_readers_keep_nobody_from_reading(self, peer: Peer) -> None:
        """Together their windows are larger than the memory that is received into."""
        data = some_bytes(5_000_000)
        await peer.put(key_of(1), 1, data)
        slow = [await peer.transport.get(peer.device, key_of(1)) for _ in range(30)]
        for _ in range(3):
            assert await peer.content(key_of(1)) == data
        assert [await drain(stream) == data for stream in slow] == [True] * 30

    async def test_a_large_list(self, many_entries: FaultyNativeStore) -> None:
        """More entries than the transport's window holds."""
        async with self.connected(many_entries) as peer:
            assert len(await peer.transport.entries(peer.device, 0, 7, "001")) == MANY


class TestNativeEncrypted(TestNative):
    encryption: Encryption = "required"


async def test_encryption_is_required_of_clients_and_of_servers() -> None:
    """Who asks in plain text is refused in words; who encrypts turns to nobody who does not."""
    with (
        contextlib.closing(FaultyNativeStore()) as store,
        served({"d1": store}, encryption="required") as (port, server),
    ):
        device, offset = device_at(port)
        async with client_of(offset) as plain:
            with pytest.raises(NodeUnreachable, match=r"have to be encrypted here \(cluster.encryption\)"):
                await plain.partitions(device, 0)
        async with client_of(offset, encryption="accepted") as transport:
            assert await transport.partitions(device, 0) == []
            assert [row["transport"] for row in transport.client.report()] == ["tls"]
            assert "tls" in [row["transport"] for row in server.report()]
        async with client_of(offset, b"another cluster's key", encryption="accepted") as stranger:
            with pytest.raises(NodeUnreachable, match="TLS"):
                await stranger.partitions(device, 0)


async def test_clients_and_servers_follow_new_keys_while_they_encrypt() -> None:
    """As they do in plain text."""
    new = b"a new key, long enough"
    with (
        contextlib.closing(FaultyNativeStore()) as store,
        served({"d1": store}, encryption="required") as (port, server),
    ):
        device, offset = device_at(port)
        server.set_keys([KEY, new])
        async with client_of(offset, new, encryption="required") as stranger:
            # It trusts the new key's authority alone, which signs nothing yet.
            with pytest.raises(NodeUnreachable):
                await stranger.partitions(device, 0)
        server.set_keys([new, KEY])
        async with client_of(offset, new, encryption="required") as friend:
            assert await friend.partitions(device, 0) == []


class TestNativeOnOneMachine(TestNative):
    @asynccontextmanager
    async def connected(self, store: FaultyStore) -> AsyncIterator[Peer]:
        assert isinstance(store, FaultyNativeStore)
        doubts = swiftlet_native.Doubts()
        with (
            tempfile.TemporaryDirectory() as directory,
            served({"d1": store}, sockets=Path(directory), doubts={"d1": doubts}) as (port, _),
        ):
            device, offset = device_at(port)
            async with client_of(offset, sockets=Path(directory)) as transport:
                yield Peer(transport, device, store, NativePending(store), doubts)
                assert {row["transport"] for row in transport.client.report()} <= {"same-node"}


async def at_work(server: swiftlet_native.ObjectServer, requests: int) -> None:
    """Wait until its device has so many requests at work."""
    async with asyncio.timeout(20):
        while server.stats()[0]["requests"] != requests:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.01)


async def test_cancelled_calls_end_at_the_device_too() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, server):
            device, offset = device_at(port)
            async with client_of(offset) as transport:
                stream = await transport.open_put(device, key_of(1), record(1), None, None)
                await stream.write(some_bytes(100_000))
                await at_work(server, 1)
                data = some_bytes(5_000_000)
                await transport.put(device, key_of(2), record(1), data, footer_of(data), None)
                reading = asyncio.ensure_future(transport.get(device, key_of(2)))
                await asyncio.sleep(0)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                await stream.abort()
                await at_work(server, 0)
                assert store.policies() == [0]
    finally:
        store.close()


async def test_a_silent_device_is_given_up_in_time() -> None:
    """One that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        device, offset = device_at(listener.getsockname()[1])
        async with client_of(offset, patience_s=0.3) as transport:
            with pytest.raises((NodeTimeout, NodeUnreachable)):
                await transport.head(device, key_of(1))


async def test_a_server_that_leaves_finishes_what_it_has_and_takes_no_more() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, server):
            device, offset = device_at(port)
            async with client_of(offset) as transport:
                data = some_bytes(3_000_000)
                stream = await transport.open_put(device, key_of(1), record(1), len(data), None)
                await stream.write(data[:1_000_000])
                await at_work(server, 1)
                server.leave()
                async with asyncio.timeout(20):
                    while True:
                        try:
                            await transport.policies(device)
                        except NotMade:
                            break
                await stream.write(data[1_000_000:])
                assert (await stream.commit(footer_of(data))).pending is False
                assert store.stat(key_of(1)).size == len(data)
    finally:
        store.close()


async def test_who_lacks_the_key_gets_nothing() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, server):
            device, offset = device_at(port)
            async with client_of(offset, key=b"another cluster's key") as transport:
                with pytest.raises(NotMade, match="the two sides have no cluster key in common"):
                    await transport.policies(device)
                server.set_keys([b"another cluster's key", KEY])
                while True:
                    try:
                        assert await transport.policies(device) == []
                    except NotMade:
                        await asyncio.sleep(0.02)
                    else:
                        break
    finally:
        store.close()


async def test_another_server_than_the_one_that_is_meant_is_not_spoken_to() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, _):
            other = Device(0, "one", "127.0.0.1", PORT + 1, "d1", "r1", "z1", "n1", 1.0)
            async with client_of(port - PORT - 1) as transport:
                with pytest.raises(NotMade, match="not the expected server"):
                    await transport.policies(other)
    finally:
        store.close()


async def test_nobody_listens_or_has_the_name() -> None:
    device, offset = device_at(1)
    async with client_of(offset) as transport:
        with pytest.raises(NotMade):
            await transport.policies(device)
        nameless = Device(0, "one", "no-such-host.invalid", PORT, "d1", "r1", "z1", "n1", 1.0)
        with pytest.raises(NotMade, match="does not resolve"):
            await transport.put(nameless, key_of(1), record(1), b"", footer_of(b""), None)
        beyond = Device(0, "one", "127.0.0.1", 100, "d1", "r1", "z1", "n1", 1.0)
        with pytest.raises(NotMade, match="no native port"):
            await transport.policies(beyond)


async def test_rows_are_pending_and_acknowledged_and_the_request_id_travels() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, server):
            device, offset = device_at(port)
            pending = NativePending(store)
            async with client_of(offset) as transport:
                request_id.set("tx" + "é" * 100)
                body = b"data"
                reply = await transport.put(device, key_of(1), record(1), body, footer_of(body), ROW)
                assert reply.pending
                assert (pending.count(), pending.name(key_of(1)), pending.name(key_of(2))) == (1, record(1).name, None)
                assert 0.0 <= pending.oldest_s() < 60.0
                await transport.acknowledge(device, [(key_of(1), record(1).timestamp)])
                assert (pending.count(), pending.oldest_s()) == (0, 0.0)
            stats = server.stats()[0]
            assert (stats["received_bytes"], stats["sent_bytes"], stats["requests"]) == (4, 0, 0)
            assert sorted(stats["answered"]) == [("acknowledge", "ok", 1), ("put", "ok", 1)]  # type: ignore[call-overload]
            assert [row["peer"] for row in server.report()] == ["client"]
    finally:
        store.close()


async def test_a_server_that_is_stopped_is_lost_and_found_again() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, _):
            device, offset = device_at(port)
            async with client_of(offset, silence_s=60.0) as transport:
                body = some_bytes(5_000_000)
                await transport.put(device, key_of(1), record(1), body, footer_of(body), None)
                stream = await transport.get(device, key_of(1))
                pieces = stream.chunks()
                await anext(pieces)
                transport.client.report()
                server = swiftlet_native.ObjectServer("127.0.0.1:1", machine(), [KEY], {}, {}, pool_bytes=32 << 20)
                server.stop()
                server.stop()
                with pytest.raises(ValueError, match="stopped"):
                    server.listen("127.0.0.1", 0)
                assert b"".join([piece async for piece in pieces]) == body[1 << 20 :]
                await drain(await transport.get(device, key_of(1)))
        async with client_of(offset, patience_s=2.0) as transport:
            with pytest.raises(NodeUnreachable):
                await transport.head(device, key_of(1))
    finally:
        store.close()


async def test_what_is_counted() -> None:
    store = FaultyNativeStore()
    try:
        with served({"d1": store}) as (port, _):
            device, offset = device_at(port)
            async with client_of(offset) as transport:
                metrics = NativeMetrics(transport.client.report)
                metrics.take()
                assert by_transport(transport.client.report()) == {}
                await transport.put(device, key_of(1), record(1), b"data", footer_of(b"data"), None)
                metrics.take()
                metrics.take()
                assert by_transport(transport.client.report()) == {"tcp": 1}
            metrics.take()
    finally:
        store.close()

    def sample(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"swiftlet_transport_{name}", {"peer": "127.0.0.1:6200", **labels})

    assert (sample("requests_total") or 0) >= 1
    assert (sample("sent_bytes_total") or 0) > len(b"data")
    assert (sample("request_seconds_total") or 0) > 0
    assert sample("connected", transport="tcp") == 0
