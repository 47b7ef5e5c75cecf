"""Small objects written to a whole cluster: quorums, handoffs, refusals, and who is told of the row."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet.errors import NotFound, Superseded, Unavailable
from swiftlet.model import ContainerInfo, Kind, PostRecord
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, PATH, MemoryCluster, at, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.testing.storage.memory_listing import Fault


def hosts(*devices: Device) -> set[str]:
    return {device.host for device in devices}


async def info_of(cluster: MemoryCluster) -> ContainerInfo:
    return await cluster.listings.container_info(ACCOUNT, CONTAINER)


async def test_all_primaries_and_all_container_replicas_have_it(cluster: MemoryCluster) -> None:
    written = await cluster.put(2)
    assert not written.container_missing
    assert cluster.holders() == hosts(*cluster.primaries())
    for device in cluster.container_devices():
        assert await cluster.listed(device) == ["o"]


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_handoffs_take_the_places_of_lost_primaries(cluster: MemoryCluster, lost: int) -> None:
    primaries, handoffs = cluster.primaries(), cluster.handoffs()
    with cluster.down(*primaries[:lost]):
        await cluster.put(2)
        assert cluster.holders() == hosts(*primaries[lost:], *handoffs[:lost])
        assert await cluster.read() == b"data"
    for device in cluster.container_devices():
        assert await cluster.listed(device) == ["o"]


@pytest.mark.parametrize("ailment", ["unreachable", "silent", "busy", "full", "broken"])
async def test_whatever_ails_a_device_another_takes_its_place(cluster: MemoryCluster, ailment: str) -> None:
    first, *others = cluster.primaries()
    if ailment in {"full", "broken"}:
        setattr(cluster.store(first).faults, ailment, True)
    else:
        setattr(cluster.transport.link(first), ailment, True)
    await cluster.put(2)
    cluster.store(first).faults.clear()
    assert cluster.holders() == hosts(*others, cluster.handoffs()[0])


async def test_no_quorum_names_who_failed_and_how(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, devices=4) as cluster:
        await cluster.make_container()
        first, second, third = cluster.primaries()
        (handoff,) = cluster.handoffs()
        cluster.transport.link(second).silent = True
        cluster.store(third).faults.full = True
        with cluster.down(first, handoff), pytest.raises(Unavailable) as caught:
            await cluster.put(2)
        told = str(caught.value)
        assert f"{PATH}: 2 replicas must answer, 0 did" in told
        for device, ailment in ((first, "unreachable"), (second, "did not answer"), (third, "full disk")):
            assert f"{device.name}: " in told
            assert ailment in told
        with cluster.down(first, handoff):
            cluster.store(third).faults.clear()
            with pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
                await cluster.put(3)


async def test_without_a_spare_the_quorum_still_counts_and_the_lost_share_of_rows_is_told(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, devices=3) as cluster:
        await cluster.make_container()
        with cluster.down(cluster.primaries()[1]):
            await cluster.put(2)
        assert len(cluster.holders()) == 2
        for device in cluster.container_devices():
            assert await cluster.listed(device) == ["o"]


async def test_a_lost_slot_and_a_lost_container_replica_do_not_fail_the_write(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, devices=3) as cluster:
        await cluster.make_container()
        untold, *others = cluster.container_devices()
        with cluster.down(cluster.primaries()[0]), cluster.databases_down(untold):
            assert not (await cluster.put(2)).container_missing
        assert await cluster.listed(untold) == []
        for device in others:
            assert await cluster.listed(device) == ["o"]


@pytest.mark.parametrize("replicas", [1, 2, 2.5, 4, 5])
async def test_other_numbers_of_replicas_tell_every_container_replica(tmp_path: Path, replicas: float) -> None:
    async with memory_cluster(tmp_path, devices=5, replicas=replicas) as cluster:
        await cluster.make_container()
        await cluster.put(2)
        assert cluster.holders() == hosts(*cluster.primaries())
        for device in cluster.container_devices():
            assert await cluster.listed(device) == ["o"]


async def test_superseded_by_a_quorum_tells_the_newest_of_them(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 5)
    cluster.place(second, 6)
    with pytest.raises(Superseded) as caught:
        await cluster.put(3)
    assert caught.value.timestamp == at(6)
    with cluster.down(third), pytest.raises(Superseded):
        await cluster.put(3)


async def test_superseded_by_a_minority_is_a_success(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 5, b"newer")
    await cluster.put(3)
    assert [info.timestamp for device in (first, second, third) if (info := cluster.info(device))] == [
        at(5),
        at(3),
        at(3),
    ]
    assert await cluster.read(newest=True) == b"newer"


async def test_delete_leaves_tombstones_and_takes_the_row_out(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    written = await cluster.objects.delete(PATH, 0, at(3))
    assert written.existed
    for device in cluster.primaries():
        entry = cluster.entry(device)
        assert entry is not None
        assert (entry.kind, entry.timestamp) == (Kind.TOMBSTONE, at(3))
    for device in cluster.container_devices():
        assert await cluster.listed(device) == []
    assert not (await cluster.objects.delete(PATH, 0, at(4))).existed


async def test_delete_of_what_never_was_leaves_tombstones_too(cluster: MemoryCluster) -> None:
    written = await cluster.objects.delete(PATH, 0, at(3))
    assert not written.existed
    with pytest.raises(Superseded):
        await cluster.put(2)
    await cluster.put(4)


async def test_delete_while_primaries_are_away_counts_when_they_return(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    with cluster.down(*cluster.primaries()[:2]):
        assert (await cluster.objects.delete(PATH, 0, at(3))).existed
    with pytest.raises(NotFound):
        await cluster.read(newest=True)


async def test_post_merges_on_every_replica(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    await cluster.objects.post(PATH, 0, PostRecord(at(4), {"X-Object-Meta-A": "4"}, "text/html", at(4)))
    await cluster.objects.post(PATH, 0, PostRecord(at(5), {"X-Object-Meta-B": "5"}))
    for device in cluster.primaries():
        info = cluster.info(device)
        assert info is not None
        assert info.metadata == {"X-Object-Meta-B": "5"}
        assert info.content_type == "text/html"
        assert (info.timestamp, info.content_type_timestamp, info.meta_timestamp) == (at(2), at(4), at(5))
    with pytest.raises(Superseded) as caught:
        await cluster.objects.post(PATH, 0, PostRecord(at(3), {}))
    assert caught.value.timestamp == at(5)


async def test_a_post_reaches_the_replica_that_a_handoff_holds(cluster: MemoryCluster) -> None:
    away = cluster.primaries()[0]
    with cluster.down(away):
        await cluster.put(2)
        await cluster.objects.post(PATH, 0, PostRecord(at(3), {"X-Object-Meta-A": "3"}))
    told = [device.host for device in cluster.devices if (i := cluster.info(device)) and i.meta_timestamp == at(3)]
    assert set(told) == cluster.holders()


async def test_post_is_404_only_by_a_quorum_of_those_who_should_know(cluster: MemoryCluster) -> None:
    post = PostRecord(at(3), {})
    with pytest.raises(NotFound):
        await cluster.objects.post(PATH, 0, post)
    await cluster.put(2)
    with cluster.down(*cluster.primaries()[:1]):
        await cluster.objects.post(PATH, 0, post)
    with cluster.down(*cluster.primaries()[:2]), pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
        await cluster.objects.post(PATH, 0, post)
    with cluster.down(*cluster.primaries()), pytest.raises(Unavailable):
        await cluster.objects.post(PATH, 0, post)


async def test_a_post_finds_primaries_that_have_just_come_back(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, suppress_after=1) as cluster:
        await cluster.make_container()
        await cluster.put(2)
        with cluster.down(*cluster.primaries()):
            await cluster.objects.delete(PATH, 0, at(1.5))
        assert all(cluster.health.suppressed(device) for device in cluster.primaries())
        await cluster.objects.post(PATH, 0, PostRecord(at(3), {"X-Object-Meta-A": "3"}))
        for device in cluster.primaries():
            info = cluster.info(device)
            assert info is not None
            assert info.metadata == {"X-Object-Meta-A": "3"}


@pytest.mark.parametrize(("without", "missing"), [(0, False), (1, False), (2, True), (3, True)])
async def test_the_container_is_missing_when_most_replicas_say_so(
    cluster: MemoryCluster, without: int, missing: bool
) -> None:
    partition = cluster.container_partition()
    for device in cluster.container_devices()[:without]:
        await cluster.databases[device.name].delete_container(partition, ACCOUNT, CONTAINER, at(2))
    assert (await cluster.put(3)).container_missing is missing
    assert (await cluster.objects.delete(PATH, 0, at(4))).container_missing is missing


@pytest.mark.parametrize("fault", list(Fault))
async def test_container_servers_in_trouble_are_not_missing_containers(cluster: MemoryCluster, fault: Fault) -> None:
    with cluster.databases_down(*cluster.container_devices(), fault=fault):
        assert not (await cluster.put(2)).container_missing
    assert (await info_of(cluster)).object_count == (1 if fault is Fault.TIMEOUT_AFTER else 0)
