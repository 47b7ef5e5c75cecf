"""One open database: a connection for writing, a few for reading, and the queue of writes with group commit.

Writes that wait for one database go into one transaction: the first one waits for its own sync, and those that come
meanwhile share the next. Nobody is answered before the COMMIT has returned. It is durable by then, unless all its
writes said that they need not wait for the sync (`swiftlet.listing.late_sync`).

What native code has taken for the database (`swiftlet.listing.updates`) is merged before anybody reads it, and at the
beginning of every transaction.

Fault model: see `swiftlet.listing.writer`. The owner decides what an error means for the database or the device
(`fault`). A caller may go away at any time: a write that has not begun is dropped, one that has is finished.

Invariant: while a write waits, a transaction is in progress or requested (`_writing`), and its end requests the next
one. The outcome of each write is reported exactly once. An observer that fails, a write's `done` that raises, and a
fault whose handling fails or is cancelled do not change that.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from swiftlet.errors import DeviceFailed, NodeBusy, NotFound, StoreFormatError, SwiftletError
from swiftlet.listing.background_tasks import BackgroundTasks, report, resolve, tell
from swiftlet.listing.commits import Commits
from swiftlet.listing.descriptions import Description
from swiftlet.listing.late_sync import LateSync, LateSyncs
from swiftlet.listing.updates import Taken
from swiftlet.listing.writer import AnyDb, Outcome, Summary, Write, Writer, explained, opened
from swiftlet.model import ContainerRow, DatabaseId, DatabaseName

T = TypeVar("T")

_READ_CACHE_KIB = 2048


class Observer(Protocol):
    """The owner of databases, which is notified of what happens to them; called in the event loop unless said
    otherwise.
    """

    def committed(self, handle: Handle, summary: Summary, description: Description | None, batch: int) -> None:
        """Handle the commit of a transaction of `batch` rows and other writes; `description` is that of a container."""
        ...

    def gone(self, handle: Handle) -> None:
        """Handle the removal of the database."""
        ...

    def nothing(self, handle: Handle) -> None:
        """Handle a write that found no database."""
        ...

    async def fault(self, handle: Handle, error: SwiftletError) -> None:
        """Handle a damaged database or a failed device."""
        ...

    def altered(self, id: DatabaseId) -> None:
        """Handle a transaction that may have changed something else than rows, before it is answered."""
        ...

    def check_room(self) -> None:
        """Raise DiskFull when the device has only its reserve left; called in a worker thread."""
        ...

    def full(self) -> None:
        """Handle a transaction that found only the device's reserve left."""
        ...

    @property
    def takes_rows(self) -> bool:
        """Whether native code may take rows for databases."""
        ...

    def folded(self, handle: Handle, rows: int, merged: bool) -> None:
        """Handle the end of a transaction that began with rows that native code had taken: they were merged, or put
        back.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what the databases of one device use."""

    open_databases: int = 1024
    """Databases kept open; each has up to 1 + `threads` connections."""
    threads: int = 4
    """Threads that write, and as many that read."""
    queued_rows: int = 50_000
    """Rows (and other writes) that may wait for one database before NodeBusy."""
    batch_rows: int = 10_000
    """Rows in one transaction."""
    reserve_bytes: int = 64 * 1024 * 1024
    """Bytes of free space below which databases may not grow any more."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The threads and queues that do the work of one device's databases."""

    commits: Commits
    syncs: LateSyncs
    readers: Executor


class Handle:
    """One database, which may not exist. Used from one event loop."""

    def __init__(
        self, id: DatabaseId, path: Path, root: Path, limits: Limits, workers: Workers, owner: Observer, taken: Taken
    ) -> None:
        """Create the handle; nothing is opened before the first use."""
        self.id = id
        self.path = path
        self._limits = limits
        self._commits, self._readers = workers.commits, workers.readers
        self._owner = owner
        self.taken = taken
        self._writer = Writer(id, path, root, owner.check_room, self._drop_readers, taken)
        self._idle: list[AnyDb] = []
        self.commits = 0
        """The number of commits and removals so far."""
        self._generation = 0
        self._lock = threading.Lock()
        self._reading = 0
        self._queue: deque[Write] = deque()
        self._queued = 0
        self._others = 0
        """The number of writes in the queue for which native code may take no rows."""
        self._fold: asyncio.Future[None] | None = None
        """A fold that waits in the queue."""
        self._writing = False
        self._rest: asyncio.Future[None] | None = None
        self._background = BackgroundTasks()
        self._late = LateSync(path, workers.syncs, self._sync_failed)

    @property
    def ready(self) -> bool:
        """Whether the connection for writing is open."""
        return self._writer.open

    @property
    def closed(self) -> bool:
        """Whether no connection is open."""
        return not self._writer.open and not self._idle

    @property
    def busy(self) -> bool:
        """Whether anybody uses it or waits for it."""
        return self._writing or self._reading > 0 or self._late.pending

    @property
    def unsure(self) -> bool:
        """Whether a sync of the log has failed since it was opened."""
        return self._late.unsure

    def shut(self) -> bool:
        """Have no more rows taken natively; return whether none is left to be merged."""
        self.taken.shut()
        return not self.taken.waiting

    # Reading.

    async def read(self, operation: Callable[[Any], T]) -> T:
        """Run `operation(database)` in one read transaction and return its result. Raises NotFound without
        a database, and the error of merging what native code has taken before.
        """
        self._reading += 1
        try:
            if self.taken.waiting:
                await self.folded()
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, operation)
        except (StoreFormatError, DeviceFailed) as error:
            await self._owner.fault(self, error)
            raise
        finally:
            self._reading -= 1

    def _read(self, operation: Callable[[Any], T]) -> T:
        generation = self._generation
        database: AnyDb | None = None
        try:
            database = self._idle_reader() or opened(self.id, self.path, _READ_CACHE_KIB)
            result = operation(database.snapshot())
            database.release()
        except (sqlite3.Error, OSError) as error:
            _discard(database)
            raise explained(self.id, error) from error
        except SwiftletError as error:
            if database is not None and not isinstance(error, StoreFormatError | DeviceFailed):
                database.release()
                self._keep_reader(database, generation)
            else:
                _discard(database)
            raise
        except BaseException:
            _discard(database)
            raise
        self._keep_reader(database, generation)
        return result

    def _idle_reader(self) -> AnyDb | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep_reader(self, database: AnyDb, generation: int) -> None:
        with self._lock:
            if generation == self._generation and len(self._idle) < self._limits.threads:
                self._idle.append(database)
                return
        database.connection.close()

    # Writing.

    async def write(
        self,
        operation: Callable[[Any], T],
        weight: int = 1,
        create: DatabaseName | None = None,
        grows: bool = True,
        removes: bool = False,
        later: bool = False,
        aside: bool = False,
    ) -> T:
        """Run `operation(database)` in the next transaction; return its result when that is durable.

        With `later` it returns when that is committed; `durable` tells when it is durable. `Write` explains the
        arguments.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        done = partial(resolve, answer)
        unwanted = answer.cancelled
        self.submit(Write(operation, done, weight, create, grows, removes, later, aside=aside, unwanted=unwanted))
        return await answer

    def submit(self, write: Write) -> None:
        """Queue a write for the next transaction. Raises NodeBusy when too many rows wait."""
        if self._queued + write.weight > self._limits.queued_rows and self._queue:
            raise NodeBusy(f"{self._queued} rows already wait for database {self.id}; try again later")
        if write.meets_rows:
            self.taken.shut()
        self._enqueue(write)

    def _enqueue(self, write: Write) -> None:
        self._queue.append(write)
        self._others += write.meets_rows
        self._queued += write.weight
        if not self._writing:
            self._writing = True
            self._commits.add(self)

    def note_reported(self, row: ContainerRow) -> bool:
        """Note with the next transaction, or when it is closed, what the account was told; return False where the
        database is closed already.
        """
        if not self._writer.open:
            return False
        self._writer.note_reported(row)
        return True

    def fold(self) -> asyncio.Future[None]:
        """Merge what native code has taken so far; return a future for when that is committed."""
        if self._fold is None:
            waiting = self._fold = asyncio.get_running_loop().create_future()
            done = partial(_fold_done, waiting)
            self._enqueue(Write(_nothing, done, grows=False, later=True, rows=(), fold=True))
        return self._fold

    async def folded(self) -> None:
        """Wait until what native code has taken so far is merged. Raises the transaction's error."""
        waiting = self.fold()
        # Others may wait for it too.
        await asyncio.wait([waiting])
        waiting.result()

    def durable(self) -> asyncio.Future[None] | None:
        """Return a future for when all committed so far is durable, or is known not to be; None if it is durable
        already.
        """
        return self._late.durable()

    async def _sync_failed(self, error: BaseException) -> None:
        gone = isinstance(error, FileNotFoundError)
        told = explained(self.id, error) if isinstance(error, OSError) and not gone else error
        if isinstance(told, StoreFormatError | DeviceFailed):
            await self._owner.fault(self, told)

    def next_batch(self) -> list[Write]:
        """Return the writes of the next transaction, without those that nobody waits for any more."""
        batch: list[Write] = []
        weight = 0
        while self._queue and (not batch or weight + self._queue[0].weight <= self._limits.batch_rows):
            if batch and (batch[-1].removes or self._queue[0].removes):
                break
            write = self._queue.popleft()
            self._queued -= write.weight
            self._others -= write.meets_rows
            if write.fold:
                self._fold = None
            if write.unwanted is None or not write.unwanted():
                batch.append(write)
                weight += write.weight
        return batch

    def attempt(self, batch: Sequence[Write]) -> Outcome | BaseException:
        """Carry out one transaction in a worker thread; return its outcome or its error."""
        try:
            return self._writer.transact(batch) if batch else Outcome()
        except BaseException as error:
            return error

    def finish(self, batch: Sequence[Write], outcome: Outcome | BaseException) -> None:
        """Report the outcome of a transaction, and begin the next one if writes have come meanwhile."""
        if isinstance(outcome, BaseException):
            tell(self._end_fold, False)
        if isinstance(outcome, StoreFormatError | DeviceFailed):
            self._background.begin(self._owner.fault(self, outcome), partial(self._refuse, batch, outcome))
        elif isinstance(outcome, BaseException):
            self._refuse(batch, outcome)
        else:
            self._tell(batch, outcome)
            self._go_on()

    def _refuse(self, batch: Sequence[Write], error: BaseException, failed: BaseException | None = None) -> None:
        """Report an error to these writes; `failed` is what the owner's handling of it raised."""
        if failed is not None:
            report(f"a fault of {self.id} was not dealt with", failed)
        for write in batch:
            tell(write.done, None, error)
        self._go_on()

    def _tell(self, batch: Sequence[Write], outcome: Outcome) -> None:
        if outcome.opened:
            self._late.opened()
        if outcome.full:
            tell(self._owner.full)
        if outcome.summary is not None and outcome.relaxed:
            self._late.committed()
        tell(self._deal_with_table, batch, outcome)
        if outcome.summary is not None:
            self.commits += 1
            tell(self._owner.committed, self, outcome.summary, outcome.description, _size(batch) + outcome.taken)
        if any(write.meets_rows for write in batch):
            tell(self._owner.altered, self.id)
        if outcome.removed:
            self.commits += 1
            tell(self._owner.gone, self)
        for write, result in zip(batch, outcome.results, strict=True):
            tell(write.done, result.value, result.error)

    def _deal_with_table(self, batch: Sequence[Write], outcome: Outcome) -> None:
        """End the fold of a transaction that has ended well, and have rows taken natively where that may be."""
        self._end_fold(True)
        if outcome.ordinary is not None and not self._others and self._owner.takes_rows:
            # Who makes a container is going to write to it.
            self.taken.open(outcome.ordinary, again=any(write.rows is None and write.create is None for write in batch))

    def _end_fold(self, merged: bool) -> None:
        rows = self.taken.folded(merged)
        if rows:
            self._owner.folded(self, rows, merged)

    def _go_on(self) -> None:
        if self._queue:
            self._commits.add(self)
            return
        self._writing = False
        if self._rest is not None:
            self._rest.set_result(None)
            self._rest = None
        if self.closed:
            self._owner.nothing(self)

    # Connections.

    def _drop_readers(self) -> None:
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for database in idle:
            database.connection.close()

    def close_now(self) -> None:
        """Close the connections that nobody uses; blocks. Reads in progress close theirs when they are done."""
        self._drop_readers()
        self._writer.settle()
        self._writer.close()

    async def wait_idle(self) -> None:
        """Wait until the queued writes are done, and durable."""
        while self._writing:
            if self._rest is None:
                self._rest = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._rest])
        await self._late.idle()


def _size(batch: Sequence[Write]) -> int:
    return sum([write.weight for write in batch if not write.fold])


def _nothing(_database: object) -> None:
    """Do nothing; a transaction begins with merging what was taken."""


def _fold_done(waiting: asyncio.Future[None], _value: None, error: BaseException | None) -> None:
    """Report a fold; without a container there was nothing to merge."""
    resolve(waiting, None, None if isinstance(error, NotFound) else error)
    if not waiting.cancelled():
        waiting.exception()  # The error belongs to those who wait, and there may be none.


def _discard(database: AnyDb | None) -> None:
    """Close a connection after an error; SQLite rolls back what was open."""
    if database is not None:
        database.connection.close()
