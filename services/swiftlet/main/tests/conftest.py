"""What tests of whole services share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftlet.sync.failures.tests.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of its own, which runs."""
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()
