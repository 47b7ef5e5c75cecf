"""Reads how much processor time, memory and disk the processes under test use, their children included."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Usage

MAX_WATCHED = 10_000
"""Processes that are looked at, children included."""


class Watch:
    """Processes, and what they used since `begin`."""

    def __init__(self, pids: Iterable[int]) -> None:
        """BenchError when there is no such process."""
        self._roots = []
        for pid in pids:
            try:
                self._roots.append(psutil.Process(pid))
            except psutil.Error as error:
                raise BenchError(f"there is no process {pid} to watch on this machine") from error
        self._before: dict[int, tuple[float, int, int]] = {}
        self._now: dict[int, tuple[float, int, int]] = {}
        self._rss = 0
        self._tells_disk = True

    def begin(self) -> None:
        """Count from now on."""
        self._now = {}
        self._rss = 0
        self.look()
        self._before = dict(self._now)

    def look(self) -> None:
        """Note what has been used so far; processes that end later count until then."""
        rss = 0
        for process in self._family():
            try:
                with process.oneshot():
                    times, read, written = process.cpu_times(), 0, 0
                    rss += process.memory_info().rss
                    if self._tells_disk:
                        read, written = self._disk(process)
                self._now[process.pid] = (times.user + times.system, read, written)
            except psutil.Error:
                continue
        self._rss = max(self._rss, rss)

    def usage(self) -> Usage:
        """Return what was used since `begin`."""
        self.look()
        nothing = (0.0, 0, 0)
        sums = [
            sum(now[field] - self._before.get(pid, nothing)[field] for pid, now in self._now.items())
            for field in range(3)
        ]
        return Usage(
            cpu_s=sums[0],
            rss_bytes=self._rss,
            read_bytes=int(sums[1]) if self._tells_disk else None,
            written_bytes=int(sums[2]) if self._tells_disk else None,
            processes=len(self._now),
        )

    def _family(self) -> list[psutil.Process]:
        found: dict[int, psutil.Process] = {}
        for root in self._roots:
            try:
                for process in (root, *root.children(recursive=True)):
                    found[process.pid] = process
            except psutil.Error:
                continue
        return list(found.values())[:MAX_WATCHED]

    def _disk(self, process: psutil.Process) -> tuple[int, int]:
        try:
            counters = process.io_counters()
        except (psutil.AccessDenied, AttributeError, NotImplementedError):
            self._tells_disk = False
            return 0, 0
        return counters.read_bytes, counters.write_bytes
