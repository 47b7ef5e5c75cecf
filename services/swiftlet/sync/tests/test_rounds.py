"""The order and the progress of rounds: who is back comes first, what was done comes last, budgets hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.errors import NodeBusy, NodeError
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.ring import RingBuilder
from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.mover import MAX_REFUSED
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.device_partitions import DevicePartitions, Places
from swiftlet.sync.planning.progress import MAX_TEXT_BYTES, Progress
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.planning.tasks import Selection
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.sync.rounds import state
from swiftlet.sync.session.messages import AskSuffixes, Compare, decode_request
from swiftlet.sync.tests.test_replicator import NAMES, in_one_partition


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        yield made


class Watched:
    """A replicator of one device; notes which peers are asked about which partitions by sessions, in order.

    Proofs are no part of it: they are about everything at once.
    """

    def __init__(self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, pace: Pace | None = None) -> None:
        self.cluster = cluster
        self.device = cluster.devices[0]
        self.asked: list[tuple[int, int]] = []
        self.neighbours = Neighbours(
            Observer(node_of(self.device), "n0"),
            FailureTable(limit=2),
            lambda device: probe(cluster.transport, device),
            retry_s=0.01,
        )
        self.worker = Replicator(
            lambda ring: [self.device],
            cluster.rings.objects,
            cluster.transport,
            pace=pace or Pace(concurrency=1),
            neighbours=self.neighbours,
        )
        self.proofs: list[int] = []
        ask = cluster.transport.ask

        async def asking(device: Device, message: bytes) -> bytes:
            request = decode_request(message)
            if device != self.device and isinstance(request, Compare):
                self.proofs.append(device.id)
            elif device != self.device and isinstance(request, AskSuffixes):
                self.asked += ((device.id, partition) for partition in request.partitions)
                await self.on_asking(device, request.partitions[0])
            return await ask(device, message)

        monkeypatch.setattr(cluster.transport, "ask", asking)

    async def on_asking(self, device: Device, partition: int) -> None:
        """What the test wants to happen then."""

    async def round(self, selection: Selection = Selection()) -> RoundReport:  # noqa: B008 - frozen
        self.asked.clear()
        self.proofs.clear()
        return await self.worker.run_round([0], selection)

    def partitions_with(self, peer: Device) -> set[int]:
        ring = self.cluster.ring
        return {partition for partition, _ in ring.partitions_of(self.device.id) if peer in ring.primaries(partition)}


def fill(cluster: MemoryCluster, device: Device, second: float = 2) -> None:
    """Something in every partition of a device that no other one has."""
    filled: set[int] = set()
    number = 0
    wanted = {partition for partition, _ in cluster.ring.partitions_of(device.id)}
    while filled != wanted:
        path = NAMES[0].__class__(NAMES[0].account, NAMES[0].container, f"n{number}")
        number += 1
        partition = cluster.key(path).partition
        if partition in wanted and partition not in filled:
            cluster.place(device, second, b"x", path)
            filled.add(partition)


async def test_a_dead_node_is_asked_a_few_times_then_left_out_and_counted_as_not_compared(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster, monkeypatch)
    fill(cluster, watched.device)
    dead = cluster.devices[1]
    shared = len(watched.partitions_with(dead))
    assert shared > 2
    with cluster.down(dead):
        report = await watched.round()
        assert watched.proofs.count(dead.id) == 2
        assert (report.failed, report.skipped) == (0, shared)
        assert not report.clean
        assert watched.worker.standings.of(watched.device.name, 0).unchecked == shared
        again = await watched.round()
        assert dead.id not in watched.proofs
        assert again.skipped == shared


async def test_what_was_left_out_comes_next_when_the_node_is_back_in_the_same_round(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MANY", 1)
    watched = Watched(cluster, monkeypatch)
    fill(cluster, watched.device)
    dead = cluster.devices[1]
    for _ in range(2):
        watched.neighbours.know(0, cluster.ring.devices)
        watched.neighbours.failed(node_of(dead))
    assert watched.neighbours.skips(node_of(dead))
    cluster.transport.link(dead).unreachable = True
    came: list[int] = []

    async def comes_back(device: Device, partition: int) -> None:
        if watched.neighbours.skips(node_of(dead)) and len(watched.asked) == 12:
            cluster.transport.link(dead).unreachable = False
            await asyncio.sleep(0.02)
            watched.neighbours.maybe_back(node_of(dead))
            async with asyncio.timeout(5):
                while watched.neighbours.skips(node_of(dead)):  # noqa: ASYNC110 - a probe's task sets no event
                    await asyncio.sleep(0.001)
            came.append(len(watched.asked))

    monkeypatch.setattr(watched, "on_asking", comes_back)
    report = await watched.round()
    assert came, "it was left out until then"
    assert report.skipped > 0
    shared = watched.partitions_with(dead)
    assert {partition for peer, partition in watched.asked if peer == dead.id} == shared, "all in this round"
    ready = [number for number, (peer, _) in enumerate(watched.asked) if peer == dead.id]
    assert ready[len(shared) // 2] < came[0] + 2 * len(shared), "before most others"
    assert watched.worker.standings.of(watched.device.name, 0).unchecked == 0


async def test_a_round_may_be_confined_to_partitions_and_peers(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster, monkeypatch)
    fill(cluster, watched.device)
    peer = cluster.devices[2]
    partition = min(watched.partitions_with(peer))
    await watched.round(Selection(frozenset({partition})))
    assert {found for _, found in watched.asked} == {partition}
    fill(cluster, watched.device, 3)
    await watched.round(Selection(None, lambda device: device == peer))
    assert {found for found, _ in watched.asked} == set(watched.proofs) == {peer.id}
    assert {found for _, found in watched.asked} == watched.partitions_with(peer)


async def test_what_a_killed_replicator_had_done_comes_last(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MANY", 1)
    former = Watched(cluster, monkeypatch)
    fill(cluster, former.device)
    texts: list[str] = []

    async def note(device: Device, partition: int) -> None:
        texts.append(former.worker.progress.text())

    monkeypatch.setattr(former, "on_asking", note)
    await former.round()
    assert former.worker.progress.text() == "", "a round that is through is not worth knowing"
    done = list(dict.fromkeys(partition for _, partition in former.asked))
    text = texts[len(texts) // 2]
    successor = Watched(cluster, monkeypatch)
    successor.worker.progress.recall(text)
    ring = cluster.ring
    own = DevicePartitions(successor.device, 0, Places(ring, successor.device), Standing())
    known = successor.worker.progress.were_done(own, done)
    assert 0 < len(known) < len(done)
    fill(cluster, successor.device, 3)
    await successor.round()
    order = list(dict.fromkeys(partition for _, partition in successor.asked))
    assert set(order) == set(done)
    assert set(order[-len(known) :]) == known
    fill(cluster, successor.device, 4)
    await successor.round()
    assert set(dict.fromkeys(partition for _, partition in successor.asked)) == set(done)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "1", '{"a": 1}', '{"a": "eJw="}', "x" * (MAX_TEXT_BYTES + 1)])
def test_a_text_that_can_not_be_read_is_nothing(cluster: MemoryCluster, text: str | None) -> None:
    progress = Progress()
    progress.recall(text)
    own = DevicePartitions(cluster.devices[0], 0, Places(cluster.ring, cluster.devices[0]), Standing())
    assert not progress.were_done(own, range(20))


def test_partitions_that_end_together_are_written_down_as_those_that_end_alone(cluster: MemoryCluster) -> None:
    own = DevicePartitions(cluster.devices[0], 0, Places(cluster.ring, cluster.devices[0]), Standing())
    many, few, alone = frozenset(range(0, 6000, 3)), frozenset({1, 7}), frozenset({5999})
    texts = []
    for together in (True, False):
        progress = Progress()
        progress.begin([(own, range(6000))])
        for partitions in (many, few, alone):
            if together:
                progress.done_all(own, partitions)
            else:
                for partition in partitions:
                    progress.done(own, partition, whole=True)
        report = progress.report()
        assert report is not None
        assert report["done"] == 2003
        texts.append(progress.text())
        assert progress.text() == texts[-1]
        progress.end(RoundReport())
        assert progress.text() == ""
    assert texts[0] == texts[1]
    progress.recall(texts[0])
    assert progress.were_done(own, range(6000)) == many | few | alone


def test_places_are_those_of_the_ring_with_a_part_of_a_replica() -> None:
    builder = RingBuilder(6, 2.5, 1)
    for number in range(5):
        builder.add_device(host=f"h{number}", port=1, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    ring = builder.ring
    assert len(ring.rows[-1]) < ring.partition_count
    for device in builder.ring.devices:
        assert device is not None
        places = Places(ring, device)
        holders = [{one.id for one in ring.primaries(partition)} for partition in range(ring.partition_count)]
        assert places.assigned == {at for at, ids in enumerate(holders) if device.id in ids}
        assert places.by_peer == {
            peer: {at for at, ids in enumerate(holders) if ids >= {device.id, peer}}
            for peer in range(5)
            if peer != device.id
        }


def test_the_estimate_follows_the_mean_speed(cluster: MemoryCluster) -> None:
    now = [100.0]
    progress = Progress(clock=lambda: now[0], now_s=lambda: 5000.0)
    own = DevicePartitions(cluster.devices[0], 0, Places(cluster.ring, cluster.devices[0]), Standing())
    assert not progress.report()
    progress.begin([(own, range(10))])
    assert not progress.remaining_s
    now[0] += 4
    for partition in range(2):
        progress.done(own, partition, whole=True)
    assert progress.report() == {"partitions": 10, "done": 2, "runningForS": 4.0, "remainingS": 16.0}
    progress.again(2)
    assert progress.remaining_s == 20.0
    progress.end(RoundReport(compared=3))
    assert not progress.report()
    assert progress.rounds[-1]["endedAt"] == 5000.0


async def test_rounds_keep_to_the_budget_of_bytes(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    watched = Watched(cluster, monkeypatch, Pace(1, bytes_per_s=1000, clock=lambda: 0.0, sleep=sleep))
    path = next(path for path in NAMES if watched.device in cluster.primaries(path))
    cluster.place(watched.device, 2, bytes(3_000_000), path)
    report = await watched.round()
    assert report.pushed == 2
    assert max(slept) == pytest.approx(6000)
    assert len(slept) > 10, "piece by piece"


async def test_a_partition_in_trouble_keeps_no_other_back(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster, monkeypatch)
    fill(cluster, watched.device)
    peer = cluster.devices[1]
    shared = watched.partitions_with(peer)
    bad = min(shared)

    async def fails(device: Device, partition: int) -> None:
        if device == peer and (peer.id, bad) in watched.asked:
            watched.asked.remove((peer.id, bad))
            raise NodeBusy("too many requests at work")

    monkeypatch.setattr(watched, "on_asking", fails)
    report = await watched.round()
    assert report.failed == 1
    assert watched.worker.standings.of(watched.device.name, 0).unchecked == 1
    assert set(cluster.store(peer).partitions(0)) == shared - {bad}


async def test_a_device_that_takes_nothing_is_not_tried_with_every_object(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(cluster, monkeypatch, Pace(concurrency=1))
    paths = in_one_partition(cluster, 200)
    first, second, third = cluster.primaries(paths[0])
    for path in paths:
        cluster.place(first, 2, path=path)
    watched.device = first
    tried: list[Device] = []
    put = cluster.transport.put

    async def broken(device: Device, *arguments: Any) -> Any:
        if device == second:
            tried.append(device)
            raise NodeError("its disk is broken")
        return await put(device, *arguments)

    take = cluster.transport.take_copies

    async def unable(device: Device, copies: bytes) -> bytes:
        if device == second:
            raise NodeError("it knows no copies")
        return await take(device, copies)

    monkeypatch.setattr(cluster.transport, "put", broken)
    monkeypatch.setattr(cluster.transport, "take_copies", unable)
    report = await watched.round()
    assert report.failed
    assert MAX_REFUSED < len(tried) < 2 * MAX_REFUSED
    assert all(cluster.info(third, path) for path in paths)
