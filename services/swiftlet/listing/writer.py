"""The connection that writes one database: a transaction for the writes that wait, in a worker thread.

Each of several writes runs in a savepoint, so that one that is refused (NotFound, NotEmpty, ...) does not undo the
others. The rows of several updates of a container are merged together: only the container's absence can refuse them,
and it refuses all. Rows that native code has taken (`swiftlet.listing.updates`) are merged before everything else; if
the container is gone they are dropped.

Fault model: SQLite or the disk may fail at any statement. Then the whole transaction is rolled back, each of its writes
gets the error, and the connection is closed; nothing was acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftlet.errors import DeviceFailed, DiskFull, NotFound, StoreFormatError, SwiftletError
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.descriptions import Description
from swiftlet.listing.faults import translate
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import create_database, open_database, relax, sync_directories
from swiftlet.listing.thread_pool import Done
from swiftlet.listing.updates import Taken
from swiftlet.model import ContainerRow, DatabaseId, DatabaseKind, DatabaseName

AnyDb = ContainerDb | AccountDb

_CLASSES: dict[DatabaseKind, type[ContainerDb] | type[AccountDb]] = {
    DatabaseKind.CONTAINER: ContainerDb,
    DatabaseKind.ACCOUNT: AccountDb,
}
_CACHE_KIB = 8192
_PAUSES_S = (0.001, 0.004, 0.016, 0.064, 0.256)
"""Seconds between attempts to open a database that exists."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The state after a transaction: the replica's fingerprint, and whether the account has to be informed."""

    fingerprint: bytes
    unreported: bool
    rows: int = 0
    """The number of live rows."""
    split: bool = False
    """Whether it is a container that was split."""

    @classmethod
    def of(cls, database: AnyDb) -> Summary:
        """Return the summary of a database in its current state."""
        head = database.head
        split = isinstance(database, ContainerDb) and database.has_shards and head.put_timestamp.value > 0
        return cls(database.fingerprint(), head.unreported, head.totals.rows, split)


@dataclass(slots=True)
class Write:
    """One write in the queue; `create` names the database to create if there is none."""

    operation: Callable[[Any], Any]
    done: Done
    """A callback with the operation's result or its refusal; it is called in the event loop, and must not raise."""
    weight: int = 1
    create: DatabaseName | None = None
    grows: bool = True
    """Whether a device that has only its reserve left refuses the write."""
    removes: bool = False
    """Whether the database is removed when the operation returns True; then it is alone in its transaction."""
    later: bool = False
    """Whether it need not wait until it is durable, because another place keeps it durable until then."""
    rows: Sequence[Packed] | None = None
    """The rows that `operation` merges, if it does nothing else to a container that was never split."""
    fold: bool = False
    """Whether it does nothing but have the rows merged that native code has taken; then `rows` is empty."""
    aside: bool = False
    """Whether rows may be taken natively while it waits: it neither sees the rows nor changes what happens to them."""
    unwanted: Callable[[], bool] | None = None
    """A function that tells whether nobody waits for the write any more."""

    @property
    def meets_rows(self) -> bool:
        """Whether no rows may be taken natively while it waits."""
        return self.rows is None and not self.aside


@dataclass(slots=True)
class Result:
    """The outcome of one write."""

    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of a transaction."""

    results: list[Result] = field(default_factory=list)
    summary: Summary | None = None
    """The committed totals; None when nothing was committed."""
    description: Description | None = None
    """The committed description of a container."""
    removed: bool = False
    """Whether the database was removed."""
    opened: bool = False
    """Whether the connection was opened for it."""
    relaxed: bool = False
    """Whether the committed changes are not durable yet."""
    taken: int = 0
    """How many rows that native code had taken were merged, or dropped without a container."""
    full: bool = False
    """Whether the device has only its reserve left."""
    ordinary: DatabaseName | None = None
    """The name of a container of which native code may take rows: it exists, was never split, and the device has room
    for more.
    """


class Writer:
    """The connection of one database, which may not exist; used by one thread at a time."""

    def __init__(
        self,
        id: DatabaseId,
        path: Path,
        root: Path,
        check_room: Callable[[], None],
        before_removal: Callable[[], None],
        taken: Taken,
    ) -> None:
        """Create the writer; nothing is opened before the first use.

        `check_room` raises DiskFull when the device has only its reserve left.
        """
        self.id = id
        self._path = path
        self._root = root
        self._check_room = check_room
        self._before_removal = before_removal
        self._taken = taken
        self._database: AnyDb | None = None
        self._relaxed = False
        self._reported: deque[ContainerRow] = deque(maxlen=1)
        """What the account was told, which the database does not have yet."""

    @property
    def open(self) -> bool:
        """Whether the connection is open."""
        return self._database is not None

    def transact(self, batch: Sequence[Write]) -> Outcome:
        """Carry out these writes in one transaction. Raises the error that makes it fail as a whole."""
        outcome = Outcome(opened=self._database is None, relaxed=all(write.later for write in batch))
        try:
            rows = self._taken.take_out()
            outcome.taken = len(rows)
            if not rows and all(write.fold for write in batch):
                outcome.results = [Result() for _ in batch]
                return outcome
            full = self._full()
            outcome.full = full is not None
            self._set_relaxed(outcome.relaxed)
            if not self._join(batch, rows, full, outcome.results):
                self._fold(rows)
                alone = len(batch) == 1 and not rows
                outcome.results = [self._one(write, full, alone) for write in batch]
            database = self._database
            if database is None or not database.connection.in_transaction:
                return outcome
            if batch[0].removes and outcome.results[0].value is True:
                self._remove()
                outcome.removed = True
                return outcome
            self._mark_reported(database)
            database.commit()
            outcome.summary = Summary.of(database)
            if isinstance(database, ContainerDb):
                outcome.description = database.described()
            if full is None:
                outcome.ordinary = _ordinary(database)
            return outcome
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise explained(self.id, error) from error
        except BaseException:
            self.close()
            raise

    def note_reported(self, row: ContainerRow) -> None:
        """Have the next transaction, or `settle`, note what the account was told; may be called at any time."""
        self._reported.append(row)

    def _mark_reported(self, database: AnyDb) -> None:
        """Note what the account was told, within the transaction."""
        while self._reported and isinstance(database, ContainerDb):
            database.mark_reported(self._reported.popleft())

    def settle(self) -> None:
        """Write what waits for a transaction; what can't be written is reported once more after the next start."""
        database = self._database
        if database is None or not self._reported:
            return
        with contextlib.suppress(sqlite3.Error, SwiftletError):
            relax(database.connection, True)
            self._relaxed = True
            database.begin()
            self._mark_reported(database)
            database.commit()

    def close(self) -> None:
        """Close the connection; SQLite rolls back what was open."""
        if self._database is not None:
            self._database.connection.close()
            self._database = None

    def _set_relaxed(self, relaxed: bool) -> None:
        """Set whether the next transaction's COMMIT returns before the log is synced."""
        if relaxed is not self._relaxed and self._database is not None:
            relax(self._database.connection, relaxed)
        self._relaxed = relaxed

    def _full(self) -> DiskFull | None:
        try:
            self._check_room()
        except DiskFull as error:
            return error
        return None

    def _join(
        self, batch: Sequence[Write], taken: Sequence[Packed], full: DiskFull | None, results: list[Result]
    ) -> bool:
        """Merge the rows of several updates, and those that were taken, together if all are rows of a container that
        was never split; return whether so.
        """
        if len(batch) == 1 and not taken:
            return False
        if any(write.rows is None or (full is not None and write.grows) for write in batch):
            return False
        database = self._database or self._open(None)
        if not isinstance(database, ContainerDb):
            return False
        database.begin()
        if database.points():
            return False
        try:
            database.update([*taken, *(row for write in batch for row in write.rows or ())])
        except NotFound as error:
            database.give_up()
            results += [Result(error=error) for _ in batch]
        else:
            results += [Result() for _ in batch]
        return True

    def _fold(self, rows: Sequence[Packed]) -> None:
        """Merge rows that were taken, within the transaction, which this begins; those of a container that is gone are
        dropped.

        They use the device's reserve if they must: the device has them anyway, and its journal shrinks by them. In a
        container that was split since they stay as strays, which its shards get later.
        """
        database = (self._database or self._open(None)) if rows else None
        if database is None:
            return
        if not database.connection.in_transaction:
            database.begin()
        if isinstance(database, ContainerDb) and database.head.exists:
            database.merge_all(rows)

    def _one(self, write: Write, full: DiskFull | None, alone: bool) -> Result:
        """Carry out one write within the transaction, which the first one begins; a refusal is returned as its result.

        `alone` tells that it is the only write, so that a refusal rolls back the whole transaction.
        """
        if full is not None and write.grows:
            return Result(error=full)
        database = self._database or self._open(write.create)
        if database is None:
            return Result(error=NotFound(f"there is no database {self.id}"))
        if not database.connection.in_transaction:
            database.begin()
        try:
            if alone:
                return Result(write.operation(database))
            with database.apart():
                return Result(write.operation(database))
        except SwiftletError as error:
            if isinstance(error, StoreFormatError | DeviceFailed):
                raise
            if alone:
                database.give_up()
            return Result(error=error)

    def _open(self, create: DatabaseName | None) -> AnyDb | None:
        if not self._path.exists():
            if create is None:
                return None
            create_database(self._path, self.id.kind, create, self._root)
        self._database = opened(self.id, self._path, _CACHE_KIB)
        if self._relaxed:
            relax(self._database.connection, True)
        return self._database

    def _remove(self) -> None:
        """Remove the database: one rename makes it invisible, then its files are deleted."""
        self.close()
        self._before_removal()
        trash = self._root / "trash" / f"{self.id.kind.value}-{self.id.digest.hex()}-{os.urandom(4).hex()}"
        trash.parent.mkdir(exist_ok=True)
        self._path.parent.rename(trash)
        sync_directories(self._path.parent.parent, self._root)
        shutil.rmtree(trash)


def _ordinary(database: AnyDb) -> DatabaseName | None:
    """Return the name of a container that exists and was never split."""
    if not isinstance(database, ContainerDb) or database.has_shards or database.points():
        return None
    return database.head.name if database.head.exists else None


def opened(id: DatabaseId, path: Path, cache_kib: int) -> AnyDb:
    """Return a database through a connection of its own. Raises NotFound."""
    connection = _connection(id, path, cache_kib)
    try:
        return _CLASSES[id.kind](connection)
    except BaseException:
        connection.close()
        raise


def _may_pass(error: sqlite3.OperationalError) -> bool:
    """Return whether the error may come from files that are removed at that moment."""
    primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary_code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}


def _connection(id: DatabaseId, path: Path, cache_kib: int) -> sqlite3.Connection:
    """Open a connection, with a few attempts within a third of a second.

    SQLite can't open a database whose last connection closes in the same moment, because the log's files are removed
    then, or one that is removed after its file was opened. It may report the latter as an I/O error, too. Neither is a
    failure of the device, and a moment later it is over. A device that does fail still fails then.
    """
    pauses_s = iter(_PAUSES_S)
    while True:
        try:
            return open_database(path, id.kind, cache_kib)
        except sqlite3.OperationalError as error:
            if not path.exists():
                raise NotFound(f"there is no database {id}") from error
            pause_s = next(pauses_s, None)
            if pause_s is None or not _may_pass(error):
                raise
        time.sleep(pause_s)


def explained(id: DatabaseId, error: sqlite3.Error | OSError) -> BaseException:
    """Return the domain error that an error of SQLite or the system means for a database."""
    return translate(error, str(id)) or error
