"""What a round finds to do, without doing it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.sync.asking.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.moving.replica_kind import object_replicas
from swiftlet.sync.planning.device_partitions import DevicePartitions, Places
from swiftlet.sync.planning.planned_round import DevicePlan, PlannedRound
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.planning.tasks import EVERYTHING, Selection
from swiftlet.sync.replicator import probe
from swiftlet.sync.rounds.planner import Planner
from swiftlet.sync.session.effects import Terms
from swiftlet.sync.session.topology import ALL_TO_ALL, THOROUGH, Mode
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport

PATHS = [Path(ACCOUNT, CONTAINER, f"o{n}") for n in range(40)]


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """With the same on all primaries."""
    async with memory_cluster(tmp_path, devices=5) as made:
        made.transport = MemoryObjectTransport(made.stores, patience_s=0.0)
        for path in PATHS:
            for device in made.primaries(path):
                made.place(device, 2, path=path)
        yield made


class Planned:
    """A plan for the first device of a cluster, and what was reported while it was made."""

    def __init__(self, cluster: MemoryCluster, mode: Mode = THOROUGH, selection: Selection = EVERYTHING) -> None:
        self.cluster = cluster
        self.device = cluster.devices[0]
        self.held = sorted(cluster.store(self.device).partitions(0))
        places = Places(cluster.ring, self.device)
        self.own = DevicePartitions(self.device, 0, places, Standing(), places.assigned.difference(self.held))
        self.own.standing.begin(cluster.ring, self.held, self.own.misplaced(self.held), places.assigned)
        self.report = RoundReport()
        transport = cluster.transport
        self.neighbours = Neighbours(
            Observer(node_of(self.device), "n"), FailureTable(limit=2), lambda device: probe(transport, device)
        )
        self.neighbours.know(0, cluster.ring.devices)
        driver = Driver(
            object_replicas(transport), self.report, lambda: 9.0, self.neighbours, Pace(), lambda own: False
        )
        terms = Terms(0, cluster.ring.version, mode)
        self.planner = Planner(driver, lambda own: terms, self.report, self.neighbours, 4, selection)

    async def plan(self) -> DevicePlan:
        planned: PlannedRound = await self.planner.plan([(self.own, self.held)])
        (device,) = planned.devices
        assert device.own is self.own
        return device


def partition_of(cluster: MemoryCluster, path: Path) -> int:
    return cluster.key(path).partition


def path_with(cluster: MemoryCluster, device: Device) -> Path:
    return next(path for path in PATHS if device in cluster.primaries(path))


async def test_what_is_proved_needs_no_session(cluster: MemoryCluster) -> None:
    planned = Planned(cluster)
    plan = await planned.plan()
    assert plan.concluded == planned.own.places.assigned
    assert (plan.ledger.unproved, plan.left_out, plan.returns) == (set(), (), ())
    assert planned.report.clean
    assert planned.report.compared > 0
    assert planned.own.standing.unchecked == 0


async def test_what_differs_is_to_be_compared_with_that_peer_and_nothing_is_moved(cluster: MemoryCluster) -> None:
    planned = Planned(cluster)
    path = path_with(cluster, planned.device)
    partition = partition_of(cluster, path)
    other = next(device for device in cluster.primaries(path) if device != planned.device)
    cluster.place(other, 9, b"newer", path)
    before = cluster.entry(planned.device, cluster.key(path))
    plan = await planned.plan()
    assert plan.ledger.unproved == {partition}
    assert plan.concluded == planned.own.places.assigned - {partition}
    assert plan.ledger.next_of({partition}) == ([(other.id, True, [partition])], set())
    assert cluster.entry(planned.device, cluster.key(path)) == before
    assert (planned.report.pulled, planned.report.pushed) == (0, 0)


@pytest.mark.parametrize("mode", [THOROUGH, ALL_TO_ALL])
async def test_a_node_that_is_away_is_left_out_and_its_partitions_are_not_checked(
    cluster: MemoryCluster, mode: Mode
) -> None:
    planned = Planned(cluster, mode)
    away = cluster.devices[1]
    for _ in range(2):
        planned.neighbours.failed(node_of(away))
    with cluster.down(away):
        plan = await planned.plan()
    shared = planned.own.places.by_peer[away.id].intersection(planned.held)
    (out,) = plan.left_out
    assert out.peer == away
    assert out.partitions.intersection(planned.held) == shared
    assert planned.report.skipped == len(out.partitions)
    if mode is THOROUGH:
        assert planned.own.standing.unchecked == len(out.partitions)


async def test_handoffs_go_back_and_are_no_part_of_what_is_compared(cluster: MemoryCluster) -> None:
    device = cluster.devices[0]
    path = next(path for path in PATHS if device in cluster.handoffs(path))
    cluster.place(device, 2, path=path)
    plan = await Planned(cluster).plan()
    (handoff,) = plan.returns
    assert handoff.partition == partition_of(cluster, path)
    assert set(handoff.primaries) == {primary.id for primary in cluster.primaries(path)}
    assert handoff.partition not in plan.concluded | plan.ledger.unproved


async def test_in_a_mode_without_proofs_everything_that_is_here_is_to_be_compared(cluster: MemoryCluster) -> None:
    planned = Planned(cluster, ALL_TO_ALL)
    plan = await planned.plan()
    assert plan.ledger.unproved == planned.own.places.assigned.intersection(planned.held)
    assert planned.report.compared == 0


async def test_a_selection_confines_the_plan(cluster: MemoryCluster) -> None:
    peer = cluster.devices[2]
    path = next(path for path in PATHS if {cluster.devices[0], peer} <= set(cluster.primaries(path)))
    only = frozenset({partition_of(cluster, path)})
    planned = Planned(cluster, selection=Selection(only, lambda device: device == peer))
    assert (await planned.plan()).concluded == only
    assert planned.report.compared == 1
