"""Rows that native code has taken for containers of a device, and that their databases do not have yet.

A device's *update table* (`native/crates/updates`) answers container updates without Python, keeps the newest row of
each name in memory, and has all of them in a journal. Python takes the rows of a database out and merges them; that is
called folding (`docs/design/2026-11-25-container-updates.md`).

Invariant: nobody reads or changes a database while rows of it lie in the table that were taken before he asked. A read
folds first (`handle.Handle.read`); each transaction of a write begins with what was taken (`writer.Writer`). Two things
are known without a read, and may lack these rows: what `ListingStore.container_info` says without `merged`, and the
fingerprints that replicators compare. A database is open to native code only while it is in its ordinary state: the
container exists, was never split, and no write waits but updates and folds. So what native code takes is what Python
would have merged.

Invariant: each `take_out` is ended once, in the event loop: after the commit with these rows was noted for its sync, or
with the error of the transaction. So a journal file is never removed before its rows are durable in the database.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Protocol

from swiftlet.listing.row_tables import Packed
from swiftlet.model import DatabaseId, DatabaseName

Place = tuple[int, str, str]
"""The partition, account and container of a database, as the table names it."""


class UpdateTable(Protocol):
    """The rows that were taken for the containers of one device; used by any thread, and nothing but `sync` waits."""

    def open(self, partition: int, account: str, container: str, /) -> None:
        """Take rows for a container from now on."""
        ...

    def close(self, partition: int, account: str, container: str, /) -> None:
        """Take no row for a container after this has returned."""
        ...

    def close_all(self, reason: str, /) -> None:
        """Take no row for any container; `open` allows it again."""
        ...

    def has(self, partition: int, account: str, container: str, /) -> bool:
        """Return whether a container has rows in the table, or rows that were taken out and are not folded yet."""
        ...

    def take_out(self, partition: int, account: str, container: str, /) -> Sequence[Packed]:
        """Remove and return the rows of a container, by name; `folded` has to follow."""
        ...

    def folded(self, partition: int, account: str, container: str, merged: bool, /) -> None:
        """End a `take_out`; if the rows were not merged they go back into the table."""
        ...

    def drop(self, partition: int, account: str, container: str, /) -> None:
        """Forget the rows of a container, those that were taken out as well."""
        ...

    def databases(self) -> list[Place]:
        """Return the containers that have rows."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable while `due` has something to return."""
        ...

    def due(self) -> list[tuple[Place, bool]]:
        """Return the containers that got their first row, or so many that they should be folded now, since the last
        call; True tells that they have so many.
        """
        ...

    def mark(self) -> int:
        """Return a number for `durable_in_databases`, which stands for all rows folded so far."""
        ...

    def durable_in_databases(self, upto: int, /) -> None:
        """Remove the journal files whose rows had been folded when `mark` returned `upto`."""
        ...

    def failed(self) -> str | None:
        """Return why nothing is taken or becomes durable any more, which is a failure of the device for good; `fileno`
        becomes readable with it. None while it works.
        """
        ...

    def stop(self) -> None:
        """Take no more rows, sync the journal, and end; the rows that are left are there at the next start."""
        ...

    def status(self) -> dict[str, object]:
        """Return the rows, bytes and databases that are there, the databases that are open, the journal's files and
        bytes, and counts of rows taken and of messages refused.
        """
        ...


class Taken:
    """The rows that were taken for one database. Used from one event loop but for `take_out`."""

    def __init__(self, table: UpdateTable | None, places: MutableMapping[DatabaseId, Place], id: DatabaseId) -> None:
        """`table` is None where nothing is taken natively. `places` has the databases that may have rows in it; what is
        opened is added.
        """
        self._table = table
        self._places = places
        self._id = id
        self._out = 0
        # The handle before this one was closed to have fewer open, and native code goes on taking rows.
        self._wanted = id in places
        self._ended = False

    @property
    def waiting(self) -> bool:
        """Whether there are rows that are not merged yet."""
        place = self._places.get(self._id)
        return place is not None and self._table is not None and self._table.has(*place)

    def open(self, name: DatabaseName, again: bool = False) -> None:
        """Let native code take rows, unless the database was damaged; with `again` only if it did so before."""
        if self._table is not None and not self._ended and (self._wanted or not again):
            self._wanted = True
            place = self._places[self._id] = self._id.partition, name.account, name.container or ""
            self._table.open(*place)

    def shut(self) -> None:
        """Let native code take no more rows until `open`."""
        place = self._places.get(self._id)
        if place is not None and self._table is not None:
            self._table.close(*place)

    def forget(self) -> None:
        """Forget the rows of a database that was removed."""
        place = self._places.get(self._id)
        if place is not None and self._table is not None:
            self._table.close(*place)
            self._table.drop(*place)
        self._wanted = False

    def end(self) -> None:
        """Forget the rows of a database that is damaged, and open it no more; what comes in its place is another's."""
        self.forget()
        self._ended = True

    def take_out(self) -> Sequence[Packed]:
        """Return the rows that are not merged yet; called in the thread that merges them."""
        place = self._places.get(self._id)
        if place is None or self._table is None or self._ended or not self._table.has(*place):
            return ()
        rows = self._table.take_out(*place)
        self._out = len(rows)
        return rows

    def folded(self, merged: bool) -> int:
        """Return how many rows a transaction has begun with, of which this is the end; put them back if it failed."""
        count, self._out = self._out, 0
        place = self._places.get(self._id)
        if count and place is not None and self._table is not None and not self._ended:
            self._table.folded(*place, merged)
        return count
