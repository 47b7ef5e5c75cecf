"""How long clients wait for small objects while a device is rebuilt."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.erasure.client import Objects
from swiftlet.bench.target import Target

SIZE, COUNT = 64 << 10, 32
"""Bytes of the objects that are read meanwhile, and the number of these."""
EACH_S = 0.05
"""One is read so often."""


class Readings:
    """Seconds that single reads took."""

    def __init__(self, seconds: Sequence[float] = ()) -> None:
        """Begin with these; a reader adds its own."""
        self.seconds = list(seconds)

    def p99(self) -> float | None:
        """Return the 99th percentile by nearest rank; None when nothing was read."""
        ordered = sorted(self.seconds)
        return ordered[math.ceil(len(ordered) * 0.99) - 1] if ordered else None


class Reader:
    """One client that reads small objects at even intervals; a read that comes late is timed from when it was due."""

    def __init__(self, target: Target) -> None:
        """Create a container, and store the objects that are read later in it."""
        self._objects = Objects(target, COUNT, SIZE)
        self._objects.create()
        self._objects.put()

    def warm(self) -> None:
        """Read all of them once."""
        self._objects.get()

    @contextmanager
    def reading(self, found: Readings | None = None) -> Iterator[Readings]:
        """Read within the block, and add to `found`; raise RuntimeError after it when a read went wrong."""
        found, over, failed = found or Readings(), threading.Event(), list[Exception]()

        def read() -> None:
            try:
                due = time.monotonic()
                for _ in self._objects.endlessly():
                    found.seconds.append(time.monotonic() - due)
                    due += EACH_S
                    if over.wait(max(0.0, due - time.monotonic())):
                        return
            except (OSError, RuntimeError) as error:
                failed.append(error)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()
        if failed:
            raise RuntimeError(f"a read beside the rebuild failed: {failed[0]}")
