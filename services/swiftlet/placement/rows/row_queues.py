"""Rows on their way to container servers; when many come at once, they share a request.

While a request to a container replica is in progress, further rows for it gather and go together in the next one. The
writers whose rows a request has brought are likely to have more soon. So the next request waits for as many rows as the
last one had, with those that waited; but at most for half of the time that the last one took, or until `GATHER_S` after
its beginning if that is later. A busy container then costs its server few requests, not one per object; a writer alone
never waits, however many rows it brings together. Proxies send the rows of their writes this way, and object servers
those that are left to them.

Fault model: a container server may refuse, hang until the transport's deadline, or be gone. Its rows then fail with
that error, and those for others do not wait for them. The number of waiting rows is limited, and each may have a time
until which it has to be sent: a late one fails instead of delaying those behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NodeBusy, NodeTimeout
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.native_values import together
from swiftlet.placement.metrics import UPDATE_REQUESTS, UPDATES_SENT
from swiftlet.ring.lookup import Ring

MAX_BATCH = 1000
"""The largest number of rows in one request."""
GATHER_S = 0.004
"""Seconds after the beginning of a request for which the next one may be held back, however fast the answer came."""
MAX_GATHER_S = 0.01
"""Seconds after an answer for which the next request may be held back."""
ENOUGH = 64
"""Rows that are not held back for others: beside so many the cost of a request is small."""
MAX_WAITING = 20_000
"""The largest number of rows that wait in a process, some 20 MB when all names have their full length."""

_Place = tuple[str, str, int]
Taken = asyncio.Future[None] | None
"""The result for a row that is listed: a future for when it is durable, None when it is already."""


class _Waiting(NamedTuple):
    """Rows, and the future of those who wait for them; they are not sent after `too_late_s` on the loop's clock."""

    rows: Sequence[ObjectRow]
    future: asyncio.Future[Taken]
    too_late_s: float
    later: bool


@dataclass(slots=True)
class _Queue:
    """Rows waiting for one container replica."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    count: int = 0
    """The number of rows that wait."""
    task: asyncio.Task[None] | None = None
    enough: int = 1
    """The number of rows for which the next request waits."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `enough` rows are waiting, or the process ends."""


class RowQueues:
    """Brings rows to the container replicas that the ring names."""

    def __init__(
        self,
        ring_source: Callable[[], Ring],
        transport: ListingTransport,
        hash_path: HashPath,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """`ring_source` returns the current container ring."""
        self._ring_source = ring_source
        self._transport = transport
        self._hash_path = hash_path
        self._max_waiting = max_waiting
        self._waiting = 0
        self._queues: dict[_Place, _Queue] = {}
        self._late: set[asyncio.Future[None]] = set()
        self._ending = False

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Bring a row to one replica, where it is durable on return. Raises NotFound and NodeError.

        If the call is cancelled the row may or may not be sent.
        """
        await self.submit(account, container, replica_index, row)

    def submit(
        self,
        account: str,
        container: str,
        replica_index: int,
        row: ObjectRow,
        wait_s: float = float("inf"),
        later: bool = False,
    ) -> asyncio.Future[Taken]:
        """Send a row as `send` does, without waiting for the outcome. Raises NodeTimeout unless it is sent within
        `wait_s`.

        With `later` the future is done when the row is listed, and its result tells when that is durable.
        """
        return self.submit_all(account, container, replica_index, (row,), wait_s, later)

    def submit_all(
        self,
        account: str,
        container: str,
        replica_index: int,
        rows: Sequence[ObjectRow],
        wait_s: float = float("inf"),
        later: bool = False,
    ) -> asyncio.Future[Taken]:
        """Send rows that stay together, as `submit` does for one; at most `MAX_BATCH` of them."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Taken] = loop.create_future()
        if self._waiting >= self._max_waiting:
            future.set_exception(NodeBusy(f"{self._waiting} listing rows are waiting for their container servers"))
            return future
        place = (account, container, replica_index)
        queue = self._queues.setdefault(place, _Queue())
        queue.waiting.append(_Waiting(rows, future, loop.time() + wait_s, later))
        queue.count += len(rows)
        self._waiting += len(rows)
        if queue.task is None:
            queue.task = asyncio.create_task(self._serve(place, queue))
        elif queue.count >= queue.enough:
            queue.more.set()
        return future

    async def drain(self, timeout_s: float) -> None:
        """Wait at shutdown for what is in progress or not durable yet; after `timeout_s` the rest is given up."""
        self._ending = True
        for queue in self._queues.values():
            queue.more.set()
        ends_s = asyncio.get_running_loop().time() + timeout_s
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._late:
            await asyncio.wait(self._late, timeout=max(0.0, ends_s - asyncio.get_running_loop().time()))

    async def _serve(self, place: _Place, queue: _Queue) -> None:
        """Send the rows that have gathered until none are left."""
        clock = asyncio.get_running_loop().time
        try:
            while queue.waiting:
                batch, begun_s = self._take(queue), clock()
                await self._send_batch(place, batch)
                took_s = clock() - begun_s
                queue.enough = min(_rows_in(batch) + queue.count, ENOUGH)
                if len(batch) + len(queue.waiting) > 1:
                    await self._gather(queue, min(max(GATHER_S - took_s, took_s / 2), MAX_GATHER_S))
        finally:
            self._queues.pop(place, None)
            self._waiting -= queue.count
            for waiting in queue.waiting:
                waiting.future.cancel()

    async def _gather(self, queue: _Queue, wait_s: float) -> None:
        """Let rows gather for this time, or until there are enough."""
        if queue.count >= queue.enough or self._ending:
            return
        queue.more.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await queue.more.wait()

    def _take(self, queue: _Queue) -> list[_Waiting]:
        """Return the next rows for which somebody still waits and that are not too late."""
        now_s = asyncio.get_running_loop().time()
        batch: list[_Waiting] = []
        room = MAX_BATCH
        while queue.waiting and (not batch or len(queue.waiting[0].rows) <= room):
            waiting = queue.waiting.popleft()
            queue.count -= len(waiting.rows)
            self._waiting -= len(waiting.rows)
            if waiting.future.done():
                continue
            if waiting.too_late_s < now_s:
                waiting.future.set_exception(NodeTimeout("the container server is too slow for the rows before this"))
            else:
                batch.append(waiting)
                room -= len(waiting.rows)
        return batch

    async def _send_batch(self, place: _Place, batch: list[_Waiting]) -> None:
        if not batch:
            return
        taken: Taken = None
        try:
            taken = await self._deliver(
                place, together([waiting.rows for waiting in batch]), all(waiting.later for waiting in batch)
            )
        except Exception as error:  # The error, of any kind, belongs to those who wait.
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
        except asyncio.CancelledError:
            for waiting in batch:
                waiting.future.cancel()
            raise
        else:
            if taken is not None and not taken.done():
                self._late.add(taken)
                taken.add_done_callback(self._late.discard)
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_result(taken)

    async def _deliver(self, place: _Place, rows: Sequence[ObjectRow], later: bool) -> Taken:
        account, container, replica = place
        ring = self._ring_source()
        partition = ring.partition_of(self._hash_path(account, container))
        primaries = ring.primaries(partition)
        device = primaries[replica % len(primaries)]
        UPDATE_REQUESTS.inc()
        UPDATES_SENT.inc(len(rows))
        return await self._transport.bring_rows(device, partition, account, container, rows, later)


def _rows_in(batch: list[_Waiting]) -> int:
    return sum(len(waiting.rows) for waiting in batch)
