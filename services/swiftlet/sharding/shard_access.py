"""Serves the shards of containers whose replicas are elsewhere: `ShardTransport` on the databases of this device."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet.errors import NotFound
from swiftlet.listing import metrics, shards
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.query import Span
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow, RowsChange, ShardLook, Subdir
from swiftlet.timestamp import Timestamp


async def found(store: ListingStore, partition: int, name: DatabaseName, whole: bool) -> None:
    """Behaves as `ShardTransport.shard_found` requires."""
    await store.write(store.id_of(partition, name), lambda database: shards.found(database, whole), create=name)


async def merge(store: ListingStore, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> RowsChange:
    """Behaves as `ShardTransport.shard_merge` requires."""
    grows = not all(row.deleted for row in rows)
    change = await store.write(
        store.id_of(partition, name),
        lambda database: shards.merge(database, rows),
        max(1, len(rows)),
        grows=grows,
    )
    metrics.OBJECT_ROWS_MERGED.inc(len(rows))
    return change


async def page(
    store: ListingStore, partition: int, name: DatabaseName, query: ListingQuery, low: str, high: str | None
) -> Sequence[ObjectRow | Subdir]:
    """Behaves as `ShardTransport.shard_page` requires."""
    clip = Span(low, high)
    return await store.read(store.id_of(partition, name), lambda database: shards.page(database, query, clip))


async def look(store: ListingStore, partition: int, name: DatabaseName, middle: bool) -> ShardLook:
    """Behaves as `ShardTransport.shard_look` requires."""
    return await store.read(store.id_of(partition, name), lambda database: shards.look(database, middle))


async def tail(
    store: ListingStore, partition: int, name: DatabaseName, low: str, upto: str | None, limit: int
) -> Sequence[ObjectRow]:
    """Behaves as `ShardTransport.shard_tail` requires."""
    return await store.read(store.id_of(partition, name), lambda database: shards.tail(database, low, upto, limit))


async def forget(store: ListingStore, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
    """Behaves as `ShardTransport.shard_forget` requires."""
    id = store.id_of(partition, name)
    await store.write(id, lambda database: shards.forget(database, rows), max(1, len(rows)), grows=False)


async def add_points(
    store: ListingStore, partition: int, name: DatabaseName, at: Timestamp, points: Sequence[str], own: bool
) -> None:
    """Behaves as `ShardTransport.shard_points` requires."""

    def add(database: ContainerDb) -> int:
        if own == shards.is_shard(database.head.name):
            raise NotFound(f"{name} is {'a' if own else 'not a'} shard")
        return shards.add_points(database, at, points, own)

    await store.write(store.id_of(partition, name), add)
