"""How devices stand in their rings, as rounds find it: held, misplaced, behind, unchecked, and when all was well."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.model import Kind, PostRecord
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import MemoryCluster, at, make_ring, memory_cluster
from swiftlet.ring import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.shared.sync_answers import PlacedBy, placed_by
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.sync.session.compare import IN_FLIGHT_S
from swiftlet.sync.tests.test_replicator import NAMES, in_one_partition
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport

NOW_S = 1_000_000.0


class Clock:
    """The wall clock of all replicators."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        made.transport = MemoryObjectTransport(made.stores, patience_s=0.0)
        yield made


class Worker:
    """A replicator of one device, with a ring of its own that may be another than the others'."""

    def __init__(
        self,
        cluster: MemoryCluster,
        device: Device,
        clock: Clock,
        reclaim_age_s: float = 1e9,
        limit: int = 1_000_000,
    ) -> None:
        """After `limit` exceptions in a row a node is left out, until it answers a probe."""
        self.ring = cluster.ring
        self.device = device
        observer, table = Observer("", ""), FailureTable(limit)
        self.replicator = Replicator(
            lambda ring: [found for found in ring.devices if found is not None and found.id == device.id],
            lambda policy: self.ring,
            cluster.transport,
            reclaim_age_s=reclaim_age_s,
            now_s=clock,
            neighbours=Neighbours(observer, table, lambda peer: probe(cluster.transport, peer), clock=clock),
        )

    async def round(self) -> Any:
        return await self.replicator.run_round([0])

    @property
    def report(self) -> dict[str, Any]:
        """What it says of its device in the ring, without what is 0 and since when it is empty."""
        return {name: value for name, value in self._fields.items() if value and name != "emptySince"}

    @property
    def empty_since_s(self) -> float | None:
        """Since when it says that its device holds nothing."""
        found: float | None = self._fields["emptySince"]
        return found

    @property
    def _fields(self) -> dict[str, Any]:
        devices: Any = self.replicator.standings.report(lambda policy: f"object-{policy}")
        fields: dict[str, Any] = devices[self.device.name]["rings"]["object-0"]
        return fields


def workers(cluster: MemoryCluster, clock: Clock) -> list[Worker]:
    return [Worker(cluster, device, clock) for device in cluster.devices]


def use_rings_of(cluster: MemoryCluster, team: Sequence[Worker]) -> None:
    """The devices' servers go by the rings that their replicators go by."""

    def placed(device: Device) -> PlacedBy:
        def is_local(found: Device) -> bool:
            return found.address == device.address

        return placed_by(lambda policy: team[device.id].ring, device.device, is_local)

    cluster.transport.placed = placed


def ring_of(cluster: MemoryCluster, version: int, holders: Sequence[Device], weights: Sequence[float] = ()) -> Ring:
    """A ring that puts every partition on the same devices."""
    devices = [
        replace(device, weight=weights[index] if weights else 1.0) for index, device in enumerate(cluster.devices)
    ]
    return Ring(version, 4, len(holders), devices, [array("H", [holder.id] * 16) for holder in holders])


def held_partitions(cluster: MemoryCluster, device: Device) -> int:
    return len(cluster.store(device).partitions(0))


async def test_an_empty_device_is_in_sync_after_a_round(cluster: MemoryCluster, clock: Clock) -> None:
    worker = workers(cluster, clock)[0]
    assert worker.replicator.standings.report(str) == {}
    await worker.round()
    assert worker.report == {"syncedAt": NOW_S, "ringVersion": cluster.ring.version}
    clock.now_s += 60
    await worker.round()
    assert worker.report["syncedAt"] == NOW_S + 60


async def test_a_device_is_empty_since_the_first_of_the_rounds_that_found_nothing(
    cluster: MemoryCluster, clock: Clock
) -> None:
    worker = Worker(cluster, cluster.primaries()[0], clock)
    await worker.round()
    assert worker.empty_since_s == NOW_S
    clock.now_s += 60
    await worker.round()
    assert worker.empty_since_s == NOW_S
    cluster.place(worker.device, 1)
    clock.now_s += 60
    await worker.round()
    assert worker.empty_since_s is None


async def test_what_a_handoff_gave_away_makes_it_empty_anew(cluster: MemoryCluster, clock: Clock) -> None:
    """Else who asks between two rounds of the taker might find both to be empty all the time."""
    worker = Worker(cluster, cluster.handoffs()[0], clock)
    await worker.round()
    cluster.place(worker.device, 1)
    clock.now_s += 60
    assert (await worker.round()).removed == 1
    assert worker.empty_since_s == NOW_S + 60


async def test_a_device_that_was_away_is_in_sync_after_one_round_of_its_own(
    cluster: MemoryCluster, clock: Clock
) -> None:
    first, second, _ = cluster.primaries()
    mine = [path for path in NAMES if first in cluster.primaries(path)]
    for path in mine:
        for device in cluster.primaries(path):
            if device != first:
                cluster.place(device, 2, path=path)
                cluster.store(device).post(cluster.key(path), post_at(3))
    cluster.place(first, 1)
    cluster.place_tombstone(second, 4)
    worker = Worker(cluster, first, clock)
    report = await worker.round()
    assert report.pulled >= len(mine)
    assert worker.report["syncedAt"] == NOW_S
    assert "behind" not in worker.report
    for path in mine:
        expected = {cluster.entry(d, cluster.key(path)) for d in cluster.primaries(path) if d != first}
        assert cluster.entry(first, cluster.key(path)) in expected
    entry = cluster.entry(first)
    assert entry is not None
    assert entry.kind is Kind.TOMBSTONE


def post_at(second: float) -> Any:
    return PostRecord(at(second), {"X-Object-Meta-A": str(second)})


async def test_what_is_refused_is_behind_and_stops_nothing(cluster: MemoryCluster, clock: Clock) -> None:
    first, second, third = cluster.primaries()
    paths = in_one_partition(cluster, 6)
    for number, path in enumerate(paths):
        for device in (second, third):
            cluster.place(device, 2, path=path)
            if number % 3 == 0:
                cluster.place_tombstone(device, 3, path)
    cluster.store(first).faults.full = True
    worker = Worker(cluster, first, clock)
    await worker.round()
    assert worker.report == {"held": 1, "behind": 4, "ringVersion": cluster.ring.version}
    assert sum(cluster.entry(first, cluster.key(path)) is not None for path in paths) == 2
    cluster.store(first).faults.full = False
    clock.now_s += 5
    assert (await worker.round()).pulled == 4
    assert worker.report == {"held": 1, "syncedAt": NOW_S + 5, "ringVersion": cluster.ring.version}


async def test_a_new_device_is_behind_until_it_is_filled(
    cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    *holders, new = cluster.devices[:4]
    cluster.rings.ring = cluster.ring = ring_of(cluster, 1, holders)
    for number in range(40):
        path = Path("AUTH_test", "c", f"n{number}")
        for device in holders:
            cluster.place(device, 2, path=path)
    worker = Worker(cluster, new, clock)
    await worker.round()
    assert worker.report == {"syncedAt": NOW_S, "ringVersion": 1}
    worker.ring = cluster.rings.ring = cluster.ring = ring_of(cluster, 2, [*holders[:2], new])
    cluster.transport.link(holders[0]).busy = True
    clock.now_s += 1
    take = cluster.transport.take_copies
    seen: list[tuple[int, int]] = []

    async def watched(device: Device, *arguments: Any) -> Any:
        assert device == new
        seen.append((worker.report.get("behind", 0), worker.report.get("unchecked", 0)))
        return await take(device, *arguments)

    monkeypatch.setattr(cluster.transport, "take_copies", watched)
    await worker.round()
    batches = len(seen)
    assert batches
    assert all(behind > 0 and unchecked > 0 for behind, unchecked in seen)
    report = worker.report
    assert (report["held"], report["unchecked"]) == (held_partitions(cluster, new), 16)
    assert (report["ringVersion"], report["syncedAt"]) == (2, NOW_S)
    cluster.transport.link(holders[0]).busy = False
    clock.now_s += 1
    await worker.round()
    assert worker.report == {"held": report["held"], "syncedAt": NOW_S + 2, "ringVersion": 2}
    assert len(seen) == batches


@pytest.mark.parametrize("ailment", ["unreachable", "silent", "busy"])
async def test_partitions_that_an_absent_peer_shares_are_unchecked(
    cluster: MemoryCluster, clock: Clock, ailment: str
) -> None:
    device, away = cluster.devices[:2]
    for path in NAMES:
        for holder in cluster.primaries(path):
            cluster.place(holder, 2, path=path)
    setattr(cluster.transport.link(away), ailment, True)
    worker = Worker(cluster, device, clock)
    await worker.round()
    partitions = {partition for partition, _ in cluster.ring.partitions_of(device.id)}
    shared = [p for p in partitions if away in cluster.ring.primaries(p)]
    assert worker.report["unchecked"] == len(shared), "those that are empty here, too: the peer may hold something"
    assert "syncedAt" not in worker.report
    setattr(cluster.transport.link(away), ailment, False)
    await worker.round()
    assert "unchecked" not in worker.report
    assert worker.report["syncedAt"] == NOW_S


async def test_a_peer_that_does_not_answer_is_not_waited_for_all_round(cluster: MemoryCluster, clock: Clock) -> None:
    cluster.rings.ring = cluster.ring = make_ring(5, part_power=7)
    device, away = cluster.devices[:2]
    for number in range(100):
        path = Path("AUTH_test", "c", f"n{number}")
        for holder in cluster.primaries(path):
            if holder != away:
                cluster.place(holder, 2, path=path)
    cluster.transport.link(away).silent = True
    worker = Worker(cluster, device, clock, limit=FailureTable().limit)
    await worker.round()
    assert cluster.transport.link(away).calls <= FailureTable().limit + Pace().concurrency, (
        "a few at once, not one for each partition"
    )
    assert worker.report["unchecked"] > 20


async def test_records_in_flight_are_left_to_their_writers(cluster: MemoryCluster, clock: Clock) -> None:
    first, second, third = cluster.primaries()
    young_s = NOW_S - IN_FLIGHT_S / 2
    for device in (second, third):
        cluster.place(device, young_s)
    worker, other = Worker(cluster, first, clock), Worker(cluster, second, clock)
    assert (await worker.round()).pulled == 0
    assert (await other.round()).pushed == 0
    assert worker.report == {"syncedAt": NOW_S, "ringVersion": cluster.ring.version}
    assert other.report["syncedAt"] == NOW_S
    clock.now_s += IN_FLIGHT_S
    assert (await worker.round()).pulled == 1
    assert worker.report["syncedAt"] == clock.now_s


@pytest.mark.parametrize("ahead_s", [30.0, 3600.0])
async def test_a_clock_that_is_far_ahead_keeps_nothing_from_its_replicas(
    cluster: MemoryCluster, clock: Clock, ahead_s: float
) -> None:
    first, second, _ = cluster.primaries()
    cluster.place(second, NOW_S + ahead_s)
    worker = Worker(cluster, first, clock)
    assert (await worker.round()).pulled == (ahead_s > 60)
    clock.now_s += ahead_s + IN_FLIGHT_S
    await worker.round()
    assert cluster.info(first) is not None


async def test_a_partition_that_changes_while_it_is_compared_is_not_behind(
    cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.primaries()
    cluster.place(second, 2)
    read = cluster.transport.read_copies

    async def deleted(device: Device, *arguments: Any) -> Any:
        for holder in (first, second, third):
            cluster.place_tombstone(holder, NOW_S)
        return await read(device, *arguments)

    monkeypatch.setattr(cluster.transport, "read_copies", deleted)
    worker = Worker(cluster, first, clock)
    assert (await worker.round()).pulled == 0
    assert worker.report == {"held": 1, "syncedAt": NOW_S, "ringVersion": cluster.ring.version}


async def test_forgotten_tombstones_do_not_come_back(cluster: MemoryCluster, clock: Clock) -> None:
    first, second, third = cluster.primaries()
    cluster.place_tombstone(second, 2)
    cluster.place(third, 1)
    for device in (second, first):
        worker = Worker(cluster, device, clock, reclaim_age_s=86_400.0)
        await worker.round()
        assert worker.report["syncedAt"] == NOW_S
    assert cluster.entry(first) is None, "who forgot it does not get it again"
    entry = cluster.entry(third)
    assert entry is not None
    assert entry.kind is Kind.TOMBSTONE, "older data still has to go"


async def test_a_drained_device_ends_with_nothing(cluster: MemoryCluster, clock: Clock) -> None:
    drained = cluster.devices[0]
    for number in range(30):
        path = Path("AUTH_test", "c", f"n{number}")
        for device in cluster.primaries(path):
            cluster.place(device, 2, path=path)
            if number % 3 == 0:
                cluster.place_tombstone(device, 3, path)
            elif number % 3 == 1:
                cluster.place_post(device, 4, {"X-Object-Meta-A": "4"}, path)
    drain = Worker(cluster, drained, clock)
    await drain.round()
    before = drain.report
    assert before["held"] == held_partitions(cluster, drained) > 0
    ring = ring_of(cluster, 7, cluster.devices[1:4], weights=[0, 1, 1, 1, 1])
    team = workers(cluster, clock)
    for worker in (drain, *team):
        worker.ring = ring
    cluster.rings.ring = cluster.ring = ring
    away = cluster.devices[1]
    cluster.transport.link(away).unreachable = True
    await drain.round()
    assert drain.report["misplaced"] == drain.report["held"] == before["held"]
    assert drain.report["syncedAt"] == before["syncedAt"]
    cluster.transport.link(away).unreachable = False
    clock.now_s += 1
    await drain.round()
    assert drain.report == {"syncedAt": NOW_S + 1, "ringVersion": 7}
    assert cluster.store(drained).partitions(0) == []
    for _ in range(2):
        for worker in team:
            await worker.round()
    assert all("misplaced" not in worker.report and worker.report["ringVersion"] == 7 for worker in team)
    assert held_partitions(cluster, drained) == 0
    for number in range(30):
        path = Path("AUTH_test", "c", f"n{number}")
        assert len({cluster.entry(d, cluster.key(path)) for d in cluster.devices[1:4]}) == 1


async def test_old_tombstones_keep_no_device_from_being_empty(cluster: MemoryCluster, clock: Clock) -> None:
    drained, (first, *_) = cluster.handoffs()[0], cluster.primaries()
    cluster.place_tombstone(drained, 2)
    worker = Worker(cluster, drained, clock, reclaim_age_s=86_400.0)
    cluster.place(first, 1)
    with cluster.down(first):
        assert (await worker.round()).removed == 0
    report = await worker.round()
    assert (report.pushed, report.removed) == (1, 1), "older data has to go, the others have nothing to delete"
    assert worker.report == {"syncedAt": NOW_S, "ringVersion": cluster.ring.version}
    assert cluster.info(first) is None


async def test_a_refused_object_stays_alone_on_a_drained_device(cluster: MemoryCluster, clock: Clock) -> None:
    drained = cluster.handoffs()[0]
    paths = in_one_partition(cluster, 5)
    for path in paths:
        cluster.place(drained, 2, path=path)
    cluster.store(drained).flip_data(cluster.key(paths[1]))
    worker = Worker(cluster, drained, clock)
    assert (await worker.round()).removed == 4
    assert worker.report == {"held": 1, "misplaced": 1, "ringVersion": cluster.ring.version}


async def test_a_local_device_that_fails_is_not_in_sync(cluster: MemoryCluster, clock: Clock) -> None:
    device = cluster.devices[0]
    worker = Worker(cluster, device, clock)
    await worker.round()
    cluster.store(device).faults.broken = True
    clock.now_s += 1
    await worker.round()
    assert worker.report["unchecked"] == len(list(cluster.ring.partitions_of(device.id)))
    assert worker.report["syncedAt"] == NOW_S


async def test_a_device_that_left_the_ring_has_no_report(cluster: MemoryCluster, clock: Clock) -> None:
    worker = Worker(cluster, cluster.devices[4], clock)
    await worker.round()
    worker.ring = Ring(9, 4, 3, cluster.devices[:4], [array("H", [number] * 16) for number in range(3)])
    await worker.round()
    assert worker.replicator.standings.report(str) == {}


async def test_a_new_ring_ends_the_round(cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    device = cluster.devices[0]
    for path in NAMES:
        cluster.place(device, 2, path=path)
    worker = Worker(cluster, device, clock)
    newer = ring_of(cluster, 50, cluster.devices[:3])
    ask = cluster.transport.ask

    async def overtaken(*arguments: Any) -> Any:
        worker.ring = newer
        return await ask(*arguments)

    monkeypatch.setattr(cluster.transport, "ask", overtaken)
    report = await worker.round()
    assert not report.whole
    assert "ringVersion" not in worker.report
    assert worker.report["unchecked"] > 0
    assert (await worker.round()).whole
    assert worker.report["ringVersion"] == 50


class TestRingsThatDiffer:
    """While replicators have different rings, partitions come to rest; once they agree, they are returned."""

    @pytest.mark.parametrize("count", [1, 12])
    @pytest.mark.parametrize("ahead", [[0], [2], [3], [0, 1], [0, 3], [1, 2], [2, 3], [0, 1, 2], [0, 1, 3], [0, 2, 3]])
    async def test_a_partition_that_moves_is_not_passed_to_and_fro(
        self, cluster: MemoryCluster, clock: Clock, ahead: list[int], count: int
    ) -> None:
        a, b, c, d, _ = cluster.devices
        old, new = ring_of(cluster, 1, [a, b, c]), ring_of(cluster, 2, [a, b, d])
        paths = [Path("AUTH_test", "c", f"n{number}") for number in range(count)]
        for path in paths:
            for device in (a, b, c):
                cluster.place(device, 2, path=path)
        team = workers(cluster, clock)[:4]
        use_rings_of(cluster, team)
        for worker in team:
            worker.ring = old
            await worker.round()
        for number in ahead:
            team[number].ring = new
        moved = []
        for _ in range(12):
            clock.now_s += 10
            reports = [await worker.round() for worker in team]
            moved.append(sum(report.pushed + report.pulled for report in reports))
            for path in paths:
                assert {a.host, b.host} <= cluster.holders(path)
        assert sum(moved) <= 3 * count
        assert moved[4:] == [0] * 8
        for worker in team:
            worker.ring = new
        for _ in range(3):
            clock.now_s += 10
            for worker in team:
                await worker.round()
        for path in paths:
            assert cluster.holders(path) == {a.host, b.host, d.host}
        for worker in team:
            assert (worker.report["ringVersion"], worker.report["syncedAt"]) == (2, clock.now_s)
        assert "held" not in team[2].report

    async def test_what_a_peer_lost_is_sent_again(self, cluster: MemoryCluster, clock: Clock) -> None:
        first, second, third = cluster.primaries()
        for device in (first, second, third):
            cluster.place(device, 2)
        worker = Worker(cluster, first, clock)
        await worker.round()
        entry = cluster.entry(second)
        assert entry is not None
        cluster.store(second).remove(cluster.key(), entry)
        clock.now_s += 10
        assert (await worker.round()).pushed == 1
        assert worker.report["syncedAt"] == clock.now_s
        assert cluster.info(second) is not None

    async def test_a_device_that_does_not_take_itself_for_a_primary_is_given_nothing_and_proves_nothing(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        a, b, c, d, _ = cluster.devices
        old, new = ring_of(cluster, 1, [a, b, c]), ring_of(cluster, 2, [a, b, d])
        for device in (a, b, c):
            cluster.place(device, 2)
        team = workers(cluster, clock)
        for worker in team:
            worker.ring = old
        team[2].ring = new
        use_rings_of(cluster, team)
        report = await team[2].round()
        assert (report.pushed, report.removed) == (0, 0), "to the one it has an old ring"
        assert cluster.entry(d) is None
        assert team[2].report["misplaced"] == 1
        team[3].ring = new
        report = await team[2].round()
        assert (report.pushed, report.removed) == (1, 1)
        assert cluster.entry(c) is None
        assert (await team[0].round()).pushed == 0, "by the old ring it should have it, but it gave it away rightly"
        assert "syncedAt" not in team[0].report


def test_a_round_under_a_new_ring_proves_nothing_in_which_something_is_lacking() -> None:
    standing = Standing()
    standing.begin(make_ring(4), [1, 2], 0, [1, 2, 3])
    standing.compared_all({1, 3}, checked=True)
    standing.compared(2, behind=1)
    assert not standing.is_proved
    standing.compared(2)
    assert standing.is_proved
