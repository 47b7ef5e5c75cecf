"""Shards of containers on one device of another server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftlet.model import DatabaseName, ListingQuery, ObjectRow, RowsChange, ShardLook, Subdir
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp


class ShardTransport(Protocol):
    """Shards' databases on devices, and split points. Errors as with `ListingTransport`."""

    async def shard_found(self, device: Device, partition: int, name: DatabaseName, whole: bool) -> None:
        """Begin a shard, whose database may be there by sync.

        Nothing else makes it: one that is missing later is lost or elsewhere, and one that is not founded then came by
        sync, perhaps from replicas to which not all has been moved. Not `whole`: nor will be what is moved to it.
        """
        ...

    async def shard_merge(
        self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]
    ) -> RowsChange:
        """Merge rows into a shard; durable on return. NotFound."""
        ...

    async def shard_page(
        self, device: Device, partition: int, name: DatabaseName, query: ListingQuery, low: str, high: str | None
    ) -> Sequence[ObjectRow | Subdir]:
        """One page of what it has in `[low, high)`; NotFound."""
        ...

    async def shard_look(self, device: Device, partition: int, name: DatabaseName, middle: bool = False) -> ShardLook:
        """How it stands; also asked of a container's own database. NotFound."""
        ...

    async def shard_tail(
        self, device: Device, partition: int, name: DatabaseName, low: str, upto: str | None, limit: int
    ) -> Sequence[ObjectRow]:
        """Return its highest rows with `low < name <= upto` from the top down, removed ones included; NotFound."""
        ...

    async def shard_forget(self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
        """Remove rows without a trace where they are as given."""
        ...

    async def shard_points(
        self, device: Device, partition: int, name: DatabaseName, at: Timestamp, points: Sequence[str], own: bool
    ) -> None:
        """Split a container there (`own`), or tell a shard where it ends; NotFound."""
        ...
