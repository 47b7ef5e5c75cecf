"""How far a transfer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes that have been moved and all that there are, None when nobody knows yet.

It is called by the event loop's thread, often: it should return at once. The first number gets smaller when bytes have
to be moved again.
"""


class Meter:
    """Adds up what the pieces of a transfer have moved."""

    def __init__(self, report: Progress | None, total: int | None) -> None:
        """Report to `report`, if there is anybody."""
        self._report = report
        self.total = total
        self._moved = 0

    def add(self, size: int) -> None:
        """Note that bytes have been moved, or have to be moved again where `size` is negative."""
        self._moved += size
        if self._report is not None and size:
            self._report(self._moved, self.total)
