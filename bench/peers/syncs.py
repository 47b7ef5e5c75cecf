"""How often a store asks the disk to keep something, for each PUT: counted by strace in a run of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.processes import family_of

CALLS = ("fsync", "fdatasync", "sync_file_range", "msync", "sync", "syncfs")
_ATTACH_S = 1.0
_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(?P<calls>\d+)\s+(?:\d+\s+)?(?P<name>\w+)$")


def counts(summary: str) -> dict[str, int]:
    """Return calls by name, of the table that `strace -c` writes."""
    rows = (_LINE.match(line) for line in summary.splitlines())
    return {row["name"]: int(row["calls"]) for row in rows if row is not None and row["name"] != "total"}


@contextmanager
def counted(pids: list[int], summary: Path) -> Iterator[None]:
    """Within the block calls of processes, their threads and children are counted; the table is in `summary` then."""
    every = [argument for pid in pids for one in family_of(pid) for argument in ("-p", str(one))]
    command = ["strace", "-f", "-c", "-e", f"trace={','.join(CALLS)}", "-o", str(summary), *every]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as strace:
        time.sleep(_ATTACH_S)
        if strace.poll() is not None:
            raise RuntimeError(f"strace has ended with {strace.returncode}; it must be installed, and may need root")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)
