"""Processes of a benchmark: started in groups of their own, waited for, ended, and their processor time."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

START_WITHIN_S = 90.0
_END_WITHIN_S = 15.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Processes:
    """The processes of one system, by name."""

    def __init__(self, log: Path) -> None:
        """All of them write to the file `log`."""
        self._log = log
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._draining: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a process in a session of its own; its output goes to the log."""
        with self._log.open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def prefer(self, name: str) -> None:
        """Let a process, which is a part of the measuring, run before others where that is allowed."""
        prefer(self._running[name].pid)

    def stop(self, prefix: str = "", within_s: float = _END_WITHIN_S) -> None:
        """End those whose names begin so, with their children; what has not ended within this time is killed."""
        for process in self._draining:
            # It has ended itself, and its group has whom it left.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._draining.clear()
        ending = [name for name in self._running if name.startswith(prefix)]
        for name in ending:
            _signal(self._running[name], signal.SIGTERM)
        deadline = time.monotonic() + within_s
        for name in ending:
            process = self._running.pop(name)
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()

    def drain(self, name: str) -> None:
        """Let one end by SIGHUP, and return when it takes no connections any more; its children may have some left.

        They are killed with the next `stop`, if they have not ended by then.
        """
        process = self._running.pop(name)
        _signal(process, signal.SIGHUP)
        process.wait(_END_WITHIN_S)
        self._draining.append(process)

    def family(self, name: str) -> list[int]:
        """Return a process and its living children."""
        return family_of(self._running[name].pid)

    @property
    def pids(self) -> list[int]:
        """Return those that were started, without their children."""
        return [process.pid for process in self._running.values()]

    def cpu_s(self, prefix: str = "") -> float:
        """Processor time so far of those whose names begin so, with their living children."""
        pids = (process.pid for name, process in self._running.items() if name.startswith(prefix))
        return sum(seconds_of(family) for pid in pids for family in family_of(pid))

    def alive(self) -> None:
        """RuntimeError when one has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                tail = self._log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} has ended with {process.returncode}:\n{tail}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; RuntimeError that names `what` when it does not, or a process ends."""
        deadline = time.monotonic() + START_WITHIN_S
        while not condition():
            self.alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"this has not happened in {START_WITHIN_S:.0f} s: {what}; see {self._log}")
            time.sleep(0.05)

    def wait_for(self, places: Iterable[tuple[str, int]]) -> None:
        """Wait until somebody listens at each of these addresses and ports."""
        for address, port in places:
            self.wait_until(partial(_listens, address, port), f"somebody listens at {address}:{port}")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def _listens(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        return sock.connect_ex((address, port)) == 0


def prefer(pid: int) -> None:
    """Let a session run before others: its leader's nice value alone counts only within it where sessions share a
    processor equally (`sched_autogroup`). Nothing happens where that is not allowed.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-15")


def family_of(pid: int) -> list[int]:
    """A process and all that it and its children started, as far as they live."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def seconds_of(pid: int) -> float:
    """Processor seconds of a process so far, with those of its children that were waited for; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) * _TICK_S


def children_cpu_s() -> float:
    """Processor seconds of all children of this process that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
