"""Proxies in several regions over one cluster in memory: each has links of its own, which can be cut by region."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path as Directory
from typing import TypeVar

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.listing.pool import ListingStore
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.outcomes import Written
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.rows.row_updates import RowRouter
from swiftlet.placement.tests.cluster import (
    HASH_PATH,
    NEVER_SUPPRESSED,
    PATH,
    MemoryCluster,
    at,
    footer_of,
    memory_cluster,
    record_of,
)
from swiftlet.placement.tests.test_cluster_history import replicator
from swiftlet.ring.model import Device, WriteQuorum
from swiftlet.store.protocol import Store
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.testing.storage.memory_objects import MemoryGetStream, MemoryObjectTransport, MemoryPutStream

T = TypeVar("T")
_OPENING = ContextVar("opening", default=False)
"""Whether calls are parts of one that has crossed already."""
REGIONS = ("east", "north", "west")


class WideArea:
    """Counts round trips between regions: requests that are on their way at the same time make one.

    Whoever calls another region waits until nothing else goes on; then all who wait go on together.
    """

    def __init__(self) -> None:
        """Nobody waits before `trips`."""
        self._waiting: list[asyncio.Future[None]] = []
        self._counting = False
        self.at_work = 0
        """Requests within the region that are being carried out."""

    async def cross(self) -> None:
        """Wait for the next trip."""
        if self._counting:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    async def trips(self, work: Awaitable[object]) -> int:
        """Return after how many trips this is done."""
        count, self._counting = 0, True
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                for _ in range(50):
                    await asyncio.sleep(0)
                if task.done():
                    break
                if self.at_work or not self._waiting:
                    await asyncio.sleep(0.001)
                    continue
                count += 1
                self._release()
            await task
        finally:
            self._counting = False
            self._release()
        return count

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class FarObjects(MemoryObjectTransport):
    """Objects of devices, of which some are in other regions."""

    def __init__(self, cluster: MemoryCluster, place: Place, wide_area: WideArea) -> None:
        """As somebody at this place has them."""
        super().__init__(cluster.stores, 0.0, cluster.pending)
        self.doubts = cluster.transport.doubts
        self._place = place
        self._wide_area = wide_area
        self.crossed: Counter[tuple[str, str]] = Counter()
        """Bytes of objects and copies that passed between regions, those of transfers that failed too, by where they
        came from and where they went.
        """

    def _passes(self, device: Device, size: int, *, there: bool) -> None:
        if self._place.distance(device) == 2:
            here = self._place.region or ""
            self.crossed[(here, device.region) if there else (device.region, here)] += size

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object."""
        self._passes(device, len(body), there=True)
        return await super().put(device, key, record, body, footer, row)

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> MemoryGetStream:
        """Open an object, which counts as if all of it were read."""
        stream = await super().get(device, key, start, stop, proved=proved)
        self._passes(device, stream.info.size, there=False)
        return stream

    async def _reach(self, device: Device) -> Store:
        await self._cross(device)
        return await super()._reach(device)

    async def _cross(self, device: Device) -> None:
        if self._place.distance(device) == 2 and not _OPENING.get():
            await self._wide_area.cross()

    async def open_put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        size: int | None,
        row: ContainerUpdate | None,
        begun: Callable[[MemoryPutStream], object] | None = None,
    ) -> MemoryPutStream:
        """As the native transport does it: one question whether the device takes it, and one answer at the end."""

        def crossing(stream: MemoryPutStream) -> MemoryPutStream:
            commit = stream.commit

            async def crossed(footer: PutFooter) -> WriteReply:
                await self._cross(device)
                return await commit(footer)

            stream.commit = crossed  # type: ignore[method-assign]
            return stream

        if begun is None:
            return crossing(await super().open_put(device, key, record, size, row))
        tell = begun
        return await super().open_put(device, key, record, size, row, lambda stream: tell(crossing(stream)))

    async def _accepted(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> MemoryPutStream:
        await self._cross(device)
        opening = _OPENING.set(True)
        try:
            return await super()._accepted(device, key, record, size, row)
        finally:
            _OPENING.reset(opening)


class SlowDatabases(MemoryListingTransport):
    """Databases of which some answer only when they may."""

    def __init__(self, databases: Mapping[str, ListingStore], place: Place, wide_area: WideArea) -> None:
        """None is slow at first."""
        super().__init__(databases)
        self._place = place
        self._wide_area = wide_area
        self.slow: set[str] = set()
        """Names of devices that wait for `go_on`."""
        self.go_on = asyncio.Event()

    async def _ask(self, device: Device, request: Callable[[ListingStore], Awaitable[T]]) -> T:
        if device.name in self.slow:
            await self.go_on.wait()
        if self._place.distance(device) == 2:
            await self._wide_area.cross()
        self._wide_area.at_work += 1
        try:
            return await super()._ask(device, request)
        finally:
            self._wide_area.at_work -= 1


class Site:
    """A proxy in one region, and the replicators of its devices."""

    def __init__(self, cluster: MemoryCluster, place: Place, quorum: WriteQuorum, suppress_after: int) -> None:
        """Reach all devices of the cluster."""
        self.cluster = cluster
        self.place = place
        self.wide_area = WideArea()
        self.transport = FarObjects(cluster, place, self.wide_area)
        self.databases = SlowDatabases(cluster.databases, place, self.wide_area)
        self.acknowledgements = Acknowledgements(self.transport, interval_s=0.0)
        self.queues = RowQueues(cluster.rings.container, self.databases, HASH_PATH)

        def quorums(_policy: int) -> WriteQuorum:
            return quorum

        self.router = RowRouter(
            cluster.rings, self.queues, self.acknowledgements, HASH_PATH, RowWaits(5.0, 0.2), None, place, quorums
        )
        self.health = NodeHealth(limit=suppress_after)
        self.listings = ClusterListings(cluster.rings, self.databases, HASH_PATH, self.health, place=place)
        self.objects = ClusterObjects(
            cluster.rings, self.transport, self.router, HASH_PATH, self.health, 1.0, 0.05, place, quorums
        )

    def far(self) -> list[Device]:
        """Devices in other regions."""
        return [device for device in self.cluster.devices if device.region != self.place.region]

    def near(self) -> list[Device]:
        """Devices in this region."""
        return [device for device in self.cluster.devices if device.region == self.place.region]

    def far_calls(self) -> int:
        """How often devices in other regions have been called."""
        return sum(self.transport.link(device).calls for device in self.far())

    def cut(self, device: Device, is_cut: bool = True) -> None:
        """Lose the link to a device, and to the databases there, or have it back."""
        self.transport.link(device).unreachable = is_cut
        if is_cut:
            self.databases.faults[device.name] = Fault.UNREACHABLE
        else:
            self.databases.faults.pop(device.name, None)

    async def put(self, second: float, body: bytes = b"data", path: Path = PATH) -> Written:
        """A small object."""
        return await self.objects.put(path, 0, record_of(path, at(second)), body, footer_of(body))

    async def upload(self, second: float, body: bytes, path: Path = PATH) -> Written:
        """A streamed object."""
        upload = await self.objects.begin_upload(path, 0, record_of(path, at(second)), len(body))
        try:
            for start in range(0, len(body), 1000):
                await upload.write(body[start : start + 1000])
            return await upload.commit(footer_of(body))
        finally:
            await upload.abort()

    async def post(self, second: float, path: Path = PATH) -> Written:
        """Metadata that tells its time."""
        return await self.objects.post(path, 0, PostRecord(at(second), {"X-Object-Meta-N": str(second)}))

    async def delete(self, second: float, path: Path = PATH) -> Written:
        """A deletion."""
        return await self.objects.delete(path, 0, at(second))

    async def head(self, path: Path = PATH) -> ObjectInfo:
        """What there is."""
        return await self.objects.head(path, 0)

    async def read(self, path: Path = PATH, newest: bool = False) -> bytes:
        """An object's bytes."""
        download = await self.objects.get(path, 0, newest=newest)
        return b"".join([chunk async for chunk in download.chunks()])

    async def replicate(self) -> None:
        """A round of the replicators of this region's devices."""
        for device in self.near():
            await replicator(self.transport, self.cluster, device).run_round([0])

    async def settle(self) -> None:
        """Let what goes on in the background end."""
        await drain_background(10)
        await self.queues.drain(10)
        await self.router.drain(10)


class Sites:
    """A site in each region."""

    def __init__(self, cluster: MemoryCluster, quorum: WriteQuorum, suppress_after: int) -> None:
        """All of them reach everything."""
        self.cluster = cluster
        regions = sorted({device.region for device in cluster.devices})
        self.by_region = {region: Site(cluster, Place(region), quorum, suppress_after) for region in regions}
        self.nowhere = Site(cluster, ANYWHERE, quorum, suppress_after)
        """A proxy that does not know its region."""

    def __getitem__(self, region: str) -> Site:
        return self.by_region[region]

    def __iter__(self) -> Iterator[Site]:
        return iter(self.by_region.values())

    def isolate(self, region: str, is_cut: bool = True) -> None:
        """Cut a region off from all others, or connect it again."""
        for site in self:
            for device in site.far():
                if region in (site.place.region, device.region):
                    site.cut(device, is_cut)

    @contextmanager
    def isolated(self, region: str) -> Iterator[None]:
        """A region that is cut off for a while."""
        self.isolate(region)
        yield
        self.isolate(region, False)

    async def rounds(self, count: int = 2) -> None:
        """Rounds of all replicators."""
        for _ in range(count):
            for site in self:
                await site.replicate()

    def holders(self, path: Path = PATH) -> dict[str, int]:
        """How many devices of each region have the object."""
        found: dict[str, int] = {}
        for device in self.cluster.devices:
            if self.cluster.info(device, path):
                found[device.region] = found.get(device.region, 0) + 1
        return found

    def primary(self, region: str, path: Path = PATH) -> Device:
        """The object's first primary in a region."""
        return next(device for device in self.cluster.primaries(path) if device.region == region)


@asynccontextmanager
async def sites(
    root: Directory,
    quorum: WriteQuorum,
    devices: int = 12,
    replicas: float = 3,
    regions: tuple[str, ...] = REGIONS,
    suppress_after: int = NEVER_SUPPRESSED,
) -> AsyncIterator[Sites]:
    """Sites over a cluster with one container, which is everywhere."""
    async with memory_cluster(root, devices, replicas, regions=regions, patience_s=0.0) as cluster:
        await cluster.make_container()
        made = Sites(cluster, quorum, suppress_after)
        try:
            yield made
        finally:
            await asyncio.gather(*(site.settle() for site in (*made, made.nowhere)))
