"""Live progress of a run: one line on standard error, on a terminal only."""

from __future__ import annotations

import shutil
import sys
import time

from swiftlet.bench.runner import Progress
from swiftlet.units import number_text, size_text, time_text


class Line:
    """The line, which is written over at each report."""

    def __init__(self) -> None:
        """Show it if standard error is a terminal."""
        self._is_shown = sys.stderr.isatty()
        self._last = time.monotonic()

    def report(self, progress: Progress) -> None:
        """Write the line anew."""
        if not self._is_shown:
            return
        now = time.monotonic()
        text = line_of(progress, max(now - self._last, 1e-3))
        self._last = now
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + text[:width] + "\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the progress line, so that what is printed next begins on an empty one."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def line_of(progress: Progress, interval_s: float) -> str:
    """Return the line; `interval_s` is the time that the recent figures are of."""
    recent = progress.recent
    parts = [
        progress.what,
        f"{progress.seconds:.0f} s",
        f"{number_text(recent['succeeded'] / interval_s)} op/s",
        f"{size_text(recent['moved_bytes'] / interval_s)}/s",
        f"p99 {time_text(recent['p99_s'])}",
    ]
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    return "  ".join(parts)
