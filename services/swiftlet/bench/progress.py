"""Live progress of a run: a line on standard error, on a terminal only, and in a file for who watches from afar."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from swiftlet.bench.runner import Progress
from swiftlet.units import number_text, size_text, time_text


class Line:
    """The line, which is written over at each report."""

    def __init__(self, file: Path | None = None) -> None:
        """Show it if standard error is a terminal; keep it in `file`, too, when one is given."""
        self._file = file
        self._is_shown = sys.stderr.isatty()
        self._last = time.monotonic()

    def report(self, progress: Progress) -> None:
        """Write the line anew."""
        if not self._is_shown and self._file is None:
            return
        now = time.monotonic()
        text = line_of(progress, max(now - self._last, 1e-3))
        self._last = now
        if self._file is not None:
            self._keep(text, self._file)
        if not self._is_shown:
            return
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + text[:width] + "\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the progress line, so that what is printed next begins on an empty one."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @staticmethod
    def _keep(text: str, file: Path) -> None:
        # A full disk must not end a run that goes well.
        with suppress(OSError):
            temporary = file.with_name(f".{file.name}.new")
            temporary.write_text(f"{text}\n", "utf-8")
            temporary.replace(file)


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
