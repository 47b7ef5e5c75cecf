"""The rows of a listing database: a table of live rows and one of markers of removed ones, and how rows merge into
them.

Rows are merged in the form that SQLite stores: a tuple of their columns and, last, 1 for a marker or 0 for a live row.
Most rows come from PUTs of objects, several at a time, and making an object of each would be most of their cost.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar, Generic, TypeVar

from swiftlet.listing import sethash
from swiftlet.listing.head import Totals
from swiftlet.listing.query import Span, after
from swiftlet.listing.schema import stored
from swiftlet.model import ContainerRow, ObjectRow
from swiftlet.timestamp import ZERO, Timestamp

R = TypeVar("R", ObjectRow, ContainerRow)
Column = int | str | None
Packed = tuple[Column, ...]
"""A row's columns, the name first, and 1 for a marker, 0 for a live row."""
_AT_ONCE = 64
"""Rows in one statement; a power of two."""


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a merge: how many rows changed, and how much was added to the totals and to the sum of the rows'
    terms.
    """

    changed: int
    totals: Totals
    terms: int


NOTHING = Change(0, Totals(), 0)
TABLES = ("live", "marker")
"""The tables of live rows and of markers."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The totals of some rows, the sum of their terms, and the name behind which there may be more ("" for no more)."""

    totals: Totals
    terms: int
    more: str


class RowTables(ABC, Generic[R]):
    """The row tables of one database, through one connection; used by one thread at a time."""

    columns: ClassVar[tuple[str, ...]]
    """Columns of the row tables; the name is the first."""
    age_column: ClassVar[str]
    """The column that gives the age of a marker."""
    connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        names = ", ".join(self.columns)
        self._select = " UNION ALL ".join(
            f"SELECT {names}, {deleted} FROM {table} WHERE name IN (%s)"  # noqa: S608
            for deleted, table in enumerate(TABLES)
        )
        self._insert = f"INSERT OR REPLACE INTO %s ({names}) VALUES "  # noqa: S608
        self._slots = f"({', '.join('?' * len(self.columns))})"
        self._scan = f"SELECT {names} FROM %s WHERE name >= ?%s ORDER BY name%s LIMIT ?"  # noqa: S608
        self._selects: dict[int, str] = {}
        self._inserts: dict[tuple[str, int], str] = {}
        self._age_index = self.columns.index(self.age_column)

    @abstractmethod
    def pack(self, row: R) -> Packed:
        """Return the columns of a row, and 1 for a marker or 0 for a live row."""

    @abstractmethod
    def decode(self, columns: Packed, deleted: bool) -> R:
        """Return the row with these columns."""

    @abstractmethod
    def merge_packed(self, old: Packed, new: Packed) -> Packed:
        """Merge two rows of one name; this is commutative, associative and idempotent."""

    @abstractmethod
    def weigh(self, row: Packed) -> tuple[int, int]:
        """Return the objects and bytes that a live row stands for."""

    @abstractmethod
    def term(self, row: Packed) -> int:
        """Return the row's term in the set hash."""

    # Looking.

    def unpack(self, row: Packed) -> R:
        """Return the row that `pack` has made this of."""
        return self.decode(row[:-1], bool(row[-1]))

    def find(self, name: str) -> R | None:
        """Return the row or marker of that name, None when there is neither."""
        found = self._find([name]).get(name)
        return None if found is None else self.unpack(found)

    def find_all(self, names: Sequence[str]) -> list[R]:
        """Return the rows and markers that exist for these names."""
        return [self.unpack(row) for row in self._find(names).values()]

    def _find(self, names: Sequence[str]) -> dict[Column, Packed]:
        """Return the rows and markers that exist for these names, packed, by name."""
        found: dict[Column, Packed] = {}
        for start in range(0, len(names), _AT_ONCE):
            some: list[str] = list(names[start : start + _AT_ONCE])
            size: int = 1 << (len(some) - 1).bit_length()
            sql = self._selects.get(size)
            if sql is None:
                slots = ", ".join(f"?{number}" for number in range(1, size + 1))
                sql = self._selects[size] = self._select % (slots, slots)
            # The list is filled up to one of a few sizes, so that few different statements are prepared and cached.
            asked = some if size == len(some) else [*some, *([some[0]] * (size - len(some)))]
            for row in self.connection.execute(sql, asked).fetchall():
                found[row[0]] = row
        return found

    def fetch(self, table: str, span: Span, reverse: bool, limit: int) -> Iterator[R]:
        """Return rows of a table in a range by name, at most `limit`."""
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

    def rows(self, start: str, upto: str, limit: int) -> list[R]:
        """Return up to `limit` rows with `start < name <= upto` by name, removed ones included; "" stands
        for no bound.
        """
        span = Span(after(start) if start else "", after(upto) if upto else None)
        found = [row for table in TABLES for row in self.fetch(table, span, False, limit)]
        return sorted(found, key=_name)[:limit]

    # Changing.

    def merge_rows(self, rows: Iterable[Packed], forgotten: Timestamp = ZERO) -> Change:
        """Merge rows; the caller updates totals and set hash.

        Markers older than `forgotten` for unknown names are left out: they were reclaimed here, and a replica that has
        not done so yet must not bring them back.
        """
        incoming = sorted(rows, key=itemgetter(0))
        before = self._find([row[0] for row in incoming])  # type: ignore[misc]
        now: dict[Column, Packed] = {}
        oldest = stored(forgotten)
        changed = 0
        for row in incoming:
            name = row[0]
            old = now.get(name) or before.get(name)
            if old is None:
                if row[-1] and row[self._age_index] < oldest:  # type: ignore[operator]
                    continue
            else:
                row = self.merge_packed(old, row)
                if row == old:
                    continue
            changed += 1
            now[name] = row
        return self._replace(before, now, changed) if now else NOTHING

    def _replace(self, before: Mapping[Column, Packed], now: Mapping[Column, Packed], changed: int) -> Change:
        """Replace rows and return the change."""
        count = objects = size = terms = 0
        live: list[Packed] = []
        markers: list[Packed] = []
        for name, row in now.items():
            terms += self.term(row)
            if row[-1]:
                markers.append(row)
            else:
                live.append(row)
                weight = self.weigh(row)
                count, objects, size = count + 1, objects + weight[0], size + weight[1]
            old = before.get(name)
            if old is not None:
                terms -= self.term(old)
                if not old[-1]:
                    weight = self.weigh(old)
                    count, objects, size = count - 1, objects - weight[0], size - weight[1]
                if old[-1] != row[-1]:
                    self._drop(old)
        self._insert_all("live", live)
        self._insert_all("marker", markers)
        return Change(changed, Totals(count, objects, size), terms)

    def _insert_all(self, table: str, rows: Sequence[Packed]) -> None:
        start, left = 0, len(rows)
        while left:
            size = min(_AT_ONCE, 1 << (left.bit_length() - 1))
            sql = self._inserts.get((table, size))
            if sql is None:
                sql = self._inserts[table, size] = self._insert % table + ", ".join([self._slots] * size)
            columns = [column for row in rows[start : start + size] for column in row[:-1]]
            self.connection.execute(sql, columns)
            start, left = start + size, left - size

    def drop(self, row: R) -> None:
        """Remove a row from its table; the caller updates totals and set hash."""
        self._drop(self.pack(row))

    def _drop(self, row: Packed) -> None:
        table = "marker" if row[-1] else "live"
        self.connection.execute(f"DELETE FROM {table} WHERE name = ?", (row[0],))  # noqa: S608

    def reclaim_rows(self, before: Timestamp, limit: int) -> Change:
        """Remove up to `limit` markers older than `before`."""
        names = ", ".join(self.columns)
        columns = self.connection.execute(
            f"SELECT {names}, 1 FROM marker WHERE {self.age_column} < ? LIMIT ?",  # noqa: S608
            (stored(before), limit),
        ).fetchall()
        for row in columns:
            self._drop(row)
        return Change(len(columns), Totals(), -sum(map(self.term, columns)))

    def recount(self) -> tuple[Totals, bytes]:
        """Return totals and set hash from the rows themselves; this reads them all."""
        counts = [self.count(table, "", -1) for table in TABLES]
        digest = sethash.add(bytes(sethash.SIZE), sum(count.terms for count in counts))
        return counts[0].totals, digest

    def count(self, table: str, start: str, limit: int) -> Counted:
        """Return the totals of up to `limit` rows of a table behind the name `start`.

        A `limit` of -1 stands for all rows, and "" is before all names.
        """
        rows = objects = size = terms = number = 0
        last = ""
        for row in self.fetch(table, Span(after(start) if start else "", None), False, limit):
            terms += sethash.term(row)
            last, number = row.name, number + 1
            if table == "live":
                weight = self.weigh(self.pack(row))
                rows, objects, size = rows + 1, objects + weight[0], size + weight[1]
        return Counted(Totals(rows, objects, size), terms, last if number == limit else "")


def _name(row: ObjectRow | ContainerRow) -> str:
    return row.name
