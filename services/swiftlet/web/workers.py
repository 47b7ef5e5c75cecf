"""Several worker processes on one port.

The parent opens one listening socket per worker (SO_REUSEPORT) before it forks and keeps all of them open: when a
worker dies, the connections queued on its socket wait for its successor instead of being reset. The parent itself
serves nothing, has no threads and no event loop, so it can fork at any time. It restarts workers that die, with growing
pauses, and gives up when they die repeatedly after a short life: then the start itself fails, and whatever supervises
this process should know.

SIGTERM and SIGINT close the parent's sockets and reach every worker, which drains (`swiftlet.web.serve`).
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.errors import SwiftletError
from swiftlet.web.logs import get_logger
from swiftlet.web.parent import end_with_parent
from swiftlet.web.shared_metrics import forget_worker, remove_orphaned

_ENDINGS = frozenset({signal.SIGTERM, signal.SIGINT})
_WATCHED = frozenset({*_ENDINGS, signal.SIGCHLD})

_log = get_logger("workers")
_number = 0


def worker_number() -> int:
    """Return this process's number among the workers of its service, from 0; also 0 without workers."""
    return _number


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When dead workers are restarted; times in seconds."""

    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    healthy_after_s: float = 10.0
    """A worker that lived for this long is restarted without a pause."""
    give_up_after: int = 8
    """The number of successive early deaths of one worker after which the parent gives up."""

    def pause(self, deaths: int) -> float:
        """Return the seconds before the start that follows this many successive deaths."""
        return min(self.first_pause_s * 2 ** (deaths - 1), self.longest_pause_s) if deaths else 0.0


@dataclass(slots=True)
class _Worker:
    """One of the workers: its socket, and the process that serves it."""

    number: int
    sock: socket.socket
    pid: int = 0
    started: float = 0.0
    deaths: int = 0
    start_at: float = 0.0


class Workers:
    """The parent of the worker processes; `work(socket)` runs in each of them and returns when drained."""

    def __init__(
        self,
        sockets: list[socket.socket],
        work: Callable[[socket.socket], None],
        stop_s: float,
        restarts: RestartPolicy | None = None,
    ) -> None:
        """`stop_s` is the time in seconds that workers have to end before they are killed."""
        self._workers = [_Worker(number, sock) for number, sock in enumerate(sockets)]
        self._work = work
        self._stop_s = stop_s
        self._restarts = restarts or RestartPolicy()
        self._parent = os.getpid()

    def run(self) -> int:
        """Keep the workers running until asked to end; return the exit code for the process."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        gc.freeze()
        try:
            code = self._supervise()
            stopped = self._stop()
            return code or stopped
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)

    def _supervise(self) -> int:
        """Start what is due and wait for signals; return 0 when asked to end, 1 to give up."""
        while True:
            self._start_due()
            got = signal.sigtimedwait(_WATCHED, self._until_next_start())
            if got is not None and got.si_signo in _ENDINGS:
                return 0
            for worker, status in self._reap():
                if not self._died(worker, status):
                    return 1

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and worker.start_at <= now:
                worker.pid = self._fork(worker)
                worker.started = now

    def _until_next_start(self) -> float:
        waiting = [worker.start_at for worker in self._workers if not worker.pid]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else 60.0

    def _fork(self, worker: _Worker) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            _log.info("a worker has started", worker=worker.number, pid=pid)
            return pid
        os._exit(self._as_worker(worker))

    def _as_worker(self, worker: _Worker) -> int:
        """Run in the child and return its exit code. It must not return into the parent's code."""
        global _number
        _number = worker.number
        try:
            # A terminal sends Ctrl-C to all processes at once; the parent passes it on as SIGTERM, once.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            end_with_parent(self._parent)
            for other in self._workers:
                if other is not worker:
                    other.sock.close()
            self._work(worker.sock)
        except SwiftletError as error:
            _log.error("a worker can't start", worker=worker.number, error=str(error))
            return os.EX_CONFIG
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stderr.flush()
            if os.getppid() != self._parent:
                remove_orphaned()
        return 0

    def _reap(self) -> list[tuple[_Worker, int]]:
        """Return the workers that have ended, each with its exit code (negative for the signal that killed it)."""
        ended = []
        for worker in self._workers:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    worker.pid = 0  # From here on the process id may belong to another process.
                    forget_worker(pid)
                    ended.append((worker, os.waitstatus_to_exitcode(status)))
        return ended

    def _died(self, worker: _Worker, status: int) -> bool:
        """Plan the restart of a dead worker; return False to give up."""
        if status == os.EX_CONFIG:
            _log.error(
                "the service ends: a worker failed in a way that a restart would not change", worker=worker.number
            )
            return False
        now = time.monotonic()
        healthy = now - worker.started >= self._restarts.healthy_after_s
        worker.deaths = 0 if healthy else worker.deaths + 1
        pause_s = self._restarts.pause(worker.deaths)
        _log.error(
            "a worker ended unexpectedly and will be restarted",
            worker=worker.number,
            status=status,
            restart_in_s=pause_s,
        )
        worker.start_at = now + pause_s
        if worker.deaths < self._restarts.give_up_after:
            return True
        _log.error(
            "the service ends: a worker keeps ending unexpectedly; its earlier log lines say why", worker=worker.number
        )
        return False

    def _stop(self) -> int:
        """Drain the workers, then kill those that are left; return 0 when all ended well."""
        for worker in self._workers:
            worker.sock.close()
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_s
        code = 0
        while any(worker.pid for worker in self._workers):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                _log.warning("workers did not end in time and were killed")
                self._signal(signal.SIGKILL)
            got = signal.sigtimedwait(_WATCHED, max(0.1, left_s))
            if got is not None and got.si_signo in _ENDINGS:
                self._signal(signal.SIGTERM)
            for _, status in self._reap():
                # A worker that was asked to end before it listened for signals has ended as it should, too.
                code = code or (0 if status in (0, -signal.SIGTERM) else 1)
        return code

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)
