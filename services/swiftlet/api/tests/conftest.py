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


THROUGH_FRONT = frozenset(
    f"test_{name}"
    for name in (
        *("acls", "conditional_requests", "conditions_ranges", "cors", "dlo", "expiry", "headers", "object_versioning"),
        *("proxy_answers", "slo_read", "static_web", "symlinks", "temp_url"),
    )
)
"""The files whose requests come through the native front, which reads what they read once more: what reads objects."""


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, through_front=request.path.stem in THROUGH_FRONT) as made:
        yield made


@pytest.fixture(params=["pieces", "runs"])
def with_and_without_runs(request: pytest.FixtureRequest, cluster: MemoryCluster) -> None:
    """Segments of large objects are read one by one, and as runs."""
    cluster.transport.has_runs = request.param == "runs"
