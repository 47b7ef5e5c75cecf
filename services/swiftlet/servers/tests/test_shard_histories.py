"""Random histories of a container that is being split, with every fault at once, against a model.

Fault model: a process is killed at any named step, one device at a time is unreachable or answers after its deadline,
databases of shards are lost with their disks, the container is emptied, deleted and made again, holders split at once.
What all holders took is right in every listing that is answered; what most of them took is right in the end.

`make shard-histories` runs more of them than the check, and others.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from swiftlet.errors import NotEmpty, NotFound, SwiftletError
from swiftlet.listing import shards
from swiftlet.listing.tests.test_query import naive
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.servers.tests.sharded_cluster import ACCOUNT, CONTAINER, NAME, ShardedCluster, seeds, sharded_cluster
from swiftlet.servers.tests.test_sharding import assert_listed
from swiftlet.testing.storage.memory_listing import Fault
from swiftlet.timestamp import Timestamp

STEPS = 60
at = Timestamp.at


@dataclass
class History:
    """What was done to a container, and what must be seen of it."""

    cluster: ShardedCluster
    randomness: random.Random
    now: float = 2.0
    rows: dict[str, ObjectRow] = field(default_factory=dict)
    """What most holders took last, by name."""
    firm: set[str] = field(default_factory=set)
    """Names of which all holders took the last row."""
    doubtful: set[str] = field(default_factory=set)
    away: int | None = None
    whole: bool = True
    """Whether every copy that was lost has been replaced."""
    killed: set[str] = field(default_factory=set)

    @property
    def place(self) -> tuple[int, str, str]:
        return self.cluster.partition, ACCOUNT, CONTAINER

    async def write(self) -> None:
        """Some rows in one update, as object servers bring them."""
        await self.bring(self.randomness.sample(range(120), self.randomness.randint(1, 25)), 0.35)

    async def bring(self, numbers: list[int], deletions: float) -> None:
        self.now += 1
        new = []
        for number in numbers:
            gone, size = self.randomness.random() < deletions, self.randomness.randint(0, 9)
            new.append(ObjectRow(f"d{number % 6}/{number:03}", at(self.now), 0 if gone else size, deleted=gone))
        took = await self.cluster.write(new)
        for row in new:
            self.firm.discard(row.name)
            if took >= 2:
                self.rows[row.name] = row
                self.doubtful.discard(row.name)
                self.firm |= {row.name} if took == 3 else set()
            else:
                self.doubtful.add(row.name)

    async def keep(self) -> None:
        """A round of one holder, perhaps its last one."""
        index = self.randomness.randrange(3)
        if index == self.away:
            return
        kills = self.cluster.kills[index]
        if self.randomness.random() < 0.4:
            kills.at = len(kills.seen) + self.randomness.randint(0, 7)
        self.cluster.now_s += self.randomness.choice([1.0, 30.0, 100.0])
        known = len(kills.seen)
        await self.cluster.round(index)
        if kills.at is None and len(kills.seen) > known:
            self.killed.add(kills.seen[-1])
        kills.at = None

    async def ail(self) -> None:
        """A device goes away, or comes back."""
        if self.away is not None:
            self.cluster.fail(self.away, None)
            self.away = None
            for sharded in self.cluster.transport.sharded.values():
                sharded._paused.clear()
            return
        self.away = self.randomness.randrange(3)
        self.cluster.fail(self.away, self.randomness.choice(list(Fault)))

    async def lose(self) -> None:
        """A shard's replica is lost, if none is missing."""
        if not self.whole or self.away is not None:
            return
        holder = self.randomness.choice(self.cluster.holders)
        points = await self.cluster.points(holder)
        if not points:
            return
        sharded = self.cluster.transport.sharded[holder.name]
        point = self.randomness.choice(points)
        partition, holders = sharded.shard_holders(self.cluster.id, NAME, point)
        store = self.cluster.stores[holders[0].name]
        id = store.id_of(partition, shards.shard_name(NAME, point))
        try:
            await store.remove(id, await store.fingerprint(id))
        except NotFound:
            return
        self.whole = False

    async def sync(self) -> None:
        await self.cluster.sync(1)

    async def delete(self) -> None:
        """Empty it, delete it where that is possible now, make it again at once."""
        await self.bring(list(range(120)), 1.0)
        self.now += 1
        for holder in self.cluster.holders:
            with suppress(SwiftletError):
                await self.cluster.transport.delete_container(holder, *self.place, at(self.now))
        self.now += 1
        for holder in self.cluster.holders:
            with suppress(SwiftletError):
                await self.cluster.transport.put_container(holder, *self.place, at(self.now), {}, None, 0)

    async def remake(self) -> None:
        """Empty it when all is settled, delete it, make it again."""
        if self.away is not None or not self.whole:
            return
        await self.settle()
        await self.bring(list(range(120)), 1.0)
        self.now += 1
        for holder in self.cluster.holders:
            try:
                await self.cluster.transport.delete_container(holder, *self.place, at(self.now))
            except NotEmpty:
                raise AssertionError(f"{holder.name} takes it for not empty") from None
        self.now += 1
        for holder in self.cluster.holders:
            await self.cluster.transport.put_container(holder, *self.place, at(self.now), {}, None, 0)

    async def look(self) -> None:
        """What is certain is in every listing that is answered."""
        query = ListingQuery(reverse=self.randomness.random() < 0.5, limit=self.randomness.choice([9, 10_000]))
        for holder in self.cluster.holders:
            seen: list[str] = []
            marker = ""
            try:
                while page := await self.cluster.listed(holder, replace(query, marker=marker)):
                    seen += page
                    marker = page[-1]
            except SwiftletError:
                continue
            assert seen == sorted(set(seen), reverse=query.reverse), holder.name
            live = {name for name in self.firm if not self.rows[name].deleted}
            assert live.issubset(seen), (holder.name, sorted(live.difference(seen)))
            assert not (self.firm - live).intersection(seen), holder.name

    async def settle(self) -> None:
        """Until nothing is left to do anywhere."""
        for _ in range(3):
            await self.cluster.sync()
            await self.cluster.settle()
        await self.cluster.sync()
        self.whole = True


@pytest.mark.parametrize("seed", seeds(4))
async def test_a_random_history(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    rows, takeover_s = randomness.randint(1, 20), randomness.choice([0.0, 60.0])
    async with sharded_cluster(tmp_path, 20, rows, takeover_s=takeover_s) as cluster:
        await cluster.make()
        history = History(cluster, randomness)
        doings = [history.write, history.keep, history.ail, history.sync, history.lose, history.remake, history.delete]
        for _ in range(STEPS):
            [do] = randomness.choices(doings, [8, 14, 2, 3, 1.0, 0.3, 0.5])
            await do()
            await history.look()
        if history.away is not None:
            await history.ail()
        await history.settle()
        if history.doubtful:
            await history.bring([int(name[-3:]) for name in sorted(history.doubtful)], 0.5)
        await assert_listed(cluster, history.rows)
        for query in (ListingQuery(limit=5, marker="d2"), ListingQuery(prefix="d3/"), ListingQuery(delimiter="/")):
            live = {row.name for row in history.rows.values() if not row.deleted}
            assert await cluster.listed(cluster.holders[0], query) == naive(live, query)
        for store in cluster.stores.values():
            for partition in await store.partitions(cluster.id.kind):
                for id in await store.databases(cluster.id.kind, partition):
                    await store.verify(id)
