"""Serves the peers' sync: the operations of `ListingSyncTransport` on the databases of one device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swiftlet.errors import NotFound, StoreFormatError
from swiftlet.listing import sethash, shards
from swiftlet.listing.account_db import combined
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.database import POINT
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.writer import AnyDb
from swiftlet.model import (
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    DatabaseState,
    ListingRow,
    ObjectRow,
    RowPage,
)
from swiftlet.timestamp import ZERO

PAGE_ROWS = 500
"""Rows in one page of sync."""
PAGE_DIGESTS = 16
"""Pages of sync whose set hashes are in one answer."""
PAGE_DATABASES = 5000
"""Databases in one page of those that a device has."""


async def databases_after(
    store: ListingStore, kind: DatabaseKind, after: DatabaseId | None
) -> tuple[list[DatabaseId], bool]:
    """Return the next page of a device's databases of a kind, by partition and digest, and whether there are more."""
    found: list[DatabaseId] = []
    for partition in await store.partitions(kind):
        if after is None or partition >= after.partition:
            found += [
                id
                for id in await store.databases(kind, partition)
                if after is None or (id.partition, id.digest) > (after.partition, after.digest)
            ]
        if len(found) > PAGE_DATABASES:
            return found[:PAGE_DATABASES], True
    return found, False


async def state_of(store: ListingStore, id: DatabaseId) -> DatabaseState:
    """Return a database's state. Raises NotFound."""
    return await store.read(id, lambda database: database.state())


async def merge_state(store: ListingStore, id: DatabaseId, state: DatabaseState) -> DatabaseState:
    """Merge a peer's state, creating the database if it does not exist; return the state after that."""

    forgotten = store.forgotten_before

    def merge(database: AnyDb) -> DatabaseState:
        if database.head.put_timestamp == ZERO and state.deleted and state.delete_timestamp < forgotten:
            raise NotFound(f"{state.name} was deleted so long ago that this device no longer keeps its tombstone")
        if isinstance(database, ContainerDb) and any(item.name.startswith(POINT) for item in state.metadata):
            shards.merge_state(database, state, forgotten)
        else:
            database.merge_state(state, forgotten)
        return database.state()

    _check(store, id, state.name)
    return await store.write(id, merge, create=state.name)


async def rows_page(store: ListingStore, id: DatabaseId, after: str, upto: str) -> RowPage:
    """Return the next page of all rows. Raises NotFound."""
    rows: list[ListingRow] = await store.read(id, lambda database: database.rows(after, upto, PAGE_ROWS + 1))
    if len(rows) <= PAGE_ROWS:
        return RowPage(rows, upto)
    return RowPage(rows[:PAGE_ROWS], rows[PAGE_ROWS - 1].name)


async def page_digests(store: ListingStore, id: DatabaseId, after: str, upto: str) -> list[tuple[str, bytes]]:
    """Return the names at which the next pages end, with their set hashes; the last page ends at `upto`. Raises
    NotFound.
    """
    found: list[tuple[str, bytes]] = []
    while len(found) < PAGE_DIGESTS:
        page = await rows_page(store, id, after, upto)
        found.append((page.upto, sethash.of(page.rows)))
        if page.upto == upto:
            break
        after = page.upto
    return found


async def compare_rows(store: ListingStore, id: DatabaseId, after: str, upto: str, digest: bytes) -> RowPage | None:
    """Return a page of the rows in that range, or None when the whole range has this set hash."""
    page = await rows_page(store, id, after, upto)
    if page.upto == upto and sethash.of(page.rows) == digest:
        return None
    return page


async def merge_rows(store: ListingStore, id: DatabaseId, name: DatabaseName, rows: Sequence[ListingRow]) -> None:
    """Merge a peer's rows, whatever the database's state."""
    _check(store, id, name)
    forgotten = store.forgotten_before
    await store.write(id, lambda database: database.merge(rows, forgotten), max(1, len(rows)), create=name)


async def replace_rows(store: ListingStore, id: DatabaseId, changes: Sequence[tuple[ObjectRow, ObjectRow]]) -> int:
    """Replace each first row by the second where it is unchanged; return how many were replaced. Raises NotFound."""

    def replace(database: AnyDb) -> int:
        assert isinstance(database, ContainerDb)
        return database.replace_all(changes)

    return await store.write(id, replace, max(1, len(changes)))


async def find_rows(store: ListingStore, id: DatabaseId, names: Sequence[str]) -> tuple[list[ObjectRow], str]:
    """Return the rows and markers of these names, and the first split point, above which shards have them.

    Raises NotFound without the database, or when its container was deleted. The database of a shard was never PUT, so
    it only has to exist.
    """

    def find(database: AnyDb) -> tuple[list[ObjectRow], str]:
        assert isinstance(database, ContainerDb)
        if not shards.is_shard(database.head.name):
            database.require()
        return database.find_all(names), min(database.points(), default="")

    return await store.read(id, find)


def merged(one: ListingRow, other: ListingRow) -> ListingRow:
    """Return the row that two replicas' rows of one name merge into."""
    if isinstance(one, ObjectRow) and isinstance(other, ObjectRow):
        return one.merged(other)
    assert isinstance(one, ContainerRow)
    assert isinstance(other, ContainerRow)
    return combined(one, other)


def lacking(rows: Iterable[ListingRow], others: Iterable[ListingRow]) -> list[ListingRow]:
    """Return those of `rows` that have something newer than `others`."""
    known = {row.name: row for row in others}
    return [row for row in rows if row.name not in known or merged(row, known[row.name]) != known[row.name]]


def _check(store: ListingStore, id: DatabaseId, name: DatabaseName) -> None:
    """Raise StoreFormatError unless the hash of a database's name is that of its place.

    They differ when the two servers have different hash secrets.
    """
    if store.id_of(id.partition, name) != id:
        raise StoreFormatError(
            f"{name} does not belong in database {id}; are hash_path_prefix and hash_path_suffix the same on all nodes?"
        )
