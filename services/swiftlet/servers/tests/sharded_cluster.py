"""Three or more holders with sharding, over real databases, whose processes can be killed and started again."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from swiftlet.errors import SwiftletError
from swiftlet.model import DatabaseId, DatabaseName, ListingQuery, ObjectRow, Subdir
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.tests.database_rounds import Rounds
from swiftlet.servers.tests.listing_cluster import HASH_PATH, device
from swiftlet.sharding.shard_keeper import ShardKeeper, ShardSettings
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.testing.storage.inline_listing import InlineListingStore
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.timestamp import Timestamp, TimestampClock

ACCOUNT, CONTAINER = "a", "c"
NAME = DatabaseName(ACCOUNT, CONTAINER)
PARTITIONS = 4


def seeds(few: int) -> range:
    """The seeds of random histories: `few` in the check, or as many as `SHARD_SEEDS` says, from `SHARD_SEED` on."""
    first = int(os.environ.get("SHARD_SEED", "0"))
    return range(first, first + int(os.environ.get("SHARD_SEEDS", few)))


class Killed(Exception):
    """The process ends here; no domain error, nobody handles it."""


@dataclass
class Kills:
    """Ends the process at the step of that number."""

    at: int | None = None
    seen: list[str] = field(default_factory=list)

    @property
    def pending(self) -> bool:
        """Whether it has still to come."""
        return self.at is not None

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if self.at is not None and len(self.seen) > self.at:
            self.at = None
            raise Killed(step)


@dataclass
class ShardedCluster:
    """Container servers by the index of their device."""

    root: Path
    devices: list[Device]
    ring: Ring
    stores: dict[str, InlineListingStore]
    transport: MemoryListingTransport
    settings: ShardSettings
    batch_rows: int
    kills: dict[int, Kills]
    keepers: list[ShardKeeper] = field(default_factory=list)
    clock: TimestampClock = field(default_factory=TimestampClock)
    now_s: float = 0.0

    def begin(self, index: int) -> None:
        """A process over the databases of a device."""
        own = self.devices[index]
        store = self.stores[own.name]
        replicas = ShardedReplicas(
            own.device, store, self.transport, lambda: self.ring, lambda other: other.id == own.id
        )
        mover = ShardMover(replicas, self.clock, self.batch_rows, self.kills[index])
        keeper = ShardKeeper(replicas, mover, self.clock, self.settings, lambda: self.now_s)
        store.follow(keeper.committed)
        self.transport.sharded[own.name] = replicas
        self.keepers[index : index + 1] = [keeper]

    async def restart(self, index: int) -> None:
        """Kill the process of a device, and start another one."""
        own = self.devices[index]
        await self.stores[own.name].close()
        self.stores[own.name] = InlineListingStore(self.root / own.name, HASH_PATH)
        self.begin(index)
        await self.keepers[index].scan()

    async def round(self, index: int) -> int:
        """A keeper's round; a process that is killed in it is started again."""
        try:
            return await self.keepers[index].run_once()
        except Killed:
            await self.restart(index)
            return 1

    async def settle(self, holders: Sequence[int] = (0, 1, 2), rounds: int = 600) -> None:
        """Rounds until nobody has anything left to do."""
        for _ in range(rounds):
            self.now_s += 1.0
            if not sum([await self.round(index) for index in holders]):
                return
        raise AssertionError("splitting does not end")

    async def sync(self, rounds: int = 2) -> None:
        """Rounds of sync everywhere."""
        for _ in range(rounds):
            for own in self.devices:
                await Rounds(self.transport, own, lambda: self.ring).run_once()

    @property
    def id(self) -> DatabaseId:
        return self.stores[self.devices[0].name].id_of(self.partition, NAME)

    @property
    def partition(self) -> int:
        return self.ring.partition_of(HASH_PATH(ACCOUNT, CONTAINER))

    @property
    def holders(self) -> tuple[Device, ...]:
        return self.ring.primaries(self.partition)

    async def make(self) -> None:
        for holder in self.holders:
            await self.transport.put_container(
                holder, self.partition, ACCOUNT, CONTAINER, Timestamp.at(1), {"X-Container-Meta-A": "1"}, None, 0
            )

    async def write(self, rows: Sequence[ObjectRow]) -> int:
        """As object servers do; how many holders have the rows."""
        place = self.partition, ACCOUNT, CONTAINER
        answers = await asyncio.gather(
            *(self.transport.update_rows(holder, *place, rows) for holder in self.holders), return_exceptions=True
        )
        odd = [answer for answer in answers if answer is not None and not isinstance(answer, SwiftletError)]
        if odd:
            raise odd[0]
        return answers.count(None)

    async def listed(self, holder: Device, query: ListingQuery) -> list[str]:
        _, entries = await self.transport.list_objects(holder, self.partition, ACCOUNT, CONTAINER, query)
        return [f"<{entry.name}>" if isinstance(entry, Subdir) else entry.name for entry in entries]

    async def totals(self, holder: Device) -> tuple[int, int]:
        info = await self.transport.container_info(holder, self.partition, ACCOUNT, CONTAINER)
        return info.object_count, info.bytes_used

    async def points(self, holder: Device) -> list[str]:
        return await self.stores[holder.name].read(self.id, lambda database: database.points())

    def fail(self, index: int, fault: Fault | None) -> None:
        """What ails a device from now on."""
        if fault is None:
            self.transport.faults.pop(self.devices[index].name, None)
        else:
            self.transport.faults[self.devices[index].name] = fault


@asynccontextmanager
async def sharded_cluster(
    root: Path, above_rows: int = 40, batch_rows: int = 7, count: int = 3, takeover_s: float = 60.0
) -> AsyncIterator[ShardedCluster]:
    devices = [device(id) for id in range(count)]
    stores = {d.name: InlineListingStore(root / d.name, HASH_PATH) for d in devices}
    transport = MemoryListingTransport(stores)
    rows = [array("H", [(replica + partition) % count for partition in range(PARTITIONS)]) for replica in range(3)]
    ring = Ring(1, 2, 3, devices, rows)
    settings = ShardSettings(above_rows, interval_s=0.0, idle_s=0.0, takeover_s=takeover_s, moves_per_round=5)
    kills = {index: Kills() for index in range(count)}
    cluster = ShardedCluster(root, devices, ring, stores, transport, settings, batch_rows, kills)
    for index in range(count):
        cluster.begin(index)
    yield cluster
    for store in stores.values():
        await store.close()
