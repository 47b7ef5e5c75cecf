"""Fixtures: `cluster` for all tests, `own_cluster` for one that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster, start_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store that all tests share: leave its services alone."""
    running = start_cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    assert running.stop() == 0, "the store did not end well"


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A store of the test's own, whose services it may kill."""
    running = start_cluster(tmp_path / "store")
    yield running
    running.stop()
