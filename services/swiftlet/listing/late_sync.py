"""Syncing databases' logs some time after commits that did not wait for it, once for all of them.

An update of the listing is pending at the device that stores the object, durably, until it is told otherwise
(`docs/design/2026-11-21-rows.md`). So such a row may be answered as taken once its transaction is committed, and as
durable once the log was synced; only what is durable is acknowledged.

SQLite writes such commits with `synchronous=NORMAL`: its log stays consistent whatever the disk keeps of it (each frame
has a checksum over all before it, a reset log has another salt), and rows leave the log for the database only after
a sync of it. So what can be lost is the end of the log that no sync has covered, and nothing else.

The logs of a device are synced in rounds, `SYNC_AFTER_S` apart: those with commits since their last sync, shared out
among a few threads, so that many databases cost few turns of them.

What must hold: while something waits to be durable, its log gathers for a round or is in one (`_syncing`), and the end
of that puts it into the next. Whoever waits is told once, also when handling the failure of a sync fails or is
cancelled, and whether or not somebody else who waited for the same has gone away.

Fault model: power may go at any moment: then rows that were only taken are gone, and whoever has them pending brings
them again. The process may be killed: nothing is lost, the log is in the kernel's hands. A sync that fails makes
nobody's rows durable, and is the device's failure as anywhere else. The database may be removed meanwhile: then nothing
of it is durable. A sync that hangs holds up its database, and those behind it in its thread; the others go on.
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
"""How long commits gather for one sync at most; updates stay pending at object devices so much longer."""

Fault = Callable[[BaseException], Coroutine[Any, Any, None]]
"""Deals with what a sync has failed with."""


class LateSyncs:
    """The logs of one device's databases that are to be synced. Used from one event loop."""

    def __init__(self, pool: ThreadPool, threads: int) -> None:
        """`pool` does the syncs, in up to `threads` jobs at once."""
        self._pool = pool
        self._threads = threads
        self._gathering: list[LateSync] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, log: LateSync) -> None:
        """Sync it in the next round."""
        self._gathering.append(log)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SYNC_AFTER_S, self._round)

    def _round(self) -> None:
        self._timer = None
        logs, self._gathering = self._gathering, []
        for log in logs:
            # Commits from here on are not in this sync.
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
        """`fault` is told what a sync has failed with before those who wait are."""
        self._database = database
        self._syncs = syncs
        self._fault = fault
        self._waiting: asyncio.Future[None] | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._syncing = False
        self._idle: asyncio.Future[None] | None = None
        self._linked = False
        self._background = BackgroundTasks()

    @property
    def pending(self) -> bool:
        """Whether something is committed and not known to be durable."""
        return self._syncing or self._waiting is not None

    def opened(self) -> None:
        """A connection was opened: the log may be a new file."""
        self._linked = False

    def committed(self) -> None:
        """A transaction was committed without a sync; there will be one."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
            if not self._syncing:
                self._syncs.add(self)

    def durable(self) -> asyncio.Future[None] | None:
        """Done when all that is committed by now is durable, with the error of a sync that failed; None: it is."""
        return self._waiting or self._under_way

    async def idle(self) -> None:
        """Until nothing is pending."""
        while self.pending:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle])

    def begin(self) -> None:
        """What is committed by now is about to be synced."""
        self._under_way, self._waiting, self._syncing = self._waiting, None, True

    def ended(self, error: BaseException | None) -> None:
        """The sync is over: it is durable, or can't be known to be, which stays so until a later commit is synced."""
        if error is None:
            waited, self._under_way = self._under_way, None
            if waited is not None:
                resolve(waited, None, None)
            self._end()
        else:
            self._background.begin(self._fault(error), partial(self._lost, error))

    def _lost(self, error: BaseException, failed: BaseException | None) -> None:
        """Nobody waits for durability any more; `failed`: what handling the fault ended with."""
        if failed is not None:
            report(f"a failed sync of {self._database} was not dealt with", failed)
        waited = self._under_way
        if waited is not None and not waited.done():
            resolve(waited, None, error)
            waited.exception()  # It belongs to those who wait; perhaps nobody does.
        self._end()

    def _end(self) -> None:
        self._syncing = False
        if self._waiting is not None:
            self._syncs.add(self)
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def sync(self) -> None:
        """In a worker thread. Sync what was written through SQLite's descriptor: the file's pages are the same."""
        log = self._database.with_name(self._database.name + "-wal")
        try:
            _datasync(log)
        except FileNotFoundError:
            # SQLite takes the log away only when all of it is in the database, durably.
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
