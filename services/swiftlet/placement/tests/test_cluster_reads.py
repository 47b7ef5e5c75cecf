"""Objects read from a whole cluster: failing over, stale replicas, the newest, and when 404 is the truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from swiftlet_native import xxh3_64

from swiftlet.errors import NotFound, Unavailable
from swiftlet.placement.tests.cluster import PATH, MemoryCluster, at, memory_cluster, reading_order

BIG = bytes(range(251)) * 2000


async def test_a_read_falls_over_to_another_replica_of_the_same_version_at_that_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_cluster(tmp_path, suppress_after=1) as cluster:
        await cluster.make_container()
        await cluster.put(2, BIG)
        first, second, third = cluster.primaries()
        reading_order(monkeypatch, first, second, third)
        cluster.transport.link(first).lose_after_bytes = 100_001
        cluster.transport.link(second).lose_after_bytes = 150_002
        download = await cluster.objects.get_copy(PATH, 0)
        got = b""
        async for chunk in download.chunks():
            got += chunk
            assert download.hasher.xxh3_64() == xxh3_64(got)
        assert got == BIG
        assert await cluster.read(start=1000, stop=400_000) == BIG[1000:400_000]
        assert cluster.health.suppressed(first)
        assert not cluster.health.suppressed(third)


async def test_a_read_falls_over_to_a_handoff(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.down(*cluster.primaries()[:2]):
        await cluster.put(2, BIG)
        reading_order(monkeypatch, cluster.primaries()[2])
        cluster.transport.link(cluster.primaries()[2]).lose_after_bytes = 70_000
        assert await cluster.read() == BIG


async def test_the_rest_never_comes_from_another_version(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.primaries()
    reading_order(monkeypatch, first, second, third)
    cluster.place(first, 2, BIG)
    cluster.place(second, 3, BIG[::-1])
    cluster.place(third, 2, BIG)
    cluster.transport.link(first).lose_after_bytes = 100_000
    assert await cluster.read() == BIG
    with cluster.down(third), pytest.raises(Unavailable, match="not the one being read"):
        await cluster.read()


async def test_a_read_that_is_lost_everywhere_ends_in_an_error(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2, BIG)
    for device in cluster.primaries():
        cluster.transport.link(device).lose_after_bytes = 70_000
    download = await cluster.objects.get(PATH, 0)
    got = bytearray()

    async def take() -> None:
        async for chunk in download.chunks():
            got.extend(chunk)

    with pytest.raises(Unavailable):
        await take()
    assert got == BIG[: len(got)]
    assert len(got) < len(BIG)
    await download.close()


async def test_ranges_beyond_the_end_open_and_are_empty(cluster: MemoryCluster) -> None:
    await cluster.put(2, b"0123456789")
    assert await cluster.read(start=8, stop=100) == b"89"
    assert await cluster.read(start=100) == b""
    assert (await cluster.objects.get(PATH, 0, 100)).info.size == 10


async def test_replicas_without_the_object_are_passed_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.primaries()
    reading_order(monkeypatch, first, second, third)
    cluster.place(third, 2)
    assert await cluster.read() == b"data"
    assert (await cluster.objects.head(PATH, 0)).size == 4
    with cluster.down(first, second):
        assert await cluster.read() == b"data"


async def test_404_needs_a_quorum_of_primaries(cluster: MemoryCluster) -> None:
    first, second, _ = cluster.primaries()
    with pytest.raises(NotFound):
        await cluster.read()
    with cluster.down(first), pytest.raises(NotFound):
        await cluster.read()
    with cluster.down(first, second):
        with pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
            await cluster.read()
        with pytest.raises(Unavailable):
            await cluster.objects.head(PATH, 0)


async def test_an_object_on_lost_primaries_is_never_404(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    with cluster.down(*cluster.primaries()), pytest.raises(Unavailable):
        await cluster.read()
    with cluster.down(*cluster.primaries()), pytest.raises(Unavailable):
        await cluster.objects.head(PATH, 0, newest=True)


async def test_tombstones_on_handoffs_count_for_404(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    with cluster.down(*cluster.primaries()[:2]):
        await cluster.objects.delete(PATH, 0, at(3))
        with pytest.raises(NotFound) as caught:
            await cluster.read()
        assert caught.value.timestamp == at(3)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_newest_is_the_newest_wherever_it_is(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    reading_order(monkeypatch, *cluster.primaries())
    for index, device in enumerate(cluster.primaries()):
        cluster.place(device, 5 if index == place else 3, b"new" if index == place else b"old")
    assert await cluster.read(newest=True) == b"new"
    assert (await cluster.objects.head(PATH, 0, newest=True)).timestamp == at(5)
    assert await cluster.read() == (b"new" if place == 0 else b"old")


async def test_newest_metadata_of_the_newest_data(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    for device in cluster.primaries():
        cluster.place(device, 3)
    cluster.place_post(second, 6, {"X-Object-Meta-A": "6"})
    cluster.place_post(third, 5, {"X-Object-Meta-A": "5"})
    assert (await cluster.objects.head(PATH, 0, newest=True)).metadata == {"X-Object-Meta-A": "6"}
    assert (await cluster.objects.get(PATH, 0, newest=True)).info.metadata == {"X-Object-Meta-A": "6"}
    cluster.place(first, 4, b"newer data")
    assert (await cluster.objects.head(PATH, 0, newest=True)).timestamp == at(4)


async def test_newest_sees_tombstones(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 3)
    cluster.place(second, 3)
    cluster.place_tombstone(third, 4)
    with pytest.raises(NotFound) as caught:
        await cluster.objects.head(PATH, 0, newest=True)
    assert caught.value.timestamp == at(4)
    cluster.place(first, 5, b"again")
    assert await cluster.read(newest=True) == b"again"


async def test_metadata_newer_than_a_tombstone_brings_nothing_back(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 3)
    cluster.place_post(first, 5, {"X-Object-Meta-A": "5"})
    for device in (second, third):
        cluster.place_tombstone(device, 4)
    with pytest.raises(NotFound):
        await cluster.objects.head(PATH, 0, newest=True)


async def test_newest_sees_what_was_acknowledged_by_handoffs(cluster: MemoryCluster) -> None:
    await cluster.put(2, b"old")
    first, second, third = cluster.primaries()
    with cluster.down(first, second):
        await cluster.put(3, b"new")
    with cluster.down(third):
        assert await cluster.read(newest=True) == b"new"
    with cluster.down(first, second):
        await cluster.objects.delete(PATH, 0, at(4))
    with cluster.down(third), pytest.raises(NotFound):
        await cluster.read(newest=True)


@pytest.mark.parametrize("newest", [False, True])
async def test_a_copy_left_on_a_handoff_is_not_read_after_the_deletion(cluster: MemoryCluster, newest: bool) -> None:
    with cluster.down(cluster.primaries()[0]):
        await cluster.put(2)
    await cluster.objects.delete(PATH, 0, at(3))
    assert cluster.holders() == {cluster.handoffs()[0].host}
    with pytest.raises(NotFound):
        await cluster.read(newest)
    with pytest.raises(NotFound):
        await cluster.objects.head(PATH, 0, newest)


async def test_newest_needs_a_quorum_of_primaries(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    first, second, _ = cluster.primaries()
    with cluster.down(first):
        assert await cluster.read(newest=True) == b"data"
    with cluster.down(first, second), pytest.raises(Unavailable, match="1 of 3 replicas answered"):
        await cluster.read(newest=True)


async def test_the_newest_that_is_lost_before_it_is_opened_is_not_404(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 5, b"new")
    for device in (second, third):
        cluster.place(device, 3, b"old")
    cluster.store(first).faults.fail("open", times=10)
    with pytest.raises(Unavailable):
        await cluster.read(newest=True)


async def test_a_version_is_read_from_who_has_it(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = cluster.primaries()
    reading_order(monkeypatch, first, second, third)
    cluster.place(first, 5, b"new")
    cluster.place(second, 3, b"old")
    cluster.place(third, 3, b"old")
    download = await cluster.objects.get(PATH, 0, version=at(3))
    assert b"".join([chunk async for chunk in download.chunks()]) == b"old"
    with pytest.raises(Unavailable, match="not the requested one"):
        await cluster.objects.get(PATH, 0, version=at(4))


async def test_a_damaged_copy_is_passed_over(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.put(2)
    reading_order(monkeypatch, *cluster.primaries())
    cluster.store(cluster.primaries()[0]).flip_metadata(cluster.key())
    assert await cluster.read() == b"data"
