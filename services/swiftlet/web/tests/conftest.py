"""A small service in a process of its own, to be asked, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parents[3])
SERVICE = Path(__file__).parent / "small_service.py"


class Service:
    """A running `small_service.py`."""

    def __init__(self, workers: int, port: int, log: Path, settle: bool) -> None:
        """Start it; its standard error goes to `log`. Without `settle` it need not listen yet."""
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVICE), str(workers), str(port)],
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, "PYTHONPATH": SOURCES},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline() if settle else b""
        self.port = int(line) if line else 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def logged(self) -> str:
        """All it wrote to standard error."""
        return self.log.read_text()


def eventually(condition: Callable[[], bool], deadline_s: float = 20.0) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services that end with the test."""
    started: list[Service] = []

    def begin(workers: int = 1, port: int = 0, settle: bool = True) -> Service:
        service = Service(workers, port, tmp_path / f"service{len(started)}.log", settle)
        started.append(service)
        return service

    yield begin
    for service in started:
        if service.process.poll() is None:
            service.process.kill()
        service.process.wait(30)
        if service.process.stdout is not None:
            service.process.stdout.close()
