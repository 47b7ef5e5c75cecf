"""The in-memory twin of a device's update table (`swiftlet.listing.updates`): the same rules, and a journal in memory.

A process that is killed is simulated by a new table over the same journal.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from swiftlet.listing.container_db import merge_packed
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.updates import Place

FOLD_ROWS = 5000
"""Rows of one database with which it becomes due."""
MOST_ROWS = 400_000
"""The most rows in one table, as in the native one."""
_FILE_ROWS = 1000


@dataclass(slots=True)
class MemoryJournal:
    """What is left when a process ends: the rows by the number of their file."""

    files: dict[int, list[tuple[Place, Packed]]] = field(default_factory=dict)
    current: int = 1


@dataclass(slots=True)
class _Rows:
    """The rows of one database, and the oldest file that has some of them."""

    rows: dict[str, Packed] = field(default_factory=dict)
    file: int = 0


class MemoryUpdates:
    """The table of one device."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        """Take the rows of the journal into the table."""
        self.journal = journal or MemoryJournal()
        self.closed_for: str | None = None
        """The reason of the last `close_all`."""
        self.failure: str | None = None
        self._gate = threading.Lock()
        self._open: set[Place] = set()
        self._table: dict[Place, _Rows] = {}
        self._out: dict[Place, _Rows] = {}
        self._due: dict[Place, bool] = {}
        self._event: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._taken = self._refused = self._not_taken = 0
        for number, entries in self.journal.files.items():
            for place, row in entries:
                self._add(place, [row], number)

    def take(self, partition: int, account: str, container: str, rows: Sequence[Packed]) -> bool:
        """Do what an UPDATE does; return whether the rows were taken."""
        place = partition, account, container
        with self._gate:
            if place not in self._open or self.failure is not None:
                self._not_taken += 1
                return False
            if self._count() + len(rows) > MOST_ROWS:
                self._refused += 1
                return False
            journal = self.journal
            if len(journal.files.setdefault(journal.current, [])) >= _FILE_ROWS:
                journal.current += 1
            journal.files.setdefault(journal.current, []).extend((place, row) for row in rows)
            self._add(place, rows, journal.current)
            self._taken += len(rows)
            return True

    def _add(self, place: Place, rows: Sequence[Packed], file: int) -> None:
        if not rows:
            return
        found = self._table.get(place)
        if found is None:
            found = self._table[place] = _Rows(file=file)
            self._signal(place, many=False)
        before = len(found.rows)
        found.file = min(found.file, file)
        for row in rows:
            name = str(row[0])
            old = found.rows.get(name)
            found.rows[name] = row if old is None else merge_packed(old, row)
        if before < FOLD_ROWS <= len(found.rows):
            self._signal(place, many=True)

    def _signal(self, place: Place, many: bool) -> None:
        self._due[place] = many
        if self._event is not None:
            os.eventfd_write(self._event, 1)

    def _count(self) -> int:
        return sum(len(one.rows) for table in (self._table, self._out) for one in table.values())

    def open(self, partition: int, account: str, container: str, /) -> None:
        """Behave as `UpdateTable.open` does, and so do the other methods."""
        with self._gate:
            self._open.add((partition, account, container))

    def close(self, partition: int, account: str, container: str, /) -> None:
        with self._gate:
            self._open.discard((partition, account, container))

    def close_all(self, reason: str, /) -> None:
        with self._gate:
            self._open.clear()
            self.closed_for = reason

    def has(self, partition: int, account: str, container: str, /) -> bool:
        place = partition, account, container
        with self._gate:
            return place in self._table or place in self._out

    def take_out(self, partition: int, account: str, container: str, /) -> list[Packed]:
        place = partition, account, container
        with self._gate:
            if place in self._out:
                raise ValueError("rows of this database are out for folding already")
            found = self._table.pop(place, None)
            if found is None:
                return []
            self._out[place] = found
            self._due.pop(place, None)
            return sorted(found.rows.values(), key=lambda row: str(row[0]).encode())

    def folded(self, partition: int, account: str, container: str, merged: bool, /) -> None:
        place = partition, account, container
        with self._gate:
            out = self._out.pop(place, None)
            if out is not None and not merged:
                self._add(place, list(out.rows.values()), out.file)

    def drop(self, partition: int, account: str, container: str, /) -> None:
        place = partition, account, container
        with self._gate:
            self._table.pop(place, None)
            self._out.pop(place, None)
            self._due.pop(place, None)

    def databases(self) -> list[Place]:
        with self._gate:
            return sorted({*self._table, *self._out})

    def fileno(self) -> int:
        assert self._event is not None
        return self._event

    def due(self) -> list[tuple[Place, bool]]:
        with self._gate:
            if self._event is not None:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._event)
            found, self._due = list(self._due.items()), {}
            return found

    def mark(self) -> int:
        with self._gate:
            oldest = [one.file for table in (self._table, self._out) for one in table.values()]
            if oldest:
                return min(oldest)
            self.journal.current += 1
            return self.journal.current

    def durable_in_databases(self, upto: int, /) -> None:
        with self._gate:
            for number in [number for number in self.journal.files if number < upto]:
                del self.journal.files[number]

    def failed(self) -> str | None:
        return self.failure

    def fail(self, reason: str) -> None:
        """Have the journal fail."""
        with self._gate:
            self.failure = reason
            self._open.clear()
            if self._event is not None:
                os.eventfd_write(self._event, 1)

    def stop(self) -> None:
        with self._gate:
            self._open.clear()
            if self._event is not None:
                os.close(self._event)
                self._event = None

    def status(self) -> dict[str, object]:
        with self._gate:
            return {
                "rows": self._count(),
                "bytes": 0,
                "databases": len({*self._table, *self._out}),
                "open": len(self._open),
                "journal_files": len(self.journal.files),
                "journal_bytes": sum(map(len, self.journal.files.values())),
                "taken": self._taken,
                "refused": self._refused,
                "not_taken": self._not_taken,
                "failed": self.failure,
            }
