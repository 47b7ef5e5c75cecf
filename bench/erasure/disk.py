"""The disk that stores are on: how much it was asked for, and when it has nothing more to do."""

from __future__ import annotations

import os
import time
from pathlib import Path

_SECTOR = 512
_READ, _WRITTEN, _DISCARDED = 5, 9, 16
"""Fields of /proc/diskstats: sectors (Documentation/admin-guide/iostats.rst)."""
QUIET_S, QUIET_BYTES = 2.0, 4 << 20
"""A disk is quiet when it is asked for less than so many bytes in so long."""


def forget_cached() -> None:
    """Let the kernel forget what it has cached of files, so that what is read next comes from the disk (root)."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1\n")


def read_bytes(folder: Path) -> int | None:
    """Return how many bytes were read so far of the disk that a folder is on; None when it is on none."""
    fields = _counted(folder)
    return None if fields is None else int(fields[_READ]) * _SECTOR


def wait_until_quiet(folder: Path, within_s: float = 120.0) -> bool:
    """Wait until the disk that a folder is on has done what it was asked for: whoever deletes much asks it for a while
    to discard the blocks. Return whether it is quiet after so many seconds at most.
    """
    os.sync()
    end = time.monotonic() + within_s
    before = _asked_bytes(folder)
    while time.monotonic() < end:
        time.sleep(QUIET_S)
        now = _asked_bytes(folder)
        if now - before < QUIET_BYTES:
            return True
        before = now
    return False


def _asked_bytes(folder: Path) -> int:
    """Return how many bytes were read, written and discarded so far of the disk that a folder is on."""
    fields = _counted(folder) or []
    return sum(int(fields[number]) for number in (_READ, _WRITTEN, _DISCARDED) if number < len(fields)) * _SECTOR


def _counted(folder: Path) -> list[str] | None:
    number = os.stat(folder).st_dev
    wanted = [str(os.major(number)), str(os.minor(number))]
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[:2] == wanted:
            return fields
    return None
