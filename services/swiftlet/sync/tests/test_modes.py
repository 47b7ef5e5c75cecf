"""Rounds in every mode: small clusters become equal, and devices report no more than what their mode has shown."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.sync.tests.test_replicator import NAMES, newest, scatter
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport

ROUNDS = {"batched": 1, "all_to_all": 1, "star": 2, "lightsync": 2, "chain": 2}
"""From any state, of three replicas; one more for each round of handoffs."""
every_mode = pytest.mark.parametrize("mode", ROUND_MODES)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        made.transport = MemoryObjectTransport(made.stores, patience_s=0.0)
        yield made


async def round_of_all(cluster: MemoryCluster, mode: str) -> list[tuple[Replicator, RoundReport]]:
    """One round of each device."""
    done = []
    for device in cluster.devices:
        worker = Replicator(
            lambda ring, own=device: [own],  # type: ignore[misc]
            cluster.rings.objects,
            cluster.transport,
            mode=ROUND_MODES[mode],
        )
        done.append((worker, await worker.run_round([0])))
    return done


@every_mode
@pytest.mark.parametrize("seed", range(4))
async def test_a_small_cluster_becomes_equal_and_stays(cluster: MemoryCluster, mode: str, seed: int) -> None:
    scatter(cluster, random.Random(seed))
    expected = {path: newest(cluster, path) for path in NAMES}
    for _ in range(ROUNDS[mode] + 1):
        await round_of_all(cluster, mode)
    for path in NAMES:
        assert newest(cluster, path) == expected[path]
        assert len({cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)}) == 1
        for device in cluster.handoffs(path):
            assert cluster.entry(device, cluster.key(path)) is None
    last = [report for _, report in await round_of_all(cluster, mode)]
    assert [report.pushed + report.pulled + report.removed for report in last] == [0] * 5
    assert all(report.clean for report in last)


@every_mode
async def test_only_who_was_compared_with_all_is_in_sync(cluster: MemoryCluster, mode: str) -> None:
    for path in NAMES:
        for device in cluster.primaries(path):
            cluster.place(device, 2, path=path)
    for worker, report in await round_of_all(cluster, mode):
        assert report.clean
        standing = worker.standings.report(str)
        fields = next(iter(standing.values()))["rings"]["0"]  # type: ignore[index]
        asks_all = mode in ("batched", "all_to_all")
        assert (fields["syncedAt"] is not None) is (fields["unchecked"] == 0)
        assert not asks_all or fields["syncedAt"] is not None


async def test_who_only_pushes_is_not_in_sync_while_others_have_more(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    for device in (second, third):
        cluster.place(device, 2)
    for placed in (False, True):
        if placed:
            cluster.place(first, 1)
        worker = Replicator(
            lambda ring: [first], cluster.rings.objects, cluster.transport, mode=ROUND_MODES["all_to_all"]
        )
        report = await worker.run_round([0])
        assert (report.pulled, report.pushed) == (0, 0)
        standing = worker.standings.of(first.name, 0)
        assert (standing.unchecked, standing.synced_at_s) == (1, None)
