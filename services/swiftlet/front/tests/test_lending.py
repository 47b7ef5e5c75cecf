"""Room that is lent to a front: how much is held where, from the first PUT that finds none to the last one listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path as Directory
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swiftlet.api.tests.quotas import connect_accounts
from swiftlet.api.writing.quota_checks import Limited
from swiftlet.front import lending as lending_module
from swiftlet.front import settling
from swiftlet.front.lending import LEAST, UNUSED_S, USE_S, Lending
from swiftlet.front.slices import LIFE_S
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, ObjectRow
from swiftlet.placement.rows.row_updates import StoredRows
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster, at, memory_cluster
from swiftlet.quota.shares import ALL_SLICES, ONE_SLICE, share
from swiftlet.quota.usage import RememberedUsage, usage_source

NAME, OF_ACCOUNT = DatabaseName(ACCOUNT, CONTAINER), DatabaseName(ACCOUNT)
MANY = Bounds(objects=1_000_000)
PATIENCE_S = 10.0


@dataclass
class FakeFront:
    """Does what it is told to have done."""

    lent: dict[int, tuple[int, int, int, float]] = field(default_factory=dict)
    """Pool, objects, bytes and seconds, by the slice."""
    recalled: list[int] = field(default_factory=list)
    levels: list[Any] = field(default_factory=list)
    listed: list[Any] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)
    is_untouched: bool = False
    """Whether nothing was taken of slices that are recalled."""

    def lend(self, pool: int, slice: int, objects: int, bytes: int, valid_s: float) -> None:
        if objects:
            self.lent[slice] = pool, objects, bytes, valid_s

    def recall(self, pool: int) -> None:
        self.recalled.append(pool)
        for number, (of, objects, size, _) in self.lent.items():
            if of == pool and self.is_untouched:
                self.returned.append((number, (objects, size), True))

    def spent(self) -> tuple[list[Any], list[Any], list[Any]]:
        found = self.levels, self.listed, self.returned
        self.levels, self.listed, self.returned = [], [], []
        return found


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Lender:
    """A lending with what stands before it and behind it."""

    lending: Lending
    front: FakeFront
    clock: Clock
    cluster: MemoryCluster
    usage: RememberedUsage

    async def settle(self, seconds: float = 0.0) -> None:
        """Look at the front after so much time, and carry out what follows."""
        self.clock.now += seconds
        self.lending.turn()
        async with asyncio.timeout(PATIENCE_S):
            while self.lending._tasks:
                await asyncio.gather(*self.lending._tasks)

    async def borrow(self, limited: Limited, taken: int = 0) -> int:
        """The number of a slice, after a PUT that found none."""
        [pool] = self.lending.pools([limited])
        before = set(self.front.lent)
        self.front.levels = [(pool, (0, 0), (taken, taken), 1)]
        await self.settle()
        new = set(self.front.lent) - before
        return new.pop() if new else 0

    def held(self, name: DatabaseName = NAME) -> list[int]:
        """Objects that claims hold at each of the database's replicas."""
        ring = self.cluster.ring
        primaries = ring.primaries(ring.partition_of(HASH_PATH(name.account, name.container)))
        found = []
        for device in primaries:
            books = self.cluster.listing_transport.claims[device.name]._books
            found.append(
                sum(
                    book.taken.objects
                    for id, book in books.items()
                    if (id.kind.name == "ACCOUNT") == (name.container is None)
                )
            )
        return found


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=3) as made:
        await made.make_container()
        yield made


@pytest.fixture
async def lender(cluster: MemoryCluster) -> AsyncIterator[Lender]:
    front, clock = FakeFront(), Clock()
    usage = RememberedUsage(usage_source(cluster.listings))
    quotas = SimpleNamespace(quotas=SimpleNamespace(cache_s=30, precise=True))
    api = SimpleNamespace(listings=cluster.listings, usage=usage, quotas=quotas)
    lending = Lending(cast("Any", front), cast("Any", api), clock)
    yield Lender(lending, front, clock, cluster, usage)
    await lending.finish(0.0)


def limited(name: DatabaseName = NAME, bounds: Bounds = MANY, precise: bool = True) -> Limited:
    return Limited(name, bounds, precise)


def stored(*rows: ObjectRow) -> StoredRows:
    return StoredRows(ACCOUNT, CONTAINER, rows, [], [], [])


@pytest.mark.parametrize(
    ("want", "bounds", "used", "size"),
    [
        (100, Bounds(objects=1_000_000), 0, 100),
        (100, Bounds(objects=64 * 20), 0, 20),
        (100, Bounds(objects=64 * 20), 64 * 10, 10),
        (100, Bounds(objects=64 * 4), 0, 4),
        (100, Bounds(objects=64 * 4), 1, None),
        (100, Bounds(objects=10), 11, None),
    ],
)
def test_a_slice_is_a_small_part_of_the_room(want: int, bounds: Bounds, used: int, size: int | None) -> None:
    found = share(Amounts(0, want, 1 << 20), bounds, Amounts(0, used, 1 << 40))
    assert (None if found is None else found[0]) == (None if size is None else Amounts(0, size, 1 << 20))
    if found is not None:
        assert bounds.objects is not None
        assert found[1] == Bounds(objects=used + (bounds.objects - used) // ALL_SLICES)
    assert share(Amounts(0, 1, 1 << 20), Bounds(bytes=ONE_SLICE << 16), Amounts(0, 0, 1)) is None


async def test_from_the_first_put_to_the_last_row(lender: Lender) -> None:
    [pool] = lender.lending.pools([limited()])
    await lender.settle()
    assert lender.front.lent == {}, "nobody has asked for room"
    slice = await lender.borrow(limited())
    of, objects, size, use_s = lender.front.lent[slice]
    assert (of, size, use_s) == (pool, 2 * LEAST.bytes, USE_S)
    assert lender.held() == [objects] * 3
    # All replicas have the rows of some.
    await lender.cluster.put(second=9)
    lender.front.listed = [(f"/{ACCOUNT}/{CONTAINER}/".encode(), [(slice, (10, 100))], b"o", at(9).value)]
    await lender.settle(1)
    assert lender.held() == [objects - 10] * 3
    # Of some nobody knows what becomes of them, and the rest comes back.
    lender.front.returned = [(slice, (objects - 13, size - 300), True)]
    await lender.settle(1)
    assert lender.held() == [3] * 3
    lender.front.listed = [(f"/{ACCOUNT}/{CONTAINER}/".encode(), [(slice, (2, 100))], b"o", at(9).value)]
    await lender.settle(1)
    assert lender.held() == [1] * 3
    await lender.settle(LIFE_S)
    assert lender.lending._slices == {}, "the replicas let go of what is left by themselves"


async def test_what_nobody_takes_comes_back(lender: Lender) -> None:
    slice = await lender.borrow(limited())
    [(pool, objects, size, _)] = lender.front.lent.values()
    lender.front.returned = [(slice, (objects, size), True)]
    await lender.settle(0.01)
    assert lender.held() == [0] * 3
    await lender.settle()
    assert lender.lending._slices == {}
    await lender.settle(UNUSED_S + 0.1)
    assert lender.front.recalled == [pool]


async def test_other_limits_are_another_pool(lender: Lender) -> None:
    first = await lender.borrow(limited())
    lender.front.is_untouched = True
    [pool] = lender.lending.pools([limited(bounds=Bounds(objects=5))])
    assert lender.front.recalled == [lender.front.lent[first][0]] != [pool]
    assert await lender.borrow(limited(bounds=Bounds(objects=5))) == 0
    assert lender.held() == [0] * 3


async def test_slices_grow_with_what_is_taken_and_shrink_with_the_room(lender: Lender) -> None:
    sizes = []
    for _ in range(4):
        sizes.append(lender.front.lent[await lender.borrow(limited())][1])
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[3]
    small = limited(OF_ACCOUNT, Bounds(objects=64 * 100))
    total = 0
    while (slice := await lender.borrow(small)) != 0:
        total += lender.front.lent[slice][1]
        lender.clock.now += 1
    assert 0 < total <= 64 * 100 // ALL_SLICES


async def test_all_processes_together_hold_a_small_part(lender: Lender, cluster: MemoryCluster) -> None:
    claims, most = cluster.listings.claims, 64 * 100
    assert await claims.take(NAME, Claim("e" * 32, Amounts(objects=most // ALL_SLICES)), Bounds(), 60) is None
    assert await lender.borrow(limited(bounds=Bounds(objects=most))) == 0
    await claims.cancel(NAME, "e" * 32)
    assert await lender.borrow(limited(bounds=Bounds(objects=most))) == 0, "not asked again so soon"
    lender.clock.now += 1
    assert await lender.borrow(limited(bounds=Bounds(objects=most))) != 0


@pytest.mark.parametrize("away", [1, 2, 3])
async def test_databases_that_are_away(lender: Lender, cluster: MemoryCluster, away: int) -> None:
    with cluster.databases_down(*cluster.container_devices()[:away]):
        slice = await lender.borrow(limited())
    assert (slice != 0) == (away == 1)
    assert (sum(lender.held()) > 0) == (away == 1)


async def test_an_accounts_part_ends_when_it_has_been_told(lender: Lender, cluster: MemoryCluster) -> None:
    reporters = connect_accounts(cluster)
    cluster.listing_transport.after_container_change = None
    slice = await lender.borrow(limited(OF_ACCOUNT))
    objects = lender.front.lent[slice][1]
    assert lender.held(OF_ACCOUNT) == [objects] * 3
    for device in cluster.container_devices():
        await cluster.databases[device.name].update_rows(
            cluster.ring.partition_of(HASH_PATH(ACCOUNT, CONTAINER)),
            ACCOUNT,
            CONTAINER,
            [ObjectRow(name, at(9), 5) for name in "ab"],
        )
    lender.front.listed = [(f"/{ACCOUNT}/{CONTAINER}/".encode(), [(slice, (2, 10))], b"b", at(9).value)]
    await lender.settle(1)
    async with asyncio.timeout(PATIENCE_S):
        while not lender.lending._slices[slice].changed:  # noqa: ASYNC110 - a task asks the replicas
            await asyncio.sleep(0.01)
    assert (await cluster.listings.account_info(ACCOUNT)).object_count == 2
    await lender.settle(1)
    assert lender.held(OF_ACCOUNT) == [objects - 2] * 3
    await asyncio.gather(*(reporter.stop() for reporter in reporters))


async def test_rows_that_python_brings_end_parts_where_they_are(
    lender: Lender, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that has not heard of a row goes on counting its part, and only for as long as that is so."""
    monkeypatch.setattr(settling, "PAUSES_S", (0.01,) * 500)
    slice = await lender.borrow(limited())
    objects = lender.front.lent[slice][1]
    late = cluster.container_devices()[0]
    partition = cluster.ring.partition_of(HASH_PATH(ACCOUNT, CONTAINER))
    rows = [ObjectRow("a", at(9), 5), ObjectRow("b", at(9), 7)]
    for device in cluster.container_devices()[1:]:
        await cluster.databases[device.name].update_rows(partition, ACCOUNT, CONTAINER, rows)
    lender.lending.delivered(stored(*rows), [[slice], [slice]])

    async def until(expected: list[int]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while lender.held() != expected:
                await asyncio.sleep(0.01)
                await lender.settle(1)

    await until([objects, objects - 2, objects - 2])
    await cluster.databases[late.name].update_rows(partition, ACCOUNT, CONTAINER, rows)
    await until([objects - 2] * 3)


async def test_a_process_that_ends_lets_go(lender: Lender) -> None:
    await lender.borrow(limited())
    await lender.borrow(limited(OF_ACCOUNT))
    lender.front.is_untouched = True
    await lender.lending.finish()
    assert lender.held() == lender.held(OF_ACCOUNT) == [0] * 3


async def test_remembered_usage_counts_what_the_front_stores(lender: Lender, cluster: MemoryCluster) -> None:
    most = 64 * 100
    of_process = limited(bounds=Bounds(objects=most), precise=False)
    slice = await lender.borrow(of_process)
    objects, size = lender.front.lent[slice][1:3]
    assert lender.held() == [0] * 3

    async def fits(more: int) -> bool:
        asked = Claim("d" * 32, Amounts(objects=more))
        excess = await lender.usage.take(NAME, asked, of_process.bounds, 30)
        lender.usage.end(NAME, "d" * 32, stored=False)
        return excess is None

    assert await fits(most - objects)
    assert not await fits(most - objects + 1)
    lender.front.listed = [(f"/{ACCOUNT}/{CONTAINER}/".encode(), [(slice, (3, 3))], b"o", at(9).value)]
    lender.front.returned = [(slice, (objects - 4, size - 4), True)]
    await lender.settle(1)
    # Three are stored, and of one nobody knows.
    entry = lender.usage._entries[NAME]
    assert (entry.since.objects, [one.objects for one in entry.held.values()]) == (3, [1])
    await lender.settle(LIFE_S)
    assert (entry.since.objects, entry.held) == (4, {})


async def test_what_fails_is_tried_again(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = lender.cluster.container_devices()
    with lender.cluster.databases_down(*devices):
        assert await lender.borrow(limited()) == 0
    assert await lender.borrow(limited()) == 0
    lender.clock.now += lending_module.AWAY_S
    assert await lender.borrow(limited()) != 0
