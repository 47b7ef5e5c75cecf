"""Listing rows on their way from an object device to container servers: at once if possible, else by the outbox.

Fault model: container servers may be down for days, or slow. A write waits for its rows up to a limit; what was
not delivered by then is durable in the device's outbox before the write is answered, and is tried again with
growing pauses per container replica. A container that answers 404 may be one whose own creation has not reached
that replica yet, so waiting rows are kept for as long as tombstones are before they are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Protocol

from swiftlet.boundaries.objects import ContainerUpdate, UpdateOutcome
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ObjectRow
from swiftlet.servers.objects.metrics import ROWS
from swiftlet.servers.objects.outbox import Outbox, PendingRow
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.shared.pauses import Pauses

_log = logging.getLogger(__name__)
_GROUPS_AT_ONCE = 8
_ROWS_AT_ONCE = 100


class RowSink(Protocol):
    """Takes listing rows to the servers of containers."""

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Bring a row to one replica of its container; durable on return. NotFound, NodeError."""
        ...


class RowSender:
    """Delivers the rows of one device."""

    def __init__(
        self,
        sink: RowSink,
        outbox: Outbox,
        pool: DevicePool,
        row_wait_s: float,
        reclaim_age_s: float,
        interval_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`interval_s` is the first pause after a failed delivery from the outbox; pauses double from there."""
        self._sink = sink
        self.outbox = outbox
        self._pool = pool
        self._row_wait_s = row_wait_s
        self._reclaim_age_s = reclaim_age_s
        self._interval_s = interval_s
        self._now_s = now_s
        self._pauses = Pauses(interval_s, now_s)

    async def send(self, update: ContainerUpdate | None, row: ObjectRow) -> UpdateOutcome:
        """Bring a row to all replicas asked for; returns when each has it, refused it, or it is in the outbox."""
        if update is None or not update.replicas:
            return UpdateOutcome.NONE
        outcomes = await asyncio.gather(*(self._send_one(update, replica, row) for replica in update.replicas))
        for outcome in outcomes:
            ROWS.labels(outcome.value).inc()
        if all(outcome is UpdateOutcome.NO_CONTAINER for outcome in outcomes):
            return UpdateOutcome.NO_CONTAINER
        return UpdateOutcome.LISTED if UpdateOutcome.LISTED in outcomes else UpdateOutcome.QUEUED

    async def _send_one(self, update: ContainerUpdate, replica: int, row: ObjectRow) -> UpdateOutcome:
        try:
            async with asyncio.timeout(self._row_wait_s):
                await self._sink.send(update.account, update.container, replica, row)
        except NotFound:
            return UpdateOutcome.NO_CONTAINER
        except (TimeoutError, SwiftletError) as error:
            _log.info("row queued: container=/%s/%s error=%s", update.account, update.container, error)
            await self._pool.run(self.outbox.add, update.account, update.container, replica, row)
            return UpdateOutcome.QUEUED
        return UpdateOutcome.LISTED

    async def drain(self) -> int:
        """Try all rows whose pause is over, once; how many are delivered."""
        waiting = sorted(self.outbox.waiting(), key=lambda pending: pending.group)
        due = [
            list(rows)
            for group, rows in groupby(waiting, key=lambda pending: pending.group)
            if self._pauses.over(group)
        ]
        gate = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def one(rows: Iterable[PendingRow]) -> int:
            async with gate:
                return await self._drain_group(list(rows))

        return sum(await asyncio.gather(*(one(rows) for rows in due)))

    async def _drain_group(self, rows: list[PendingRow]) -> int:
        """Rows for one container replica, some at a time, until one of them fails."""
        delivered = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            batch = rows[start : start + _ROWS_AT_ONCE]
            done = await asyncio.gather(*(self._drain_one(pending) for pending in batch))
            delivered += sum(done)
            if not all(done):
                self._pauses.failed(batch[0].group)
                return delivered
        self._pauses.delivered(rows[0].group)
        return delivered

    async def _drain_one(self, pending: PendingRow) -> bool:
        """Whether the row need not wait any longer."""
        try:
            async with asyncio.timeout(max(self._row_wait_s, self._interval_s)):
                await self._sink.send(*pending.group, pending.row)
        except NotFound:
            if self._now_s() - pending.queued_s < self._reclaim_age_s:
                return False
            ROWS.labels("dropped").inc()
            _log.warning("row dropped: container /%s/%s was missing for the reclaim age", *pending.group[:2])
        except (TimeoutError, SwiftletError) as error:
            _log.info("row still waits: container=/%s/%s error=%r", *pending.group[:2], error)
            return False
        await self._pool.run(self.outbox.done, pending)
        return True
