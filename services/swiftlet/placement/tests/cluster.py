"""A whole cluster in one process: rings, devices in memory, databases in a directory, and faults on all of them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path as Directory

import pytest
from swiftlet_native import xxh3_64

from swiftlet.errors import NotFound
from swiftlet.listing.updates import UpdateTable
from swiftlet.model import Entry, ListingQuery, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.outcomes import Written
from swiftlet.placement.plan import ANYWHERE, Place, plan_read
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.lagging import Lagging
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.rows.row_updates import RowRouter
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.model import Device, WriteQuorum
from swiftlet.servers.objects.pending_delivery import DeliveryTimes, PendingDelivery
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.testing.storage.inline_listing import InlineListingStore
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.memory_pending import MemoryPending
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp

HASH_PATH = HashPath(b"", b"suffix of the tests")
ACCOUNT, CONTAINER = "AUTH_test", "c"
PATH = Path(ACCOUNT, CONTAINER, "o")
HOUR = 500_000
PATIENCE_S = 0.02
"""How long silent devices are waited for."""
NEVER_SUPPRESSED = 1_000_000


def at(second: float) -> Timestamp:
    """A moment."""
    return Timestamp.at(second)


@functools.cache
def make_ring(devices: int, replicas: float = 3, part_power: int = 4, regions: tuple[str, ...] = ("r",)) -> Ring:
    """Every device in a zone of its own, regions taking turns. Rings don't change, so the same one is returned for the
    same arguments.
    """
    builder = RingBuilder(part_power, replicas, min_part_hours=0)
    for number in range(devices):
        region = regions[number % len(regions)]
        builder.add_device(host=f"h{number}", port=6200, device="d", region=region, zone=f"z{number}", weight=1)
    builder.rebalance(HOUR)
    return builder.ring


def footer_of(body: bytes) -> PutFooter:
    """What ends the upload of `body`."""
    return PutFooter(len(body), hashlib.md5(body).hexdigest(), xxh3_64(body))


def record_of(path: Path, timestamp: Timestamp, metadata: Mapping[str, str] | None = None) -> PutRecord:
    """A text object."""
    return PutRecord(str(path), timestamp, "text/plain", metadata or {})


class OneRing:
    """The same ring for everything."""

    def __init__(self, ring: Ring) -> None:
        """It can be exchanged at any time."""
        self.ring = ring

    def account(self) -> Ring:
        """That ring."""
        return self.ring

    def container(self) -> Ring:
        """That ring."""
        return self.ring

    def objects(self, policy: int) -> Ring:
        """That ring."""
        return self.ring


class MemoryCluster:
    """Devices, what they hold, and the proxy's view of them."""

    def __init__(
        self,
        root: Directory,
        devices: int,
        replicas: float,
        suppress_after: int,
        make_table: Callable[[Directory], UpdateTable] | None = None,
        regions: tuple[str, ...] = ("r",),
        place: Place = ANYWHERE,
        quorum: WriteQuorum = "majority",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`suppress_after` failures in a row a device is asked last; `make_table` is for databases of containers."""
        self.rings = OneRing(make_ring(devices, replicas, regions=regions))
        self.ring = self.rings.ring
        self.devices = [device for device in self.ring.devices if device is not None]
        self.stores: dict[str, FaultyStore] = {device.address: MemoryStore() for device in self.devices}
        self.databases = {
            device.name: InlineListingStore(root / device.host, HASH_PATH, device=device.host, make_table=make_table)
            for device in self.devices
        }
        self.listing_transport = MemoryListingTransport(self.databases)
        self.rows = RowQueues(self.rings.container, self.listing_transport, HASH_PATH)
        self.pending = {device.address: MemoryPending() for device in self.devices}
        self.transport = MemoryObjectTransport(self.stores, patience_s, self.pending)
        self.health = NodeHealth(limit=suppress_after)
        lagging = Lagging()
        self.listings = ClusterListings(
            self.rings, self.listing_transport, HASH_PATH, self.health, lagging=lagging, place=place
        )
        self.acknowledgements = Acknowledgements(self.transport, interval_s=0.01)
        queues = RowQueues(self.rings.container, self.listing_transport, HASH_PATH)

        def quorums(_policy: int) -> WriteQuorum:
            return quorum

        self.router = RowRouter(
            self.rings, queues, self.acknowledgements, HASH_PATH, RowWaits(1.0, 0.2), lagging, place, quorums
        )
        self.objects = ClusterObjects(
            self.rings,
            self.transport,
            self.router,
            HASH_PATH,
            self.health,
            post_quorum_wait_s=1.0,
            write_timeout_s=0.05,
            place=place,
            quorums=quorums,
        )

    async def close(self) -> None:
        """Let go of the databases."""
        await drain_background(10)
        await self.rows.drain(10)
        await self.router.drain(10)
        for database in self.databases.values():
            await database.close()

    # Where things are.

    def key(self, path: Path = PATH) -> ObjectKey:
        """An object's place."""
        return self.objects.key(path, 0)

    def primaries(self, path: Path = PATH) -> tuple[Device, ...]:
        """An object's devices."""
        return self.ring.primaries(self.key(path).partition)

    def handoffs(self, path: Path = PATH) -> tuple[Device, ...]:
        """All other devices, in order."""
        return tuple(self.ring.handoffs(self.key(path).partition))

    def container_partition(self, container: str = CONTAINER) -> int:
        """Where a container's database is."""
        return self.ring.partition_of(HASH_PATH(ACCOUNT, container))

    def container_devices(self, container: str = CONTAINER) -> tuple[Device, ...]:
        """The devices of a container's database."""
        return self.ring.primaries(self.container_partition(container))

    def store(self, device: Device) -> FaultyStore:
        """What a device holds."""
        return self.stores[device.address]

    def info(self, device: Device, path: Path = PATH, policy: int = 0) -> ObjectInfo | None:
        """The object as one device has it."""
        try:
            return self.store(device).stat(self.objects.key(path, policy))
        except NotFound:
            return None

    def entry(self, device: Device, key: ObjectKey | None = None) -> Entry | None:
        """The object's versions on one device, tombstones included."""
        key = key or self.key()
        found = self.store(device).entries(key.policy, key.partition, key.suffix)
        return next((entry for entry in found if entry.digest == key.digest), None)

    def holders(self, path: Path = PATH) -> set[str]:
        """Hosts of the devices that have the object."""
        return {device.host for device in self.devices if self.info(device, path)}

    async def listed(self, device: Device, container: str = CONTAINER) -> list[str]:
        """The names in one replica of a container."""
        partition = self.container_partition(container)
        _, rows = await self.databases[device.name].list_objects(partition, ACCOUNT, container, ListingQuery())
        return [row.name for row in rows]

    # What befalls them.

    def hosts_with_pending(self) -> set[str]:
        """Hosts of the devices that have updates pending."""
        return {device.host for device in self.devices if self.pending_count(device)}

    async def deliver_pending(self, after_s: float) -> None:
        """Let that time pass and have all devices deliver what is pending by then."""
        times = DeliveryTimes(send_s=1.0, interval_s=0.0, reclaim_age_s=float("inf"))
        for device in self.devices:
            pending, pool = self.pending[device.address], DevicePool(device.name, 1, 1)
            pending.let_pass(after_s)
            await PendingDelivery(device.name, self.store(device), pending, pool, self.rows, times).deliver()
            pool.close()

    def pending_count(self, device: Device) -> int:
        """How many updates a device has pending."""
        return self.pending[device.address].count()

    @contextmanager
    def down(self, *devices: Device) -> Iterator[None]:
        """Object servers that can't be reached."""
        for device in devices:
            self.transport.link(device).unreachable = True
        yield
        for device in devices:
            self.transport.link(device).unreachable = False

    @contextmanager
    def databases_down(self, *devices: Device, fault: Fault = Fault.UNREACHABLE) -> Iterator[None]:
        """Container servers that can't be reached."""
        for device in devices:
            self.listing_transport.faults[device.name] = fault
        yield
        for device in devices:
            del self.listing_transport.faults[device.name]

    # Writing, by the cluster and behind its back.

    async def make_container(self, name: str = CONTAINER, second: float = 1, policy: int = 0) -> None:
        """Create a container on all of its replicas."""
        assert await self.listings.put_container(ACCOUNT, name, at(second), {}, policy, policy)

    async def put(self, second: float, body: bytes = b"data", path: Path = PATH) -> Written:
        """A small object."""
        return await self.objects.put(path, 0, record_of(path, at(second)), body, footer_of(body))

    def place(self, device: Device, second: float, body: bytes = b"data", path: Path = PATH) -> None:
        """A version on one device only."""
        writer = self.store(device).create(self.key(path))
        writer.write(body)
        writer.commit(record_of(path, at(second)), footer_of(body))

    def place_post(self, device: Device, second: float, metadata: Mapping[str, str], path: Path = PATH) -> None:
        """Metadata on one device only."""
        self.store(device).post(self.key(path), PostRecord(at(second), metadata))

    def place_tombstone(self, device: Device, second: float, path: Path = PATH) -> None:
        """A deletion on one device only."""
        with contextlib.suppress(NotFound):
            self.store(device).delete(self.key(path), at(second), str(path))

    async def read(self, newest: bool = False, path: Path = PATH, start: int = 0, stop: int | None = None) -> bytes:
        """An object's bytes."""
        download = await self.objects.get(path, 0, start, stop, newest)
        return b"".join([chunk async for chunk in download.chunks()])


@asynccontextmanager
async def memory_cluster(
    root: Directory,
    devices: int = 6,
    replicas: float = 3,
    suppress_after: int = NEVER_SUPPRESSED,
    make_table: Callable[[Directory], UpdateTable] | None = None,
    regions: tuple[str, ...] = ("r",),
    place: Place = ANYWHERE,
    quorum: WriteQuorum = "majority",
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[MemoryCluster]:
    """A cluster for as long as the context lasts, used from `place`."""
    cluster = MemoryCluster(root, devices, replicas, suppress_after, make_table, regions, place, quorum, patience_s)
    for database in cluster.databases.values():
        database.start_folding()
    try:
        yield cluster
    finally:
        await cluster.close()


def reading_order(monkeypatch: pytest.MonkeyPatch, *order: Device) -> None:
    """Have reads ask the primaries in this order from now on."""
    ranks = {device.id: rank for rank, device in enumerate(order)}

    def shuffle(devices: list[Device]) -> None:
        devices.sort(key=lambda device: ranks.get(device.id, len(ranks)))

    ordered = functools.partial(plan_read, shuffle=shuffle)
    for module in ("copies", "listings"):
        monkeypatch.setattr(f"swiftlet.placement.{module}.plan_read", ordered)
