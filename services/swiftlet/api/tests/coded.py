"""A proxy whose second policy has erasure coding, 4+2 over six object servers or more in this process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path as Directory

from swiftlet_native import ObjectServer, ObjectWire, TransportPeer

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.errors import NodeError
from swiftlet.model import ObjectKey
from swiftlet.native_values import version_parts
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.packed import PackedObjects
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.rows.row_updates import RowRouter
from swiftlet.placement.tests.cluster import HASH_PATH, HOUR, MemoryCluster, memory_cluster
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.model import Coding, Device
from swiftlet.servers.objects.native_pending import NativePending
from swiftlet.servers.objects.pending_delivery import DeliveryTimes, PendingDelivery, RowSink
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies
from swiftlet.settings.sections import CodingSection
from swiftlet.store.native import NativeStore
from swiftlet.testing.ports import object_ports
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_calls import NativeSettings, NotMade
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_coded import NativeCoded
from swiftlet.transport.native_replicas import made

KEYS = [b"k" * 32]
CODED = 1
"""The policy with erasure coding."""
CODING = Coding(4, 2, 1024)
STRIPE = CODING.data * CODING.cell_bytes
FAR_REGION = "far"
_POOL_BYTES = 16 << 20
_CLIENT_POOL_BYTES = 32 << 20


def policies(coding: Coding = CODING) -> Policies:
    """Return one policy with copies and one with erasure coding."""
    section = CodingSection(data=coding.data, parity=coding.parity, cell_bytes=coding.cell_bytes)
    coded = PolicySection(index=CODED, name="coded", coding=section)
    return Policies([PolicySection(index=0, name="gold", default=True), coded])


class _Client(NativeClient):
    """A client that does not find some devices."""

    away: Collection[int] = ()

    def __init__(self, settings: NativeSettings, keys: Sequence[bytes]) -> None:
        super().__init__(settings, keys)
        self.moved: dict[int, int] = {}
        """Other ports of devices, by their numbers."""

    def known(self, device: Device) -> TransportPeer | None:
        return None if device.id in self.away else super().known(device)

    async def peer(self, device: Device) -> TransportPeer:
        if device.id in self.away:
            raise NotMade(f"{device.address} is away")
        return await super().peer(device)

    async def _find(self, device: Device) -> TransportPeer:
        if device.id in self.moved:
            return self.native().peer(f"{device.host}:{device.port}", device.host, self.moved[device.id])
        return await super()._find(device)


@dataclass(frozen=True)
class _CodedRing:
    """The ring of coded objects alone."""

    ring: Ring

    def objects(self, _policy: int) -> Ring:
        """Return it."""
        return self.ring


class _Rings:
    """The rings of a cluster, and another one for coded objects."""

    def __init__(self, cluster: MemoryCluster, coded: Ring) -> None:
        self._cluster = cluster
        self.coded = coded

    def account(self) -> Ring:
        """That of the cluster."""
        return self._cluster.ring

    def container(self) -> Ring:
        """That of the cluster."""
        return self._cluster.ring

    def objects(self, policy: int) -> Ring:
        """Return that of coded objects for their policy."""
        return self.coded if policy == CODED else self._cluster.ring


class _Acknowledging:
    """Acknowledges rows to the devices of both policies."""

    def __init__(self, cluster: MemoryCluster, servers: CodedServers) -> None:
        self._cluster = cluster
        self._servers = servers

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Acknowledge the rows of these versions."""
        if device in self._servers.ring.devices:
            message = made(device, ObjectWire.acknowledge, version_parts(written))
            await self._servers.client.ask(device, message)
        else:
            await self._cluster.transport.acknowledge(device, written)


class CodedServers:
    """Object servers with a device each, and those who write and read there."""

    def __init__(
        self, root: Directory, count: int = CODING.fragments, far: Collection[int] = (), coding: Coding = CODING
    ) -> None:
        """Of `count` servers those in `far` are in another region than the others."""
        self.coding = coding
        self.ports: dict[str, int] = {}
        """Where the servers listen, by the address of their device."""
        self.stores: list[NativeStore] = []
        self.servers: list[ObjectServer] = []
        self._root = root
        self.builder = builder = RingBuilder(4, coding.fragments, min_part_hours=0)
        for number, port in enumerate(object_ports(count)):
            store, server = self._started(number, port)
            self.stores.append(store)
            self.servers.append(server)
            region = FAR_REGION if number in far else "r"
            self.ports[f"127.0.0.1:{port}/d"] = port + 1000
            builder.add_device(host="127.0.0.1", port=port, device="d", region=region, zone=f"z{number}", weight=1)
        builder.rebalance(HOUR)
        self.ring = builder.ring
        settings = NativeSettings(port_offset=1000, connect_timeout_s=20.0, pool_bytes=_CLIENT_POOL_BYTES)
        self.client = _Client(settings, KEYS)
        self.coded = NativeCoded(self.client)

    def _started(self, number: int, port: int) -> tuple[NativeStore, ObjectServer]:
        directory = self._root / f"coded-{number}"
        directory.mkdir()
        store = NativeStore(directory, volume_bytes=2 << 20)
        server = ObjectServer(f"127.0.0.1:{port}", "there", KEYS, {"d": store.native}, {}, pool_bytes=_POOL_BYTES)
        server.listen("127.0.0.1", port + 1000)
        self.know(server, self.coding)
        return store, server

    async def replace(self, number: int) -> None:
        """Put an empty device in the place of one."""
        await asyncio.to_thread(self.servers[number].stop)
        await asyncio.to_thread(self.stores[number].close)
        await asyncio.to_thread(shutil.rmtree, self._root / f"coded-{number}")
        device = self.ring.device(number)
        self.stores[number], self.servers[number] = self._started(number, device.port)
        async with asyncio.timeout(20):
            # A client that has met nobody there does not try again at once.
            while not await self._answers(device):  # noqa: ASYNC110 - another thread, it tells nobody
                await asyncio.sleep(0.05)

    async def _answers(self, device: Device) -> bool:
        try:
            await self.client.ask(device, made(device, ObjectWire.policies))
        except NodeError:
            return False
        return True

    def move(self, device: Device, port: int) -> None:
        """Ask a device at another port from now on."""
        self.client.moved[device.id] = port
        self.client.forget(device)

    def spare(self) -> int:
        """Return how many MiB of the client's memory uploads could have now, which is half of it if none is in use."""
        node, taken = self.client.native(), []
        while (buffer := node.upload_buffer(1 << 20)) is not None:
            taken.append(buffer)
        return len(taken)

    @staticmethod
    def know(server: ObjectServer, coding: Coding | None) -> None:
        """Tell a server how the policy is coded."""
        parts = None if coding is None else (coding.data, coding.parity, coding.cell_bytes)
        server.set_codings({0: None, CODED: parts})

    @contextmanager
    def away(self, *numbers: int) -> Iterator[None]:
        """Devices that are not found."""
        self.client.away = numbers
        try:
            yield
        finally:
            self.client.away = ()

    def pending(self) -> int:
        """Return the number of container updates that are pending at all devices."""
        return sum(NativePending(store).count() for store in self.stores)

    async def deliver_pending(self, sink: RowSink) -> int:
        """Have all devices deliver what is pending, however short a time; return how many updates that were."""
        times = DeliveryTimes(send_s=1.0, interval_s=0.0, reclaim_age_s=HOUR, pending_for_s=0.0)
        packed = PackedObjects(_CodedRing(self.ring), self.coded, lambda _policy: self.coding)
        total = 0
        for number, store in enumerate(self.stores):
            pool = DevicePool(f"coded-{number}", 1, 1)
            updates = NativePending(store)
            delivery = PendingDelivery(f"coded-{number}", store, updates, pool, sink, times, packed=packed)
            total += await delivery.deliver()
            pool.close()
        return total

    async def close(self) -> None:
        """End all."""
        await self.client.close()
        for server in self.servers:
            await asyncio.to_thread(server.stop)
        for store in self.stores:
            await asyncio.to_thread(store.close)


@dataclass(frozen=True)
class CodedCluster:
    """A cluster in memory, and the servers of its coded policy, in which it has the container `c`."""

    cluster: MemoryCluster
    servers: CodedServers
    policies: Policies
    rings: Rings

    @property
    def coded(self) -> tuple[Rings, NativeCoded]:
        """The rings and the devices of coded objects."""
        return self.rings, self.servers.coded


@asynccontextmanager
async def coded_cluster(
    root: Directory,
    *,
    devices: int = CODING.fragments,
    pack_below: int = 0,
    far: Collection[int] = (),
    coding: Coding = CODING,
) -> AsyncIterator[CodedCluster]:
    """A cluster with the container `c` in the coded policy, whose objects of up to `pack_below` bytes are copies.

    The devices in `far` are in another region.
    """
    async with memory_cluster(root, devices=5) as cluster:
        servers, known = CodedServers(root, devices, far, coding), policies(coding)
        rings = _Rings(cluster, servers.ring)
        queues = RowQueues(rings.container, cluster.listing_transport, HASH_PATH)
        acknowledgements = Acknowledgements(_Acknowledging(cluster, servers), interval_s=0.01)
        router = RowRouter(rings, queues, acknowledgements, HASH_PATH, RowWaits(1.0, 0.2))
        try:
            cluster.objects = ClusterObjects(
                rings,
                cluster.transport,
                router,
                HASH_PATH,
                NodeHealth(),
                coded=servers.coded,
                codings=known.coding,
                pack_below=lambda policy: pack_below if policy == CODED else 0,
            )
            await cluster.make_container(policy=CODED)
            yield CodedCluster(cluster, servers, known, rings)
        finally:
            await router.drain(10)
            await servers.close()


@asynccontextmanager
async def coded_proxy(
    root: Directory,
    *,
    through_front: bool = False,
    devices: int = CODING.fragments,
    pack_below: int = 0,
    far: Collection[int] = (),
) -> AsyncIterator[tuple[Proxy, CodedServers]]:
    """A proxy of a cluster as `coded_cluster` makes it. What is read `through_front` is read twice."""
    async with (
        coded_cluster(root, devices=devices, pack_below=pack_below, far=far) as made,
        proxy_of(made.cluster, root, policies=made.policies, through_front=through_front, coded=made.coded) as proxy,
    ):
        yield proxy, made.servers
