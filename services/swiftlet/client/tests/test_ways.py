"""The way in memory does what every way does."""

from __future__ import annotations

import pytest

from swiftlet.testing.ways.conformance import WayContract
from swiftlet.testing.ways.memory import MemoryWay


class TestMemoryWay(WayContract):
    """The twin that other tests use."""

    @pytest.fixture
    def way(self) -> MemoryWay:
        """An empty one."""
        return MemoryWay()
