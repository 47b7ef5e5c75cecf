"""Containers that move one after the other while all else goes on, by movers that may be killed at any moment."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from e2e.standalone.movers import Movers, Way
from swiftlet.policy_moves import Phase


class Lane:
    """Moves containers in one direction, in a thread of its own."""

    def __init__(self, movers: Movers, way: Way, containers: Sequence[str], rate: int) -> None:
        """Movers copy at most `rate` bytes per second."""
        self._movers = movers
        self.way = way
        self.containers = containers
        self._rate = rate
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_over = False
        self.moved: list[str] = []
        """The containers of which a mover has said that all objects are moved."""
        self.phase: str | None = None
        """The phase of the container that a mover is at."""

    def run(self) -> None:
        """Move containers until all are moved, or `end` is called."""
        for container in self.containers:
            while not self._move(container):
                if self._is_over:
                    return
            self.moved.append(container)

    def _move(self, container: str) -> bool:
        """Have a mover at work until it ends; return whether it has moved all objects."""
        with self._lock:
            if self._is_over:
                return False
            options = *self._movers.of(container), "--rate", str(self._rate)
            process = self._process = self._movers.begin(*self.way, *options)
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line) if line.endswith("\n") else {}
            if said.get("container") == container:
                self.phase = said.get("phase", self.phase)
        self.phase = None
        _, err = process.communicate()
        assert process.returncode in (0, 1, -9), err
        assert "Traceback" not in err, err
        return process.returncode == 0

    @property
    def is_copying(self) -> bool:
        """Whether a mover may copy objects now."""
        return self.phase == Phase.MOVING.value

    def kill(self) -> bool:
        """Kill the mover; return whether there was one."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return False
            self._process.kill()
            return True

    def end(self) -> None:
        """Begin no mover any more, and end the one that runs."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()


@contextmanager
def moving_along(lanes: Sequence[Lane]) -> Iterator[None]:
    """Containers move within the block; what a lane raised is raised at its end."""
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = [pool.submit(lane.run) for lane in lanes]
        try:
            yield
        finally:
            for lane in lanes:
                lane.end()
        for run in runs:
            run.result()
