"""The directory through which worker processes share their metrics. This module does not import prometheus-client."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_own: Path | None = None
"""The directory that was made here, or in the parent of this process."""


@contextmanager
def share_metrics() -> Iterator[None]:
    """Make the processes forked within the block share their metrics.

    It must begin before prometheus-client is imported. A directory given in the environment is used and left alone;
    otherwise a temporary one is created and removed: also when SIGTERM ends the process before its workers run, and by
    its workers when it is killed (`remove_orphaned`).
    """
    global _own
    if os.environ.get(DIRECTORY_VARIABLE):
        if "prometheus_client" not in sys.modules:
            _remember_process()
        yield
        return
    assert "prometheus_client" not in sys.modules, "share_metrics must be entered before prometheus_client is imported"
    owner = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    before = signal.signal(signal.SIGTERM, _end)
    _own = Path(tempfile.mkdtemp(prefix="swiftlet-metrics-"))
    os.environ[DIRECTORY_VARIABLE] = str(_own)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _remember_process()
        yield
    finally:
        if os.getpid() == owner:
            del os.environ[DIRECTORY_VARIABLE]
            remove_orphaned()
            signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def remove_orphaned() -> None:
    """Remove the directory that `share_metrics` made, in a worker whose parent was killed and can't do so."""
    if _own is not None:
        shutil.rmtree(_own, ignore_errors=True)


def _remember_process() -> None:
    """Read this process's id only after a fork; prometheus-client itself reads it for every value that it counts."""
    from prometheus_client import values

    known = os.getpid()

    def forked() -> None:
        nonlocal known
        known = os.getpid()

    os.register_at_fork(after_in_child=forked)
    values.ValueClass = values.MultiProcessValue(lambda: known)  # type: ignore[no-untyped-call]


def forget_worker(pid: int) -> None:
    """Drop a dead worker's gauges from the shared metrics; its counters stay counted."""
    if os.environ.get(DIRECTORY_VARIABLE):
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]
