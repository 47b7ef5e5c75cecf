"""Delivers, in batches, the updates that a device has pending and that nobody has acknowledged for a while.

Usually the writer brings the row and acknowledges it within a second. The rest are rows of proxies that died, of
containers whose servers could not be reached, of writes without a quorum, and rows whose acknowledgement got lost. The
object is read as it is now: of several writes the newest is listed.

Fault model: container servers may be down for days, or slow; each container replica that fails has growing pauses of
its own, and does not hold up the others. A container that answers 404 may be one whose creation has not reached that
replica yet, so a row is kept for as long as tombstones are before it is dropped. Another process may deliver the same
row, or the device have a newer one by the time this one is through: rows merge by "newest wins", and an acknowledgement
names the version. The process may die at any point: what it has not acknowledged is delivered again. A device that
can't read the object keeps the row. Of an object in a pack the device has no size and no ETag: it asks as a reader
does, and keeps the row while too few devices answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from swiftlet.boundaries.objects import MAX_ACKNOWLEDGED
from swiftlet.errors import NotFound, StoreFormatError, SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow
from swiftlet.servers.objects.metrics import ROWS
from swiftlet.servers.objects.pending_updates import PendingUpdate, PendingUpdates
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.pauses import Group, Pauses
from swiftlet.store.protocol import Store
from swiftlet.timestamp import Timestamp
from swiftlet.web.logs import get_logger

PENDING_FOR_S = 10.0
"""Seconds for which a row is left to its writer; it is longer than the writer's timeouts together."""
_BATCH = MAX_ACKNOWLEDGED
_GROUPS_AT_ONCE = 8
_ASKED_AT_ONCE = 8
"""Objects in packs about which others are asked at a time."""
_MOST_UNKNOWN = 32
"""Objects of which nobody could tell anything after which a batch asks about no more of them."""

_log = get_logger("object")


class RowSink(Protocol):
    """Delivers listing rows to container servers."""

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Deliver a row to one replica of its container; it is durable on return. Raises NotFound and NodeError."""
        ...


class Describing(Protocol):
    """Describes objects of which the device has only a reference to a pack."""

    async def head(self, key: ObjectKey) -> ObjectInfo:
        """Return the description of an object's newest version. Raises NotFound and Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryTimes:
    """The times that the delivery waits, in seconds."""

    send_s: float
    """The time within which a container server has to answer."""
    interval_s: float
    """The first pause after a failure of a container replica; further pauses double."""
    reclaim_age_s: float
    """The time after which a row is dropped if its container does not exist according to the container's replicas."""
    pending_for_s: float = PENDING_FOR_S
    """Rows younger than this are left to their writer."""


@dataclass(slots=True)
class _Attempt:
    """How far the delivery of one row has come; kept while some of its replicas can't take it."""

    timestamp: Timestamp
    account: str
    container: str
    listed: dict[int, bool] = field(default_factory=dict)
    """The replicas that have answered: True for those that have the row, False for those that refused it."""
    row: ObjectRow | None = None
    """The row of the object as it was last read."""

    def group(self, replica: int) -> Group:
        """Return the key of one of the container's replicas in `Pauses`."""
        return self.account, self.container, replica


class PendingDelivery:
    """Delivers the pending rows of one device."""

    def __init__(
        self,
        device: str,
        store: Store,
        updates: PendingUpdates,
        pool: DevicePool,
        sink: RowSink,
        times: DeliveryTimes,
        now_s: Callable[[], float] = time.time,
        packed: Describing | None = None,
    ) -> None:
        """`device` is the name of the device; `now_s` returns seconds since the epoch. `packed` tells of objects that
        are in packs.
        """
        self._device = device
        self._store = store
        self.updates = updates
        self._pool = pool
        self._sink = sink
        self._times = times
        self._now_s = now_s
        self._packed = packed
        self._pauses = Pauses(times.interval_s, now_s)
        self._attempts: dict[ObjectKey, _Attempt] = {}

    async def deliver(self) -> int:
        """Deliver all rows that are due, batch by batch; return how many were delivered."""
        total = 0
        for _ in range(1 + self.updates.count() // _BATCH):
            tried, delivered = await self._round()
            total += delivered
            if tried < _BATCH:
                break
        return total

    async def _round(self) -> tuple[int, int]:
        """Deliver a batch of the longest pending rows that may be tried; return how many were tried and delivered."""
        limit = _BATCH + len(self._attempts)
        rows = await self._pool.run(self.updates.due, self._times.pending_for_s, limit)
        pending = {row.key for row in rows}
        # Rows that were tried before are older than others, so they are among these unless they were acknowledged.
        self._attempts = {key: tried for key, tried in self._attempts.items() if key in pending}
        due = [row for row in rows if self._may_be_tried(row)][:_BATCH]
        gone, packed = await self._pool.run(self._read_all, due)
        gone += await self._ask_about(packed)
        await self._send_all([row for row in due if row.key in self._attempts])
        through = gone + [row for row in due if self._is_through(row)]
        if through:
            await self._pool.run(self.updates.acknowledge, [(row.key, row.timestamp) for row in through])
        for row in through:
            self._attempts.pop(row.key, None)
        return len(due), len(through)

    def _may_be_tried(self, row: PendingUpdate) -> bool:
        tried = self._attempts.get(row.key)
        if tried is None or tried.timestamp != row.timestamp:
            return True
        return any(self._pauses.over(tried.group(replica)) for replica in _left(row, tried))

    def _read_all(self, rows: list[PendingUpdate]) -> tuple[list[PendingUpdate], list[PendingUpdate]]:
        """Read the current state of the objects; return those of which nothing has to be listed any more, and those
        of which the device has a reference to a pack.
        """
        gone: list[PendingUpdate] = []
        packed: list[PendingUpdate] = []
        for row in rows:
            try:
                if not self._know(row, self._as_it_is(row)):
                    gone.append(row)
            except StoreFormatError as error:
                packed.append(row)
                if self._packed is None:
                    self._unreadable(row, error)
            except SwiftletError as error:
                self._unreadable(row, error)
        return gone, packed

    async def _ask_about(self, rows: list[PendingUpdate]) -> list[PendingUpdate]:
        """Ask what the objects are that are in packs, in any order, so that none is always behind those of which
        nobody can tell. Return those of which nothing has to be listed any more.

        They were deleted since: who deleted them has the rows pending. A device that is no place of theirs any more is
        not told by sync.
        """
        gone: list[PendingUpdate] = []
        if self._packed is None:
            return gone
        describing, left, unknown = self._packed, random.sample(rows, len(rows)), 0

        async def some() -> None:
            nonlocal unknown
            while left and unknown < _MOST_UNKNOWN:
                row = left.pop()
                try:
                    async with asyncio.timeout(self._times.send_s):
                        info = await describing.head(row.key)
                except (TimeoutError, SwiftletError) as error:
                    if isinstance(error, NotFound) and error.timestamp is not None and error.timestamp > row.timestamp:
                        gone.append(row)
                    else:
                        unknown += 1
                        self._unreadable(row, error)
                else:
                    self._know(row, ObjectRow.of(info.name, info))

        await asyncio.gather(*(some() for _ in range(min(_ASKED_AT_ONCE, len(rows)))))
        return gone

    def _unreadable(self, row: PendingUpdate, error: Exception) -> None:
        _log.warning("a pending update can't be read", device=self._device, object=row.key.hex, error=repr(error))

    def _know(self, row: PendingUpdate, listed: ObjectRow | None) -> bool:
        """Take note of an object's row; return whether there is something to send."""
        if listed is not None and listed.deleted and not listed.name:
            # A replicator brought this tombstone, which has no name: who deleted the object has the row pending.
            return False
        parts = listed.name.split("/", 3) if listed is not None else []
        if listed is None or len(parts) != 4:
            _log.error(
                "a pending update has nothing to list and is dropped",
                device=self._device,
                object=row.key.hex,
                held=repr(listed),
            )
            return False
        _, account, container, name = parts
        tried = self._attempts.get(row.key)
        if tried is None or tried.timestamp != row.timestamp:
            tried = self._attempts[row.key] = _Attempt(row.timestamp, account, container)
        tried.row = replace(listed, name=name)
        return True

    def _as_it_is(self, row: PendingUpdate) -> ObjectRow | None:
        """Return the row to list, with `/account/container/object` as name; None when nothing has to be listed."""
        try:
            info = self._store.stat(row.key)
        except NotFound as absence:
            name = self.updates.name(row.key)
            if absence.timestamp is None or name is None:
                return None
            return ObjectRow(name, absence.timestamp, deleted=True)
        return ObjectRow.of(info.name, info)

    async def _send_all(self, rows: list[PendingUpdate]) -> None:
        """Send rows to every container replica that is not in a pause, those of one replica together."""
        groups: dict[Group, list[tuple[int, _Attempt]]] = {}
        for row in rows:
            tried = self._attempts[row.key]
            for replica in _left(row, tried):
                groups.setdefault(tried.group(replica), []).append((replica, tried))
        gate = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def one(group: Group, attempts: list[tuple[int, _Attempt]]) -> None:
            async with gate:
                answered = await asyncio.gather(*(self._send(replica, tried) for replica, tried in attempts))
            (self._pauses.delivered if all(answered) else self._pauses.failed)(group)

        await asyncio.gather(*(one(group, rows) for group, rows in groups.items() if self._pauses.over(group)))

    async def _send(self, replica: int, tried: _Attempt) -> bool:
        """Send the row to a container replica; return whether it has the row now."""
        assert tried.row is not None
        try:
            async with asyncio.timeout(self._times.send_s):
                await self._sink.send(tried.account, tried.container, replica, tried.row)
        except NotFound:
            tried.listed[replica] = False
            return False
        except (TimeoutError, SwiftletError) as error:
            _log.info(
                "a container update stays pending",
                container=f"/{tried.account}/{tried.container}",
                error=repr(error),
            )
            return False
        tried.listed[replica] = True
        ROWS.labels("listed").inc()
        return True

    def _is_through(self, row: PendingUpdate) -> bool:
        """Return whether the row is done: all replicas have it, or refused it while another took it, or for
        too long.
        """
        tried = self._attempts.get(row.key)
        if tried is None or any(replica not in tried.listed for replica in row.replicas):
            return False
        if any(tried.listed.values()):
            return True
        if self._now_s() - row.timestamp.seconds < self._times.reclaim_age_s:
            return False
        ROWS.labels("dropped").inc()
        _log.warning(
            "a container update is dropped, because its container has been missing for the reclaim age",
            container=f"/{tried.account}/{tried.container}",
        )
        return True


def _left(row: PendingUpdate, tried: _Attempt) -> list[int]:
    """Return the replicas that do not have the row yet; one that refused it is asked again."""
    return [replica for replica in row.replicas if not tried.listed.get(replica)]
