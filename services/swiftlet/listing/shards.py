"""How the names of a container are distributed over its own database and those of its shards, as one replica sees it.

The set of split points only grows and becomes the same for all replicas when they exchange states: split points are
metadata items of the container's database. How far rows have moved differs between replicas: it is in the table
`shard`, created at the first split.

A shard is a database that was never PUT; rows merge into it as everywhere. It has the items of the split points that
bound it, so that sync leaves alone what is above. See `docs/design/2026-11-21-sharding.md`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from swiftlet.errors import NotFound
from swiftlet.listing import sethash
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.head import Totals
from swiftlet.listing.query import Span, after, list_page
from swiftlet.listing.row_tables import TABLES
from swiftlet.listing.schema import ensure_shard_table
from swiftlet.model import (
    DatabaseName,
    DatabaseState,
    ListingQuery,
    MetadataItem,
    ObjectRow,
    RowsChange,
    ShardLook,
    Subdir,
)
from swiftlet.timestamp import ZERO, Timestamp

SHARD = "\0shard\0"
"""The prefix of the names of shards' databases."""
MAX_POINTS = 1000
"""The largest number of split points of one container."""
_COMPLETE, _TAKEN, _FOUNDED = 1, -1, 2


def is_shard(name: DatabaseName) -> bool:
    """Return whether a database of this name holds a part of a container's rows."""
    return (name.container or "").startswith(SHARD)


@dataclass(frozen=True, slots=True)
class Shard:
    """What one database serves of a container, for one replica: names in `(start, upper]`.

    By the split points its range begins at `point` ("" for the container's own database) and ends at `end`; None stands
    for no bound. While rows are moved out of it, `upper` is above `end`. `start` is None while it serves nothing yet.
    `kept` is `upper` as stored, which may lie in the range of a shard before this one.

    `complete` tells that all replicas of the container have moved everything, so that any replica of the shard may be
    asked. `taken` tells that this replica had nothing to move and does not know yet whether the others have moved their
    rows, so that the shard may hold only a part.
    """

    point: str
    start: str | None
    upper: str | None
    kept: str | None
    end: str | None
    totals: Totals
    complete: bool
    taken: bool

    @property
    def serves(self) -> bool:
        """Whether it serves any names."""
        return self.start is not None and self.start != self.upper

    @property
    def moved(self) -> bool:
        """Whether all rows above its range have been moved out of it."""
        return self.upper == self.end

    @property
    def is_final(self) -> bool:
        """Whether it serves exactly the range between its split points."""
        return self.moved and self.start == self.point

    @property
    def span(self) -> Span:
        """The range of names that it serves."""
        if self.start is None:
            return Span("", "")
        return Span(after(self.start) if self.start else "", None if self.upper is None else after(self.upper))


@dataclass(frozen=True, slots=True)
class Layout:
    """All databases of a container: its own first, then its shards by their points; empty when it was never split."""

    shards: tuple[Shard, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether no rows have to be moved."""
        return all(shard.moved for shard in self.shards)

    @property
    def bounds(self) -> tuple[tuple[str, str | None], ...]:
        """The points and upper bounds of all shards; they are equal in two layouts between which nothing was moved."""
        return tuple((shard.point, shard.upper) for shard in self.shards)

    def owners(self, names: Sequence[str]) -> list[str]:
        """Return for each name the point of the database that serves it."""
        uppers = [shard.upper for shard in self.shards if shard.upper is not None]
        serving = self.shards
        return [serving[bisect_left(uppers, name)].point for name in names]

    def receiver(self, source: Shard, name: str) -> Shard:
        """Return the shard that serves a name once `source` has moved everything, with the `start` that it has then."""
        then = self._once(source, source.end)
        return then.of(then.owners([name])[0])

    def opened(self, source: Shard, upper: str | None) -> list[str]:
        """Return the points of shards that serve nothing now, and will when `source` serves only names up
        to `upper`.
        """
        then = self._once(source, upper).shards
        return [shard.point for now, shard in zip(self.shards, then, strict=True) if shard.serves and not now.serves]

    def _once(self, source: Shard, upper: str | None) -> Layout:
        """Return the layout when `source` serves only names up to `upper`."""
        known = {shard.point: (shard.kept, 0, 0, 0) for shard in self.shards} | {source.point: (upper, 0, 0, 0)}
        return _arranged([shard.point for shard in self.shards[1:]], known)

    def of(self, point: str) -> Shard:
        """Return the shard with that point. Raises NotFound."""
        for shard in self.shards:
            if shard.point == point:
                return shard
        raise NotFound("there is no such shard")


def shard_name(name: DatabaseName, point: str) -> DatabaseName:
    """Return the name of the database of a container's shard."""
    digest = hashlib.md5(point.encode("utf-8"), usedforsecurity=False).hexdigest()
    return DatabaseName(name.account, f"{SHARD}{name.container}\0{digest}")


def layout(database: ContainerDb) -> Layout:
    """Return the layout that this replica has."""
    points = database.points()
    if not points:
        return Layout()
    return _arranged(points, _remembered(database))


def _remembered(database: ContainerDb) -> dict[str, tuple[str | None, int, int, int]]:
    if not database.has_shards:
        return {}
    rows = database.connection.execute("SELECT point, upper, objects, bytes, complete FROM shard")
    return {point: (upper, objects, size, complete) for point, upper, objects, size, complete in rows}


def _arranged(points: Sequence[str], known: dict[str, tuple[str | None, int, int, int]]) -> Layout:
    found: list[Shard] = []
    start: str | None = ""
    for point, end in zip(["", *points], [*points, None], strict=True):
        kept, objects, size, complete = known.get(point, (end if point else None, 0, 0, 0))
        start = None if start is None else max(start, point)
        upper = None if start is None or kept is None else max(start, kept)
        totals = Totals(objects, objects, size)
        found.append(Shard(point, start, upper, kept, end, totals, complete == _COMPLETE, complete == _TAKEN))
        start = upper
    return Layout(tuple(found))


def add_points(database: ContainerDb, timestamp: Timestamp, points: Sequence[str], own: bool) -> int:
    """Add split points and return how many are new. Raises NotFound.

    With `own` the container is split there; without, a shard gets the points that bound it.
    """
    if own:
        database.require()
    known = set(database.points())
    new = [point for point in points if point not in known][: MAX_POINTS - len(known)]
    if new:
        if own:
            remember(database)
        database.add_items(MetadataItem(database.point_item(point), timestamp, "1") for point in new)
        if own:
            remember(database)
            skip_empty_moves(database)
    return len(new)


def found(database: ContainerDb, whole: bool) -> None:
    """Begin a shard's replica for a container's replica.

    `whole` tells that the shard has, or will be given, all rows of its range that the container's replica has.
    """
    if not whole:
        return
    _open(database)
    database.connection.execute(
        "INSERT OR REPLACE INTO shard (point, upper, objects, bytes, complete) VALUES ('', NULL, 0, 0, ?)", (_FOUNDED,)
    )


def remember(database: ContainerDb) -> None:
    """Store which database serves what, before and after points are added, so that only moving rows changes it."""
    found = layout(database)
    if found.shards:
        _open(database)
        taken = any(shard.taken for shard in found.shards)
        for shard in found.shards:
            _keep(database, replace(shard, taken=taken))


def merge_state(database: ContainerDb, state: DatabaseState, forgotten: Timestamp) -> None:
    """Merge the state of another replica, with its split points."""
    own = state.put_timestamp > ZERO
    if own:
        remember(database)
    database.merge_state(state, forgotten)
    if own:
        remember(database)
        skip_empty_moves(database)


def skip_empty_moves(database: ContainerDb) -> None:
    """Skip the moves of a replica that has no rows above the first point: other replicas have them and move them."""
    points = database.points()
    if points and layout(database).shards[0].upper is None and not tail(database, points[0], None, 1):
        set_upper(database, "", points[0])
        for shard in layout(database).shards:
            _keep(database, replace(shard, taken=True))


def _keep(database: ContainerDb, shard: Shard) -> None:
    """Store the state of a shard, and the sum of the shards' totals."""
    state = _TAKEN if shard.taken else _COMPLETE if shard.complete else 0
    database.connection.execute(
        "INSERT OR REPLACE INTO shard (point, upper, objects, bytes, complete) VALUES (?, ?, ?, ?, ?)",
        (shard.point, shard.kept, shard.totals.objects, shard.totals.bytes, state),
    )
    database.recount_away()


def _open(database: ContainerDb) -> None:
    ensure_shard_table(database.connection)
    database.has_shards = True


def set_upper(database: ContainerDb, point: str, upper: str | None) -> None:
    """Record the last name that the shard serves now."""
    shard = layout(database).of(point)
    _open(database)
    _keep(database, replace(shard, kept=upper))


def add_totals(database: ContainerDb, point: str, objects: int, size: int) -> None:
    """Add objects and bytes to the totals of a shard."""
    shard = layout(database).of(point)
    _open(database)
    totals = Totals(objects=max(0, shard.totals.objects + objects), bytes=max(0, shard.totals.bytes + size))
    _keep(database, replace(shard, totals=totals))


def note(database: ContainerDb, point: str, change: RowsChange) -> None:
    """Record a shard's answer to an update.

    When the shard serves exactly its range, its totals are taken over; otherwise the change is added.
    """
    shard = layout(database).of(point)
    if shard.is_final:
        _open(database)
        _keep(database, replace(shard, totals=Totals(objects=change.objects, bytes=change.bytes)))
        database.undo_lost_deletion()
    elif change.more_objects or change.more_bytes:
        add_totals(database, point, change.more_objects, change.more_bytes)


def set_complete(database: ContainerDb) -> None:
    """Record that all replicas of the container have moved everything up to these points."""
    found = layout(database)
    if found.moved and not all(shard.complete for shard in found.shards):
        _open(database)
        for shard in found.shards:
            _keep(database, replace(shard, complete=True, taken=False))


# Rows.


def merge(database: ContainerDb, rows: Iterable[ObjectRow]) -> RowsChange:
    """Merge rows into a shard."""
    before = database.head.totals
    database.merge(row.plain for row in rows)
    totals = database.head.totals
    return RowsChange(totals.objects, totals.bytes, totals.objects - before.objects, totals.bytes - before.bytes)


def look(database: ContainerDb, middle: bool = False) -> ShardLook:
    """Return the state of a shard, or of a container's own database."""
    totals, points = database.head.totals, database.points()
    end = points[0] if points else None
    beyond = end is not None and bool(tail(database, end, None, 1))
    middle_name = middle_of(database, end) if middle else None
    moving = not layout(database).moved if database.head.put_timestamp.value else beyond
    founded = _remembered(database).get("", (None, 0, 0, 0))[3] == _FOUNDED
    return ShardLook(totals.objects, totals.bytes, tuple(points), beyond, moving, founded, middle_name)


def middle_of(database: ContainerDb, upper: str | None) -> str | None:
    """Return a name with about half of the rows at or before it, shortened; None when there are too few rows."""
    bound, values = ("", ()) if upper is None else (" WHERE name <= ?", (upper,))
    select = f"SELECT name FROM live{bound} ORDER BY name LIMIT 2 OFFSET ?"  # noqa: S608
    offset = max(0, database.head.totals.rows // 2 - 1)
    names: list[str] = [name for (name,) in database.connection.execute(select, (*values, offset))]
    if len(names) < 2:
        return None
    lower, higher = names
    common = next((i for i, (a, b) in enumerate(zip(lower, higher, strict=False)) if a != b), len(lower))
    return higher[: common + 1] if common + 1 < len(higher) else lower


def tail(database: ContainerDb, low: str, upto: str | None, limit: int) -> list[ObjectRow]:
    """Return the last rows with `low < name <= upto`, removed ones included, in descending order."""
    span = Span(after(low) if low else "", None if upto is None else after(upto))
    found = [row for table in TABLES for row in database.fetch(table, span, True, limit)]
    return sorted(found, key=lambda row: row.name, reverse=True)[:limit]


def forget(database: ContainerDb, rows: Iterable[ObjectRow]) -> int:
    """Remove rows without a marker where they are as given; return how many were removed."""
    gone = [row for row in rows if database.find(row.name) == row]
    for row in gone:
        database.drop(row)
    live = [row for row in gone if not row.deleted]
    less = Totals(-len(live), -len(live), -sum(row.size for row in live))
    digest = sethash.add(database.head.rows_digest, -sum(sethash.term(row) for row in gone))
    database.head = database.head.counted(less, digest)
    return len(gone)


def cut(database: ContainerDb, rows: Sequence[ObjectRow], below: str, point: str) -> bool:
    """Hand `rows`, which the shard at `point` already has, over to it.

    Returns False, and changes nothing, when these are no longer all rows above `below`.
    """
    shard = layout(database).shards[0]
    if tail(database, below, shard.upper, len(rows) + 1) != list(rows):
        return False
    forget(database, rows)
    hand_over(database, "", rows, below, point, counted=True)
    return True


def hand_over(
    database: ContainerDb, source: str, rows: Sequence[ObjectRow], below: str, point: str, counted: bool
) -> None:
    """Record that `source` serves only names up to `below`; `counted` tells that its totals are already without the
    rows.
    """
    live = [row for row in rows if not row.deleted]
    size = sum(row.size for row in live)
    set_upper(database, source, below)
    if not counted:
        add_totals(database, source, -len(live), -size)
    add_totals(database, point, len(live), size)


def page(database: ContainerDb, query: ListingQuery, clip: Span) -> list[ObjectRow | Subdir]:
    """Return one page of the rows in a range, whatever the database's state."""

    def fetch(span: Span, reverse: bool, limit: int) -> Iterable[ObjectRow]:
        cut_span = span.within(clip)
        return () if cut_span.empty else database.fetch("live", cut_span, reverse, limit)

    return list_page(query, lambda span, reverse, limit: iter(fetch(span, reverse, limit)))
