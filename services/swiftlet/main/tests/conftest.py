"""What tests of whole services share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftlet.bench.tests.store import Store, running
from swiftlet.sync.failures.tests.redis_server import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of its own, which runs."""
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in this process, which `swiftlet bench` loads."""
    with running() as made:
        yield made


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the user of that store into the environment, and nobody else."""
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "SWIFTLET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ST_USER", "test:tester")
    monkeypatch.setenv("ST_KEY", "secret")
