"""The part of `memory_listing` that container servers have for the rounds of replicators, in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from swiftlet.listing import replica
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseState, ObjectRow
from swiftlet.ring.model import Device
from swiftlet.servers.containers.listing_answers import answer_databases
from swiftlet.servers.containers.listing_index import ListingIndex
from swiftlet.servers.shared.sync_answers import PlacedBy, nowhere

T = TypeVar("T")


class MemoryDatabases(ABC):
    """Sync requests to the stores of the class that inherits this one."""

    def __init__(self) -> None:
        """Start with devices that no ring places."""
        self.placed: dict[str, PlacedBy] = {}
        """How rings place devices, by name; a device that is missing here has no ring."""
        self._indexes: WeakKeyDictionary[ListingStore, ListingIndex] = WeakKeyDictionary()

    @abstractmethod
    async def _ask(self, device: Device, request: Callable[[ListingStore], Awaitable[T]]) -> T:
        """Return the device's answer."""

    def _index(self, store: ListingStore) -> ListingIndex:
        if store not in self._indexes:
            self._indexes[store] = ListingIndex(store)
        return self._indexes[store]

    async def knock(self, device: Device) -> None:
        """Behaves as `ListingSyncTransport.knock` requires."""

        async def knock(store: ListingStore) -> None:
            store.require()

        await self._ask(device, knock)

    async def ask_sync(self, device: Device, message: bytes) -> bytes:
        """Behaves as `ListingSyncTransport.ask_sync` requires."""
        placed = self.placed.get(device.name, nowhere)
        return await self._ask(device, lambda store: answer_databases(self._index(store), message, placed))

    async def held_partitions(self, device: Device, kind: DatabaseKind) -> Sequence[int]:
        """Behaves as `ListingSyncTransport.held_partitions` requires."""

        async def held(store: ListingStore) -> Sequence[int]:
            await self._index(store).ready(kind)
            return self._index(store).partitions(kind)

        return await self._ask(device, held)

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        """Behaves as `ListingSyncTransport.database_state` requires."""
        return await self._ask(device, lambda store: replica.state_of(store, id))

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> Sequence[tuple[str, bytes]]:
        """Behaves as `ListingSyncTransport.page_digests` requires."""
        return await self._ask(device, lambda store: replica.page_digests(store, id, after, upto))

    async def replace_rows(self, device: Device, id: DatabaseId, changes: Sequence[tuple[ObjectRow, ObjectRow]]) -> int:
        """Behaves as `ListingSyncTransport.replace_rows` requires."""
        return await self._ask(device, lambda store: replica.replace_rows(store, id, changes))

    async def find_rows(self, device: Device, id: DatabaseId, names: Sequence[str]) -> tuple[Sequence[ObjectRow], str]:
        """Behaves as `ListingSyncTransport.find_rows` requires."""
        return await self._ask(device, lambda store: replica.find_rows(store, id, names))

    async def forget_database(self, device: Device, id: DatabaseId, fingerprint: bytes) -> bool:
        """Behaves as `ListingSyncTransport.forget_database` requires."""
        return await self._ask(device, lambda store: store.remove(id, fingerprint))
