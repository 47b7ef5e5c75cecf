"""The in-process twin of `ShardTransport`: a part of `swiftlet.testing.storage.memory_listing`, with its faults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow, RowsChange, ShardLook, Subdir
from swiftlet.ring.model import Device
from swiftlet.sharding import shard_access
from swiftlet.timestamp import Timestamp

T = TypeVar("T")


class MemoryShards(ABC):
    """Shard requests to the stores of the class that inherits this one."""

    @abstractmethod
    async def _ask(self, device: Device, request: Callable[[ListingStore], Awaitable[T]]) -> T:
        """Return the device's answer."""

    async def shard_found(self, device: Device, partition: int, name: DatabaseName, whole: bool) -> None:
        """Behaves as `ShardTransport.shard_found` requires."""
        await self._ask(device, lambda store: shard_access.found(store, partition, name, whole))

    async def shard_merge(
        self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]
    ) -> RowsChange:
        """Behaves as `ShardTransport.shard_merge` requires."""
        return await self._ask(device, lambda store: shard_access.merge(store, partition, name, rows))

    async def shard_page(
        self, device: Device, partition: int, name: DatabaseName, query: ListingQuery, low: str, high: str | None
    ) -> Sequence[ObjectRow | Subdir]:
        """Behaves as `ShardTransport.shard_page` requires."""
        return await self._ask(device, lambda store: shard_access.page(store, partition, name, query, low, high))

    async def shard_look(self, device: Device, partition: int, name: DatabaseName, middle: bool = False) -> ShardLook:
        """Behaves as `ShardTransport.shard_look` requires."""
        return await self._ask(device, lambda store: shard_access.look(store, partition, name, middle))

    async def shard_tail(
        self, device: Device, partition: int, name: DatabaseName, low: str, upto: str | None, limit: int
    ) -> Sequence[ObjectRow]:
        """Behaves as `ShardTransport.shard_tail` requires."""
        return await self._ask(device, lambda store: shard_access.tail(store, partition, name, low, upto, limit))

    async def shard_forget(self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
        """Behaves as `ShardTransport.shard_forget` requires."""
        await self._ask(device, lambda store: shard_access.forget(store, partition, name, rows))

    async def shard_points(
        self, device: Device, partition: int, name: DatabaseName, at: Timestamp, points: Sequence[str], own: bool
    ) -> None:
        """Behaves as `ShardTransport.shard_points` requires."""
        await self._ask(device, lambda store: shard_access.add_points(store, partition, name, at, points, own))
