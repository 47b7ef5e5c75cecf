"""`RowSink` over the container ring: rows to the container servers, many in one request when many come at once.

While a request to a container replica is on its way, further rows for it gather and go together in the next
one; a busy container then costs its server a request per round trip, not per object. A row alone is not delayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.peers import ListingTransport
from swiftlet.ring.lookup import Ring

_MAX_BATCH = 1000


@dataclass(slots=True)
class _Lane:
    """Rows waiting for one container replica, each with the future of who waits for it."""

    rows: list[tuple[ObjectRow, asyncio.Future[None]]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class ContainerRows:
    """Brings rows to the container replicas that the ring names."""

    def __init__(self, ring_source: Callable[[], Ring], transport: ListingTransport, hash_path: HashPath) -> None:
        """`ring_source` gives the container ring as it is now."""
        self._ring_source = ring_source
        self._transport = transport
        self._hash_path = hash_path
        self._lanes: dict[tuple[str, str, int], _Lane] = {}

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Bring a row to one replica; durable on return. NotFound, NodeError."""
        place = (account, container, replica_index)
        lane = self._lanes.setdefault(place, _Lane())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.rows.append((row, future))
        if lane.task is None:
            lane.task = asyncio.create_task(self._serve(place, lane))
        await future

    async def _serve(self, place: tuple[str, str, int], lane: _Lane) -> None:
        """Send what gathered until nothing does."""
        try:
            while lane.rows:
                batch, lane.rows = lane.rows[:_MAX_BATCH], lane.rows[_MAX_BATCH:]
                await self._send_batch(place, [pair for pair in batch if not pair[1].done()])
        finally:
            self._lanes.pop(place, None)
            for _, future in lane.rows:
                future.cancel()

    async def _send_batch(
        self, place: tuple[str, str, int], batch: list[tuple[ObjectRow, asyncio.Future[None]]]
    ) -> None:
        if not batch:
            return
        try:
            await self._deliver(place, [row for row, _ in batch])
        except Exception as error:  # Whatever it is, it belongs to those who wait.
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        else:
            for _, future in batch:
                if not future.done():
                    future.set_result(None)

    async def _deliver(self, place: tuple[str, str, int], rows: list[ObjectRow]) -> None:
        account, container, replica = place
        ring = self._ring_source()
        partition = ring.partition_of(self._hash_path(account, container))
        primaries = ring.primaries(partition)
        device = primaries[replica % len(primaries)]
        await self._transport.update_rows(device, partition, account, container, rows)
