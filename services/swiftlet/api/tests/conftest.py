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
    async with proxy_of(cluster, tmp_path, may_be_hot=True) as made:
        yield made
