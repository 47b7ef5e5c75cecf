"""Shards of containers on one device of another server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftlet.model import DatabaseName, ListingQuery, ObjectRow, RowsChange, ShardLook, Subdir
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp


class ShardTransport(Protocol):
    """The databases of shards, and split points, on other nodes' devices. Errors are those of `ListingTransport`."""

    async def shard_found(self, device: Device, partition: int, name: DatabaseName, whole: bool) -> None:
        """Begin a shard, whose database may exist already because of sync.

        Only this call begins one. So a shard that is missing later was lost or is elsewhere, and one that was not begun
        came by sync, perhaps from replicas to which not all rows have been moved. Without `whole` the shard does not
        count as begun, because it will not get all rows.
        """
        ...

    async def shard_merge(
        self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]
    ) -> RowsChange:
        """Merge rows into a shard; they are durable on return. Raises NotFound."""
        ...

    async def shard_page(
        self, device: Device, partition: int, name: DatabaseName, query: ListingQuery, low: str, high: str | None
    ) -> Sequence[ObjectRow | Subdir]:
        """Return one page of the shard's rows in `[low, high)`. Raises NotFound."""
        ...

    async def shard_look(self, device: Device, partition: int, name: DatabaseName, middle: bool = False) -> ShardLook:
        """Return the state of a shard, or of a container's own database. Raises NotFound."""
        ...

    async def shard_tail(
        self, device: Device, partition: int, name: DatabaseName, low: str, upto: str | None, limit: int
    ) -> Sequence[ObjectRow]:
        """Return the shard's last rows with `low < name <= upto` in descending order, removed ones included. Raises
        NotFound.
        """
        ...

    async def shard_forget(self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
        """Remove rows without a marker where they are as given."""
        ...

    async def shard_points(
        self, device: Device, partition: int, name: DatabaseName, at: Timestamp, points: Sequence[str], own: bool
    ) -> None:
        """Split a container at these points (`own`), or tell a shard where it ends. Raises NotFound."""
        ...
