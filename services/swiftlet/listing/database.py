"""What account and container databases have in common: life and death, metadata, rows, totals, set hash.

Merge rules. All of them are functions of what was ever merged, not of the order (the exceptions are said):

- A database has a PUT and a DELETE timestamp, the newest of each seen. It is deleted while the DELETE is newer,
  and not there while it was never PUT.
- Metadata items merge newest first each (a tie by the greater value). Those not newer than the DELETE are
  forgotten, so that a container that is created again begins without.
- Rows merge by their kind's rule (`merge_row`); removed rows stay as markers until `reclaim`.
- A deletion that turns out to have raced with a live row (a peer had accepted it) is undone: the PUT timestamp is
  raised to the DELETE's. So a deleted database never has live rows. Whether it is undone depends on what met
  first on a replica, but replicas that differ in it agree at their next merge, because PUT timestamps only grow.
- `created` and the policy belong together. Of two replicas created apart, the older one wins, unless it was
  created before the deletion that both know by then. With three created apart the order of merges may choose
  among them; the replicas agree all the same once they have merged.

Totals and the set hash are kept with the rows, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Generic, Self, TypeVar

from swiftlet.errors import NotEmpty, NotFound, Superseded, SwiftletError
from swiftlet.listing import sethash
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.head import Head, Totals, read_head, write_head
from swiftlet.listing.query import Span, after, list_page
from swiftlet.listing.schema import loaded, stored
from swiftlet.model import (
    ContainerRow,
    DatabaseKind,
    DatabaseState,
    ListingQuery,
    MetadataItem,
    ObjectRow,
    Subdir,
)
from swiftlet.timestamp import ZERO, Timestamp

R = TypeVar("R", ObjectRow, ContainerRow)
POINT = ":split:"
"""What the names of metadata items begin with that are split points, no header's; they survive a deletion."""
_BEHIND_POINTS = ":split;"
_AT_ONCE = 64
"""Rows in one statement; a power of two."""
_Column = int | str


class Database(ABC, Generic[R]):
    """One database through one connection; used by one thread at a time.

    Writes happen between `begin` and `commit`; `head` then is what the transaction has made of it.
    """

    kind: ClassVar[DatabaseKind]
    columns: ClassVar[tuple[str, ...]]
    """Columns of the row tables; the name is the first."""
    age_column: ClassVar[str]
    """The column by which markers grow old."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read the head."""
        self.connection = connection
        names = ", ".join(self.columns)
        slots = ", ".join("?" * len(self.columns))
        self._select = " UNION ALL ".join(
            f"SELECT {deleted}, {names} FROM {table} WHERE name IN (%s)"  # noqa: S608
            for deleted, table in enumerate(("live", "marker"))
        )
        self._insert = f"INSERT OR REPLACE INTO %s ({names}) VALUES "  # noqa: S608
        self._slots = f"({slots})"
        self._scan = f"SELECT {names} FROM %s WHERE name >= ?%s ORDER BY name%s LIMIT ?"  # noqa: S608
        self._items: dict[str, MetadataItem] | None = None
        self._current = False
        self.head = self._clean = self.read_head()

    @abstractmethod
    def encode(self, row: R) -> tuple[_Column, ...]:
        """A row as its columns."""

    @abstractmethod
    def decode(self, columns: tuple[_Column, ...], deleted: bool) -> R:
        """A row from its columns."""

    @abstractmethod
    def merge_row(self, old: R, new: R) -> R:
        """What remains of two rows of one name; commutative, associative, idempotent."""

    @abstractmethod
    def weigh(self, row: R) -> tuple[int, int]:
        """Objects and bytes that a live row stands for."""

    @abstractmethod
    def age(self, row: R) -> Timestamp:
        """Since when a marker counts as old."""

    # The head and transactions.

    def read_head(self) -> Head:
        """The head as it is on disk; DamagedDatabase when it is missing."""
        return read_head(self.connection)

    def begin(self) -> None:
        """Begin a write transaction. Nobody else writes, so what the last one left is known."""
        self.connection.execute("BEGIN IMMEDIATE")
        if not self._current:
            self._read_anew()
        self._clean = self.head
        self._current = True

    def commit(self) -> None:
        """End the transaction; durable on return if the connection's `synchronous` is FULL."""
        if self.head != self._clean:
            write_head(self.connection, self.head)
        self.connection.execute("COMMIT")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A part of a write transaction that leaves nothing behind if it raises a domain error."""
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
        """End a write transaction without keeping anything of it."""
        self.release()
        self._current = False

    def _read_anew(self) -> None:
        self._items = None
        self.head = self.read_head()

    def snapshot(self) -> Self:
        """Begin a read transaction: everything read until `release` is of one moment."""
        self.connection.execute("BEGIN")
        self._read_anew()
        return self

    def release(self) -> None:
        """End a transaction without keeping anything."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def require(self) -> Head:
        """The head of a database that is there; NotFound, with the deletion's timestamp, otherwise."""
        if not self.head.exists:
            deletion = self.head.delete_timestamp if self.head.deleted else None
            raise NotFound(f"{self.head.name} does not exist", deletion)
        return self.head

    # Life and death.

    def _put(self, timestamp: Timestamp, metadata: Mapping[str, str], policy: int) -> bool:
        """Create (with `policy`) or touch; whether it was created."""
        head = self.head
        if timestamp <= head.delete_timestamp:
            raise Superseded(f"{head.name} was deleted later than this PUT", head.delete_timestamp)
        created = not head.exists
        if created:
            self.head = replace(head, created=timestamp, put_timestamp=timestamp, policy=policy)
        else:
            self.head = replace(head, put_timestamp=max(head.put_timestamp, timestamp))
        self._merge_metadata(MetadataItem(name, timestamp, value) for name, value in metadata.items())
        return created

    def post(self, timestamp: Timestamp, metadata: Mapping[str, str]) -> None:
        """Merge metadata items; NotFound."""
        self.require()
        self._merge_metadata(MetadataItem(name, timestamp, value) for name, value in metadata.items())

    def delete(self, timestamp: Timestamp) -> None:
        """Delete; NotFound, NotEmpty, Superseded by a PUT at or after `timestamp`."""
        head = self.require()
        if head.whole.rows:
            raise NotEmpty(f"{head.name} is not empty")
        if timestamp <= head.put_timestamp:
            raise Superseded(f"{head.name} was PUT later than this DELETE", head.put_timestamp)
        self._set_deletion(timestamp)

    def _set_deletion(self, timestamp: Timestamp) -> None:
        self.head = replace(self.head, delete_timestamp=max(self.head.delete_timestamp, timestamp))
        self.connection.execute(
            "DELETE FROM metadata WHERE timestamp <= ? AND (name < ? OR name >= ?)",
            (stored(self.head.delete_timestamp), POINT, _BEHIND_POINTS),
        )
        self._items = None

    def undo_lost_deletion(self) -> None:
        """A deleted database that has live rows after all is not deleted."""
        if self.head.deleted and self.head.whole.rows:
            self.head = replace(self.head, put_timestamp=self.head.delete_timestamp)

    # Metadata.

    def items(self) -> dict[str, MetadataItem]:
        """All metadata items by name, in order, removed ones included."""
        if self._items is None:
            rows = self.connection.execute("SELECT name, timestamp, value FROM metadata ORDER BY name")
            self._items = {name: MetadataItem(name, loaded(stamp), value) for name, stamp, value in rows}
        return self._items

    def metadata(self) -> dict[str, str]:
        """The metadata that is there."""
        return _visible(self.items())

    def add_items(self, items: Iterable[MetadataItem]) -> None:
        """Merge metadata items whatever the database's state."""
        self._merge_metadata(items)

    def points(self) -> list[str]:
        """Split points, in order."""
        return [name[len(POINT) :] for name in self.items() if name.startswith(POINT)]

    @staticmethod
    def point_item(point: str) -> str:
        """The name of a split point's metadata item."""
        return POINT + point

    def _merge_metadata(self, items: Iterable[MetadataItem], forgotten: Timestamp = ZERO) -> None:
        known = dict(self.items())
        for item in items:
            old = known.get(item.name)
            gone = item.timestamp <= self.head.delete_timestamp and not item.name.startswith(POINT)
            if gone or (old is not None and old >= item):
                continue
            if old is None and not item.value and item.timestamp < forgotten:
                continue
            known[item.name] = item
            self.connection.execute(
                "INSERT OR REPLACE INTO metadata (name, timestamp, value) VALUES (?, ?, ?)",
                (item.name, stored(item.timestamp), item.value),
            )
            self._items = None

    # Rows.

    def find(self, name: str) -> R | None:
        """The row or marker of that name."""
        return self._find([name]).get(name)

    def _find(self, names: Sequence[str]) -> dict[str, R]:
        """The rows and markers of these names."""
        found: dict[str, R] = {}
        for start in range(0, len(names), _AT_ONCE):
            some: list[str] = list(names[start : start + _AT_ONCE])
            size: int = 1 << (len(some) - 1).bit_length()
            slots = ", ".join(f"?{number}" for number in range(1, size + 1))
            # Filled up to one of a few sizes, so that few statements are prepared and kept.
            asked = [*some, *([some[0]] * (size - len(some)))]
            columns: tuple[_Column, ...]
            for columns in self.connection.execute(self._select % (slots, slots), asked):
                row = self.decode(columns[1:], bool(columns[0]))
                found[row.name] = row
        return found

    def _insert_all(self, table: str, rows: Sequence[R]) -> None:
        start = 0
        while start < len(rows):
            size = min(_AT_ONCE, 1 << ((len(rows) - start).bit_length() - 1))
            sql = self._insert % table + ", ".join([self._slots] * size)
            columns = [column for row in rows[start : start + size] for column in self.encode(row)]
            self.connection.execute(sql, columns)
            start += size

    def merge(self, rows: Iterable[R], forgotten: Timestamp = ZERO) -> int:
        """Merge rows whatever the database's state; how many changed something.

        Markers older than `forgotten` for names that are unknown are left out: they were reclaimed here, and a
        replica that has not done so yet must not bring them back.
        """
        incoming = sorted(rows, key=_name)
        before = self._find([row.name for row in incoming])
        now: dict[str, R] = {}
        changed = 0
        for row in incoming:
            old = now.get(row.name) or before.get(row.name)
            if old is None and row.deleted and self.age(row) < forgotten:
                continue
            merged = row if old is None else self.merge_row(old, row)
            if merged != old:
                changed += 1
                now[row.name] = merged
        if now:
            self._replace(before, now)
            self.undo_lost_deletion()
        return changed

    def _replace(self, before: Mapping[str, R], now: Mapping[str, R]) -> None:
        """Put rows in the place of those that were there; totals and set hash with them."""
        count = objects = size = change = 0
        for name, row in now.items():
            change += sethash.term(row)
            if not row.deleted:
                weight = self.weigh(row)
                count, objects, size = count + 1, objects + weight[0], size + weight[1]
            old = before.get(name)
            if old is not None:
                change -= sethash.term(old)
                if not old.deleted:
                    weight = self.weigh(old)
                    count, objects, size = count - 1, objects - weight[0], size - weight[1]
                if old.deleted != row.deleted:
                    self.drop(old)
        self._insert_all("live", [row for row in now.values() if not row.deleted])
        self._insert_all("marker", [row for row in now.values() if row.deleted])
        totals = self.head.totals
        self.head = replace(
            self.head,
            totals=Totals(totals.rows + count, totals.objects + objects, totals.bytes + size),
            rows_digest=sethash.add(self.head.rows_digest, change),
        )

    def drop(self, row: R) -> None:
        """Take a row out of its table; totals and set hash are the caller's."""
        table = "marker" if row.deleted else "live"
        self.connection.execute(f"DELETE FROM {table} WHERE name = ?", (row.name,))  # noqa: S608

    def reclaim(self, before: Timestamp, limit: int = 10_000) -> int:
        """Forget up to `limit` markers and removed metadata items older than `before`; how many went."""
        names = ", ".join(self.columns)
        columns = self.connection.execute(
            f"SELECT {names} FROM marker WHERE {self.age_column} < ? LIMIT ?",  # noqa: S608
            (stored(before), limit),
        ).fetchall()
        rows = [self.decode(row, True) for row in columns]
        for row in rows:
            self.drop(row)
        change = -sum(sethash.term(row) for row in rows)
        self.head = replace(self.head, rows_digest=sethash.add(self.head.rows_digest, change))
        items = self.connection.execute("DELETE FROM metadata WHERE value = '' AND timestamp < ?", (stored(before),))
        self._items = None
        return len(rows) + items.rowcount

    def fetch(self, table: str, span: Span, reverse: bool, limit: int) -> Iterator[R]:
        """Rows of a table by name, at most that many."""
        order = " DESC" if reverse else ""
        if span.high is None:
            cursor = self.connection.execute(self._scan % (table, "", order), (span.low, limit))
        else:
            sql = self._scan % (table, " AND name < ?", order)
            cursor = self.connection.execute(sql, (span.low, span.high, limit))
        try:
            for columns in cursor:
                yield self.decode(columns, table == "marker")
        finally:
            cursor.close()

    def list_page(self, query: ListingQuery) -> list[R | Subdir]:
        """One page of the live rows."""
        return list_page(query, lambda span, reverse, limit: self.fetch("live", span, reverse, limit))

    def rows(self, start: str, upto: str, limit: int) -> list[R]:
        """Up to `limit` rows with `start < name <= upto` by name, removed ones included; "" is no bound."""
        span = Span(after(start) if start else "", after(upto) if upto else None)
        found = [row for table in ("live", "marker") for row in self.fetch(table, span, False, limit)]
        return sorted(found, key=_name)[:limit]

    # Replicas.

    def state(self) -> DatabaseState:
        """What replicas compare."""
        head, items = self.head, tuple(self.items().values())
        stamps = (head.created, head.put_timestamp, head.delete_timestamp)
        return DatabaseState(head.name, *stamps, head.policy, items, head.rows_digest)

    def merge_state(self, other: DatabaseState, forgotten: Timestamp = ZERO) -> None:
        """Take over what a replica knows better, its rows apart; `forgotten` as with `merge`."""
        self._set_deletion(other.delete_timestamp)
        head = self.head
        created, policy = _incarnation(
            head.delete_timestamp, (head.created, head.policy), (other.created, other.policy)
        )
        put = max(head.put_timestamp, other.put_timestamp)
        self.head = replace(head, created=created, policy=policy, put_timestamp=put)
        self._merge_metadata(other.metadata, forgotten)
        self.undo_lost_deletion()

    def recount(self) -> tuple[Totals, bytes]:
        """Totals and set hash from the rows themselves; reads them all."""
        rows = objects = size = digest = 0
        for table in ("live", "marker"):
            for row in self.fetch(table, Span("", None), False, -1):
                digest += sethash.term(row)
                if table == "live":
                    weight = self.weigh(row)
                    rows, objects, size = rows + 1, objects + weight[0], size + weight[1]
        return Totals(rows, objects, size), sethash.add(bytes(sethash.SIZE), digest)

    def verify(self) -> None:
        """DamagedDatabase unless totals and set hash are those of the rows."""
        if self.recount() != (self.head.totals, self.head.rows_digest):
            raise DamagedDatabase(f"{self.head.name}: the rows do not add up to the totals and set hash kept with them")


def _name(row: ObjectRow | ContainerRow) -> str:
    return row.name


def _incarnation(deletion: Timestamp, *candidates: tuple[Timestamp, int]) -> tuple[Timestamp, int]:
    """The creation that counts: the oldest after the deletion, or else the newest."""
    after_deletion: Sequence[tuple[Timestamp, int]] = [c for c in candidates if c[0] > deletion]
    return min(after_deletion) if after_deletion else max(candidates)


def _visible(items: Mapping[str, MetadataItem]) -> dict[str, str]:
    """Names and values of the items that were not removed."""
    return {name: items[name].value for name in sorted(items) if items[name].value and not name.startswith(POINT)}
