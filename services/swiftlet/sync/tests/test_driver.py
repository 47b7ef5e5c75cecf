"""Rounds that begin with sessions: equality costs one question a peer, and peers that fail lose nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.errors import NodeError
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.sync.asking.questions import GARBLED
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport

PATHS = [Path(ACCOUNT, CONTAINER, f"o{n}") for n in range(40)]


class Counting(MemoryObjectTransport):
    """Counts what is asked of which device."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asked: Counter[tuple[str, int]] = Counter()
        self.bytes = 0

    async def ask(self, device: Device, message: bytes) -> bytes:
        self.asked["ask", device.id] += 1
        answer = await super().ask(device, message)
        self.bytes += len(message) + len(answer)
        return answer

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Any:
        self.asked["suffix_hashes", device.id] += 1
        return await super().suffix_hashes(device, policy, partition)

    def total(self, operation: str) -> int:
        return sum(count for (found, _), count in self.asked.items() if found == operation)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        made.transport = Counting(made.stores, patience_s=0.0)
        for path in PATHS:
            for device in made.primaries(path):
                made.place(device, 2, path=path)
        yield made


def counted(cluster: MemoryCluster) -> Counting:
    assert isinstance(cluster.transport, Counting)
    return cluster.transport


def worker_of(cluster: MemoryCluster, device: Device) -> Replicator:
    neighbours = Neighbours(
        Observer(node_of(device), "n"), FailureTable(limit=2), lambda peer: probe(cluster.transport, peer), retry_s=0.01
    )
    return Replicator(lambda ring: [device], cluster.rings.objects, cluster.transport, neighbours=neighbours)


async def test_a_stable_round_asks_each_peer_once_and_of_no_partition(cluster: MemoryCluster) -> None:
    me, *peers = cluster.devices
    worker = worker_of(cluster, me)
    report = await worker.run_round([0])
    assert report.clean
    assert report.compared > 0
    assert worker.standings.of(me.name, 0).synced_at_s is not None
    assert counted(cluster).total("suffix_hashes") == 0
    assert {peer.id: counted(cluster).asked["ask", peer.id] for peer in peers} == dict.fromkeys([1, 2, 3, 4], 1)


async def test_only_what_differs_is_looked_at(cluster: MemoryCluster) -> None:
    me = cluster.devices[0]
    path = next(path for path in PATHS if me in cluster.primaries(path))
    other = next(device for device in cluster.primaries(path) if device != me)
    cluster.place(other, 9, b"newer", path)
    report = await worker_of(cluster, me).run_round([0])
    # From the one that has it, then to the other one, which had been equal before.
    assert (report.pulled, report.pushed, report.failed) == (1, 1, 0)
    assert counted(cluster).total("suffix_hashes") <= 4
    assert len({cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)}) == 1


async def test_a_peer_that_is_away_leaves_its_partitions_unchecked(cluster: MemoryCluster) -> None:
    me, away, *_ = cluster.devices
    worker = worker_of(cluster, me)
    with cluster.down(away):
        report = await worker.run_round([0])
    shared = sum(away in cluster.ring.primaries(partition) for partition, _ in cluster.ring.partitions_of(me.id))
    standing = worker.standings.of(me.name, 0)
    assert (standing.unchecked, standing.synced_at_s) == (shared, None)
    assert not report.clean


@pytest.mark.parametrize(
    "answer", [None, b"", b"\x02\x11\x00\x00", bytes(40)], ids=["refused", "empty", "newer", "zeros"]
)
async def test_a_peer_whose_answers_make_no_sense_is_told_and_left_unchecked(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    me, broken, *_ = cluster.devices
    ask = cluster.transport.ask

    async def asking(device: Device, message: bytes) -> bytes:
        if device != broken:
            return await ask(device, message)
        if answer is None:
            raise NodeError("the node answered 405 without saying why")
        return answer

    monkeypatch.setattr(cluster.transport, "ask", asking)
    before = GARBLED._value.get()
    path = next(path for path in PATHS if {me, broken} < set(cluster.primaries(path)))
    (other,) = set(cluster.primaries(path)) - {me, broken}
    cluster.place(other, 9, b"newer", path)
    worker = worker_of(cluster, me)
    report = await worker.run_round([0])
    assert (GARBLED._value.get() > before) == (answer is not None)
    assert report.pulled == 1, "the others are compared all the same"
    assert not report.clean
    assert worker.standings.of(me.name, 0).unchecked > 0
    assert worker.standings.of(me.name, 0).synced_at_s is None
    monkeypatch.undo()
    await worker.run_round([0])
    assert worker.standings.of(me.name, 0).unchecked == 0
    assert len({cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)}) == 1
