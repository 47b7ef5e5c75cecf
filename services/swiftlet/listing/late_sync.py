"""Syncing a database's log some time after commits that did not wait for it, once for all of them.

A row of an object is owed to the listing by the device that stores the object, durably, until it is told otherwise
(`docs/design/2026-11-21-rows.md`). So such a row may be answered as taken once its transaction is committed, and as
durable once the log was synced; only what is durable is settled.

SQLite writes such commits with `synchronous=NORMAL`: its log stays consistent whatever the disk keeps of it (each frame
has a checksum over all before it, a reset log has another salt), and rows leave the log for the database only after
a sync of it. So what can be lost is the end of the log that no sync has covered, and nothing else.

Fault model: power may go at any moment: then rows that were only taken are gone, and who owes them brings them again.
The process may be killed: nothing is lost, the log is in the kernel's hands. A sync that fails makes nobody's rows
durable, and is the device's failure as anywhere else. The database may be removed meanwhile: then nothing of it is
durable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

SYNC_AFTER_S = 0.05
"""How long commits gather for one sync; object devices owe their rows so much longer."""


class LateSync:
    """The log of one database. Used from one event loop."""

    def __init__(self, database: Path, executor: Executor, fault: Callable[[BaseException], Awaitable[None]]) -> None:
        """`fault` is told what a sync has failed with before those who wait are."""
        self._database = database
        self._executor = executor
        self._fault = fault
        self._waiting: asyncio.Future[None] | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._linked = False

    @property
    def pending(self) -> bool:
        """Whether something is committed and not known to be durable."""
        return self._task is not None

    def opened(self) -> None:
        """A connection was opened: the log may be a new file."""
        self._linked = False

    def committed(self) -> None:
        """A transaction was committed without a sync; there will be one."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def durable(self) -> asyncio.Future[None] | None:
        """Done when all that is committed by now is durable, with the error of a sync that failed; None: it is."""
        return self._waiting or self._under_way

    async def idle(self) -> None:
        """Until nothing is pending."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting is not None:
                await asyncio.sleep(SYNC_AFTER_S)
                # Commits from here on are not in this sync.
                waiting = self._under_way = self._waiting
                self._waiting = None
                try:
                    await loop.run_in_executor(self._executor, self._sync)
                except Exception as error:  # It belongs to those who wait.
                    await self._fault(error)
                    waiting.set_exception(error)
                    waiting.exception()
                else:
                    waiting.set_result(None)
                    self._under_way = None
        finally:
            self._task = None

    def _sync(self) -> None:
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


def _datasync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
