"""One open database: a connection for writing, a few for reading, and the queue of writes with group commit.

Writes that wait for one database go into one transaction: the first one waits for its own sync, those that come
meanwhile share the next. Each of several runs in a savepoint, so that one that is refused (NotFound, NotEmpty, ...)
takes nothing of the others with it. Nobody is answered before the COMMIT has returned; that is durable, unless all
writes in it said that they need not wait for the sync (`swiftlet.listing.late_sync`).

Fault model: SQLite or the disk may fail at any statement. Then the whole transaction is rolled back, everybody in
it gets the error, and the connections are closed; nothing was acknowledged. What the error means for the
database or the device is the owner's to decide (`on_fault`). A caller may go away at any time: a write that
has not begun is dropped, one that has is finished.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from swiftlet.errors import DeviceFailed, DiskFull, NodeBusy, NotFound, StoreFormatError, SwiftletError
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.faults import translate
from swiftlet.listing.late_sync import LateSync
from swiftlet.listing.schema import create_database, open_database, relax, sync_directories
from swiftlet.listing.sethash import fingerprint
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName

T = TypeVar("T")
AnyDb = ContainerDb | AccountDb

_CLASSES: dict[DatabaseKind, type[ContainerDb] | type[AccountDb]] = {
    DatabaseKind.CONTAINER: ContainerDb,
    DatabaseKind.ACCOUNT: AccountDb,
}
_READ_CACHE_KIB = 2048
_WRITE_CACHE_KIB = 8192


class Observer(Protocol):
    """Who wants to know what happens to databases; called in the event loop unless said otherwise."""

    def committed(self, handle: Handle, summary: Summary, batch: int) -> None:
        """A transaction of `batch` writes is committed."""
        ...

    def gone(self, handle: Handle) -> None:
        """The database was removed."""
        ...

    async def fault(self, handle: Handle, error: SwiftletError) -> None:
        """A damaged database or a failed device."""
        ...

    def check_room(self) -> None:
        """DiskFull when the device is at its reserve; called in a worker thread."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What a transaction left behind: the replica's fingerprint, and whether the account has to be told."""

    fingerprint: bytes
    unreported: bool
    rows: int = 0
    """Live rows."""
    split: bool = False
    """Whether it is a container that has shards."""

    @classmethod
    def of(cls, database: AnyDb) -> Summary:
        """The summary of a database as it stands."""
        split = isinstance(database, ContainerDb) and database.has_shards and database.head.put_timestamp.value > 0
        return cls(fingerprint(database.state()), database.head.unreported, database.head.totals.rows, split)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one device's databases take."""

    open_databases: int = 256
    """Databases kept open; each has up to 1 + `threads` connections."""
    threads: int = 4
    """Threads that write, and as many that read."""
    queued_rows: int = 50_000
    """Rows (and other writes) that may wait for one database before NodeBusy."""
    batch_rows: int = 10_000
    """Rows in one transaction."""
    reserve_bytes: int = 64 * 1024 * 1024
    """Free space below which databases don't grow any more."""


@dataclass(slots=True)
class Write:
    """One write that waits for its turn. `create`: whose database to make if there is none."""

    operation: Callable[[Any], Any]
    answer: asyncio.Future[Any]
    weight: int = 1
    create: DatabaseName | None = None
    grows: bool = True
    """Whether a device at its reserve refuses it."""
    removes: bool = False
    """Whether the database goes when the operation returns True; then it is alone in its transaction."""
    later: bool = False
    """Whether it need not wait until it is durable: somebody else sees to it until then."""


@dataclass(slots=True)
class _Result:
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class _Batch:
    results: list[_Result] = field(default_factory=list)
    summary: Summary | None = None
    removed: bool = False
    opened: bool = False


class Handle:
    """One database that may be there or not. Used from one event loop."""

    def __init__(
        self,
        id: DatabaseId,
        path: Path,
        root: Path,
        limits: Limits,
        executors: tuple[Executor, Executor],
        owner: Observer,
    ) -> None:
        """Nothing is opened before the first use; `executors` are for writes and for reads."""
        self.id = id
        self.path = path
        self._root = root
        self._limits = limits
        self._writers, self._readers = executors
        self._owner = owner
        self._writer: AnyDb | None = None
        self._idle: list[AnyDb] = []
        self._generation = 0
        self._lock = threading.Lock()
        self._reading = 0
        self._queue: deque[Write] = deque()
        self._queued = 0
        self._draining: asyncio.Task[None] | None = None
        self._late = LateSync(path, self._writers, self._sync_failed)
        self._relaxed = False

    @property
    def closed(self) -> bool:
        """Whether no connection is open."""
        return self._writer is None and not self._idle

    @property
    def busy(self) -> bool:
        """Whether anybody waits for it or uses it."""
        return self._draining is not None or self._reading > 0 or self._late.pending

    # Reading.

    async def read(self, operation: Callable[[Any], T]) -> T:
        """Run `operation(database)` in one read transaction; NotFound when there is no database."""
        self._reading += 1
        try:
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
            database = self._idle_reader() or self._open(_READ_CACHE_KIB)
            result = operation(database.snapshot())
            database.release()
        except (sqlite3.Error, OSError) as error:
            _discard(database)
            raise self._explained(error) from error
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
    ) -> T:
        """Run `operation(database)` in the next transaction; returns when that is durable. See `Write`.

        With `later` it returns when that is committed; `durable` says when it is durable.
        """
        if self._queued + weight > self._limits.queued_rows and self._queue:
            raise NodeBusy(f"{self._queued} rows wait for {self.id} already")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._queue.append(Write(operation, answer, weight, create, grows, removes, later))
        self._queued += weight
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        return await answer

    def durable(self) -> asyncio.Future[None] | None:
        """Done when all that was answered by now is durable, or can't be known to be; None when it is."""
        return self._late.durable()

    async def _sync_failed(self, error: BaseException) -> None:
        gone = isinstance(error, FileNotFoundError)
        explained = self._explained(error) if isinstance(error, OSError) and not gone else error
        if isinstance(explained, StoreFormatError | DeviceFailed):
            await self._owner.fault(self, explained)

    async def _drain(self) -> None:
        try:
            while self._queue:
                batch = self._next_batch()
                if batch:
                    await self._run(batch)
        finally:
            self._draining = None

    def _next_batch(self) -> list[Write]:
        batch: list[Write] = []
        weight = 0
        while self._queue and (not batch or weight + self._queue[0].weight <= self._limits.batch_rows):
            if batch and (batch[-1].removes or self._queue[0].removes):
                break
            write = self._queue.popleft()
            self._queued -= write.weight
            if not write.answer.cancelled():
                batch.append(write)
                weight += write.weight
        return batch

    async def _run(self, batch: list[Write]) -> None:
        loop = asyncio.get_running_loop()
        try:
            done = await loop.run_in_executor(self._writers, self._transact, batch)
        except BaseException as error:
            if isinstance(error, StoreFormatError | DeviceFailed):
                await self._owner.fault(self, error)
            for write in batch:
                if not write.answer.done():
                    write.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        if done.opened:
            self._late.opened()
        if done.summary is not None and self._relaxed:
            self._late.committed()
        if done.summary is not None:
            self._owner.committed(self, done.summary, sum(write.weight for write in batch))
        if done.removed:
            self._owner.gone(self)
        for write, result in zip(batch, done.results, strict=True):
            if write.answer.done():
                continue
            if result.error is not None:
                write.answer.set_exception(result.error)
            else:
                write.answer.set_result(result.value)

    def _transact(self, batch: list[Write]) -> _Batch:
        done = _Batch(opened=self._writer is None)
        try:
            full = self._full()
            self._set_relaxed(all(write.later for write in batch))
            for write in batch:
                done.results.append(self._one(write, full, len(batch) == 1))
            database = self._writer
            if database is None or not database.connection.in_transaction:
                return done
            if batch[0].removes and done.results[0].value is True:
                self._remove()
                done.removed = True
                return done
            database.commit()
            done.summary = Summary.of(database)
            return done
        except (sqlite3.Error, OSError) as error:
            self._close_writer()
            raise self._explained(error) from error
        except BaseException:
            self._close_writer()
            raise

    def _set_relaxed(self, relaxed: bool) -> None:
        """Whether the next transaction's COMMIT returns before the log is synced."""
        if relaxed is not self._relaxed and self._writer is not None:
            relax(self._writer.connection, relaxed)
        self._relaxed = relaxed

    def _full(self) -> DiskFull | None:
        try:
            self._owner.check_room()
        except DiskFull as error:
            return error
        return None

    def _one(self, write: Write, full: DiskFull | None, alone: bool) -> _Result:
        """One write within the transaction, which it begins when it is the first; refusals are results.

        `alone`: it is the only one, so that the whole transaction goes with it.
        """
        if full is not None and write.grows:
            return _Result(error=full)
        database = self._writer or self._open_writer(write.create)
        if database is None:
            return _Result(error=NotFound(f"there is no database {self.id}"))
        if not database.connection.in_transaction:
            database.begin()
        try:
            if alone:
                return _Result(write.operation(database))
            with database.apart():
                return _Result(write.operation(database))
        except SwiftletError as error:
            if isinstance(error, StoreFormatError | DeviceFailed):
                raise
            if alone:
                database.give_up()
            return _Result(error=error)

    def _open_writer(self, create: DatabaseName | None) -> AnyDb | None:
        if not self.path.exists():
            if create is None:
                return None
            create_database(self.path, self.id.kind, create, self._root)
        self._writer = self._open(_WRITE_CACHE_KIB)
        if self._relaxed:
            relax(self._writer.connection, True)
        return self._writer

    def _remove(self) -> None:
        """Take the database off the device: out of sight in one step, then its files."""
        self._close_writer()
        self._drop_readers()
        trash = self._root / "trash" / f"{self.id.kind.value}-{self.id.digest.hex()}-{os.urandom(4).hex()}"
        trash.parent.mkdir(exist_ok=True)
        self.path.parent.rename(trash)
        sync_directories(self.path.parent.parent, self._root)
        shutil.rmtree(trash)

    # Connections.

    def _open(self, cache_kib: int) -> AnyDb:
        try:
            connection = open_database(self.path, self.id.kind, cache_kib)
        except sqlite3.OperationalError as error:
            if not self.path.exists():
                raise NotFound(f"there is no database {self.id}") from error
            raise
        try:
            return _CLASSES[self.id.kind](connection)
        except BaseException:
            connection.close()
            raise

    def _explained(self, error: sqlite3.Error | OSError) -> BaseException:
        return translate(error, str(self.id)) or error

    def _close_writer(self) -> None:
        if self._writer is not None:
            _discard(self._writer)
            self._writer = None

    def _drop_readers(self) -> None:
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for database in idle:
            database.connection.close()

    def close_now(self) -> None:
        """Close the connections that nobody uses; blocks. Readers at work close theirs when they are done."""
        self._drop_readers()
        self._close_writer()

    async def wait_idle(self) -> None:
        """Until the writes that were queued are done, and durable."""
        while self._draining is not None:
            await asyncio.wait([self._draining])
        await self._late.idle()


def _discard(database: AnyDb | None) -> None:
    """Close a connection after an error; SQLite rolls back what was open."""
    if database is not None:
        database.connection.close()
