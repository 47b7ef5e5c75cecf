"""Reads in a ring of two regions: the near copy is asked alone while it is well, and others when it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.model import ListingQuery
from swiftlet.names import Path
from swiftlet.placement.plan import Place
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster
from swiftlet.ring.model import Device

HERE = Place("east", "z0")
PATHS = [Path(ACCOUNT, CONTAINER, f"o{number}") for number in range(8)]


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """Each partition has a device in the reader's zone, another one in its region, and one or two in the other one."""
    async with memory_cluster(tmp_path, devices=4, replicas=4, regions=("east", "west"), place=HERE) as made:
        await made.make_container()
        for path in PATHS:
            await made.put(2, b"data", path)
        yield made


@pytest.fixture
def asked(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far away the devices were that have been asked."""
    found: list[int] = []
    for transport, names in ((cluster.transport, ("get", "head")), (cluster.listing_transport, ("list_objects",))):
        for name in names:
            real = getattr(transport, name)

            def noting(device: Device, *rest: object, real: object = real, **more: object) -> object:
                found.append(HERE.distance(device))
                return real(device, *rest, **more)  # type: ignore[operator]

            monkeypatch.setattr(transport, name, noting)
    return found


def at(cluster: MemoryCluster, *distances: int) -> list[Device]:
    """Devices so far away."""
    return [device for device in cluster.devices if HERE.distance(device) in distances]


async def test_the_near_copy_alone_is_asked(cluster: MemoryCluster, asked: list[int]) -> None:
    for path in PATHS:
        assert await cluster.read(path=path) == b"data"
        assert (await cluster.objects.head(path, 0)).size == 4
    assert set(asked) == {0}


async def test_what_is_not_there_is_found_in_the_region_then_elsewhere(
    cluster: MemoryCluster, asked: list[int]
) -> None:
    path = Path(ACCOUNT, CONTAINER, "missing near by")
    for device in at(cluster, 1, 2):
        cluster.place(device, 3, b"there", path)
    assert await cluster.read(path=path) == b"there"
    assert asked == [0, 1]
    asked.clear()
    far = Path(ACCOUNT, CONTAINER, "far away")
    for device in at(cluster, 2):
        cluster.place(device, 3, b"far", far)
    assert await cluster.read(path=far) == b"far"
    assert asked[:2] == [0, 1]
    assert asked[-1] == 2, "after all have been asked at once"


async def test_who_is_away_is_no_obstacle(cluster: MemoryCluster, asked: list[int]) -> None:
    with cluster.down(*at(cluster, 0, 1)):
        for path in PATHS:
            assert await cluster.read(path=path) == b"data"
    assert 2 in asked


async def test_the_near_replica_is_listed(cluster: MemoryCluster, asked: list[int]) -> None:
    for _ in range(5):
        _, rows = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
        assert len(rows) == len(PATHS)
    assert set(asked) == {0}
    with cluster.databases_down(*at(cluster, 0)):
        _, rows = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
        assert len(rows) == len(PATHS)
    assert asked[-2:] == [0, 1]
