"""Until when regions have the same, as their replicators find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest
from prometheus_client import REGISTRY

from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, PATH
from swiftlet.placement.tests.sites import Sites, sites
from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.planning.regions import RegionStanding, together
from swiftlet.sync.planning.report import RegionGauges
from swiftlet.sync.planning.tasks import Selection
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.sync.session.compare import IN_FLIGHT_S
from swiftlet.sync.session.far import PATIENCE_S, Fetching

NOW_S = 1_000_000.0


class Watched:
    """The replicators of all devices, which go on from round to round, and a wall clock."""

    def __init__(self, made: Sites, limit: int = 1_000_000, *, fetch: bool = False) -> None:
        """The clock is at `NOW_S`; after `limit` exceptions in a row a node is left out.

        With `fetch` data are left to devices in other regions to fetch.
        """
        self.made = made
        self._fetch = fetch
        self._limit = limit
        self.now_s = NOW_S
        self.replicators = {device.id: self._replicator(device) for device in made.cluster.devices}

    def _replicator(self, device: Device) -> Replicator:
        transport = self.made[device.region].transport
        observer, table = Observer("", ""), FailureTable(self._limit)
        return Replicator(
            lambda ring: [device],
            self.made.cluster.rings.objects,
            transport,
            now_s=lambda: self.now_s,
            neighbours=Neighbours(observer, table, lambda peer: probe(transport, peer), clock=lambda: self.now_s),
            fetching=Fetching() if self._fetch else None,
        )

    async def round(self, region: str, selection: Selection | None = None) -> None:
        """A round of each device of a region."""
        for device in self.made[region].near():
            await self.replicators[device.id].run_round([0], *([selection] if selection else []))

    async def rounds(self, *regions: str) -> None:
        """A round of all devices of these regions, all at the same time."""
        await asyncio.gather(*(self.round(region) for region in regions))

    def between(self, region: str, other: str) -> RegionStanding:
        """What the replicators of a region say about another one."""
        devices = self.made[region].near()
        return together(self.replicators[device.id].standings.regions()[0, other] for device in devices)


@pytest.fixture
async def watched(tmp_path: Directory) -> AsyncIterator[Watched]:
    async with sites(tmp_path, "majority") as made:
        yield Watched(made)


@pytest.fixture
async def watched_local(tmp_path: Directory) -> AsyncIterator[Watched]:
    async with sites(tmp_path, "local") as made:
        yield Watched(made)


@pytest.fixture
async def fetching(tmp_path: Directory) -> AsyncIterator[Watched]:
    async with sites(tmp_path, "majority") as made:
        yield Watched(made, fetch=True)


async def test_regions_are_equal_as_of_the_begin_of_a_round_without_what_was_on_its_way(watched: Watched) -> None:
    await watched.made["east"].put(2)
    await watched.round("east")
    for other in ("north", "west"):
        assert watched.between("east", other) == RegionStanding(NOW_S - IN_FLIGHT_S)
    watched.now_s += 30
    await watched.round("east")
    assert watched.between("east", "west") == RegionStanding(NOW_S + 30 - IN_FLIGHT_S)


async def test_the_time_of_a_region_that_is_cut_off_stands_still(watched: Watched) -> None:
    await watched.round("east")
    watched.now_s += 60
    await watched.made["east"].put(2)
    with watched.made.isolated("west"):
        await watched.round("east")
        assert watched.between("east", "north") == RegionStanding(NOW_S + 60 - IN_FLIGHT_S)
        west = watched.between("east", "west")
        assert west.equal_at_s == NOW_S - IN_FLIGHT_S
        assert west.partitions > 0
    watched.now_s += 60
    await watched.round("east")
    assert watched.between("east", "west") == RegionStanding(NOW_S + 120 - IN_FLIGHT_S)


async def test_a_region_whose_nodes_are_left_out_proves_nothing(tmp_path: Directory) -> None:
    async with sites(tmp_path, "majority") as made:
        watched = Watched(made, limit=1)
        await watched.round("east")
        watched.now_s += 60
        with made.isolated("west"):
            await watched.round("east")
            await watched.round("east")
            assert any(replicator.neighbours.away(made["west"].near()) for replicator in watched.replicators.values())
            west = watched.between("east", "west")
            assert west.equal_at_s == NOW_S - IN_FLIGHT_S
            assert west.partitions > 0


async def test_what_a_region_does_not_take_is_known_to_be_lacking_there(watched: Watched) -> None:
    made = watched.made
    with made.isolated("west"):
        await made["east"].put(2)
    primary = made.primary("west")
    made.cluster.store(primary).faults.full = True
    await watched.round("east")
    found = watched.between("east", "west")
    assert (found.equal_at_s, found.partitions, found.objects) == (None, 1, 1)
    made.cluster.store(primary).faults.full = False
    await watched.round("east")
    assert watched.between("east", "west") == RegionStanding(NOW_S - IN_FLIGHT_S)


async def test_a_handoff_that_could_not_be_returned_is_left_to_do(watched_local: Watched) -> None:
    made = watched_local.made
    with made.isolated("west"):
        await made["east"].put(2)
        await watched_local.round("east")
        assert made.holders() == {"east": 3, "north": 1}
        assert watched_local.between("east", "west").equal_at_s is None
    holders = [device for device in made["east"].near() if made.cluster.info(device, PATH)]
    handoff = next(device for device in holders if device not in made.cluster.primaries())
    standing = watched_local.replicators[handoff.id].standings.of(handoff.name, 0)
    assert standing.regions["north"].equal_at_s == NOW_S - IN_FLIGHT_S
    assert standing.regions["west"].partitions > 0
    await watched_local.round("east")
    assert made.holders() == dict.fromkeys(("east", "north", "west"), 1)
    assert watched_local.between("east", "west") == RegionStanding(NOW_S - IN_FLIGHT_S)


def passed() -> float:
    """Bytes of objects that have passed between regions in this process."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "swiftlet_replicator_region_bytes_total"
    )


@pytest.mark.parametrize("order", [("east", "north", "west"), ("west", "north", "east")])
async def test_what_a_region_lacks_passes_the_link_once(fetching: Watched, order: tuple[str, ...]) -> None:
    made = fetching.made
    with made.isolated("west"):
        for number in range(30):
            await made["east"].put(2, b"x" * 1000, Path(ACCOUNT, CONTAINER, f"o{number}"))
        # Of an object whose primary in the west is away a handoff has a copy, in either region.
        await fetching.rounds("east", "north")
        before = passed()
    await fetching.rounds(*order)
    assert passed() - before == 30 * 1000
    await fetching.rounds(*order)
    assert passed() - before == 30 * 1000
    for number in range(30):
        assert made.holders(Path(ACCOUNT, CONTAINER, f"o{number}")) == dict.fromkeys(order, 1)


async def test_a_local_write_passes_once_to_each_other_region(tmp_path: Directory) -> None:
    async with sites(tmp_path, "local") as made:
        watched, before = Watched(made, fetch=True), passed()
        for number in range(10):
            await made["east"].put(2, b"x" * 1000, Path(ACCOUNT, CONTAINER, f"o{number}"))
        for _ in range(3):
            await watched.rounds("east", "north", "west")
        assert passed() - before == 2 * 10 * 1000
        for number in range(10):
            assert made.holders(Path(ACCOUNT, CONTAINER, f"o{number}")) == dict.fromkeys(("east", "north", "west"), 1)


async def test_what_a_region_does_not_fetch_is_sent_at_last(fetching: Watched) -> None:
    made = fetching.made
    with made.isolated("west"):
        await made["east"].put(2)
    for _ in range(3):
        await fetching.rounds("east", "north")
        assert made.holders().get("west", 0) == 0
        found = fetching.between("east", "west")
        assert (found.equal_at_s, found.objects) == (None, 1)
        fetching.now_s += PATIENCE_S / 2
    await fetching.rounds("east", "north")
    assert made.holders() == dict.fromkeys(("east", "north", "west"), 1)
    assert fetching.between("east", "west").objects == 0


async def test_a_round_of_some_partitions_proves_nothing_about_regions(watched: Watched) -> None:
    await watched.round("east")
    watched.now_s += 60
    await watched.round("east", Selection(frozenset({1, 2})))
    assert watched.between("east", "west") == RegionStanding(NOW_S - IN_FLIGHT_S)


async def test_a_store_in_one_region_reports_none(tmp_path: Directory) -> None:
    async with sites(tmp_path, "majority", devices=4, regions=("east",)) as made:
        watched = Watched(made)
        await made["east"].put(2, path=Path(ACCOUNT, CONTAINER, "one"))
        await watched.round("east")
        for replicator in watched.replicators.values():
            assert replicator.standings.regions() == {}
            report = replicator.standings.report(str)
            assert all("regions" not in fields["rings"]["0"] for fields in report.values())  # type: ignore[index]


def test_several_devices_together_have_the_oldest_time() -> None:
    found = together([RegionStanding(5.0, 1, 2, 40), RegionStanding(3.0, 2, 3, 2)])
    assert found == RegionStanding(3.0, 3, 5, 42)
    assert together([RegionStanding(5.0), RegionStanding()]).equal_at_s is None


def test_gauges_show_what_is_known_and_lose_what_is_gone() -> None:
    gauges, key = RegionGauges(), {"ring": "object-7", "region": "far"}

    def shown(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"swiftlet_replicator_region_{name}", key)

    gauges.show({("object-7", "far"): RegionStanding(None, 2, 3, 70)})
    assert (shown("lacking"), shown("lacking_bytes"), shown("equal_timestamp_seconds")) == (3, 70, None)
    gauges.show({("object-7", "far"): RegionStanding(5.0)})
    assert (shown("lacking"), shown("equal_timestamp_seconds")) == (0, 5.0)
    gauges.show({})
    assert (shown("lacking"), shown("lacking_bytes"), shown("equal_timestamp_seconds")) == (None, None, None)
