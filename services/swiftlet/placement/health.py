"""Which nodes failed lately, as one process saw it.

A device that failed `limit` times in a row is suppressed for `interval_s` after its last failure: plans ask it last.
One success ends that. The table holds only devices that fail, so it is bounded by the ring.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.ring.model import Device

UNPROVED_S = 1.0
"""Seconds for which a device that may have missed writes is asked last."""


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class NodeHealth:
    """Counts failures per device; `clock` returns monotonic seconds."""

    def __init__(
        self,
        limit: int = 3,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Suppress after `limit` failures in a row, for `interval_s` seconds.

        `moved` is called for each request that a device left to others because it may have missed something.
        """
        self._moved = moved
        self._limit = limit
        self._interval_s = interval_s
        self._clock = clock
        self._failures: dict[int, _Failures] = {}
        self._unproved: dict[int, float] = {}

    def failed(self, device: Device) -> None:
        entry = self._failures.setdefault(device.id, _Failures(0, 0.0))
        entry.count += 1
        entry.last = self._clock()

    def succeeded(self, device: Device) -> None:
        """Reset the count of failures of a device."""
        if self._failures:
            self._failures.pop(device.id, None)

    def unproved(self, device: Device) -> None:
        """Record that the device reported that it may have missed something."""
        self._moved()
        self._unproved[device.id] = self._clock() + UNPROVED_S

    def behind(self) -> frozenset[int]:
        """Return the ids of devices that lately reported missed writes: they answer, but reads ask them last."""
        if self._unproved:
            now = self._clock()
            self._unproved = {id_: until for id_, until in self._unproved.items() if until > now}
            return frozenset(self._unproved)
        return frozenset()

    def suppressed(self, device: Device) -> bool:
        """Return whether plans should ask others first; forgets failures older than the interval."""
        entry = self._failures.get(device.id) if self._failures else None
        if entry is None:
            return False
        if self._clock() - entry.last > self._interval_s:
            del self._failures[device.id]
            return False
        return entry.count >= self._limit
