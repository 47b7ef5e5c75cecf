"""A proxy over a cluster in memory, with one container."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster

DEVICES = 5


@pytest.fixture(scope="session")
def with_container(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The databases of a cluster that has the container: to copy them takes less than to make them for each test."""
    root = tmp_path_factory.mktemp("with-container")

    async def make() -> None:
        async with memory_cluster(root, devices=DEVICES) as made:
            await made.make_container()

    with asyncio.Runner() as runner:
        runner.run(make())
    return root


@pytest.fixture
async def cluster(tmp_path: Path, with_container: Path) -> AsyncIterator[MemoryCluster]:
    shutil.copytree(with_container, tmp_path, dirs_exist_ok=True)
    async with memory_cluster(tmp_path, devices=DEVICES) as made:
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
