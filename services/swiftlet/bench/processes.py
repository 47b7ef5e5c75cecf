"""Reads how much processor time, memory and disk the processes under test use, their children included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psutil

from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import PartUsage, Usage

MAX_WATCHED = 10_000
"""Processes that are looked at, children included."""


class Watch:
    """Processes, and what they used since `begin`."""

    def __init__(self, pids: Iterable[int], names: Mapping[int, str] | None = None) -> None:
        """`names` has names of parts by process; children belong to their parent's. BenchError: no such process."""
        self._roots = []
        self._names = names or {}
        for pid in pids:
            try:
                self._roots.append(psutil.Process(pid))
            except psutil.Error as error:
                raise BenchError(f"there is no process {pid} to watch on this machine") from error
        self._before: dict[int, tuple[float, int, int]] = {}
        self._now: dict[int, tuple[float, int, int]] = {}
        self._rss = 0
        self._part_of: dict[int, str] = {}
        self._part_rss: dict[str, int] = {}
        self._tells_disk = True

    def begin(self) -> None:
        """Count from now on."""
        self._now = {}
        self._rss = 0
        self._part_rss = {}
        self.look()
        self._before = dict(self._now)

    def look(self) -> None:
        """Note what has been used so far; processes that end later count until then."""
        resident: dict[int, int] = {}
        for process in self._family():
            try:
                with process.oneshot():
                    times, read, written = process.cpu_times(), 0, 0
                    resident[process.pid] = process.memory_info().rss
                    if self._tells_disk:
                        read, written = self._disk(process)
                self._now[process.pid] = (times.user + times.system, read, written)
            except psutil.Error:
                continue
        self._rss = max(self._rss, sum(resident.values()))
        for part in set(self._part_of.values()):
            now = sum(rss for pid, rss in resident.items() if self._part_of.get(pid) == part)
            self._part_rss[part] = max(self._part_rss.get(part, 0), now)

    def usage(self) -> Usage:
        """Return what was used since `begin`."""
        self.look()
        cpu_s, read, written = self._used(self._now)
        return Usage(
            cpu_s=cpu_s,
            rss_bytes=self._rss,
            read_bytes=read if self._tells_disk else None,
            written_bytes=written if self._tells_disk else None,
            processes=len(self._now),
            parts={part: self._part(part) for part in sorted(self._part_rss)},
        )

    def _part(self, part: str) -> PartUsage:
        members = [pid for pid in self._now if self._part_of.get(pid) == part]
        cpu_s, _, written = self._used(members)
        return PartUsage(
            cpu_s=cpu_s,
            rss_bytes=self._part_rss[part],
            written_bytes=written if self._tells_disk else None,
            processes=len(members),
        )

    def _used(self, pids: Iterable[int]) -> tuple[float, int, int]:
        cpu_s, read, written = 0.0, 0, 0
        for pid in pids:
            now, before = self._now[pid], self._before.get(pid, (0.0, 0, 0))
            cpu_s, read, written = cpu_s + now[0] - before[0], read + now[1] - before[1], written + now[2] - before[2]
        return cpu_s, read, written

    def _family(self) -> list[psutil.Process]:
        found: dict[int, psutil.Process] = {}
        for root in self._roots:
            try:
                for process in (root, *root.children(recursive=True)):
                    found[process.pid] = process
                    if root.pid in self._names:
                        self._part_of[process.pid] = self._names[root.pid]
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
