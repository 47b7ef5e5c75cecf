"""A simulated container device: the rows of its databases, merged by the real rule, with set hashes and totals.

A row is durable when it is merged, except one that an object device has pending (`later`): that one is durable when the
next sync has covered it. Fault model: a power loss removes what was merged and not yet synced; the device may answer
every call with an I/O error for a while, refuse rows as a full disk does, or be replaced by an empty one (`wipe`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swiftlet.errors import DeviceFailed, DiskFull, NotFound
from swiftlet.listing import sethash
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, Entry, ObjectRow, RowPage
from swiftlet.store import sethash as entry_sethash
from swiftlet.sync.databases.entries import entry_of
from swiftlet.sync.session.entries import suffix_of
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.timestamp import ZERO, Timestamp

PAGE_ROWS = 3
"""Rows in one page: few, so that most exchanges have several pages."""
SYNC_S = 0.05
"""Seconds between a row that need not be durable at once and the sync that makes it so."""
_CREATED = Timestamp(1)

RowWatch = Callable[[DatabaseId, ObjectRow | None, ObjectRow | None, str], None]
"""Called with every change: the database, the row before and after, and the cause."""


@dataclass(slots=True)
class Database:
    """A replica of a container's database."""

    name: DatabaseName
    rows: dict[str, ObjectRow] = field(default_factory=dict)
    digest: bytes = bytes(sethash.SIZE)
    objects: int = 0
    size: int = 0
    unsynced: dict[str, ObjectRow | None] = field(default_factory=dict)
    """The rows that a power loss would restore, by name."""
    entry: Entry | None = None
    """The database as sessions see it, until a row changes."""


class ListingStore:
    """One device. `now_s` is simulated time; `after` schedules an event."""

    def __init__(self, after: Callable[[float, Callable[[], None]], None], watch: RowWatch) -> None:
        self.failing = False
        self.full = False
        self.forgotten = ZERO
        """Markers older than this have been reclaimed here."""
        self._after = after
        self._watch = watch
        self._databases: dict[DatabaseId, Database] = {}
        self._sync_waits = False

    def wipe(self) -> None:
        """Replace the device by an empty one."""
        self._databases = {}

    def lose_power(self) -> None:
        """Lose what was not synced."""
        for id, database in self._databases.items():
            for name, before in database.unsynced.items():
                self._set(id, database, name, before, "power")
            database.unsynced = {}

    def _check(self) -> None:
        if self.failing:
            raise DeviceFailed("injected I/O error")

    def _database(self, id: DatabaseId) -> Database:
        self._check()
        found = self._databases.get(id)
        if found is None:
            raise NotFound(f"{id} is not here")
        return found

    # -- as sessions see it ----------------------------------------------------------------------------------

    def partitions(self) -> list[int]:
        """Partitions with a database, ascending."""
        self._check()
        return sorted({id.partition for id in self._databases})

    def root(self, partition: int) -> bytes:
        """Return the root of a partition."""
        hashes = self.suffix_hashes(partition)
        return entry_sethash.root(hashes) if hashes else EMPTY_ROOT

    def suffix_hashes(self, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix with a database in it."""
        self._check()
        sums: dict[str, int] = {}
        for entry in self._entries(partition):
            suffix = suffix_of(entry)
            sums[suffix] = entry_sethash.add(sums.get(suffix, entry_sethash.EMPTY), entry)
        return {suffix: entry_sethash.to_bytes(total) for suffix, total in sums.items()}

    def entries(self, partition: int, suffixes: tuple[str, ...]) -> list[Entry]:
        """Return the databases of some suffixes."""
        self._check()
        return [entry for entry in self._entries(partition) if suffix_of(entry) in suffixes]

    def _entries(self, partition: int) -> Iterator[Entry]:
        found = (self.entry(id) for id in self._databases if id.partition == partition)
        yield from (entry for entry in found if entry is not None)

    def remove(self, partition: int, entry: Entry) -> bool:
        """Forget a handoff's database unless it changed."""
        self._check()
        id = DatabaseId(DatabaseKind.CONTAINER, partition, entry.digest)
        if self.entry(id) != entry:
            return False
        del self._databases[id]
        return True

    # -- as exchanges, proxies and object devices see it -----------------------------------------------------

    def state(self, id: DatabaseId) -> DatabaseState:
        """Return a database's state. Raises NotFound."""
        return _state(self._database(id))

    def merge_state(self, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Create the database if it is missing, and return its state."""
        self.create(id, state.name)
        return self.state(id)

    def create(self, id: DatabaseId, name: DatabaseName) -> None:
        """Create a database where there is none."""
        self._check()
        if id not in self._databases:
            if self.full:
                raise DiskFull("injected full disk")
            self._databases[id] = Database(name)

    def page(self, id: DatabaseId, after: str, upto: str) -> RowPage:
        """Return the next page. Raises NotFound."""
        rows = self._database(id).rows
        found = [rows[name] for name in sorted(rows) if name > after and (not upto or name <= upto)]
        if len(found) <= PAGE_ROWS:
            return RowPage(found, upto)
        return RowPage(found[:PAGE_ROWS], found[PAGE_ROWS - 1].name)

    def page_digests(self, id: DatabaseId, after: str, upto: str) -> list[tuple[str, bytes]]:
        """Return the ends of the next two pages, and their set hashes. Raises NotFound if there is no database."""
        found: list[tuple[str, bytes]] = []
        while len(found) < 2:
            page = self.page(id, after, upto)
            found.append((page.upto, sethash.of(page.rows)))
            if page.upto == upto:
                break
            after = page.upto
        return found

    def compare(self, id: DatabaseId, after: str, upto: str, digest: bytes) -> RowPage | None:
        """Return the next page, or None when the whole range has this set hash. Raises NotFound."""
        page = self.page(id, after, upto)
        return None if page.upto == upto and sethash.of(page.rows) == digest else page

    def merge(self, id: DatabaseId, rows: Iterable[ObjectRow], why: str, later: bool = False) -> None:
        """Merge rows; with `later` they are durable with the next sync. Raises NotFound and DiskFull."""
        database = self._database(id)
        if self.full:
            raise DiskFull("injected full disk")
        for row in rows:
            before = database.rows.get(row.name)
            after = row.plain if before is None else before.merged(row.plain)
            if before is None and after.deleted and after.timestamp < self.forgotten:
                continue
            if after == before:
                if not later:
                    database.unsynced.pop(row.name, None)
                continue
            if later:
                database.unsynced.setdefault(row.name, before)
                self._sync_soon()
            else:
                database.unsynced.pop(row.name, None)
            self._set(id, database, row.name, after, why)

    def replace(self, id: DatabaseId, seen: ObjectRow, row: ObjectRow) -> bool:
        """Replace a row that is unchanged; return whether it was. Raises NotFound."""
        database = self._database(id)
        if database.rows.get(seen.name) != seen:
            return False
        self._set(id, database, row.name, row, "replace")
        return True

    def is_durable(self, id: DatabaseId, name: str) -> bool:
        """Return whether the row survives a power loss. Raises NotFound."""
        return name not in self._database(id).unsynced

    def reclaim(self, before: Timestamp) -> None:
        """Forget markers older than `before`."""
        self._check()
        self.forgotten = max(self.forgotten, before)
        for id, database in self._databases.items():
            for row in list(database.rows.values()):
                if row.deleted and row.timestamp < before and row.name not in database.unsynced:
                    self._set(id, database, row.name, None, "reclaim")

    def _sync_soon(self) -> None:
        if not self._sync_waits:
            self._sync_waits = True
            self._after(SYNC_S, self._sync)

    def _sync(self) -> None:
        self._sync_waits = False
        if not self.failing:
            for database in self._databases.values():
                database.unsynced = {}

    def _set(self, id: DatabaseId, database: Database, name: str, row: ObjectRow | None, why: str) -> None:
        """Set a row, and update totals and set hash by the change."""
        before = database.rows.get(name)
        self._watch(id, before, row, why)
        change = objects = size = 0
        if before is not None:
            change -= sethash.term(before)
            objects, size = _weight(before, -1)
            del database.rows[name]
        if row is not None:
            change += sethash.term(row)
            more = _weight(row, 1)
            objects, size = objects + more[0], size + more[1]
            database.rows[name] = row
        database.digest = sethash.add(database.digest, change)
        database.entry = None
        database.objects += objects
        database.size += size

    # -- for the checker, which never fails ------------------------------------------------------------------

    def peek(self, id: DatabaseId) -> Database | None:
        """Return a database as it is."""
        return self._databases.get(id)

    def entry(self, id: DatabaseId) -> Entry | None:
        """Return a database's entry as sessions see it."""
        database = self._databases.get(id)
        if database is None:
            return None
        if database.entry is None:
            database.entry = entry_of(id.digest, sethash.fingerprint(_state(database)))
        return database.entry

    def all(self) -> Mapping[DatabaseId, Database]:
        return self._databases


def recount(rows: Sequence[ObjectRow]) -> tuple[int, int, bytes]:
    """Return objects, bytes and set hash, computed from the rows."""
    live = [row for row in rows if not row.deleted]
    return len(live), sum(row.size for row in live), sethash.of(rows)


def _weight(row: ObjectRow, sign: int) -> tuple[int, int]:
    return (0, 0) if row.deleted else (sign, sign * row.size)


def _state(database: Database) -> DatabaseState:
    return DatabaseState(database.name, _CREATED, _CREATED, ZERO, 0, (), database.digest)
