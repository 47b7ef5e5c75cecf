"""Commands of a shell, each in a session of its own: Ctrl-C at the terminal must not end the one that mends."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

from swiftlet.bench.errors import BenchError

MAX_SHOWN_BYTES = 4096
"""Of the end of what a command has printed."""
POLL_S = 0.5
_LOOK_S = 0.05
_END_WITHIN_S = 10.0


class Commands:
    """Runs the commands of one mode, one at a time."""

    def __init__(self, within_s: float, found: Callable[[], Mapping[str, str]] = dict) -> None:
        """A command is ended after so many seconds; `found` looks up environment variables for each."""
        self._within_s = within_s
        self._found = found
        self.surroundings: dict[str, str] = {}
        """Environment variables that a command has besides, as of what was done before it."""
        self._ends = threading.Event()

    def end(self) -> None:
        """End the command under way by SIGTERM, and one that doesn't end by SIGKILL."""
        self._ends.set()

    def run(self, name: str, text: str) -> None:
        """Run a command; BenchError, with its field and what it printed, when it fails or takes too long."""
        self._ends.clear()
        with tempfile.TemporaryFile() as printed:
            code = self._code(name, text, printed, self._ends, self._within_s)
            if code:
                raise BenchError(f"{name}: `{text}` {_how(code)}: {_end_of(printed) or 'it printed nothing'}")

    def until_it_succeeds(self, name: str, text: str, over: threading.Event) -> bool:
        """Run a command again and again until it exits with 0; False when it has not in time, or all is over."""
        deadline = time.monotonic() + self._within_s
        while not over.is_set() and (left_s := deadline - time.monotonic()) > 0:
            with tempfile.TemporaryFile() as printed, suppress(_TooLong):
                if self._code(name, text, printed, over, left_s) == 0:
                    return True
            over.wait(POLL_S)
        return False

    def _code(self, name: str, text: str, printed: BinaryIO, ends: threading.Event, within_s: float) -> int:
        process = subprocess.Popen(  # noqa: S603 - the command is its user's own
            ["/bin/sh", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
            env={**os.environ, **self._found(), **self.surroundings},
        )
        deadline = time.monotonic() + within_s
        while (code := process.poll()) is None and not ends.is_set():
            if time.monotonic() > deadline:
                _end(process)
                raise _TooLong(f"{name}: `{text}` took longer than {within_s:g} s; raise within_s: {_end_of(printed)}")
            ends.wait(_LOOK_S)
        return _end(process) if code is None else code


class _TooLong(BenchError):
    """A command did not end in its time."""


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a command and what it has started; its exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_END_WITHIN_S)
    return process.wait()


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def _end_of(printed: BinaryIO) -> str:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - MAX_SHOWN_BYTES))
    return printed.read().decode(errors="replace").strip()
