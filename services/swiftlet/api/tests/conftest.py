"""A proxy over a cluster in memory, with one container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        await made.make_container()
        yield made


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, through_front=True) as made:
        yield made


@pytest.fixture(params=["pieces", "runs"])
def with_and_without_runs(request: pytest.FixtureRequest, cluster: MemoryCluster) -> None:
    """Segments of large objects are read one by one, and as runs."""
    cluster.transport.has_runs = request.param == "runs"
