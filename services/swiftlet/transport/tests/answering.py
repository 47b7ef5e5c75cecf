"""Native code that answers calls which were made together when a test says so."""

from __future__ import annotations

from typing import Any


class Answering:
    """Behaves as `swiftlet_native.TransportGroup`, without any device."""

    def __init__(self, calls: int) -> None:
        """Begin without an answer."""
        self.here: list[tuple[int, Any]] = []
        """Answers that can be taken."""
        self.left = calls
        self.calls: list[str] = []
        """Which methods were called, but for `take`."""

    def take(self) -> tuple[list[tuple[int, Any]], bool]:
        """Return what is here."""
        here, self.here = self.here, []
        self.left -= len(here)
        return here, self.left == 0

    def hurry(self) -> None:
        """Note the call."""
        self.calls.append("hurry")

    def cancel(self) -> None:
        """Note the call."""
        self.calls.append("cancel")
