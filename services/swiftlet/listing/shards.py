"""How the names of a container are shared out among its own database and those of its shards, as one replica sees it.

The set of split points only grows and is the same for all replicas once they have met: metadata items of the
container's database. How far rows have moved is each replica's own: the table `shard`, made at the first split.

A shard is a database that was never PUT; rows merge into it as everywhere. It holds the items of points that bound
it, so that sync leaves alone what is above. See `docs/design`.
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
"""The beginning of the names of shards' databases."""
MAX_POINTS = 1000
"""Split points of one container."""
_COMPLETE, _TAKEN, _FOUNDED = 1, -1, 2


def is_shard(name: DatabaseName) -> bool:
    """Whether a database of this name holds a part of a container's rows."""
    return (name.container or "").startswith(SHARD)


@dataclass(frozen=True, slots=True)
class Shard:
    """What one database serves of a container, for one replica: names in `(start, upper]`.

    `point` is where it begins by the split points ("": the container's own database), `end` where it ends by them;
    None is no bound. While rows move `upper` is above `end`. `start` None: it serves nothing yet. `complete`: all
    replicas of the container have moved everything, so any replica of the shard may be asked. `taken`: this replica had
    nothing to move and has not seen yet that the others have, so what the shard holds may be a part. `kept` is `upper`
    as it is remembered, which may lie in the range of a shard before this one.
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
        """Whether it serves no more than it will."""
        return self.upper == self.end

    @property
    def is_final(self) -> bool:
        """Whether it serves exactly what it will."""
        return self.moved and self.start == self.point

    @property
    def span(self) -> Span:
        """The names that it serves."""
        if self.start is None:
            return Span("", "")
        return Span(after(self.start) if self.start else "", None if self.upper is None else after(self.upper))


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a container: its own database first, then its shards by their points; empty when it was never split."""

    shards: tuple[Shard, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether nothing has to be moved."""
        return all(shard.moved for shard in self.shards)

    @property
    def bounds(self) -> tuple[tuple[str, str | None], ...]:
        """What serves what: equal for two looks between which nothing was moved."""
        return tuple((shard.point, shard.upper) for shard in self.shards)

    def owners(self, names: Sequence[str]) -> list[str]:
        """The point of the database that serves each name."""
        uppers = [shard.upper for shard in self.shards if shard.upper is not None]
        serving = self.shards
        return [serving[bisect_left(uppers, name)].point for name in names]

    def receiver(self, source: Shard, name: str) -> Shard:
        """Return the shard that serves a name once `source` has moved everything, with the `start` that it has then."""
        then = self._once(source, source.end)
        return then.of(then.owners([name])[0])

    def opened(self, source: Shard, upper: str | None) -> list[str]:
        """The points of those who serve nothing now, and will once `source` serves up to `upper` only."""
        then = self._once(source, upper).shards
        return [shard.point for now, shard in zip(self.shards, then, strict=True) if shard.serves and not now.serves]

    def _once(self, source: Shard, upper: str | None) -> Layout:
        """Once `source` serves up to there."""
        known = {shard.point: (shard.kept, 0, 0, 0) for shard in self.shards} | {source.point: (upper, 0, 0, 0)}
        return _arranged([shard.point for shard in self.shards[1:]], known)

    def of(self, point: str) -> Shard:
        """The shard with that point; NotFound."""
        for shard in self.shards:
            if shard.point == point:
                return shard
        raise NotFound("there is no such shard")


def shard_name(name: DatabaseName, point: str) -> DatabaseName:
    """The database of a container's shard."""
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
    """Split the container there (`own`), or tell a shard where it ends; how many points are new. NotFound."""
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
    """A shard's replica is begun by its container's; `whole`: it has, or will be given, all that this one has."""
    if not whole:
        return
    _open(database)
    database.connection.execute(
        "INSERT OR REPLACE INTO shard (point, upper, objects, bytes, complete) VALUES ('', NULL, 0, 0, ?)", (_FOUNDED,)
    )


def remember(database: ContainerDb) -> None:
    """Before points are added, and after: what serves what now, so that it changes by moving rows only."""
    found = layout(database)
    if found.shards:
        _open(database)
        taken = any(shard.taken for shard in found.shards)
        for shard in found.shards:
            _keep(database, replace(shard, taken=taken))


def merge_state(database: ContainerDb, state: DatabaseState, forgotten: Timestamp) -> None:
    """Take over what a replica knows better, split points among it."""
    own = state.put_timestamp > ZERO
    if own:
        remember(database)
    database.merge_state(state, forgotten)
    if own:
        remember(database)
        skip_empty_moves(database)


def skip_empty_moves(database: ContainerDb) -> None:
    """A replica that has no rows above the first point has nothing to move: others have, and will have moved it."""
    points = database.points()
    if points and layout(database).shards[0].upper is None and not tail(database, points[0], None, 1):
        set_upper(database, "", points[0])
        for shard in layout(database).shards:
            _keep(database, replace(shard, taken=True))


def _keep(database: ContainerDb, shard: Shard) -> None:
    """Keep what is remembered of a shard, and the sum with it."""
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
    """So many more objects and bytes are served by a shard."""
    shard = layout(database).of(point)
    _open(database)
    totals = Totals(objects=max(0, shard.totals.objects + objects), bytes=max(0, shard.totals.bytes + size))
    _keep(database, replace(shard, totals=totals))


def note(database: ContainerDb, point: str, change: RowsChange) -> None:
    """What a shard answered to an update: all that it holds once it holds nothing else, else what has changed."""
    shard = layout(database).of(point)
    if shard.is_final:
        _open(database)
        _keep(database, replace(shard, totals=Totals(objects=change.objects, bytes=change.bytes)))
        database.undo_lost_deletion()
    elif change.more_objects or change.more_bytes:
        add_totals(database, point, change.more_objects, change.more_bytes)


def set_complete(database: ContainerDb) -> None:
    """All replicas of the container have moved everything up to these points."""
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
    """How a shard, or a container's own database, stands."""
    totals, points = database.head.totals, database.points()
    end = points[0] if points else None
    beyond = end is not None and bool(tail(database, end, None, 1))
    middle_name = middle_of(database, end) if middle else None
    moving = not layout(database).moved if database.head.put_timestamp.value else beyond
    founded = _remembered(database).get("", (None, 0, 0, 0))[3] == _FOUNDED
    return ShardLook(totals.objects, totals.bytes, tuple(points), beyond, moving, founded, middle_name)


def middle_of(database: ContainerDb, upper: str | None) -> str | None:
    """A point with about half of the rows up to and including it, shortened; None when there are too few rows."""
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
    """The highest rows with `low < name <= upto`, removed ones included, from the top down."""
    span = Span(after(low) if low else "", None if upto is None else after(upto))
    found = [row for table in TABLES for row in database.fetch(table, span, True, limit)]
    return sorted(found, key=lambda row: row.name, reverse=True)[:limit]


def forget(database: ContainerDb, rows: Iterable[ObjectRow]) -> int:
    """Remove rows without a trace where they are as given; how many went."""
    gone = [row for row in rows if database.find(row.name) == row]
    for row in gone:
        database.drop(row)
    live = [row for row in gone if not row.deleted]
    less = Totals(-len(live), -len(live), -sum(row.size for row in live))
    digest = sethash.add(database.head.rows_digest, -sum(sethash.term(row) for row in gone))
    database.head = database.head.counted(less, digest)
    return len(gone)


def cut(database: ContainerDb, rows: Sequence[ObjectRow], below: str, point: str) -> bool:
    """Hand `rows`, which are in the shard at `point`, over to it: whether they are still all rows above `below`."""
    shard = layout(database).shards[0]
    if tail(database, below, shard.upper, len(rows) + 1) != list(rows):
        return False
    forget(database, rows)
    hand_over(database, "", rows, below, point, counted=True)
    return True


def hand_over(
    database: ContainerDb, source: str, rows: Sequence[ObjectRow], below: str, point: str, counted: bool
) -> None:
    """From now on `source` serves up to `below` only; `counted`: the rows are off its totals already."""
    live = [row for row in rows if not row.deleted]
    size = sum(row.size for row in live)
    set_upper(database, source, below)
    if not counted:
        add_totals(database, source, -len(live), -size)
    add_totals(database, point, len(live), size)


def page(database: ContainerDb, query: ListingQuery, clip: Span) -> list[ObjectRow | Subdir]:
    """One page of what a database has of a range, whatever the database's state."""

    def fetch(span: Span, reverse: bool, limit: int) -> Iterable[ObjectRow]:
        cut_span = span.within(clip)
        return () if cut_span.empty else database.fetch("live", cut_span, reverse, limit)

    return list_page(query, lambda span, reverse, limit: iter(fetch(span, reverse, limit)))
