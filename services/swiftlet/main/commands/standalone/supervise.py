"""The processes of a plan: started together, watched, restarted, and ended in an order that loses nothing.

It has a single thread and no event loop: it sleeps in `select` until a signal or a deadline. Children run in process
groups of their own, so that Ctrl-C reaches this process only, and end with it when it is killed. They are forks of this
process, which has imported beforehand what all of them need (`preload`): a store of 14 processes starts in half the
time and with two thirds of the memory.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Protocol

from swiftlet.errors import SwiftletError
from swiftlet.main.commands.standalone.fork import CAUGHT, forked
from swiftlet.main.commands.standalone.plan import HOST, ServicePlan

READY_WITHIN_S = 60.0
_POLL_S = 0.05
_HEALTHY_AFTER_S = 10.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_SHOWN_LINES = 5


class StartFailed(SwiftletError):
    """A service ended or did not get ready while the store was starting."""


class Signals:
    """SIGTERM, SIGINT, SIGUSR1 and SIGCHLD as events to wait for.

    `ended` counts the first two; `again` says that SIGUSR1 came, which asks for the services that have ended.
    """

    def __init__(self) -> None:
        """Create it without handlers; `caught` sets them."""
        self.ended = 0
        self.again = False
        self._read, self._write = -1, -1

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals within the block."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        before = {n: signal.signal(n, self._note) for n in CAUGHT}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)
            os.close(self._read)
            os.close(self._write)

    def _note(self, number: int, _frame: object) -> None:
        self.ended += number in (signal.SIGTERM, signal.SIGINT)
        self.again |= number == signal.SIGUSR1

    def wait(self, timeout_s: float) -> None:
        """Return once a signal came, at the latest after `timeout_s`."""
        if select.select([self._read], [], [], max(0.0, timeout_s))[0]:
            os.read(self._read, 4096)


class Process(Protocol):
    """A child of this process."""

    @property
    def pid(self) -> int | None:
        """Return the process's id, None before it has started."""

    @property
    def exitcode(self) -> int | None:
        """Return None while the process runs, then its exit status, or minus the signal that ended it."""


Start = Callable[[ServicePlan], Process]


@dataclass(slots=True)
class _Child:
    """One service and the process that runs it now."""

    plan: ServicePlan
    process: Process | None = None
    started: float = 0.0
    deaths: int = 0
    start_at: float = 0.0


class Supervisor:
    """Runs services; `on_change` is called after any of their process ids changed."""

    def __init__(
        self,
        services: Sequence[ServicePlan],
        signals: Signals,
        *,
        start: Start = forked,
        restart: bool = True,
        say: Callable[[str], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """With `restart` False dead services stay dead until SIGUSR1."""
        self._start = start
        self._children = [_Child(plan) for plan in services]
        self._signals = signals
        self._restart = restart
        self._say = say
        self._on_change = on_change

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running services."""
        return {child.plan.name: _pid(child.process) for child in self._children if child.process is not None}

    def start(self) -> bool:
        """Start all services and wait until they are ready; return False when asked to end before. Raises
        StartFailed.
        """
        for child in self._children:
            self._launch(child)
        deadline = time.monotonic() + READY_WITHIN_S
        waiting = list(self._children)
        while waiting:
            if self._signals.ended:
                return False
            reasons = {child.plan.name: _not_ready(child.plan) for child in waiting}
            for child in waiting:
                self._check_alive(child)
            waiting = [child for child in waiting if reasons[child.plan.name] is not None]
            if waiting and time.monotonic() > deadline:
                first = waiting[0].plan
                raise StartFailed(f"{first.name} is not ready: {reasons[first.name]}; see {first.log}")
            if waiting:
                self._signals.wait(_POLL_S)
        return True

    def _launch(self, child: _Child) -> None:
        child.process, child.started = self._start(child.plan), time.monotonic()

    def _check_alive(self, child: _Child) -> None:
        assert child.process is not None
        code = child.process.exitcode
        if code is not None:
            raise StartFailed(
                f"{child.plan.name} ended with exit code {code} while it started; {_last_lines(child.plan)}"
            )

    def watch(self) -> None:
        """Keep the services running until asked to end."""
        while not self._signals.ended:
            again, self._signals.again = self._signals.again, False
            now = time.monotonic()
            changed = False
            for child in self._children:
                code = child.process.exitcode if child.process is not None else None
                if code is not None:
                    self._died(child, code, now)
                    changed = True
                if child.process is None and (again or (self._restart and child.start_at <= now)):
                    self._launch(child)
                    changed = True
            if changed:
                self._on_change()
            due = [child.start_at - now for child in self._children if child.process is None and self._restart]
            self._signals.wait(min(due, default=60.0))

    def _died(self, child: _Child, code: int, now: float) -> None:
        child.process = None
        child.deaths = 0 if now - child.started >= _HEALTHY_AFTER_S else child.deaths + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** max(0, child.deaths - 1), _LONGEST_PAUSE_S)
        child.start_at = now + pause_s
        next_ = f"starting it again in {pause_s:g} s" if self._restart else "leaving it so until SIGUSR1 (--no-restart)"
        self._say(f"{child.plan.name} ended with {code}; {next_}; {_last_lines(child.plan)}")

    def stop(self, timeout_s: float) -> None:
        """End all services in the reverse order of their start; kill those that take longer than `timeout_s`."""
        for kind in _kinds_backwards(self._children):
            group = [child for child in self._children if child.plan.kind == kind]
            _signal(group, signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            asked = self._signals.ended
            while _running(group):
                if time.monotonic() > deadline or self._signals.ended > max(1, asked):
                    self._say(f"killing {', '.join(child.plan.name for child in _running(group))}")
                    _signal(group, signal.SIGKILL)
                self._signals.wait(_POLL_S)


def _kinds_backwards(children: Sequence[_Child]) -> list[str]:
    return list(dict.fromkeys(child.plan.kind for child in reversed(children)))


def _running(group: Sequence[_Child]) -> list[_Child]:
    return [child for child in group if child.process is not None and child.process.exitcode is None]


def _signal(group: Sequence[_Child], number: int) -> None:
    for child in _running(group):
        assert child.process is not None
        os.kill(_pid(child.process), number)


def _pid(process: Process) -> int:
    assert process.pid is not None
    return process.pid


def command_of(plan: ServicePlan) -> list[str]:
    """Return the command line that runs a service."""
    return [sys.executable, "-m", "swiftlet.main", plan.kind, "--config", str(plan.config)]


def _not_ready(plan: ServicePlan) -> str | None:
    """Return why a service is not ready, None when it is."""
    connection = HTTPConnection(HOST, plan.port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        reason = answer.read(1000).decode(errors="replace").strip()
        return None if answer.status == 200 else reason
    except (OSError, HTTPException) as error:
        return f"no answer on port {plan.port} ({error})"
    finally:
        connection.close()


def _last_lines(plan: ServicePlan) -> str:
    with plan.log.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        lines = log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
    return f"the end of {plan.log}:\n" + "".join(f"    {line}\n" for line in lines)
