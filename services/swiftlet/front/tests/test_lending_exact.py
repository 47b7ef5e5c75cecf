"""A precise limit holds whatever the front does with the room that it was lent, in any order and with any single fault.

Two processes write objects at random: of slices or by claims of their own, with rows that all replicas get, some, or
none for a while. All of it is decided by a seed but the order of what happens at the same time. No claim expires before
all rows have come: the replicas' clock stands still until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path as Directory
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swiftlet.api.tests.quotas import connect_accounts
from swiftlet.api.writing.quota_checks import Limited
from swiftlet.errors import SwiftletError
from swiftlet.front import lending as lending_module
from swiftlet.front import settling
from swiftlet.front.lending import Lending
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, ObjectRow
from swiftlet.placement.rows.row_updates import StoredRows
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster, memory_cluster
from swiftlet.quota import shares
from swiftlet.quota.usage import RememberedUsage, usage_source
from swiftlet.servers.containers.claims import Claims
from swiftlet.timestamp import TimestampClock

MOST, WRITERS = 90, 12
LIFE_S = 60
NAME, OF_ACCOUNT = DatabaseName(ACCOUNT, CONTAINER), DatabaseName(ACCOUNT)
PATIENCE_S = 20.0


@dataclass
class SimulatedFront:
    """The native front's pools."""

    pools: dict[int, dict[int, int]] = field(default_factory=dict)
    """Objects that are left, by slice."""
    taken: dict[int, int] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)
    listed: list[Any] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)

    def lend(self, pool: int, slice: int, objects: int, _bytes: int, _valid_s: float) -> None:
        self.pools.setdefault(pool, {})[slice] = objects

    def recall(self, pool: int) -> None:
        self.returned += [(slice, (left, 0), True) for slice, left in self.pools.pop(pool, {}).items()]

    def end_some(self, chance: random.Random) -> None:
        """A slice's time is over."""
        for of in self.pools.values():
            for slice in [slice for slice in of if chance.random() < 0.1]:
                self.returned.append((slice, (of.pop(slice), 0), True))

    def take(self, pools: list[int]) -> list[int] | None:
        found = [next((one for one, left in self.pools.get(pool, {}).items() if left), None) for pool in pools]
        if None in found:
            for pool, slice in zip(pools, found, strict=True):
                self.short[pool] = self.short.get(pool, 0) + (slice is None)
            return None
        for pool, slice in zip(pools, found, strict=True):
            self.pools[pool][cast("int", slice)] -= 1
            self.taken[pool] = self.taken.get(pool, 0) + 1
        return cast("list[int]", found)

    def spent(self) -> tuple[list[Any], list[Any], list[Any]]:
        for of in self.pools.values():
            for slice in [slice for slice, left in of.items() if not left]:
                self.returned.append((slice, (of.pop(slice), 0), True))
        levels = [
            (pool, (sum(self.pools.get(pool, {}).values()), 0), (self.taken.get(pool, 0), 0), self.short.get(pool, 0))
            for pool in self.pools.keys() | self.taken.keys() | self.short.keys()
        ]
        found = levels, self.listed, self.returned
        self.listed, self.returned = [], []
        self.taken.clear()
        self.short.clear()
        return found


class World:
    """The cluster, its two processes, and those who write."""

    def __init__(self, cluster: MemoryCluster, limits: list[Limited], seed: int) -> None:
        """The writers stay within `limits`."""
        self.cluster, self.limits, self.chance = cluster, limits, random.Random(seed)
        self.clock = TimestampClock()
        self.fronts = [SimulatedFront(), SimulatedFront()]
        quotas = SimpleNamespace(quotas=SimpleNamespace(cache_s=30, precise=True))
        usage = RememberedUsage(usage_source(cluster.listings))
        api = cast("Any", SimpleNamespace(listings=cluster.listings, usage=usage, quotas=quotas))
        self.lendings = [Lending(cast("Any", front), api) for front in self.fronts]
        self._troubled = self.chance.choice(cluster.container_devices())
        self.by_front = 0
        self.now = 0.0
        for claims in cluster.listing_transport.claims.values():
            claims._clock = lambda: self.now
        self._names = 0
        self._partition = cluster.ring.partition_of(HASH_PATH(ACCOUNT, CONTAINER))

    async def rows(self) -> set[str]:
        """All names that any replica lists."""
        return set().union(*[await self.cluster.listed(device) for device in self.cluster.container_devices()])

    async def check(self) -> None:
        """No replica, and not all of them together, have more than fits."""
        assert len(await self.rows()) <= MOST

    async def write(self) -> bool:
        """One object; False: there was no room."""
        process = self.chance.randrange(2)
        front, lending = self.fronts[process], self.lendings[process]
        parts = front.take(lending.pools(self.limits))
        self._names += 1
        name = str(self._names)
        if parts is None:
            return await self._write_alone(name)
        self.by_front += 1
        await asyncio.sleep(self.chance.random() * 0.01)
        row = ObjectRow(name, self.clock.next(), 0)
        match self.chance.randrange(10):
            case 0:
                # Nobody hears of it, and it is listed later.
                await asyncio.sleep(self.chance.random() * 0.1)
                await self._deliver(row)
            case 1 | 2 | 3:
                await self._deliver(row)
                lending.delivered(StoredRows(ACCOUNT, CONTAINER, [row], [], [], []), [parts])
            case _:
                for device in self.cluster.container_devices():
                    await self.cluster.databases[device.name].update_rows(self._partition, ACCOUNT, CONTAINER, [row])
                container = f"/{ACCOUNT}/{CONTAINER}/".encode()
                front.listed.append((container, [(one, (1, 0)) for one in parts], name.encode(), row.timestamp.value))
        return True

    async def _write_alone(self, name: str) -> bool:
        claims, claim = self.cluster.listings.claims, Claim(f"{self._names:032x}", Amounts(objects=1))
        held: list[Limited] = []
        try:
            for limited in self.limits:
                if await claims.take(limited.name, claim, limited.bounds, LIFE_S) is not None:
                    return False
                held.append(limited)
            row = ObjectRow(name, self.clock.next(), 0)
            await self._deliver(row)
            told = await claims.confirm(NAME, claim.id, name, row.timestamp, report=True)
            held = [limited for limited in held if limited.name.container is None and told]
        except SwiftletError:
            return False
        finally:
            for limited in held:
                await claims.cancel(limited.name, claim.id)
        return True

    async def _deliver(self, row: ObjectRow) -> None:
        """To all replicas, each for itself; those that are away have it later."""

        async def one(device: Any) -> None:
            for _ in range(200):
                with contextlib.suppress(SwiftletError):
                    transport = self.cluster.listing_transport
                    await transport.update_rows(device, self._partition, ACCOUNT, CONTAINER, [row])
                    return
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(one(device)) for device in self.cluster.container_devices()]
        await asyncio.wait(tasks, timeout=0.05)

    @contextlib.contextmanager
    def trouble(self) -> Iterator[None]:
        """A replica is away, or forgets its claims: always the same one, as two may lack different rows."""
        device = self._troubled
        if self.chance.random() < 0.3:
            old = self.cluster.listing_transport.claims[device.name]
            claims = Claims(self.cluster.databases[device.name], old._report, lambda: self.now)
            self.cluster.listing_transport.claims[device.name] = claims
            yield
        else:
            with self.cluster.databases_down(device):
                yield


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (shares, "ALL_SLICES", 2),
        (shares, "ONE_SLICE", 6),
        (shares, "LEAST_OBJECTS", 1),
        (lending_module, "TURN_S", 0.005),
        (lending_module, "TELL_S", 0.01),
        (lending_module, "KNOWN_S", 0.01),
        (lending_module, "REFUSED_S", 0.01),
        (lending_module, "AWAY_S", 0.02),
        (settling, "GATHER_S", 0.01),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=3) as made:
        reporters = connect_accounts(made)
        made.listing_transport.after_container_change = None  # Accounts are told late, or by whoever asks for it.
        await made.make_container()
        yield made
        await asyncio.gather(*(reporter.stop() for reporter in reporters))


@pytest.mark.parametrize(
    ("names", "seed"),
    [([NAME], 0), ([NAME], 1), ([OF_ACCOUNT], 0), ([OF_ACCOUNT], 1), ([NAME, OF_ACCOUNT], 0)],
    ids=["container-0", "container-1", "account-0", "account-1", "both"],
)
async def test_never_more_than_fits_and_all_that_fits(
    cluster: MemoryCluster, names: list[DatabaseName], seed: int
) -> None:
    limits = [Limited(name, Bounds(objects=MOST), True) for name in names]
    world = World(cluster, limits, seed)
    running = [asyncio.create_task(lending.run()) for lending in world.lendings]

    async def writer() -> None:
        refusals = 0
        while refusals < 10:
            refusals += not await world.write()
            await asyncio.sleep(0)

    async def troubles() -> None:
        while True:
            with world.trouble():
                await asyncio.sleep(0.02)
            for front in world.fronts:
                front.end_some(world.chance)
            await world.check()
            await asyncio.sleep(0.02)

    troubled = asyncio.create_task(troubles())
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        troubled.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await troubled
        await world.check()
        assert world.by_front > 0
        # What nobody knows of expires; then all that is left can be used.
        while len(await world.rows()) < MOST:
            world.now += LIFE_S
            await world.write()
            await asyncio.sleep(0.01)
    await world.check()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await asyncio.gather(*(lending.finish(0.0) for lending in world.lendings))
