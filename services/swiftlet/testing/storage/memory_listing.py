"""The in-process twin of the listing transport: calls the stores of the devices directly, with injected faults.

Fault model for tests: a device can be unreachable (nothing is carried out), busy (nothing is carried out), or time out
(the request is carried out, or not, and the answer is lost either way).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from enum import Enum
from functools import partial
from typing import TypeVar

from swiftlet.boundaries.listings import PageForm
from swiftlet.errors import DeviceFailed, NodeBusy, NodeError, NodeTimeout, NodeUnreachable, StoreFormatError
from swiftlet.listing import replica
from swiftlet.listing.pool import ListingStore
from swiftlet.model import (
    AccountInfo,
    Bounds,
    Claim,
    Confirmation,
    ContainerInfo,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    DatabaseState,
    Excess,
    ListingQuery,
    ListingRow,
    MetadataBounds,
    ObjectRow,
    RowPage,
    Subdir,
)
from swiftlet.ring.model import Device
from swiftlet.servers.containers.claims import Claims
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.testing.storage.memory_databases import MemoryDatabases
from swiftlet.testing.storage.memory_shards import MemoryShards
from swiftlet.timestamp import Timestamp

T = TypeVar("T")
Hook = Callable[[Device, DatabaseName], Awaitable[None]]


class Fault(Enum):
    """The faults that a test gives a device."""

    UNREACHABLE = "unreachable"
    BUSY = "busy"
    TIMEOUT_BEFORE = "timeout before the request is carried out"
    TIMEOUT_AFTER = "timeout after the request was carried out"


class MemoryListingTransport(MemoryDatabases, MemoryShards):
    """`ListingTransport` and `ListingSyncTransport` to stores in this process, by device name."""

    def __init__(self, stores: Mapping[str, ListingStore]) -> None:
        """`stores` by the devices' unique names; a device without one is unreachable."""
        super().__init__()
        self._stores = stores
        self.faults: MutableMapping[str, Fault] = {}
        """Faults by device name; may be changed at any time."""
        self.after_container_change: Hook | None = None
        """Called after a PUT or DELETE before the answer, where a container server reports to the account."""
        self.report: Callable[[str, DatabaseId], Awaitable[bool]] | None = None
        """Reports the totals of a container on the device of that name to its account."""
        self.claims = {name: Claims(store, partial(self._report, name)) for name, store in stores.items()}
        """Claims by device name; a new object stands for a restarted server."""
        self.sharded: dict[str, ShardedReplicas] = {}
        """Shards by device name, where containers are split."""

    async def _ask(self, device: Device, request: Callable[[ListingStore], Awaitable[T]]) -> T:
        await asyncio.sleep(0)
        fault, store = self.faults.get(device.name), self._stores.get(device.name)
        if store is None or fault is Fault.UNREACHABLE:
            raise NodeUnreachable(f"{device.address} is unreachable")
        if fault is Fault.BUSY:
            raise NodeBusy(f"{device.address} is busy")
        if fault is Fault.TIMEOUT_BEFORE:
            raise NodeTimeout(f"{device.address} did not answer")
        try:
            answer = await request(store)
        except DeviceFailed:
            raise
        except StoreFormatError as error:
            raise NodeError(f"{device.address}: {error}") from error
        if fault is Fault.TIMEOUT_AFTER:
            raise NodeTimeout(f"{device.address} did not answer")
        return answer

    def _containers(self, device: Device, store: ListingStore) -> ListingStore | ShardedReplicas:
        return self.sharded.get(device.name, store)

    async def _changed(self, device: Device, account: str, container: str) -> None:
        if self.after_container_change is not None:
            await self.after_container_change(device, DatabaseName(account, container))

    async def _report(self, device: str, id: DatabaseId) -> bool:
        return self.report is not None and await self.report(device, id)

    async def take_claim(
        self, device: Device, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int
    ) -> Excess | None:
        """Behaves as `ListingTransport.take_claim` requires."""
        claims = self.claims.get(device.name)
        return await self._ask(device, lambda _: _there(claims).take(partition, name, claim, bounds, life_s))

    async def confirm_claim(
        self, device: Device, partition: int, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool
    ) -> Confirmation:
        """Behaves as `ListingTransport.confirm_claim` requires."""
        claims = self.claims.get(device.name)
        return await self._ask(device, lambda _: _there(claims).confirm(partition, name, claim_id, row, at, report))

    async def cancel_claim(self, device: Device, partition: int, name: DatabaseName, claim_id: str) -> None:
        """Behaves as `ListingTransport.cancel_claim` requires."""
        claims = self.claims.get(device.name)
        await self._ask(device, lambda _: _there(claims).cancel(partition, name, claim_id))

    async def put_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Behaves as `ListingTransport.put_container` requires."""

        async def put(store: ListingStore) -> bool:
            created = await store.put_container(
                partition, account, container, timestamp, metadata, policy, default_policy, bounds
            )
            await self._changed(device, account, container)
            return created

        return await self._ask(device, put)

    async def post_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Behaves as `ListingTransport.post_container` requires."""
        place = partition, account, container
        await self._ask(device, lambda store: store.post_container(*place, timestamp, metadata, bounds))

    async def delete_container(
        self, device: Device, partition: int, account: str, container: str, timestamp: Timestamp
    ) -> None:
        """Behaves as `ListingTransport.delete_container` requires."""

        async def delete(store: ListingStore) -> None:
            await self._containers(device, store).delete_container(partition, account, container, timestamp)
            await self._changed(device, account, container)

        await self._ask(device, delete)

    async def container_info(
        self, device: Device, partition: int, account: str, container: str, merged: bool = True
    ) -> ContainerInfo:
        """Behaves as `ListingTransport.container_info` requires."""
        return await self._ask(device, lambda store: store.container_info(partition, account, container, merged))

    async def list_objects(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Behaves as `ListingTransport.list_objects` requires."""
        return await self._ask(
            device,
            lambda store: self._containers(device, store).list_objects(partition, account, container, query),
        )

    async def list_text(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Behaves as `ListingTransport.list_text` requires."""

        async def page(store: ListingStore) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
            place = partition, account, container
            found = await store.list_text(*place, query, form)
            return found or await self._containers(device, store).list_objects(*place, query)

        return await self._ask(device, page)

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        """Behaves as `ListingTransport.update_rows` requires."""
        await self._ask(
            device, lambda store: self._containers(device, store).update_rows(partition, account, container, rows)
        )

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Behaves as `ListingTransport.bring_rows` requires."""

        async def bring(store: ListingStore) -> asyncio.Future[None] | None:
            await self._containers(device, store).update_rows(partition, account, container, rows, later)
            return store.durable(store.id_of(partition, DatabaseName(account, container))) if later else None

        return await self._ask(device, bring)

    async def put_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Behaves as `ListingTransport.put_account` requires."""
        return await self._ask(device, lambda store: store.put_account(partition, account, timestamp, metadata, bounds))

    async def post_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Behaves as `ListingTransport.post_account` requires."""
        await self._ask(device, lambda store: store.post_account(partition, account, timestamp, metadata, bounds))

    async def delete_account(self, device: Device, partition: int, account: str, timestamp: Timestamp) -> None:
        """Behaves as `ListingTransport.delete_account` requires."""
        await self._ask(device, lambda store: store.delete_account(partition, account, timestamp))

    async def account_info(self, device: Device, partition: int, account: str) -> AccountInfo:
        """Behaves as `ListingTransport.account_info` requires."""
        return await self._ask(device, lambda store: store.account_info(partition, account))

    async def list_containers(
        self, device: Device, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """Behaves as `ListingTransport.list_containers` requires."""
        return await self._ask(device, lambda store: store.list_containers(partition, account, query))

    async def update_containers(
        self, device: Device, partition: int, account: str, rows: Sequence[ContainerRow]
    ) -> None:
        """Behaves as `ListingTransport.update_containers` requires."""
        await self._ask(device, lambda store: store.update_containers(partition, account, rows))

    async def databases(
        self, device: Device, kind: DatabaseKind, after: DatabaseId | None
    ) -> tuple[Sequence[DatabaseId], bool]:
        """Behaves as `ListingSyncTransport.databases` requires."""
        return await self._ask(device, lambda store: replica.databases_after(store, kind, after))

    async def exchange_state(self, device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Behaves as `ListingSyncTransport.exchange_state` requires."""
        return await self._ask(device, lambda store: replica.merge_state(store, id, state))

    async def compare_rows(
        self, device: Device, id: DatabaseId, after: str, upto: str, digest: bytes
    ) -> RowPage | None:
        """Behaves as `ListingSyncTransport.compare_rows` requires."""
        return await self._ask(device, lambda store: replica.compare_rows(store, id, after, upto, digest))

    async def merge_rows(self, device: Device, id: DatabaseId, name: DatabaseName, rows: Sequence[ListingRow]) -> None:
        """Behaves as `ListingSyncTransport.merge_rows` requires."""
        await self._ask(device, lambda store: replica.merge_rows(store, id, name, rows))

    async def close(self) -> None:
        """Do nothing; the stores belong to whoever created them."""


def _there(claims: Claims | None) -> Claims:
    """Return the claims of an existing device."""
    assert claims is not None
    return claims
