"""Rows of a container that is split: those in its shards are proved as others are, and their markers too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ObjectRow
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster, at, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.sharding.shard_keeper import ShardKeeper, ShardSettings
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.sync.audit.tests.auditing import Auditors, container_id
from swiftlet.sync.audit.tests.test_audit import counted, lose
from swiftlet.sync.databases.exchange import split_points
from swiftlet.timestamp import TimestampClock

NAME = DatabaseName(ACCOUNT, CONTAINER)
NAMES = [f"o{number:02}" for number in range(24)]
SIZE = len(b"data")
SETTINGS = ShardSettings(above_rows=10, interval_s=0.0, idle_s=0.0, takeover_s=0.0, moves_per_round=5)


@dataclass
class Split:
    """A cluster whose container is split, and what keeps it so."""

    cluster: MemoryCluster
    keepers: list[ShardKeeper] = field(default_factory=list)
    now_s: float = 0.0
    points: list[str] = field(default_factory=list)

    def begin(self, device: Device) -> None:
        """Splits on one device."""
        store, transport = self.cluster.databases[device.name], self.cluster.listing_transport
        replicas = ShardedReplicas(
            device.device, store, transport, self.cluster.rings.container, lambda other: other.id == device.id
        )
        mover = ShardMover(replicas, TimestampClock(), 7)
        keeper = ShardKeeper(replicas, mover, TimestampClock(), SETTINGS, lambda: self.now_s)
        store.follow(keeper.committed)
        transport.sharded[device.name] = replicas
        self.keepers.append(keeper)

    async def settle(self) -> None:
        """Rounds of the keepers until none has anything left to do."""
        for keeper in self.keepers:
            await keeper.scan()
        for _ in range(300):
            self.now_s += 100.0
            if not sum([await keeper.run_once() for keeper in self.keepers]):
                break
        else:
            raise AssertionError("splitting does not end")
        first = self.cluster.container_devices()[0]
        state = await self.cluster.listing_transport.database_state(first, container_id(self.cluster))
        self.points = split_points(state)

    def shard(self, point: str) -> DatabaseId:
        """A shard's database."""
        shard = shard_name(NAME, point)
        digest = HASH_PATH(shard.account, shard.container)
        return DatabaseId(DatabaseKind.CONTAINER, self.cluster.ring.partition_of(digest), digest)

    async def rows(self, point: str, device: Device) -> dict[str, ObjectRow]:
        """The live rows of one replica of a shard."""
        page = await self.cluster.listing_transport.compare_rows(device, self.shard(point), "", "", b"")
        assert page is not None
        return {row.name: row for row in page.rows if isinstance(row, ObjectRow) and not row.deleted}

    def holders(self, point: str) -> tuple[Device, ...]:
        """The devices of a shard."""
        return self.cluster.ring.primaries(self.shard(point).partition)

    async def damage(self, name: str, changes: Mapping[str, Any], everywhere: bool) -> None:
        """Make a row of the last shard another one."""
        point = self.points[-1]
        for device in self.holders(point)[: None if everywhere else 1]:
            seen = (await self.rows(point, device))[name]
            change = [(seen, replace(seen, **changes).plain)]
            assert await self.cluster.listing_transport.replace_rows(device, self.shard(point), change) == 1

    async def assert_right(self, names: list[str]) -> None:
        """Every replica of the last shard has the rows of the objects, and the container counts all of them."""
        point = self.points[-1]
        for device in self.holders(point):
            rows = await self.rows(point, device)
            assert sorted(rows) == [name for name in names if name > point]
            for name, row in rows.items():
                info = await self.cluster.objects.head(Path(ACCOUNT, CONTAINER, name), 0, newest=True)
                assert row == ObjectRow.of(name, info)
        await self.settle()
        partition = self.cluster.container_partition()
        for device in self.cluster.container_devices():
            place = device, partition, ACCOUNT, CONTAINER
            container = await self.cluster.listing_transport.container_info(*place)
            assert (container.object_count, container.bytes_used) == (len(names), SIZE * len(names))


@pytest.fixture
async def split(tmp_path: Directory) -> AsyncIterator[Split]:
    """A container with several shards."""
    async with memory_cluster(tmp_path) as cluster:
        made = Split(cluster)
        await cluster.make_container()
        for name in NAMES:
            await cluster.put(10, path=Path(ACCOUNT, CONTAINER, name))
        for device in cluster.devices:
            made.begin(device)
        await made.settle()
        assert len(made.points) >= 2
        yield made


async def test_nothing_is_wrong_with_shards_that_are_well(split: Split) -> None:
    assert await Auditors(split.cluster).run_once() == 0
    await split.assert_right(NAMES)


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("missing", {"timestamp": at(9), "deleted": True}),
        ("missing", {"timestamp": at(20), "deleted": True}),
        ("size", {"size": 99_999}),
        ("etag", {"timestamp": at(20), "etag": "0" * 32}),
        ("time", {"meta_timestamp": at(20)}),
    ],
)
async def test_a_damaged_row_of_a_shard_is_put_right(
    split: Split, kind: str, changes: dict[str, Any], everywhere: bool
) -> None:
    await split.damage(NAMES[-2], changes, everywhere)
    auditors, before = Auditors(split.cluster), counted("mended", kind)
    assert await auditors.run_once() > 0
    assert counted("mended", kind) > before
    await split.assert_right(NAMES)
    assert await auditors.run_once() == 0


async def test_a_ghost_in_a_shard_goes(split: Split) -> None:
    path = Path(ACCOUNT, CONTAINER, NAMES[-1])
    for device in split.cluster.primaries(path):
        lose(split.cluster, device, path)
    auditors = Auditors(split.cluster)
    assert await auditors.run_once() > 0
    await split.assert_right(NAMES[:-1])
    assert await auditors.run_once() == 0


async def test_rows_on_their_way_to_a_shard_are_left_alone(split: Split) -> None:
    """A replica of the container keeps a row for a shard that has it as deleted: moving it comes first."""
    await split.damage(NAMES[-2], {"timestamp": at(20), "deleted": True}, True)
    first = split.cluster.container_devices()[0]
    row = ObjectRow(NAMES[-2], at(30), 4, "e" * 32, "text/plain")
    await split.cluster.listing_transport.merge_rows(first, container_id(split.cluster), NAME, [row])
    objects = Auditors(split.cluster).objects
    assert sum([await one.run_once([0]) for one in objects]) == 0
