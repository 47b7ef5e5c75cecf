"""Decides which device keeps the row that a write owes its container, for which replica, and who delivers it.

Services deliver rows themselves (`swiftlet.placement.rows`); a client with direct access leaves that to the devices.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Protocol

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.model import ObjectKey, ObjectRow
from swiftlet.names import Path
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

ReadRow = Callable[[list[Device]], Awaitable[ObjectRow]]
"""A function that reads the row from one of these devices, which have it pending."""


def share(path: Path, replicas: int, index: int, slots: int) -> ContainerUpdate:
    """Return the container's replicas for which slot `index` of `slots` keeps the row."""
    assert path.container is not None
    return ContainerUpdate(path.account, path.container, _share(replicas, index, slots))


@lru_cache(1024)
def _share(replicas: int, index: int, slots: int) -> tuple[int, ...]:
    return tuple(sorted({index % replicas} | set(range(index, replicas, slots))))


class OwedRow(Protocol):
    """The row of one write; told of each object server's answer."""

    def share(self, slot: int) -> ContainerUpdate:
        """Return the container replicas for which a slot keeps the row."""
        ...

    def replied(self, slot: int, device: Device, reply: WriteReply) -> None:
        """Note that an object server has made the write durable; also possible after the write was answered."""
        ...

    def begin(self, row: ObjectRow) -> None:
        """Begin to bring the row to the container's replicas; called when the write has its quorum."""
        ...

    async def finish(self, row: ObjectRow | None, read: ReadRow | None = None) -> bool:
        """Wait until the row is listed, within bounds; return whether the container is missing."""
        ...


class OwedRows(Protocol):
    """Makes the rows of writes."""

    def delivery(self, path: Path, key: ObjectKey, timestamp: Timestamp, slots: int) -> OwedRow:
        """Return the row of a write with so many slots; nothing is sent yet."""
        ...
