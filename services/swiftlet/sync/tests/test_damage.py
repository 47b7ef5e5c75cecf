"""A damaged copy on a native store's device: found, set aside, brought back by the next round, given to nobody.

The fault: a bit of an object's data, or of its metadata, is flipped in the volume below a running store. Found by the
auditor or by whoever reads it, as in `swiftlet.store.protocol`; what sync makes of that is held here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path as Directory

import pytest

from swiftlet.errors import ChecksumMismatch, NotFound
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.store.native import NativeStore
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.replicator import Replicator
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.store.faulty_native import FaultyNativeStore, find_put, flip_in_place

BODY = b"as it was written " * 100
FLIPS = pytest.mark.parametrize("flip", [FaultyNativeStore.flip_data, FaultyNativeStore.flip_metadata])


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=4) as made:
        made.stores.update({address: FaultyNativeStore() for address in made.stores})
        made.transport = MemoryObjectTransport(made.stores, patience_s=0.0)
        yield made
        for store in made.stores.values():
            store.close()


def native(cluster: MemoryCluster, device: Device) -> FaultyNativeStore:
    store = cluster.store(device)
    assert isinstance(store, FaultyNativeStore)
    return store


def data(cluster: MemoryCluster, device: Device) -> bytes:
    with cluster.store(device).open(cluster.key()) as reader:
        return bytes(reader.read(0, 1 << 20))


def hashes(cluster: MemoryCluster, device: Device) -> dict[str, bytes]:
    return dict(cluster.store(device).suffix_hashes(0, cluster.key().partition))


async def round_of(cluster: MemoryCluster, *devices: Device) -> RoundReport:
    return await Replicator(lambda ring: devices, cluster.rings.objects, cluster.transport).run_round([0])


@FLIPS
@pytest.mark.parametrize("asker", [0, 1], ids=["the damaged device asks", "a healthy one asks"])
async def test_what_was_found_is_back_after_one_round(
    cluster: MemoryCluster, flip: Callable[[FaultyNativeStore, object], None], asker: int
) -> None:
    first, second, third = cluster.primaries()
    for device in (first, second, third):
        cluster.place(device, 2, BODY)
    assert (await round_of(cluster, first)).clean
    flip(native(cluster, first), cluster.key())
    with pytest.raises(ChecksumMismatch):
        native(cluster, first).verify(cluster.key())
    assert cluster.entry(first) is None
    assert hashes(cluster, first) != hashes(cluster, second), "a session sees that something is missing"
    report = await round_of(cluster, (first, second)[asker])
    assert (report.pulled + report.pushed > 0, report.failed) == (True, 0)
    assert hashes(cluster, first) == hashes(cluster, second) == hashes(cluster, third)
    assert [data(cluster, device) for device in (first, second, third)] == [BODY] * 3


@FLIPS
async def test_damage_that_nobody_has_found_yet_goes_to_no_other_replica(
    cluster: MemoryCluster, flip: Callable[[FaultyNativeStore, object], None]
) -> None:
    first, second, third = cluster.primaries()
    for device in (first, third):
        cluster.place(device, 2, BODY)
    flip(native(cluster, first), cluster.key())
    await round_of(cluster, first)
    with suppress(NotFound):
        assert data(cluster, second) == BODY
    # The attempt to copy it has found it; now it comes back as well.
    for device in (third, first, second):
        await round_of(cluster, device)
    assert [data(cluster, device) for device in (first, second, third)] == [BODY] * 3


async def test_the_auditor_finds_it_without_being_asked(tmp_path: Directory, cluster: MemoryCluster) -> None:
    first, second, _ = cluster.primaries()
    cluster.stores[first.address].close()
    cluster.stores[first.address] = NativeStore(tmp_path, volume_bytes=8 << 20)  # type: ignore[assignment]  # no faults
    for device in (first, second):
        cluster.place(device, 2, BODY)
    cluster.stores[first.address].close()
    path, _, offset = find_put(tmp_path, cluster.key())
    flip_in_place(path, offset)
    store = NativeStore(tmp_path, volume_bytes=8 << 20, audit_bytes_per_s=1 << 20)
    cluster.stores[first.address] = store  # type: ignore[assignment]
    async with asyncio.timeout(60):
        while store.counters()["quarantined"] == 0:  # noqa: ASYNC110 - the auditor's thread sets no event
            await asyncio.sleep(0.05)
    assert cluster.entry(first) is None
    assert (await round_of(cluster, first)).pulled == 1
    assert data(cluster, first) == BODY
