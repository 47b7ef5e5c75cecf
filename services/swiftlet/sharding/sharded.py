"""The containers of one device together with their shards: the virtual replicas of
`docs/design/2026-11-21-sharding.md`.

Each replica of a container's database has a replica of its own of every shard, the one of the same number, and manages
it alone: it routes rows there, assembles listings, and counts.

Fault model: a shard's replica may be unreachable, slow, answer after its deadline, or be lost. Rows for it then stay in
the container's own database as strays, durable, and are brought later by `swiftlet.sharding.shard_moves` or by a
listing that needs them. A listing asks another replica only of shards that all replicas have moved everything to, and
fails otherwise (the caller asks another replica of the container). This process may die at any moment: what was
answered is in a database, here or in the shard.

Invariant: the outcome for rows is reported exactly once; while rows wait in a queue a task serves it, or they are
refused. Tasks may be cancelled at any point, as when the event loop ends.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from swiftlet.boundaries.shards import ShardTransport
from swiftlet.errors import NodeBusy, NotEmpty, NotFound, SwiftletError
from swiftlet.listing import metrics, shards
from swiftlet.listing.background_tasks import BackgroundTasks, resolve
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.pool import ListingStore, brought
from swiftlet.listing.query import rest, span_of
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.shards import Layout, Shard, shard_name
from swiftlet.listing.thread_pool import Done
from swiftlet.listing.writer import Write
from swiftlet.model import (
    ContainerInfo,
    DatabaseId,
    DatabaseName,
    ListingQuery,
    ObjectRow,
    RowsChange,
    ShardLook,
    Subdir,
)
from swiftlet.ring.holders import CurrentRing, IsLocal, holders_of, own_index
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.web.logs import get_logger

MAX_BATCH = 10_000
"""The largest number of rows in one request to a shard."""
MAX_WAITING = 50_000
"""The number of rows that may wait for one shard; further ones are refused with NodeBusy."""
MAX_BROUGHT = 1000
"""The largest number of rows waiting for a shard that a listing brings to it before it asks the shard."""
PAUSE_S = 5.0
"""Seconds after a failure for which a shard's replica is not asked to take rows."""
_ATTEMPTS = 3
_log = get_logger("sharding")


@dataclass(slots=True)
class _Queue:
    """The rows that wait for one shard, and the lock for everything that changes the shard's rows."""

    waiting: list[tuple[Sequence[ObjectRow], asyncio.Future[None]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ShardedReplicas:
    """The containers of one device, with their shards. Used from one event loop."""

    def __init__(
        self,
        device: str,
        store: ListingStore,
        transport: ShardTransport,
        container_ring: CurrentRing,
        is_local: IsLocal,
    ) -> None:
        """`device` is the name of the device in the ring."""
        self.device = device
        self.store = store
        self.transport = transport
        self._ring = container_ring
        self._is_local = is_local
        self._queues: dict[tuple[DatabaseId, str], _Queue] = {}
        self._moving: dict[DatabaseId, asyncio.Lock] = {}
        self._paused: dict[Device, float] = {}
        self._background = BackgroundTasks()

    # Places and locks.

    def holders(self, id: DatabaseId) -> tuple[Device, ...]:
        """Return the holders of a database."""
        return holders_of(self._ring(), id.partition)

    def index(self, id: DatabaseId) -> int | None:
        """Return the number of the replica that this device has; None for a handoff."""
        return own_index(self.holders(id), self.device, self._is_local)

    def shard_holders(self, id: DatabaseId, name: DatabaseName, point: str) -> tuple[int, list[Device]]:
        """Return the partition of a shard and its holders, beginning with the one that belongs to this replica."""
        ring = self._ring()
        shard = shard_name(name, point)
        partition = ring.partition_of(self.store.hash_path(shard.account, shard.container))
        holders = list(ring.primaries(partition))
        first = (self.index(id) or 0) % len(holders)
        return partition, [holders[first], *holders[:first], *holders[first + 1 :]]

    def moving(self, id: DatabaseId) -> asyncio.Lock:
        """Return the lock that is held while rows of a container are moved."""
        return self._moving.setdefault(id, asyncio.Lock())

    def lock(self, id: DatabaseId, point: str) -> asyncio.Lock:
        """Return the lock that is held while the rows of a shard are changed."""
        return self._queue(id, point).lock

    def _queue(self, id: DatabaseId, point: str) -> _Queue:
        return self._queues.setdefault((id, point), _Queue())

    async def layout(self, id: DatabaseId) -> Layout:
        """Return the container's layout. Raises NotFound."""
        return await self.store.read(id, shards.layout)

    # Rows.

    async def update_rows(
        self, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool = False
    ) -> None:
        """Merge object rows, which are durable on return; `later` is as in `ListingStore.update_rows`.
        Raises NotFound.
        """
        await brought(self, partition, DatabaseName(account, container), rows, later)

    def id_of(self, partition: int, name: DatabaseName) -> DatabaseId:
        """Return the location of the container's own database."""
        return self.store.id_of(partition, name)

    def submit_rows(
        self, id: DatabaseId, name: DatabaseName, rows: Sequence[Packed], grows: bool, later: bool, done: Done
    ) -> None:
        """Merge packed rows as `update_rows` does; see `RowsTaker`."""

        def update(database: ContainerDb) -> Mapping[str, Sequence[ObjectRow]]:
            database.require()
            return _merge_own(database, rows)

        def merged(away: Mapping[str, Sequence[ObjectRow]] | None, error: BaseException | None) -> None:
            if error is None:
                metrics.OBJECT_ROWS_MERGED.inc(len(rows))
            if away:
                self._background.begin(self._bring_all(id, name, away), partial(_brought, name, done))
            else:
                done(None, error)

        self.store.submit(id, Write(update, merged, max(1, len(rows)), grows=grows, later=later, rows=rows))

    async def _bring_all(self, id: DatabaseId, name: DatabaseName, away: Mapping[str, Sequence[ObjectRow]]) -> None:
        if away:
            await asyncio.gather(*(self._bring(id, name, point, rows) for point, rows in away.items()))

    async def _bring(self, id: DatabaseId, name: DatabaseName, point: str, rows: Sequence[ObjectRow]) -> None:
        """Send rows to a shard, together with others that wait for it. Raises NodeBusy when too many do."""
        queue = self._queue(id, point)
        if sum(len(waiting) for waiting, _ in queue.waiting) > MAX_WAITING:
            raise NodeBusy(f"{MAX_WAITING} rows already wait for a shard of {name}; try again later")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append((rows, future))
        if queue.task is None:
            queue.task = asyncio.create_task(self._serve(id, name, point, queue))
            queue.task.add_done_callback(partial(_left, name, queue))
        await future

    async def _serve(self, id: DatabaseId, name: DatabaseName, point: str, queue: _Queue) -> None:
        try:
            while queue.waiting:
                async with queue.lock:
                    batch = _take(queue)
                    error: Exception | None = _cut_short(name)
                    try:
                        await self._deliver(id, name, point, [row for rows, _ in batch for row in rows])
                        error = None
                    except Exception as raised:  # The error belongs to those who wait.
                        error = raised
                    finally:
                        for _, future in batch:
                            resolve(future, None, error)
        finally:
            queue.task = None

    async def _deliver(self, id: DatabaseId, name: DatabaseName, point: str, rows: Sequence[ObjectRow]) -> None:
        """Send rows to the shard, or keep them as strays; those that the shard has handed on are sent on. Needs the
        queue's lock.
        """
        groups = grouped(await self.layout(id), rows)
        mine = groups.pop(point, [])
        if mine:
            try:
                await self.send(id, name, point, mine)
            except SwiftletError as error:
                _log.info(
                    "rows for a shard are kept here, because the shard could not take them",
                    container=str(name),
                    rows=len(mine),
                    error=str(error),
                )
                await self.store.write(id, lambda database: database.merge(row.plain for row in mine), len(mine))
                await self._stand_in(id, name, point, mine)
        own = groups.pop("", [])
        if own:
            await self.store.write(id, lambda database: database.merge(row.plain for row in own), len(own))
        await self._bring_all(id, name, groups)

    async def _stand_in(self, id: DatabaseId, name: DatabaseName, point: str, rows: Sequence[ObjectRow]) -> None:
        """Send rows to the other replicas of a shard, which are asked for listings while this one's is away."""
        partition, holders = self.shard_holders(id, name, point)
        shard = shard_name(name, point)
        told = await asyncio.gather(
            *(self.transport.shard_merge(holder, partition, shard, rows) for holder in holders[1:]),
            return_exceptions=True,
        )
        for error in told:
            if isinstance(error, BaseException) and not isinstance(error, SwiftletError):
                raise error

    async def send(self, id: DatabaseId, name: DatabaseName, point: str, rows: Sequence[ObjectRow]) -> None:
        """Send rows to this replica's replica of a shard and note its totals; needs the queue's lock."""
        change = await self.push(id, name, point, rows)
        await self.store.write(id, lambda database: shards.note(database, point, change), grows=False)

    async def push(self, id: DatabaseId, name: DatabaseName, point: str, rows: Sequence[ObjectRow]) -> RowsChange:
        """Send rows to this replica's replica of a shard."""
        partition, holders = self.shard_holders(id, name, point)
        now = asyncio.get_running_loop().time()
        if self._paused.get(holders[0], 0.0) > now:
            raise NodeBusy(f"{holders[0].address} failed a moment ago and is not asked again yet")
        try:
            return await self.transport.shard_merge(holders[0], partition, shard_name(name, point), rows)
        except SwiftletError:
            self._paused[holders[0]] = now + PAUSE_S
            raise

    async def found(self, id: DatabaseId, name: DatabaseName, point: str, whole: bool) -> None:
        """Create this replica's replica of a shard; see `ShardTransport.shard_found`."""
        partition, holders = self.shard_holders(id, name, point)
        await self.transport.shard_found(holders[0], partition, shard_name(name, point), whole)

    async def find(self, id: DatabaseId, row_name: str) -> ObjectRow | None:
        """Return the row or marker of that name from the database that has it. Raises NotFound."""

        def look(database: ContainerDb) -> tuple[DatabaseName, str, ObjectRow | None]:
            found = shards.layout(database)
            point = found.owners([row_name])[0] if found.shards else ""
            return database.head.name, point, database.find(row_name)

        name, point, row = await self.store.read(id, look)
        if not point:
            return row
        partition, holders = self.shard_holders(id, name, point)
        try:
            rows = await self.transport.shard_tail(holders[0], partition, shard_name(name, point), "", row_name, 1)
        except SwiftletError:
            return row
        found = [one for one in (*rows, *([row] if row else [])) if one.name == row_name]
        return functools.reduce(ObjectRow.merged, found) if found else None

    # Listings.

    async def list_objects(
        self, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Return one page and the totals. Raises NotFound, and NodeBusy when a shard can't be asked."""
        name = DatabaseName(account, container)
        id = self.store.id_of(partition, name)
        for _ in range(_ATTEMPTS):
            info, entries, found = await self._page(id, name, query)
            if not found.shards or (await self.layout(id)).bounds == found.bounds:
                return info, entries
        async with self.moving(id):
            info, entries, _ = await self._page(id, name, query)
            return info, entries

    async def _page(
        self, id: DatabaseId, name: DatabaseName, query: ListingQuery
    ) -> tuple[ContainerInfo, list[ObjectRow | Subdir], Layout]:
        def first(database: ContainerDb) -> tuple[ContainerInfo, list[ObjectRow | Subdir], Layout, bool]:
            info, found = database.info(), shards.layout(database)
            if not found.shards:
                return info, database.list_page(query), found, False
            upper = found.shards[0].upper
            strays = upper is not None and bool(shards.tail(database, upper, None, 1))
            return info, shards.page(database, query, found.shards[0].span), found, strays

        info, own, found, strays = await self.store.read(id, first)
        if not found.shards:
            return info, own, found
        entries: list[ObjectRow | Subdir] = []
        everything = span_of(query)
        for shard in reversed(found.shards) if query.reverse else found.shards:
            clip = shard.span.within(everything)
            if entries and isinstance(last := entries[-1], Subdir):
                clip = rest(clip, last, query.reverse)
            wanted = query.limit - len(entries)
            if wanted <= 0:
                break
            if clip.empty:
                continue
            asked = replace(query, limit=wanted)
            if shard.point:
                entries += await self._of_shard(id, name, found, shard, asked, clip.low, clip.high, strays)
            elif entries:
                entries += await self.store.read(id, lambda db, q=asked, c=clip: shards.page(db, q, c))
            else:
                entries += own
        return info, entries, found

    async def _of_shard(
        self,
        id: DatabaseId,
        name: DatabaseName,
        found: Layout,
        shard: Shard,
        query: ListingQuery,
        low: str,
        high: str | None,
        strays: bool,
    ) -> Sequence[ObjectRow | Subdir]:
        """Return the rows of a page that a shard serves.

        `strays` tells that rows wait here for some shard; those for this one are sent to a holder before it is asked.
        """
        if shard.taken or (self.index(id) is None and not shard.complete):
            raise NodeBusy(f"{name}: this device does not know yet whether all rows have been moved to their shards")
        partition, holders = self.shard_holders(id, name, shard.point)
        errors: list[str] = []
        trusted = shard.complete and found.moved
        waiting = await self._waiting(id, name, shard) if strays else []
        for holder in holders if trusted else holders[:1]:
            try:
                if waiting:
                    await self.transport.shard_merge(holder, partition, shard_name(name, shard.point), waiting)
                entries = await self.transport.shard_page(
                    holder, partition, shard_name(name, shard.point), query, low, high
                )
                if holder is not holders[0] or not trusted:
                    look = await self.transport.shard_look(holder, partition, shard_name(name, shard.point))
                    _check(look, shard, holder, holder is holders[0])
                return entries
            except SwiftletError as error:
                errors.append(f"{holder.address}: {error}")
        raise NodeBusy(f"{name}: a shard of the listing can't be read ({'; '.join(errors)})")

    async def _waiting(self, id: DatabaseId, name: DatabaseName, shard: Shard) -> list[ObjectRow]:
        """Return the rows that wait here for a shard. Raises NodeBusy when they are too many for a listing to send
        them.
        """
        assert shard.start is not None
        low = shard.start
        rows = await self.store.read(id, lambda database: shards.tail(database, low, shard.upper, MAX_BROUGHT + 1))
        if len(rows) > MAX_BROUGHT:
            raise NodeBusy(f"{name}: more than {MAX_BROUGHT} rows still have to be moved to a shard")
        return rows

    # The container.

    async def delete_container(self, partition: int, account: str, container: str, timestamp: Timestamp) -> None:
        """Delete the container. Raises NotEmpty, NotFound, and the errors of shards that can't be asked."""
        name = DatabaseName(account, container)
        id = self.store.id_of(partition, name)
        looks, errors = await self.refresh(id, name)
        if errors:
            raise errors[0]
        for shard in (await self.layout(id)).shards[1:]:
            look = looks.get(shard.point)
            if shard.serves and look is None:
                raise NodeBusy(f"{name}: a shard of it can't be asked whether it is empty")
            if look is not None and look.objects and not shard.is_final:
                raise NotEmpty(f"{name} is being split and is not empty")
        await self.store.delete_container(partition, account, container, timestamp)

    async def refresh(
        self, id: DatabaseId, name: DatabaseName
    ) -> tuple[dict[str, ShardLook | None], list[SwiftletError]]:
        """Ask all shards what they hold; return their states (None for a missing one) and the errors of the others."""
        looks: dict[str, ShardLook | None] = {}
        errors: list[SwiftletError] = []
        for shard in (await self.layout(id)).shards[1:]:
            async with self.lock(id, shard.point):
                try:
                    look = looks[shard.point] = await self.look(id, name, shard.point)
                except SwiftletError as error:
                    errors.append(error)
                    continue
                if look is None:
                    continue
                change = RowsChange(look.objects, look.bytes, 0, 0)
                if (change.objects, change.bytes) != (shard.totals.objects, shard.totals.bytes) and shard.is_final:
                    await self.store.write(id, lambda db, p=shard.point, c=change: shards.note(db, p, c), grows=False)
        return looks, errors

    async def look(self, id: DatabaseId, name: DatabaseName, point: str, middle: bool = False) -> ShardLook | None:
        """Return the state of this replica's replica of a shard; None when it does not exist."""
        partition, holders = self.shard_holders(id, name, point)
        try:
            return await self.transport.shard_look(holders[0], partition, shard_name(name, point), middle)
        except NotFound:
            return None


def _check(look: ShardLook, shard: Shard, holder: Device, own: bool) -> None:
    """Raise NodeBusy unless a shard's replica has listed all rows that the container's replica has in its range.

    Its `own` one may have been lost while rows move, and have come back by sync: from replicas to which not all was
    moved, or that have handed on already what this one still has to. Another one may have been split without this
    replica's knowledge; it gets the points before a row of it moves.
    """
    if own and not look.founded:
        raise NodeBusy(f"{holder.address} has lost rows that were moved to it")
    if not own and look.points and (shard.end is None or look.points[0] < shard.end):
        raise NodeBusy(f"{holder.address} has split the shard in the meantime")


def grouped(found: Layout, rows: Sequence[ObjectRow]) -> dict[str, list[ObjectRow]]:
    """Return rows by the point of the database that serves them."""
    if not found.shards:
        return {"": list(rows)}
    groups: dict[str, list[ObjectRow]] = defaultdict(list)
    for row, point in zip(rows, found.owners([row.name for row in rows]), strict=True):
        groups[point].append(row)
    return dict(groups)


def _merge_own(database: ContainerDb, rows: Sequence[Packed]) -> Mapping[str, Sequence[ObjectRow]]:
    """Merge the rows that the container's own database serves; return the others."""
    if not database.points():
        database.merge_all(rows)
        return {}
    groups = grouped(shards.layout(database), [database.unpack(row) for row in rows])
    database.merge(groups.pop("", []))
    return groups


def _cut_short(name: DatabaseName) -> NodeBusy:
    """Return the error for writers whose rows are no longer delivered."""
    return NodeBusy(f"rows of {name} were on their way to a shard when that was broken off")


def _brought(name: DatabaseName, done: Done, error: BaseException | None) -> None:
    """Report the outcome to callers with rows for other databases, however the task that brought the rows has ended."""
    done(None, _cut_short(name) if isinstance(error, asyncio.CancelledError) else error)


def _left(name: DatabaseName, queue: _Queue, task: asyncio.Task[None]) -> None:
    """Refuse rows that wait in a queue without a task: it was cancelled, perhaps before it began."""
    if queue.task is task:
        queue.task = None
    if queue.task is None:
        left, queue.waiting = queue.waiting, []
        for _, future in left:
            resolve(future, None, _cut_short(name))


def _take(queue: _Queue) -> list[tuple[Sequence[ObjectRow], asyncio.Future[None]]]:
    count = size = 0
    for rows, _ in queue.waiting:
        size += len(rows)
        if count and size > MAX_BATCH:
            break
        count += 1
    batch, queue.waiting = queue.waiting[:count], queue.waiting[count:]
    return batch
