"""A cluster of six devices, with one container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster

KEEPING = ("none", "all", "some")
"""Which devices keep their rows pending, as native ones do, instead of bringing them."""


@pytest.fixture
def keeping() -> str:
    """One of `KEEPING`; modules to which it matters take all of them."""
    return "none"


@pytest.fixture
async def cluster(tmp_path: Path, keeping: str) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path) as made:
        if keeping != "none":
            made.make_pending(*made.devices[:: 2 if keeping == "some" else 1])
        await made.make_container()
        yield made
