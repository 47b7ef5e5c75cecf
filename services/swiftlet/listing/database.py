"""What account and container databases have in common: creation and deletion, metadata, rows, totals, set hash.

Merge rules. All of them are functions of what was ever merged, not of the order (the two exceptions are noted):
- A database has a PUT and a DELETE timestamp, the newest of each seen. It is deleted while the DELETE is newer, and
  does not exist while it was never PUT.
- Of the values of a metadata item the newest wins (of two with the same timestamp the greater value). Items not newer
  than the DELETE are forgotten, so that a container that is created again begins without any.
- Rows merge by their kind's rule (`merge_row`); removed rows stay as markers until `reclaim`.
- A deletion that turns out to have raced with a live row (a peer had accepted it) is undone: the PUT timestamp is
  raised to the DELETE's. So a deleted database never has live rows. Whether it is undone depends on what met first on a
  replica, but replicas that differ in it agree at their next merge, because PUT timestamps only grow.
- `created` and the policy belong together. Of two replicas created apart, the older one wins, unless it was created
  before the deletion that both know by then. With three created apart the order of merges may choose among them; the
  replicas agree all the same once they have merged.

Totals and the set hash are stored with the rows, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Self

from swiftlet import policy_moves
from swiftlet.errors import NotEmpty, NotFound, Superseded, SwiftletError, TooMuchMetadata
from swiftlet.listing import sethash
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.head import Head, read_head, write_head
from swiftlet.listing.query import list_page
from swiftlet.listing.row_tables import NOTHING, Change, Column, Packed, R, RowTables
from swiftlet.listing.schema import loaded, stored
from swiftlet.model import DatabaseKind, DatabaseState, ListingQuery, MetadataBounds, MetadataItem, Subdir
from swiftlet.timestamp import ZERO, Timestamp

POINT = ":split:"
"""The prefix of the names of metadata items that are split points, not headers."""
_BEHIND_POINTS = ":split;"


def outlives_deletion(name: str) -> bool:
    """Return whether a metadata item stays when the database is deleted: a split point, and the state of a move.

    A deletion that raced with a live row is undone, and then the objects are still where the state says.
    """
    return name.startswith(POINT) or name == policy_moves.ITEM


def read_items(connection: sqlite3.Connection) -> dict[str, MetadataItem]:
    """Return all metadata items on disk by name, in order, removed ones included."""
    rows = connection.execute("SELECT name, timestamp, value FROM metadata ORDER BY name")
    return {name: MetadataItem(name, loaded(stamp), value) for name, stamp, value in rows}


def state_of(head: Head, items: Mapping[str, MetadataItem]) -> DatabaseState:
    """Return the state that replicas compare, of a database with this head and these metadata items."""
    stamps = (head.created, head.put_timestamp, head.delete_timestamp)
    return DatabaseState(head.name, *stamps, head.policy, tuple(items.values()), head.rows_digest)


class Database(RowTables[R]):
    """One account or container database, through one connection; used by one thread at a time.

    Writes happen between `begin` and `commit`; `head` then has the changes of the transaction.
    """

    kind: ClassVar[DatabaseKind]

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read the head of the database."""
        super().__init__(connection)
        self._items: dict[str, MetadataItem] | None = None
        self._points: list[str] | None = None
        self._apart: tuple[tuple[Timestamp, Timestamp, Timestamp, int], bytes] | None = None
        self._current = False
        self.head = self._clean = self.read_head()

    # The head and transactions.

    def read_head(self) -> Head:
        """Return the head on disk. Raises DamagedDatabase when it is missing."""
        return read_head(self.connection)

    def begin(self) -> None:
        """Begin a write transaction. Nobody else writes, so the state that the last one left is known and not read
        again.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        if not self._current:
            self._read_anew()
        self._clean = self.head
        self._current = True

    def commit(self) -> None:
        """End the transaction; it is durable on return if the connection's `synchronous` is FULL."""
        if self.head is not self._clean and self.head != self._clean:
            write_head(self.connection, self.head)
        self.connection.execute("COMMIT")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Run a part of a write transaction that is rolled back if it raises a domain error."""
        before = self.head
        self.connection.execute("SAVEPOINT one")
        try:
            yield
        except SwiftletError:
            self.connection.execute("ROLLBACK TO one")
            self.connection.execute("RELEASE one")
            self._read_anew()
            self.head = before
            raise
        self.connection.execute("RELEASE one")

    def give_up(self) -> None:
        """Roll back a write transaction."""
        self.release()
        self._current = False

    def _read_anew(self) -> None:
        self._forget_items()
        self.head = self.read_head()

    def snapshot(self) -> Self:
        """Begin a read transaction: everything read until `release` is of one moment, and return the database."""
        self.connection.execute("BEGIN")
        self._read_anew()
        return self

    def release(self) -> None:
        """Roll back the transaction, if one is open."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def require(self) -> Head:
        """Return the head of a database that exists. Raises NotFound otherwise, with the timestamp of the deletion if
        any.
        """
        if not self.head.exists:
            deletion = self.head.delete_timestamp if self.head.deleted else None
            raise NotFound(f"{self.head.name} does not exist", deletion)
        return self.head

    # Creation and deletion.

    def _put(
        self, timestamp: Timestamp, metadata: Mapping[str, str], policy: int, bounds: MetadataBounds | None = None
    ) -> bool:
        """Create the database with `policy`, or raise its PUT timestamp; return whether it was created."""
        head = self.head
        if timestamp <= head.delete_timestamp:
            raise Superseded(f"{head.name} was deleted later than this PUT", head.delete_timestamp)
        created = not head.exists
        if created:
            self.head = replace(head, created=timestamp, put_timestamp=timestamp, policy=policy)
        else:
            self.head = replace(head, put_timestamp=max(head.put_timestamp, timestamp))
        self._take_metadata(timestamp, metadata, bounds)
        return created

    def post(self, timestamp: Timestamp, metadata: Mapping[str, str], bounds: MetadataBounds | None = None) -> None:
        """Merge metadata items. Raises NotFound and TooMuchMetadata."""
        self.require()
        self._take_metadata(timestamp, metadata, bounds)

    def delete(self, timestamp: Timestamp) -> None:
        """Delete the database. Raises NotFound, NotEmpty, and Superseded after a PUT at or after `timestamp`."""
        head = self.require()
        if head.whole.rows:
            raise NotEmpty(f"{head.name} is not empty")
        if timestamp <= head.put_timestamp:
            raise Superseded(f"{head.name} was PUT later than this DELETE", head.put_timestamp)
        self._set_deletion(timestamp)

    def _set_deletion(self, timestamp: Timestamp) -> None:
        self.head = replace(self.head, delete_timestamp=max(self.head.delete_timestamp, timestamp))
        self.connection.execute(
            "DELETE FROM metadata WHERE timestamp <= ? AND (name < ? OR name >= ?) AND name <> ?",
            (stored(self.head.delete_timestamp), POINT, _BEHIND_POINTS, policy_moves.ITEM),
        )
        self._forget_items()

    def undo_lost_deletion(self) -> None:
        """Undo the deletion if the database has live rows after all."""
        if self.head.deleted and self.head.whole.rows:
            self.head = replace(self.head, put_timestamp=self.head.delete_timestamp)

    # Metadata.

    def items(self) -> dict[str, MetadataItem]:
        """Return all metadata items by name, in order, removed ones included."""
        if self._items is None:
            self._items = read_items(self.connection)
        return self._items

    def metadata(self) -> dict[str, str]:
        """Return the names and values of the metadata items that were not removed."""
        return _visible(self.items())

    def add_items(self, items: Iterable[MetadataItem]) -> None:
        """Merge metadata items whatever the database's state."""
        self._merge_metadata(items)

    def points(self) -> Sequence[str]:
        """Return the split points in order."""
        if self._points is None:
            self._points = [name[len(POINT) :] for name in self.items() if name.startswith(POINT)]
        return self._points

    def _forget_items(self) -> None:
        self._items = self._points = self._apart = None

    def _take_metadata(self, timestamp: Timestamp, metadata: Mapping[str, str], bounds: MetadataBounds | None) -> None:
        """Merge the metadata of a request. What replicas send each other is not limited, or they would never become
        equal.
        """
        before = self.items()
        self._merge_metadata(MetadataItem(name, timestamp, value) for name, value in metadata.items())
        if bounds is not None and metadata:
            _check_room(before, self.items(), bounds)

    @staticmethod
    def point_item(point: str) -> str:
        """Return the name of a split point's metadata item."""
        return POINT + point

    def _merge_metadata(self, items: Iterable[MetadataItem], forgotten: Timestamp = ZERO) -> None:
        known = dict(self.items())
        for item in items:
            old = known.get(item.name)
            gone = item.timestamp <= self.head.delete_timestamp and not outlives_deletion(item.name)
            if gone or (old is not None and old >= item):
                continue
            if old is None and not item.value and item.timestamp < forgotten:
                continue
            known[item.name] = item
            self.connection.execute(
                "INSERT OR REPLACE INTO metadata (name, timestamp, value) VALUES (?, ?, ?)",
                (item.name, stored(item.timestamp), item.value),
            )
            self._forget_items()

    # Rows.

    def merge(self, rows: Iterable[R], forgotten: Timestamp = ZERO) -> int:
        """Merge rows whatever the database's state; return how many changed something. `merge_rows` explains
        `forgotten`.
        """
        return self.merge_all(map(self.pack, rows), forgotten)

    def merge_all(self, rows: Iterable[Packed], forgotten: Timestamp = ZERO) -> int:
        """Merge packed rows as `merge` does."""
        change = self.merge_rows(rows, forgotten)
        if change is not NOTHING:
            self._count(change)
            self.undo_lost_deletion()
        return change.changed

    def replace_all(self, changes: Iterable[tuple[R, R]]) -> int:
        """Replace each first row by the second where it is still exactly as given; return how many were replaced."""
        wanted = {old.name: (self.pack(old), self.pack(new)) for old, new in changes if old.name == new.name}
        found = self._find(list(wanted))
        now: dict[Column, Packed] = {name: new for name, (old, new) in wanted.items() if found.get(name) == old}
        if now:
            self._count(self._replace(found, now, len(now)))
            self.undo_lost_deletion()
        return len(now)

    def _count(self, change: Change) -> None:
        """Enter a change of rows into the totals and the set hash."""
        self.head = self.head.counted(change.totals, sethash.add(self.head.rows_digest, change.terms))

    def reclaim(self, before: Timestamp, limit: int = 10_000) -> int:
        """Remove up to `limit` markers, and removed metadata items, older than `before`; return how many
        were removed.
        """
        change = self.reclaim_rows(before, limit)
        self._count(change)
        items = self.connection.execute("DELETE FROM metadata WHERE value = '' AND timestamp < ?", (stored(before),))
        self._forget_items()
        return change.changed + items.rowcount

    def list_page(self, query: ListingQuery) -> list[R | Subdir]:
        """Return one page of the live rows."""
        return list_page(query, lambda span, reverse, limit: self.fetch("live", span, reverse, limit))

    # Replicas.

    def state(self) -> DatabaseState:
        """Return the state that replicas compare."""
        return state_of(self.head, self.items())

    def fingerprint(self) -> bytes:
        """Return `sethash.fingerprint` of the database; the part that rows don't change is computed once."""
        head = self.head
        apart = (head.created, head.put_timestamp, head.delete_timestamp, head.policy)
        if self._apart is None or self._apart[0] != apart:
            self._apart = apart, sethash.fingerprint_text(self.state())
        return sethash.fingerprint_of(head.rows_digest, self._apart[1])

    def merge_state(self, other: DatabaseState, forgotten: Timestamp = ZERO) -> None:
        """Merge the state of another replica, except for rows; `forgotten` is as in `merge`."""
        self._set_deletion(other.delete_timestamp)
        head = self.head
        created, policy = _incarnation(
            head.delete_timestamp, (head.created, head.policy), (other.created, other.policy)
        )
        put = max(head.put_timestamp, other.put_timestamp)
        self.head = replace(head, created=created, policy=policy, put_timestamp=put)
        self._merge_metadata(other.metadata, forgotten)
        self.undo_lost_deletion()

    def mend_counts(self) -> bool:
        """Set totals and set hash to those of the rows, in a write transaction; return whether they differed."""
        self._read_anew()
        self._clean = self.head
        totals, digest = self.recount()
        mended = replace(self.head, totals=totals, rows_digest=digest)
        found, self.head = mended != self.head, mended
        return found

    def verify(self) -> None:
        """Raise DamagedDatabase unless totals and set hash are those of the rows."""
        if self.recount() != (self.head.totals, self.head.rows_digest):
            raise DamagedDatabase(f"{self.head.name}: the rows do not add up to the totals and set hash kept with them")


def _incarnation(deletion: Timestamp, *candidates: tuple[Timestamp, int]) -> tuple[Timestamp, int]:
    """Return the creation that counts: the oldest after the deletion, or the newest if there is none."""
    after_deletion: Sequence[tuple[Timestamp, int]] = [c for c in candidates if c[0] > deletion]
    return min(after_deletion) if after_deletion else max(candidates)


def _visible(items: Mapping[str, MetadataItem]) -> dict[str, str]:
    """Return the names and values of the items that were not removed."""
    return {name: items[name].value for name in sorted(items) if items[name].value and not name.startswith(POINT)}


def _check_room(before: Mapping[str, MetadataItem], after: Mapping[str, MetadataItem], bounds: MetadataBounds) -> None:
    """Raise TooMuchMetadata when a request that turns `before` into `after` exceeds the bounds.

    What counts are the items after the merge, whichever requests brought them. A request that adds nothing is taken
    even where there is too much, which can happen after replicas that took different requests were merged.
    """
    had, has = _amounts(before, bounds.prefix), _amounts(after, bounds.prefix)
    most = (bounds.items, bounds.size_bytes, bounds.remembered)
    words = (
        f"Too many metadata items; max {bounds.items}",
        f"Total metadata too large; max {bounds.size_bytes}",
        f"Too many names of metadata, with those removed lately; max {bounds.remembered}",
    )
    for old, new, limit, reason in zip(had, has, most, words, strict=True):
        if new > limit and new > old:
            raise TooMuchMetadata(reason)


def _amounts(items: Mapping[str, MetadataItem], prefix: str) -> tuple[int, int, int]:
    """Return the number of items that exist, their bytes, and the number of items including the removed ones."""
    ours = [item for item in items.values() if item.name.startswith(prefix)]
    live = [item for item in ours if item.value]
    size = sum(len(item.name.encode()) - len(prefix) + len(item.value.encode()) for item in live)
    return len(live), size, len(ours)
