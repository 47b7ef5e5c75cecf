"""Acknowledges container updates, in batches, to the object servers that have them pending.

Fault model: a server may hang or be gone, and this process may die with acknowledgements not sent. Each device has a
queue and a task of its own, so that one does not hold up the others; what can't be sent is dropped. That only costs a
second delivery of the row, by the object server itself, and so does everything beyond the limits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from swiftlet.boundaries.objects import MAX_ACKNOWLEDGED
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.placement.metrics import ACKNOWLEDGED
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

INTERVAL_S = 0.1
"""Seconds for which versions gather: rows are delivered a second time only after longer, and a batch costs as much as
one.
"""
MAX_WAITING = 100_000
"""The largest number of versions that wait in a process, some 30 MB."""

_log = structlog.get_logger("placement")

Version = tuple[ObjectKey, Timestamp]


class Acknowledges(Protocol):
    """The method of `ObjectTransport` that this module uses."""

    async def acknowledge(self, device: Device, written: Sequence[Version]) -> None:
        """Behaves as `ObjectTransport.acknowledge` requires."""
        ...


@dataclass(slots=True)
class _Queue:
    """The versions that one device still has to be told."""

    device: Device
    versions: list[Version] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Acknowledgements:
    """The acknowledgements that wait for each device, and the tasks that send them."""

    def __init__(self, transport: Acknowledges, interval_s: float = INTERVAL_S, max_waiting: int = MAX_WAITING) -> None:
        self._transport = transport
        self._interval_s = interval_s
        self._max_waiting = max_waiting
        self._waiting = 0
        self._queues: dict[str, _Queue] = {}
        self._ending = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of acknowledgements that have not been sent yet."""
        return self._waiting

    def add(self, device: Device, key: ObjectKey, timestamp: Timestamp) -> None:
        """Acknowledge the row of this version to the device, which then need not keep it any longer."""
        self.add_all(device, [(key, timestamp)])

    def add_all(self, device: Device, written: Sequence[Version]) -> None:
        """Add several versions, as `add` does for one."""
        room = max(0, self._max_waiting - self._waiting)
        if len(written) > room:
            ACKNOWLEDGED.labels("dropped").inc(len(written) - room)
            written = written[:room]
        if not written:
            return
        self._waiting += len(written)
        queue = self._queues.setdefault(device.address, _Queue(device))
        queue.versions += written
        if queue.task is None:
            queue.task = asyncio.create_task(self._serve(queue))

    async def drain(self, timeout_s: float) -> None:
        """Send at shutdown what waits; drop what could not be sent within `timeout_s`."""
        self._ending.set()
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, queue: _Queue) -> None:
        """Send acknowledgements to one device until none are left."""
        try:
            while queue.versions:
                if len(queue.versions) < MAX_ACKNOWLEDGED:
                    await self._gather_more()
                versions, queue.versions = queue.versions[:MAX_ACKNOWLEDGED], queue.versions[MAX_ACKNOWLEDGED:]
                await self._tell(queue.device, versions)
        finally:
            self._queues.pop(queue.device.address, None)
            self._waiting -= len(queue.versions)
            ACKNOWLEDGED.labels("dropped").inc(len(queue.versions))

    async def _gather_more(self) -> None:
        if self._ending.is_set():
            return
        try:
            async with asyncio.timeout(self._interval_s):
                await self._ending.wait()
        except TimeoutError:
            return

    async def _tell(self, device: Device, versions: list[Version]) -> None:
        outcome = "lost"
        try:
            await self._transport.acknowledge(device, versions)
            outcome = "acknowledged"
        except SwiftletError as error:
            _log.info(
                "an acknowledgement of container updates failed",
                device=device.name,
                rows=len(versions),
                error=str(error),
            )
        finally:
            self._waiting -= len(versions)
            ACKNOWLEDGED.labels(outcome).inc(len(versions))
