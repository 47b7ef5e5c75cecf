"""Syncs the logs of databases some time after commits that did not wait for it, once for all of them.

An update of the listing is pending at the device that stores the object, durably, until it is acknowledged
(`docs/design/2026-11-21-rows.md`). So such a row may be answered as taken once its transaction is committed, and as
durable once the log was synced; only what is durable is acknowledged.

SQLite writes such commits with `synchronous=NORMAL`: its log stays consistent whatever the disk keeps of it (each frame
has a checksum over all before it, a reset log has another salt), and rows move from the log to the database only after
a sync of it. So only the end of the log that no sync has covered can be lost.

The logs of a device are synced in rounds, `SYNC_AFTER_S` apart. A round has the logs with commits since their last
sync, distributed over a few threads, so that many databases need few jobs.

Invariant: while something waits to be durable, its log waits for a round or is in one (`_syncing`), and the end of that
puts it into the next. Each caller that waits is called exactly once, also when handling the failure of a sync fails or
is cancelled, and whether or not another caller that waited for the same has gone away.

Fault model: power may fail at any moment: then rows that were only taken are lost, and the devices that have them
pending bring them again. The process may be killed: nothing is lost, as the kernel has the log. A sync that fails makes
no rows durable, and counts as a failure of the device. The database may be removed meanwhile: then nothing of it is
durable. A sync that hangs holds up its database and those behind it in its thread; the others go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swiftlet.listing.background_tasks import BackgroundTasks, report, resolve, tell
from swiftlet.listing.thread_pool import ThreadPool

SYNC_AFTER_S = 0.05
"""Seconds for which commits gather for one sync at most; updates stay pending at object devices for so much longer."""

Fault = Callable[[BaseException], Coroutine[Any, Any, None]]
"""A callback that handles the error of a sync."""


class LateSyncs:
    """The logs of one device's databases that have to be synced. Used from one event loop."""

    def __init__(self, pool: ThreadPool, threads: int) -> None:
        """`pool` does the syncs, in up to `threads` jobs at once."""
        self._pool = pool
        self._threads = threads
        self._gathering: list[LateSync] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, log: LateSync) -> None:
        """Sync a log in the next round."""
        self._gathering.append(log)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SYNC_AFTER_S, self._round)

    def _round(self) -> None:
        self._timer = None
        logs, self._gathering = self._gathering, []
        for log in logs:
            # Later commits are not a part of this sync.
            log.begin()
        for first in range(min(self._threads, len(logs))):
            self._sync(logs[first :: self._threads])

    def _sync(self, logs: Sequence[LateSync]) -> None:
        def job() -> list[BaseException | None]:
            return [_error_of(log) for log in logs]

        def done(errors: list[BaseException | None] | None, error: BaseException | None) -> None:
            for log, failed in zip(logs, errors or [error] * len(logs), strict=True):
                tell(log.ended, failed)

        self._pool.do(job, done)


class LateSync:
    """The log of one database. Used from one event loop."""

    def __init__(self, database: Path, syncs: LateSyncs, fault: Fault) -> None:
        """`fault` is called with the error of a sync, before the callers who wait are."""
        self._database = database
        self._syncs = syncs
        self._fault = fault
        self._waiting: asyncio.Future[None] | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._syncing = False
        self._idle: asyncio.Future[None] | None = None
        self._linked = False
        self.unsure = False
        """Whether a sync has failed, so that something committed may never become durable in the log."""
        self._background = BackgroundTasks()

    @property
    def pending(self) -> bool:
        """Whether something is committed and not known to be durable."""
        return self._syncing or self._waiting is not None

    def opened(self) -> None:
        """Note that a connection was opened, so that the log may be a new file."""
        self._linked = False

    def committed(self) -> None:
        """Note that a transaction was committed without a sync, and have one done."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
            if not self._syncing:
                self._syncs.add(self)

    def durable(self) -> asyncio.Future[None] | None:
        """Return a future for when all committed so far is durable, or its sync has failed; None if it is durable
        already.
        """
        return self._waiting or self._under_way

    async def idle(self) -> None:
        """Wait until nothing is pending."""
        while self.pending:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle])

    def begin(self) -> None:
        """Note that a sync of all committed so far begins."""
        self._under_way, self._waiting, self._syncing = self._waiting, None, True

    def ended(self, error: BaseException | None) -> None:
        """Note the end of a sync.

        After an error, what it covered is not known to be durable until a later commit is synced.
        """
        if error is None:
            waited, self._under_way = self._under_way, None
            if waited is not None:
                resolve(waited, None, None)
            self._end()
        else:
            self._background.begin(self._fault(error), partial(self._lost, error))

    def _lost(self, error: BaseException, failed: BaseException | None) -> None:
        """Report the error of a sync to those who wait; `failed` is what the handling of the fault raised."""
        if failed is not None:
            report(f"a failed sync of {self._database} was not dealt with", failed)
        # Without its database nothing has to be durable.
        self.unsure = self.unsure or not isinstance(error, FileNotFoundError)
        waited = self._under_way
        if waited is not None and not waited.done():
            resolve(waited, None, error)
            waited.exception()  # The error belongs to those who wait, and there may be none.
        self._end()

    def _end(self) -> None:
        self._syncing = False
        if self._waiting is not None:
            self._syncs.add(self)
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def sync(self) -> None:
        """Sync the log in a worker thread. Another descriptor than SQLite's will do, because the file's pages are the
        same.
        """
        log = self._database.with_name(self._database.name + "-wal")
        try:
            _datasync(log)
        except FileNotFoundError:
            # SQLite removes the log only when all of it is durable in the database.
            _datasync(self._database)
        if not self._linked:
            _datasync(log.parent)
            self._linked = True


def _error_of(log: LateSync) -> Exception | None:
    try:
        log.sync()
    except Exception as error:
        return error
    return None


def _datasync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
