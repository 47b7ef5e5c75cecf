"""A cluster of six devices, with one container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path) as made:
        await made.make_container()
        yield made
