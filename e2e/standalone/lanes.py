"""Containers that move one after the other while all else goes on, by movers that may be killed at any moment."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from e2e.standalone.movers import Movers, Process, Way
from swiftlet.policy_mover.mover import FIRST_PAUSE_S
from swiftlet.policy_moves import Phase

ANNOUNCED, MOVING, COPYING = "move: announced", "move: moving", "move: copying"
"""What a mover is at: it waits until all know that the container will move, until all know that it moves, or copies."""
MOST_TRIES = 3
"""A mover that has failed more often waits for long, and is begun anew: there is to be something to hit."""
_NOT_SHOWN = "on all replicas"
"""What is in a mover's problem when the phase has yet to be shown by a replica, before it lasts at all."""


class Progress:
    """What one mover is at, by what it says. No I/O."""

    def __init__(self, container: str, now_s: Callable[[], float] = time.time) -> None:
        """`now_s` returns seconds since the epoch."""
        self._container = container
        self._now_s = now_s
        self._phase: str | None = None
        self._next_s = 0.0
        self._lasts_s = 0.0
        """For how long the phase lasts at least once all replicas show it."""
        self._paused_until_s = 0.0
        self.tries = 0
        """How often the mover has failed in this phase; it waits twice as long after each."""

    def heard(self, said: Mapping[str, Any]) -> None:
        """Note what the mover has said."""
        if said.get("container") != self._container:
            return
        phase = said.get("phase")
        if phase is not None and phase != self._phase:
            self._phase, self.tries = phase, 0
        if said.get("nextAt") is not None:
            self._next_s, self._lasts_s = said["nextAt"], said["nextAt"] - self._now_s()
        if "problem" in said:
            self._paused_until_s = self._now_s() + FIRST_PAUSE_S * 2**self.tries
            self.tries += 1
            if _NOT_SHOWN in said["problem"]:
                self._next_s = self._paused_until_s + self._lasts_s

    @property
    def activity(self) -> str | None:
        """What it is at now; None while it starts, or waits after a failure."""
        now_s = self._now_s()
        if self._phase is None or now_s < self._paused_until_s:
            return None
        if self._phase == Phase.ANNOUNCED.value:
            return ANNOUNCED
        return MOVING if now_s < self._next_s else COPYING


class Lane:
    """Moves containers in one direction, in a thread of its own."""

    def __init__(self, movers: Movers, way: Way, containers: Sequence[str], rate: int) -> None:
        """Movers copy at most `rate` bytes per second."""
        self._movers = movers
        self.way = way
        self.containers = containers
        self._rate = rate
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._is_over = False
        self._progress: Progress | None = None
        self.moved: list[str] = []
        """The containers of which a mover has said that all objects are moved."""

    def run(self) -> None:
        """Move containers until all are moved, or `end` is called."""
        for container in self.containers:
            while not self._move(container):
                if self._is_over:
                    return
            self.moved.append(container)

    def _move(self, container: str) -> bool:
        """Have a mover at work until it ends; return whether it has moved all objects."""
        with tempfile.TemporaryFile("w+") as err:
            with self._lock:
                if self._is_over:
                    return False
                options = *self._movers.of(container), "--rate", str(self._rate)
                process = self._process = self._movers.begin(*self.way, *options, err=err)
                progress = self._progress = Progress(container)
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    progress.heard(json.loads(line) if line.endswith("\n") else {})
                    if progress.tries > MOST_TRIES:
                        process.kill()
            self._progress = None
            process.wait()
            err.seek(0)
            said = err.read()
        assert process.returncode in (0, 1, -9), said
        assert "Traceback" not in said, said
        return process.returncode == 0

    @property
    def activity(self) -> str | None:
        """What its mover is at; None while there is none, or it is at nothing."""
        progress = self._progress
        return None if progress is None else progress.activity

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
