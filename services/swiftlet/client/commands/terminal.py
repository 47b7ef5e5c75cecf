"""Progress on a terminal: one line on standard error, which is removed at the end. Elsewhere nothing is written."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

from swiftlet.client.progress import Progress

_EVERY_S = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human(size: float) -> str:
    """Return a size with a unit, such as `1.5 GiB`."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


class Bar:
    """How far a command is, over all of its transfers."""

    def __init__(self, is_wanted: bool) -> None:
        """Show it if it is wanted and standard error is a terminal."""
        self._is_shown = is_wanted and sys.stderr.isatty()
        self._moved: dict[int, int] = {}
        self._done_bytes = 0
        self._done = 0
        self._total = 0
        self._total_bytes = 0
        self._began = time.monotonic()
        self._last = 0.0

    def __enter__(self) -> Self:
        """Begin to count the time."""
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the progress line from the terminal."""
        self.clear()

    def expect(self, size: int) -> None:
        """Note a transfer that there will be."""
        self._total += 1
        self._total_bytes += size

    def transfer(self, key: int) -> Progress:
        """Return where a transfer reports what it has moved."""

        def report(moved: int, _: int | None) -> None:
            self._moved[key] = moved
            self._show()

        return report

    def end(self, key: int) -> None:
        """Note the end of a transfer."""
        self._done += 1
        self._done_bytes += self._moved.pop(key, 0)
        self._show()

    def clear(self) -> None:
        """Remove the line, so that something else can be written."""
        if self._is_shown and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._last = 0.0

    def line(self) -> str:
        """Return the line as it is now."""
        moved = self._done_bytes + sum(self._moved.values())
        seconds = max(time.monotonic() - self._began, 1e-6)
        rate = moved / seconds
        parts = [f"{self._done}/{self._total}"] if self._total > 1 else []
        if self._total_bytes:
            share = min(1.0, moved / self._total_bytes)
            filled = round(share * 20)
            parts.append(f"[{'#' * filled}{'.' * (20 - filled)}] {share:4.0%}")
            parts.append(f"{human(moved)} of {human(self._total_bytes)}")
        else:
            parts.append(human(moved))
        parts.append(f"{human(rate)}/s")
        if self._total_bytes and rate and moved < self._total_bytes:
            left = round((self._total_bytes - moved) / rate)
            parts.append(f"{left // 60}:{left % 60:02d} left")
        return "  ".join(parts)

    def _show(self) -> None:
        now = time.monotonic()
        if self._is_shown and now - self._last >= _EVERY_S:
            self._last = now
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r" + self.line()[:width] + "\x1b[K")
            sys.stderr.flush()
