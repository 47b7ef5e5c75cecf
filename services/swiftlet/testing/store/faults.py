"""Faults to inject into a store: the in-memory twin, or a real one whose operations check first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from swiftlet.errors import DeviceFailed, DiskFull
from swiftlet.model import ObjectKey
from swiftlet.store.protocol import Store


@dataclass(slots=True)
class _Planned:
    """An error that waits for its turn."""

    operation: str
    at_call: int
    times: int
    error: Callable[[], BaseException]


class Faults:
    """The faults of a device, which may be set at any time, from any thread; there are none at first.

    Operations: create, write, commit, sync, open, read, stat, post, delete, scan (everything that compares partitions),
    remove, verify.
    """

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Start healthy; `sleep` waits for the time of a slow device."""
        self.full = False
        """The device is full: create, write and POST are refused, tombstones are not."""
        self.broken = False
        """Every call fails as with an I/O error."""
        self.delay_s = 0.0
        """Seconds that each call takes."""
        self.sleep = sleep
        """The function that a call waits by: tests replace it by one that only notes the time."""
        self._calls: Counter[str] = Counter()
        self._planned: list[_Planned] = []
        self._mutex = threading.Lock()

    def fail(
        self,
        operation: str,
        nth: int = 1,
        times: int = 1,
        error: Callable[[], BaseException] = lambda: DeviceFailed("injected I/O error"),
    ) -> None:
        """Raise `error` at the `nth` call of an operation from now on, and at the `times - 1` calls after it."""
        with self._mutex:
            self._planned.append(_Planned(operation, self._calls[operation] + nth, times, error))

    @property
    def any(self) -> bool:
        """Return whether there are faults, now or planned."""
        return self.full or self.broken or bool(self.delay_s or self._planned)

    def clear(self) -> None:
        """Let calls succeed again: no fault holds, and none is planned."""
        with self._mutex:
            self.full = self.broken = False
            self.delay_s = 0.0
            self._planned.clear()

    def reach(self, operation: str) -> None:
        """Called by the store at the start of each operation."""
        if self.delay_s:
            self.sleep(self.delay_s)
        with self._mutex:
            self._calls[operation] += 1
            call = self._calls[operation]
            due = [p for p in self._planned if p.operation == operation and p.at_call <= call < p.at_call + p.times]
        if self.broken:
            raise DeviceFailed("injected I/O error")
        if self.full and operation in ("create", "write", "post"):
            raise DiskFull("injected full disk")
        if due:
            raise due[0].error()


class FaultyStore(Store, Protocol):
    """A store that can be made to fail."""

    @property
    def faults(self) -> Faults:
        """Return the faults that the store asks before each operation."""
        ...

    def flip_data(self, key: ObjectKey) -> None:
        """Flip a bit of an object's data."""
        ...

    def flip_metadata(self, key: ObjectKey) -> None:
        """Damage an object's metadata."""
        ...
