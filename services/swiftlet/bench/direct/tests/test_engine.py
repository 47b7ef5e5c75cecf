"""One process of the generator against a store in memory, with faults."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from swiftlet.bench.direct.contents import Contents
from swiftlet.bench.direct.engine import Engine, Order, Plan
from swiftlet.bench.direct.store import StoreFailure
from swiftlet.bench.direct.tally import Histogram, added
from swiftlet.bench.scenario import Scenario

MIX = {"create": 2.0, "read": 4.0, "update": 1.0, "delete": 2.0, "list": 1.0, "head": 1.0}
READS = {"read": 1.0}


@dataclass
class MemoryStore:
    """Implements `swiftlet.bench.direct.store.Store`."""

    containers: dict[str, dict[str, bytes]] = field(default_factory=dict)
    damages: bool = False
    shortens: bool = False
    hangs: bool = False
    refuses: bool = False
    most_at_once: int = 0
    over_http: int = 0
    _now: int = 0

    async def _begin(self) -> None:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(3600 if self.hangs else 0)
        finally:
            self._now -= 1
        if self.refuses:
            raise StoreFailure("status 503", "not now")

    async def create_container(self, container: str) -> None:
        await self._begin()
        self.containers.setdefault(container, {})

    async def delete_container(self, container: str) -> None:
        await self._begin()
        assert not self.containers.pop(container, None)

    async def put(self, container: str, name: str, body: bytes) -> None:
        await self._begin()
        self.containers[container][name] = body

    async def get(self, container: str, name: str) -> bytes:
        await self._begin()
        found = self.containers[container][name][self.shortens :]
        return found[:-1] + b"?" if self.damages else found

    async def head(self, container: str, name: str) -> int:
        await self._begin()
        return len(self.containers[container][name]) - self.shortens

    async def delete(self, container: str, name: str) -> None:
        await self._begin()
        if self.containers[container].pop(name, None) is None:
            raise StoreFailure("status 404", "there is no such object")

    async def names(self, container: str, after: str, most: int) -> list[str]:
        await self._begin()
        return [name for name in sorted(self.containers[container]) if name > after][:most]

    async def close(self) -> None:
        pass


def plan(store: MemoryStore, mix: dict[str, float], timeout_s: float = 5.0, verify: float = 1.0) -> Plan:
    scenario = Scenario.model_validate(
        {
            "title": "test",
            "containers": 3,
            "objects": 50,
            "sizes": {"uniform": {"least": 10, "most": 2000}},
            "operations": mix,
            "closed": {"connections": 1},
            "count": 1,
            "page": 10,
            "timeout_s": timeout_s,
            "verify": verify,
        }
    )
    return Plan(lambda: store, scenario, "bench")


async def filled(store: MemoryStore, mix: dict[str, float], timeout_s: float = 5.0, verify: float = 1.0) -> Engine:
    engine = Engine(plan(store, mix, timeout_s, verify))
    await engine.run(Order("create_containers", 4))
    await engine.run(Order("fill", 4, objects=50))
    assert sum(map(len, store.containers.values())) == 50
    return engine


async def test_all_operations_are_counted_and_nothing_is_left() -> None:
    store = MemoryStore()
    engine = await filled(store, MIX)
    tally = await engine.run(Order("measure", 4, operations=500))
    assert sum(one.succeeded for one in tally.operations.values()) == 500
    assert set(tally.operations) == MIX.keys()
    assert not [one.failures for one in tally.operations.values() if one.failures]
    assert store.most_at_once == 4
    for phase in ("empty", "delete_containers"):
        done = await engine.run(Order(phase, 4))
        assert not [one.failures for one in done.operations.values() if one.failures]
    assert store.containers == {}


async def test_an_open_loop_makes_its_operations_at_their_times() -> None:
    engine = await filled(MemoryStore(), READS)
    tally = await engine.run(Order("measure", 8, duration_s=0.195, interval_s=0.01))
    assert tally.operations["read"].succeeded == 20
    assert sum(tally.lateness.counts.values()) > 0
    assert tally.window_s == pytest.approx(0.195)


async def test_what_no_connection_is_free_for_is_told() -> None:
    store = MemoryStore()
    engine = await filled(store, READS, timeout_s=0.15)
    store.hangs = True
    tally = await engine.run(Order("measure", 1, duration_s=0.195, interval_s=0.01))
    failures = tally.operations["read"].failures
    assert set(failures) == {"timeout", "not begun"}
    assert sum(count for count, _ in failures.values()) == 20


async def test_damage_and_refusals_are_failures_by_kind() -> None:
    store = MemoryStore()
    engine = await filled(store, READS)
    store.damages = True
    tally = await engine.run(Order("measure", 2, operations=10))
    assert tally.operations["read"].failures["corrupt"][0] == 10
    assert tally.operations["read"].compared == 0
    store.damages, store.refuses = False, True
    tally = await engine.run(Order("measure", 2, operations=10))
    assert tally.operations["read"].failures["status 503"][0] == 10


@pytest.mark.parametrize(("verify", "corrupt"), [(1.0, 10), (0.1, 10), (0.0, 0)])
async def test_bytes_that_are_at_hand_are_compared_unless_nothing_is_to_be(verify: float, corrupt: int) -> None:
    store = MemoryStore(damages=True)
    engine = await filled(store, READS, verify=verify)
    read = (await engine.run(Order("measure", 2, operations=10))).operations["read"]
    assert sum(count for count, _ in read.failures.values()) == corrupt
    store.damages = False
    read = (await engine.run(Order("measure", 2, operations=10))).operations["read"]
    assert (read.succeeded, read.compared) == (10, 10 if verify else 0)


async def test_an_object_of_another_size_is_found_though_bytes_are_not_compared() -> None:
    store = MemoryStore(shortens=True)
    engine = await filled(store, {"read": 1.0, "head": 1.0}, verify=0.0)
    tally = await engine.run(Order("measure", 2, operations=20))
    assert sum(one.failures["corrupt"][0] for one in tally.operations.values()) == 20


async def test_a_cancelled_order_ends() -> None:
    engine = await filled(MemoryStore(), READS)
    running = asyncio.create_task(engine.run(Order("measure", 2, duration_s=3600.0, number=2)))
    await asyncio.sleep(0.01)
    engine.cancel(2)
    assert (await running).ended_early == "cancelled"
    # One that has not begun yet ends at once, and the next one is none of it.
    engine.cancel(3)
    assert (await engine.run(Order("measure", 2, duration_s=3600.0, number=3))).operations == {}
    tally = await engine.run(Order("measure", 2, operations=10, number=4))
    assert (tally.ended_early, tally.operations["read"].succeeded) == (None, 10)


async def test_an_object_that_could_not_be_deleted_is_tried_in_the_next_order() -> None:
    store = MemoryStore()
    engine = await filled(store, MIX)
    store.refuses = True
    tally = await engine.run(Order("empty", 1))
    assert tally.operations["delete"].failures["status 503"][0] == 1
    store.refuses = False
    await engine.run(Order("empty", 4))
    assert not any(store.containers.values())


def test_bytes_and_sizes_follow_from_seed_and_number() -> None:
    one, same, other = (Contents(seed, [(1.0, 0, 5_000_000, 100_000, 1.5)]) for seed in (1, 1, 2))
    for number in range(50):
        assert len(one.body(number)) == one.size(number)
        assert one.body(number) == same.body(number)
    assert [one.size(number) for number in range(9)] != [other.size(number) for number in range(9)]


def test_times_keep_three_digits() -> None:
    histogram = Histogram()
    for milliseconds in range(1, 1001):
        histogram.record(milliseconds / 1e3)
    assert histogram.times().quantile_s(0.5) == pytest.approx(0.5, rel=0.002)
    assert histogram.times().quantile_s(0.99) == pytest.approx(0.99, rel=0.002)


async def test_tallies_of_processes_add_up() -> None:
    tallies = []
    for _ in range(2):
        engine = await filled(MemoryStore(), READS)
        tallies.append(await engine.run(Order("measure", 2, operations=20)))
    told = added(tallies).told()
    assert told["operations"]["read"]["succeeded"] == 40
    assert sum(count for _, count in told["operations"]["read"]["latency"]) == 40
