"""Reads and POSTs while devices may have missed what was acknowledged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from swiftlet_native import Doubts

from swiftlet.boundaries.objects import Verdict
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import PostRecord
from swiftlet.placement.tests.cluster import PATH, MemoryCluster, at, footer_of, record_of
from swiftlet.ring.model import Device

MakeCluster = Callable[..., MemoryCluster]


def primaries(cluster: MemoryCluster) -> tuple[Device, ...]:
    return tuple(cluster.ring.primaries(cluster.objects.key(PATH, 0).partition))


def doubt(cluster: MemoryCluster, *devices: Device) -> None:
    for device in devices:
        cluster.transport.doubts.setdefault(device.address, Doubts()).doubt_all()


async def put(cluster: MemoryCluster, moment: float, body: bytes) -> None:
    await cluster.objects.put(PATH, 0, record_of(PATH, at(moment)), body, footer_of(body))


async def overwritten_while_away(cluster: MemoryCluster, away: Device) -> None:
    """`away` missed an overwrite, and knows that it may have missed something."""
    await put(cluster, 1, b"old")
    cluster.transport.link(away).unreachable = True
    await put(cluster, 2, b"newer")
    cluster.transport.link(away).unreachable = False
    cluster.objects.missed._places.clear()
    doubt(cluster, away)


async def test_a_device_that_may_have_missed_a_write_is_not_believed(cluster: MemoryCluster) -> None:
    await overwritten_while_away(cluster, primaries(cluster)[0])
    for _ in range(20):
        assert (await cluster.objects.head(PATH, 0)).size == 5


async def test_without_a_device_that_missed_nothing_the_newest_counts(cluster: MemoryCluster) -> None:
    await overwritten_while_away(cluster, primaries(cluster)[0])
    doubt(cluster, *primaries(cluster))
    for _ in range(20):
        download = await cluster.objects.get(PATH, 0)
        assert download.info.size == 5
        await download.close()


async def test_the_only_device_left_serves_even_if_it_may_have_missed_something(cluster: MemoryCluster) -> None:
    await put(cluster, 1, b"data")
    first, *others = primaries(cluster)
    doubt(cluster, first)
    for device in others:
        cluster.transport.link(device).unreachable = True
    assert (await cluster.objects.head(PATH, 0)).size == 4


async def test_a_post_is_not_refused_by_devices_that_missed_the_object(cluster: MemoryCluster) -> None:
    first, second, _ = primaries(cluster)
    for device in (first, second):
        cluster.transport.link(device).unreachable = True
    await put(cluster, 1, b"data")
    for device in (first, second):
        cluster.transport.link(device).unreachable = False
        cluster.health.succeeded(device)
    doubt(cluster, first, second)
    await cluster.objects.post(PATH, 0, PostRecord(at(2), {"a": "b"}))
    assert (await cluster.objects.head(PATH, 0)).metadata == {"a": "b"}


async def test_what_nobody_has_is_not_there_although_all_may_have_missed_something(cluster: MemoryCluster) -> None:
    doubt(cluster, *cluster.devices)
    with pytest.raises(NotFound):
        await cluster.objects.head(PATH, 0)
    with pytest.raises(NotFound):
        await cluster.objects.post(PATH, 0, PostRecord(at(2), {"a": "b"}))
    cluster.transport.link(primaries(cluster)[0]).unreachable = True
    with pytest.raises(Unavailable):
        await cluster.objects.post(PATH, 0, PostRecord(at(3), {"a": "b"}))


async def test_a_device_that_missed_a_write_is_asked_last_and_told(cluster: MemoryCluster) -> None:
    await put(cluster, 1, b"old")
    away, key = primaries(cluster)[0], cluster.objects.key(PATH, 0)
    cluster.transport.link(away).unreachable = True
    await put(cluster, 2, b"newer")
    cluster.transport.link(away).unreachable = False
    assert cluster.objects.missed.behind(0, key.partition) == {away.id}
    for _ in range(20):
        assert (await cluster.objects.head(PATH, 0)).size == 5
    await cluster.objects.missed._tell(away.id)
    assert not cluster.objects.missed.waits(away)
    pending = await cluster.transport.judge(away, Verdict())
    assert pending is not None
    assert cluster.transport.doubts[away.address].has(0, key.partition)
    await cluster.transport.judge(away, Verdict(proved=[(0, key.partition)], epoch=pending.epoch))
    assert await cluster.transport.judge(away, Verdict()) is None
