"""One supervisor per data directory: a file that is locked while it runs and holds its process id."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swiftlet.errors import SettingsError

_POLL_S = 0.05


@contextmanager
def running_here(path: Path) -> Iterator[None]:
    """Hold the lock within the block. Raises SettingsError when another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(descriptor):
            raise SettingsError(
                f"a store is already running on {path.parent} (process {_holder(path)}); stop it with "
                f"`swiftlet standalone --stop --data {path.parent}` or choose another --data"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def stop_running(path: Path, timeout_s: float) -> int:
    """Ask the holder of the lock to end and wait until it has; return its process id.

    Raises SettingsError when there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise SettingsError(f"no store is running on {path.parent}") from error
    try:
        if _try_lock(descriptor):
            raise SettingsError(f"no store is running on {path.parent}")
        pid = _holder(path)
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise SettingsError(
                    f"process {pid} did not end within {timeout_s:g} s; `kill -9 {pid}` ends it at once"
                )
            time.sleep(_POLL_S)
        return pid
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> int:
    """Return the process id in the file; it is written right after locking, so it may take a moment to be there."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        text = path.read_text().strip()
        if text.isdigit():
            return int(text)
        time.sleep(_POLL_S)
    raise SettingsError(f"{path} is locked but holds no process id; `fuser {path}` shows who holds it")
