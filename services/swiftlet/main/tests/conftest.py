"""What tests of whole services share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from swiftlet.sync.failures.tests.redis_server import RedisServer
from swiftlet.web import logs


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a command that runs in this process does to logging.

    Its files are closed with its test, and a logger that kept them would lose the lines of later tests.
    """
    root, before, configure = logging.getLogger(), structlog.get_config(), structlog.configure
    handlers, level = list(root.handlers), root.level
    monkeypatch.setattr(logs, "_json_lines", logs._json_lines)
    monkeypatch.setattr(structlog, "configure", lambda **how: configure(**{**how, "cache_logger_on_first_use": False}))
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    configure(**before)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of its own, which runs."""
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()
