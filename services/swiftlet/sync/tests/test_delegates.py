"""What a region lacks passes the link once, however many of its devices lack it: with delegates that are dead, whose
replicator is, that were wiped or are slow, and with a link that goes in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path as Directory

import pytest

from swiftlet.boundaries.objects import PendingDoubt, Verdict
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER
from swiftlet.placement.tests.sites import REGIONS, Sites, sites
from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.pacing import LinkBudget, Pace
from swiftlet.sync.planning.proving import RIPE_S, Proving
from swiftlet.sync.planning.regions import together
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.sync.session.compare import IN_FLIGHT_S
from swiftlet.sync.session.far import DELEGATE_S, Fetching
from swiftlet.testing.store.memory import MemoryStore

NOW_S = 1_000_000.0
WEST = "west"
BODY = b"x" * 20_000
COUNT = 40
SHAPES = [
    pytest.param(4, ("east", WEST), id="4 over 2"),
    pytest.param(6, ("east", WEST), id="6 over 2"),
    pytest.param(4, REGIONS, id="4 over 3"),
    pytest.param(6, REGIONS, id="6 over 3"),
]


class Store:
    """Devices in several regions with a replicator each, which go on from round to round."""

    def __init__(self, made: Sites) -> None:
        """The clock is at `NOW_S`; after three exceptions in a row a node is left out."""
        self.made = made
        self.now_s = NOW_S
        self.paces: dict[int, Pace] = {}
        self.replicators = {device.id: self.replicator(device) for device in made.cluster.devices}

    def replicator(self, device: Device, proving: Proving | None = None) -> Replicator:
        """Return a new replicator of a device."""
        transport = self.made[device.region].transport
        observer, table = Observer("", ""), FailureTable(3)
        return Replicator(
            lambda ring: [device],
            self.made.cluster.rings.objects,
            transport,
            now_s=lambda: self.now_s,
            pace=self.paces.get(device.id),
            neighbours=Neighbours(observer, table, lambda peer: probe(transport, peer), clock=lambda: self.now_s),
            proving=proving,
            fetching=Fetching(),
        )

    def start_again(self, device: Device, pace: Pace | None = None) -> None:
        """Start the replicator of a device anew."""
        if pace is not None:
            self.paces[device.id] = pace
        self.replicators[device.id] = self.replicator(device)

    async def round(self, after_s: float = 10.0, without: Collection[Device] = ()) -> None:
        """A round of all replicators but some, all at the same time, so many seconds after the last one."""
        self.now_s += after_s
        at_work = [device for device in self.made.cluster.devices if device not in without]
        await asyncio.gather(*(self.replicators[device.id].run_round([0]) for device in at_work))

    async def write(self, count: int = COUNT, first: int = 0, body: bytes = BODY) -> list[Path]:
        """Write objects that the west lacks."""
        paths = [Path(ACCOUNT, CONTAINER, f"o{number}") for number in range(first, first + count)]
        with self.made.isolated(WEST):
            for path in paths:
                await self.made["east"].put(2, body, path)
        return paths

    def crossed(self, to: str = WEST) -> int:
        """Bytes that went to a region from others."""
        return sum(size for site in self.made for (_, target), size in site.transport.crossed.items() if target == to)

    def lack(self, paths: list[Path], without: Collection[Device] = ()) -> list[tuple[str, str]]:
        """Which devices lack what, of the objects' primaries."""
        return [
            (device.name, path.obj or "")
            for path in paths
            for device in self.made.cluster.primaries(path)
            if device not in without and self.made.cluster.info(device, path) is None
        ]

    def delegate(self, path: Path) -> Device:
        """The delegate of the west for an object."""
        return self.made.primary(WEST, path)

    def wipe(self, *devices: Device) -> None:
        """Replace devices by empty ones."""
        for device in devices:
            self.made.cluster.stores[device.address] = MemoryStore()
            self.start_again(device)

    def kill(self, device: Device, dead: bool = True) -> None:
        """Let a device answer nobody, or again."""
        for site in self.made:
            site.transport.link(device).unreachable = dead


@asynccontextmanager
async def a_store(root: Directory, replicas: int, regions: tuple[str, ...], devices: int = 8) -> AsyncIterator[Store]:
    async with sites(root, "majority", devices=devices, replicas=replicas, regions=regions) as made:
        yield Store(made)


@pytest.mark.parametrize(("replicas", "regions"), SHAPES)
async def test_what_a_region_lacks_passes_once(tmp_path: Directory, replicas: int, regions: tuple[str, ...]) -> None:
    async with a_store(tmp_path, replicas, regions) as store:
        paths = await store.write()
        before = store.crossed()
        for _ in range(4):
            await store.round()
        assert store.lack(paths) == []
        assert COUNT * len(BODY) <= store.crossed() - before <= 1.1 * COUNT * len(BODY)
        assert store.crossed("east") < 0.1 * COUNT * len(BODY)
        for replicator in store.replicators.values():
            for standing in replicator.standings.regions().values():
                assert standing.equal_at_s == store.now_s - IN_FLIGHT_S
                assert standing.objects == 0


@pytest.mark.parametrize(("replicas", "regions"), SHAPES)
async def test_a_delegate_that_is_dead_is_passed_over(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    async with a_store(tmp_path, replicas, regions) as store:
        paths = await store.write()
        dead = store.delegate(paths[0])
        store.kill(dead)
        before = store.crossed()
        for _ in range(6):
            await store.round(without=[dead])
        of_the_living = [path for path in paths if _has_other(store, path, dead)]
        assert store.lack(of_the_living, [dead]) == []
        assert store.crossed() - before <= 1.1 * len(of_the_living) * len(BODY)
        store.kill(dead, dead=False)
        for _ in range(4):
            await store.round()
        assert store.lack(paths) == []
        assert store.crossed() - before <= 1.1 * COUNT * len(BODY)


def _has_other(store: Store, path: Path, dead: Device) -> bool:
    there = [device for device in store.made.cluster.primaries(path) if device.region == WEST]
    return there != [dead]


@pytest.mark.parametrize(("replicas", "regions"), SHAPES)
async def test_a_delegate_whose_replicator_is_away_is_waited_for_and_then_given_what_the_next_one_fetched(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    async with a_store(tmp_path, replicas, regions) as store:
        paths = await store.write()
        idle = store.delegate(paths[0])
        before = store.crossed()
        for _ in range(2):
            await store.round(without=[idle])
        assert store.lack(paths[:1]) == [
            (device.name, "o0") for device in store.made.cluster.primaries(paths[0]) if device.region == WEST
        ]
        for _ in range(10):
            await store.round(40, without=[idle])
        assert store.lack(paths) == []
        assert store.crossed() - before <= 1.1 * COUNT * len(BODY)


@pytest.mark.parametrize(("replicas", "regions"), SHAPES[:2])
async def test_a_delegate_that_was_wiped_gets_everything_within_its_region(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    async with a_store(tmp_path, replicas, regions) as store:
        paths = await store.write()
        for _ in range(4):
            await store.round()
        before = store.crossed()
        store.wipe(store.delegate(paths[0]))
        assert store.lack(paths)
        for _ in range(3):
            await store.round()
        assert store.lack(paths) == []
        assert store.crossed() == before
        # All devices of the region: then it comes over the link, once.
        store.wipe(*store.made[WEST].near())
        for _ in range(4):
            await store.round()
        assert store.lack(paths) == []
        assert store.crossed() - before <= 1.1 * COUNT * len(BODY)


class Slow:
    """A pace that lets one object after the other go, when it is told to."""

    def __init__(self) -> None:
        """Nothing may go yet."""
        self._may = asyncio.Semaphore(0)
        self.pace = Pace(concurrency=1, bytes_per_s=1, sleep=self._wait)

    async def _wait(self, _seconds: float) -> None:
        await self._may.acquire()

    def allow(self, count: int) -> None:
        """Let so many more go."""
        for _ in range(count):
            self._may.release()


@pytest.mark.parametrize(("replicas", "regions"), SHAPES[:2])
async def test_a_delegate_that_is_slow_is_not_helped_as_long_as_it_gets_on(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    # Objects of this size are brought one by one. All devices of the region have all partitions.
    body, count = b"x" * 300_000, 40
    async with a_store(tmp_path, replicas, regions, replicas) as store:
        paths = [Path(ACCOUNT, CONTAINER, f"o{number}") for number in range(count)]
        for path in paths:
            await store.made["east"].put(2, body, path)
        store.wipe(*store.made[WEST].near())
        slow = store.delegate(paths[0])
        gate = Slow()
        store.start_again(slow, gate.pace)
        before = store.crossed()
        work = asyncio.create_task(store.replicators[slow.id].run_round([0]))
        rounds = 0
        while store.lack(paths):
            # With an object a minute it takes longer than anybody waits for a device that does not get on.
            gate.allow(1)
            await store.round(60, without=[slow])
            rounds += 1
        assert rounds * 60 > DELEGATE_S
        gate.allow(1000)
        await work
        assert store.crossed() - before <= 1.1 * count * len(body)


@pytest.mark.parametrize(("replicas", "regions"), [SHAPES[0], SHAPES[3]])
async def test_a_link_that_goes_while_delegates_fetch(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    count = 400
    async with a_store(tmp_path, replicas, regions, 4 * len(regions)) as store:
        paths = await store.write(count)
        before = store.crossed()
        site = store.made[WEST]
        whole = site.transport.read_copies
        fetched: list[Device] = []
        lost: list[Device] = []

        async def cut_after_some(device: Device, wanted: bytes) -> bytes:
            copies = await whole(device, wanted)
            if device.region != WEST:
                fetched.append(device)
                if len(fetched) > 3 and len(copies) < 0.08 * count * len(BODY) and not lost:
                    # What is on its way is lost.
                    lost.append(device)
                    store.made.isolate(WEST)
                    return await whole(device, wanted)
            return copies

        site.transport.read_copies = cut_after_some  # type: ignore[method-assign]
        await store.round()
        assert lost
        lacking = len(store.lack(paths))
        assert lacking
        for _ in range(3):
            await store.round()
            assert len(store.lack(paths)) <= lacking
        store.made.isolate(WEST, False)
        for _ in range(6):
            await store.round()
        assert store.lack(paths) == []
        assert store.crossed() - before <= 1.1 * count * len(BODY)


async def test_what_passes_a_link_is_paced_by_its_budget_and_what_stays_in_the_region_is_not(
    tmp_path: Directory,
) -> None:
    async with a_store(tmp_path, 4, ("east", WEST)) as store:
        paths = await store.write()
        near, slept = store.made[WEST].near(), list[float]()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        for device in near:
            pace = Pace(clock=lambda: 0.0, sleep=sleep, links=LinkBudget(1000.0))
            store.start_again(device, pace)
        for _ in range(4):
            await store.round()
        assert store.lack(paths) == []
        # The clock stands still, so that each waits for all that it has fetched, as if it had a quarter of the link.
        assert max(slept) <= COUNT * len(BODY) * len(near) / 1000
        assert len(slept) >= len(near)
        slept.clear()
        store.wipe(near[0])
        await store.round()
        assert store.lack(paths) == []
        assert slept == []


@pytest.mark.parametrize(("replicas", "regions"), SHAPES)
async def test_the_bytes_that_have_to_pass_a_link_are_told_once(
    tmp_path: Directory, replicas: int, regions: tuple[str, ...]
) -> None:
    async with a_store(tmp_path, replicas, regions) as store:
        paths = await store.write()
        west = store.made[WEST].near()
        for _ in range(2):
            await store.round(without=west)
        for region in set(regions) - {WEST}:
            near = store.made[region].near()
            told = together(store.replicators[device.id].standings.regions()[0, WEST] for device in near)
            # Of each region whose devices have all of it.
            assert told.size_bytes == COUNT * len(BODY)
            assert told.objects >= COUNT
        for _ in range(4):
            await store.round()
        assert store.lack(paths) == []
        for replicator in store.replicators.values():
            assert all(standing.size_bytes == 0 for standing in replicator.standings.regions().values())


class InDoubt:
    """A device's server that is in doubt about everything until a round has proved it."""

    def __init__(self) -> None:
        """Nothing is proved."""
        self.proved: set[int] = set()
        self.is_proved = False

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Take what a round proves."""
        self.proved.update(partition for _, partition in verdict.proved)
        self.is_proved |= verdict.whole
        return None if self.is_proved else PendingDoubt(1, RIPE_S)


async def test_a_device_in_doubt_is_proved_only_when_it_has_what_was_left_to_its_delegate(tmp_path: Directory) -> None:
    async with a_store(tmp_path, 4, ("east", WEST)) as store:
        (path,) = await store.write(1)
        partition = store.made.cluster.key(path).partition
        delegate, second = (device for device in store.made.cluster.primaries(path) if device.region == WEST)
        doubt = InDoubt()
        store.replicators[second.id] = store.replicator(second, Proving(doubt, lambda: store.now_s))
        for _ in range(2):
            await store.round(without=[delegate])
            assert store.lack([path])
            assert (doubt.is_proved, partition in doubt.proved) == (False, False)
            assert doubt.proved, "what nothing is lacking in is proved"
            standing = store.replicators[second.id].standings.of(second.name, 0)
            assert (standing.behind, standing.synced_at_s) == (1, None)
        await store.round()
        await store.round()
        assert store.lack([path]) == []
        assert (doubt.is_proved, partition in doubt.proved) == (True, True)


async def test_a_handoff_is_dropped_only_when_all_devices_of_the_region_have_it(tmp_path: Directory) -> None:
    async with a_store(tmp_path, 4, ("east", WEST)) as store:
        (path,) = await store.write(1)
        handoffs = store.made.cluster.holders(path) - {one.host for one in store.made.cluster.primaries(path)}
        assert handoffs
        _, second = (device for device in store.made.cluster.primaries(path) if device.region == WEST)
        full = store.made.cluster.store(second).faults
        full.full = True
        for _ in range(4):
            await store.round()
            assert store.lack([path]) == [(second.name, path.obj)]
            assert handoffs <= store.made.cluster.holders(path)
        full.full = False
        for _ in range(3):
            await store.round()
        assert store.lack([path]) == []
        assert store.made.cluster.holders(path) == {one.host for one in store.made.cluster.primaries(path)}
