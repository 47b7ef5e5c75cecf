"""A front that knows where it is reads from the nearest device."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.front.tests.conftest import FrontedProxy, fronted_proxy
from swiftlet.names import Path
from swiftlet.placement.plan import Place
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster

HERE = Place("east", "z0")


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """Three devices, of which one is in the reader's zone and one in the other region."""
    async with memory_cluster(tmp_path, devices=3, regions=("east", "west"), place=HERE) as made:
        await made.make_container()
        yield made


@pytest.fixture
async def fronted(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[FrontedProxy]:
    async with fronted_proxy(cluster, tmp_path) as made:
        yield made


async def test_only_the_nearest_is_asked(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    names = [f"c/o{number}" for number in range(8)]
    for name in names:
        assert (await fronted.proxy.call("PUT", name, data=b"data")).status == 201
    for name in names:
        await fronted.read(name)
    reads = {HERE.distance(device): fronted.devices.reads(device, cluster) for device in cluster.devices}
    assert reads[0] >= len(names)
    assert sum(reads.values()) == reads[0]


async def test_what_the_nearest_does_not_have_is_found(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    assert (await fronted.proxy.call("PUT", "c/o", data=b"data")).status == 201
    await fronted.read("c/o")
    for device in cluster.devices:
        if HERE.distance(device) == 2:
            cluster.place(device, 3, b"far", Path(ACCOUNT, CONTAINER, "far"))
    answer = await fronted.proxy.call("GET", "c/far")
    assert (answer.status, answer.body) == (200, b"far")
