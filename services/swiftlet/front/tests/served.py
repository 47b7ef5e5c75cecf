"""A cluster in memory whose objects are on native stores behind native servers, and a server with a front before it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as Directory
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.test_utils import TestServer
from swiftlet_native import ContainerServer, ObjectServer, TransportNode, TransportPeer, UpdateTable

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import NodeUnreachable
from swiftlet.front.proxy_front import FrontSettings, ProxyFront
from swiftlet.front.routes import CodedPeers
from swiftlet.front.secure import CertificateInUse
from swiftlet.front.withdrawing import Withdrawals
from swiftlet.main.services.front import use_front
from swiftlet.model import ObjectKey
from swiftlet.placement.rings import Rings
from swiftlet.placement.tests.cluster import HASH_PATH, MemoryCluster
from swiftlet.ring.model import Device
from swiftlet.store.native import NativeStore, NativeWriter
from swiftlet.testing.store.faults import Faults, FaultyStore
from swiftlet.web.front_listener import FRONT_LISTENER

KEYS = [b"k" * 32]
POOL_BYTES = 16 << 20
_VOLUME_BYTES = 2 << 20
LARGE_BYTES = 4 << 20
"""Room in a front for large answers; half of it is what one of more than 1 MiB takes."""
TIMEOUTS_S = (5.0, 1.5)
"""How long the front waits for a device's answer, and for all to have stored an object."""


_DEVICES: dict[MemoryCluster, NativeDevices] = {}
"""Of clusters with several proxies: the first one's, which ends last."""


class _Faulty(NativeStore):
    """A native store that may be full, for whoever writes to it directly."""

    def __init__(self, directory: Directory) -> None:
        super().__init__(directory, volume_bytes=_VOLUME_BYTES)
        self.faults = Faults()

    def create(self, key: ObjectKey, size: int | None = None, aggregate_below: int | None = None) -> NativeWriter:
        self.faults.reach("create")
        return super().create(key, size, aggregate_below)


class NativeDevices:
    """The devices of a cluster: native stores in the place of those in memory, and a way to ask them."""

    def __init__(self, cluster: MemoryCluster, root: Directory) -> None:
        """What the stores in memory hold is not taken over."""
        self._node = TransportNode("proxy", "here", KEYS, pool_bytes=POOL_BYTES)
        self._stores: list[NativeStore] = []
        self._servers: list[ObjectServer] = []
        self._peers: dict[str, TransportPeer] = {}
        self.ports: dict[str, int] = {}
        """Where the servers listen, by the address of their device."""
        self.away: set[str] = set()
        """Addresses of devices that are not spoken to natively."""
        for device in cluster.devices:
            directory = root / "native" / device.host
            directory.mkdir(parents=True)
            store = _Faulty(directory)
            name = f"{device.host}:{device.port}"
            stores = {device.device: store.native}
            server = ObjectServer(name, "there", KEYS, stores, {}, pool_bytes=POOL_BYTES)
            self._stores.append(store)
            self._servers.append(server)
            port = self.ports[device.address] = server.listen("127.0.0.1", 0)
            self._peers[device.address] = self._node.peer(name, "127.0.0.1", port)
            cluster.stores[device.address] = cast("FaultyStore", store)

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Whom the front asks."""
        return None if device.address in self.away else self._peers.get(device.address)

    async def peer(self, device: Device) -> TransportPeer:
        """Whom the front asks, once it is spoken to natively."""
        found = self.native_peer(device)
        if found is None:
            raise NodeUnreachable(f"{device.address} has no native port")
        return found

    def move(self, device: Device, port: int) -> None:
        """Ask a device at another port from now on."""
        self._peers[device.address] = self._node.peer(f"{device.host}:{device.port}", "127.0.0.1", port)

    def stop(self, device: Device, cluster: MemoryCluster) -> None:
        """End a device's server; callers are not told."""
        self._servers[cluster.devices.index(device)].stop()

    def reads(self, device: Device, cluster: MemoryCluster) -> int:
        """Reads that a device has answered natively, which are those of fronts."""
        [stats] = self._servers[cluster.devices.index(device)].stats()
        answered = cast("list[tuple[str, str, int]]", stats["answered"])
        return sum(count for operation, _, count in answered if operation in {"get", "head"})

    def spare(self) -> int:
        """Return how many MiB of the front's memory uploads could have now, which is half of it if none is in use."""
        taken = []
        while (buffer := self._node.upload_buffer(1 << 20)) is not None:
            taken.append(buffer)
        return len(taken)

    def at_work(self) -> int:
        """Requests that devices are at work on."""
        return sum(cast("int", row["requests"]) for server in self._servers for row in server.stats())

    def close(self) -> None:
        """End servers and stores."""
        for server in self._servers:
            server.stop()
        for store in self._stores:
            store.close()


class NativeContainers:
    """The native halves of a cluster's container servers: each has a table for the rows of its device."""

    def __init__(self, cluster: MemoryCluster, root: Directory) -> None:
        """Of the databases' tables, if they have any; else of tables of its own, in which no container is open."""
        self._node = TransportNode("proxy", "here", KEYS, pool_bytes=POOL_BYTES)
        self._root = root
        self._servers: dict[str, ContainerServer] = {}
        self._peers: dict[str, TransportPeer] = {}
        self.tables: dict[str, UpdateTable] = {}
        """By the address of the device."""
        self.ports: dict[str, int] = {}
        for device in cluster.devices:
            table = cluster.databases[device.name].table
            if table is None:
                self.start(device)
            else:
                self._serve(device, cast("UpdateTable", table))

    def start(self, device: Device) -> None:
        """Begin to serve a device; after `kill` as another process does."""
        directory = self._root / "updates" / device.host
        directory.mkdir(parents=True, exist_ok=True)
        table = self.tables[device.address] = UpdateTable(directory, device.device)
        self._serve(device, table)

    def _serve(self, device: Device, table: UpdateTable) -> None:
        name = f"{device.host}:{device.port}"
        server = ContainerServer(name, "there", KEYS, {device.device: table}, {}, pool_bytes=POOL_BYTES)
        self._servers[device.address] = server
        self.move(device, server.listen("127.0.0.1", 0))

    def stop(self) -> None:
        """End all servers; callers are not told."""
        for server in self._servers.values():
            server.stop()

    def kill(self, device: Device) -> None:
        """End a device's server and its table; callers are not told."""
        self._servers[device.address].stop()
        self.tables[device.address].stop()

    def move(self, device: Device, port: int) -> None:
        """Ask a device at another port from the next look-up on."""
        self.ports[device.address] = port
        self._peers[device.address] = self._node.peer(f"{device.host}:{device.port}", "127.0.0.1", port)

    def open(self, partition: int, account: str, container: str) -> None:
        """Let all devices take rows of a container."""
        for table in self.tables.values():
            table.open(partition, account, container)

    async def peer(self, device: Device) -> TransportPeer:
        """Whom the front asks."""
        return self._peers[device.address]

    def forget(self, device: Device) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """End servers, and the tables that they have for themselves."""
        self.stop()
        for table in self.tables.values():
            table.stop()


class Movable(Protocol):
    """Devices that can be asked at other ports."""

    ports: dict[str, int]
    """Where the servers listen, by the address of their device."""

    def move(self, device: Device, port: int) -> None:
        """Ask a device at another port from now on."""


class Relay:
    """Passes on what a device and the front say to each other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._muted = False
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.passed = 0
        """Bytes of the device's answers that were passed on."""

    @classmethod
    @asynccontextmanager
    async def open(cls, devices: Movable, device: Device) -> AsyncIterator[Relay]:
        """A relay before a device, which is asked through it from now on."""
        relay = cls(devices.ports[device.address])
        server = relay._server = await asyncio.start_server(relay._serve, "127.0.0.1", 0)
        devices.move(device, server.sockets[0].getsockname()[1])
        try:
            yield relay
        finally:
            relay.cut()

    def mute(self) -> None:
        """The device gets what is sent to it, and nobody hears of its answers."""
        self._muted = True

    def cut(self) -> None:
        """The device is gone: all connections end, and none can be made."""
        assert self._server is not None
        self._server.close()
        self.restart()

    def restart(self) -> None:
        """All connections end, and new ones can be made."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_device, to_device = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += writer, to_device
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pass(reader, to_device), self._pass(from_device, writer, answers=True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool = False) -> None:
        while data := await reader.read(1 << 16):
            if not (answers and self._muted):
                writer.write(data)
                self.passed += len(data) if answers else 0
        writer.close()


class FrontServer(TestServer):
    """A server of tests whose connections come through a front."""

    def __init__(self, app: web.Application, scheme: str = "http") -> None:
        """`app` has a front listener, which speaks `scheme`."""
        super().__init__(app, scheme=scheme)
        self._listening: socket.socket | None = None

    async def start_server(self, loop: Any = None, **options: Any) -> None:
        """Listen a second time, behind the front; this is where clients come."""
        if self._listening is not None:
            return
        # As the service does: what is stored is what was sent, whatever its encoding.
        await super().start_server(loop, auto_decompress=False, **options)
        assert self.runner is not None
        assert self.runner.server is not None
        self._listening = socket.create_server((self.host, 0))
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        assert self._root is not None
        self._root = self._root.with_port(self.port)
        self.app[FRONT_LISTENER].open(self.runner.server, [self._listening], 75.0)

    async def close(self) -> None:
        """As a service ends."""
        if self._listening is not None:
            listening, self._listening = self._listening, None
            listener = self.app[FRONT_LISTENER]
            await listener.leave()
            await super().close()
            await listener.close(5.0)
            listening.close()


@asynccontextmanager
async def front_server(
    app: web.Application,
    api: SwiftApi,
    cluster: MemoryCluster,
    root: Directory,
    withdrawals: Withdrawals,
    writes: bool = False,
    timeouts_s: tuple[float, float] = TIMEOUTS_S,
    containers: NativeContainers | None = None,
    certificate: CertificateInUse | None = None,
    client_timeout_s: float = 10.0,
    coded: tuple[Rings, CodedPeers] | None = None,
) -> AsyncIterator[tuple[FrontServer, ProxyFront, NativeDevices]]:
    """A server, not started, for an application whose reads the front answers where it may, and `writes` if the
    proxy has the wall clock's time. With a `certificate` it speaks TLS. `coded` are rings that have coded objects, too,
    and who finds their devices."""
    before = _DEVICES.get(cluster)
    devices = _DEVICES[cluster] = before or NativeDevices(cluster, root)
    answer_s, store_s = timeouts_s
    settings = FrontSettings(
        HASH_PATH, client_timeout_s, answer_s, writes=writes, store_timeout_s=store_s, large_bytes=LARGE_BYTES
    )
    rings, coded_peers = (cluster.rings, None) if coded is None else coded
    use_front(app, api, rings, devices, settings, withdrawals, containers, certificate, coded_peers)
    try:
        yield (
            FrontServer(app, "http" if certificate is None else "https"),
            cast("ProxyFront", app[FRONT_LISTENER]),
            devices,
        )
    finally:
        if before is None:
            del _DEVICES[cluster]
            devices.close()
