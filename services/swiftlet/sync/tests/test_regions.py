"""Until when regions have the same, as their replicators find it."""

from __future__ import annotations

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

NOW_S = 1_000_000.0


class Watched:
    """The replicators of all devices, which go on from round to round, and a wall clock."""

    def __init__(self, made: Sites, limit: int = 1_000_000) -> None:
        """The clock is at `NOW_S`; after `limit` exceptions in a row a node is left out."""
        self.made = made
        self._limit = limit
        self.now_s = NOW_S
        self.replicators = {device.id: self._replicator(device) for device in made.cluster.devices}

    def _replicator(self, device: Device) -> Replicator:
        transport = self.made[device.region].transport
        return Replicator(
            lambda ring: [device],
            self.made.cluster.rings.objects,
            transport,
            now_s=lambda: self.now_s,
            neighbours=Neighbours(Observer("", ""), FailureTable(self._limit), lambda peer: probe(transport, peer)),
        )

    async def round(self, region: str, selection: Selection | None = None) -> None:
        """A round of each device of a region."""
        for device in self.made[region].near():
            await self.replicators[device.id].run_round([0], *([selection] if selection else []))

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
    found = together([RegionStanding(5.0, 1, 2), RegionStanding(3.0, 2, 3)])
    assert found == RegionStanding(3.0, 3, 5)
    assert together([RegionStanding(5.0), RegionStanding()]).equal_at_s is None


def test_gauges_show_what_is_known_and_lose_what_is_gone() -> None:
    gauges, key = RegionGauges(), {"ring": "object-7", "region": "far"}

    def shown(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"swiftlet_replicator_region_{name}", key)

    gauges.show({("object-7", "far"): RegionStanding(None, 2, 3)})
    assert (shown("lacking"), shown("equal_timestamp_seconds")) == (3, None)
    gauges.show({("object-7", "far"): RegionStanding(5.0)})
    assert (shown("lacking"), shown("equal_timestamp_seconds")) == (0, 5.0)
    gauges.show({})
    assert (shown("lacking"), shown("equal_timestamp_seconds")) == (None, None)
