"""The boundary through which replicas of a listing database compare each other and exchange what differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, ListingRow, ObjectRow, RowPage
from swiftlet.ring.model import Device


class ListingSyncTransport(Protocol):
    """Whole databases on other nodes' devices. Errors are those of `ListingTransport`."""

    async def databases(
        self, device: Device, kind: DatabaseKind, after: DatabaseId | None
    ) -> tuple[Sequence[DatabaseId], bool]:
        """Return the next page of the device's databases of a kind, by partition and digest, and whether there are
        more.
        """
        ...

    async def exchange_state(self, device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Merge `state` there, creating the database if it does not exist; return the state after that."""
        ...

    async def compare_rows(
        self, device: Device, id: DatabaseId, after: str, upto: str, digest: bytes
    ) -> RowPage | None:
        """Return the rows with `after < name <= upto` ("" for no bound), or None when their set hash is `digest`.

        The page may end before `upto` and says where; it is at most as long as a page of sync.
        """
        ...

    async def merge_rows(self, device: Device, id: DatabaseId, name: DatabaseName, rows: Sequence[ListingRow]) -> None:
        """Merge rows there, whatever the database's state; durable on return."""
        ...

    async def replace_rows(self, device: Device, id: DatabaseId, changes: Sequence[tuple[ObjectRow, ObjectRow]]) -> int:
        """Replace each pair's first row by its second where it is unchanged; return how many were replaced.

        They are durable on return. Raises NotFound.
        """
        ...

    async def find_rows(self, device: Device, id: DatabaseId, names: Sequence[str]) -> tuple[Sequence[ObjectRow], str]:
        """Return a container's or shard's rows and markers of these names, and its first split point ("" for none).

        Rows above the split point are in shards, and not among them. Raises NotFound.
        """
        ...

    async def knock(self, device: Device) -> None:
        """Raise NodeError unless the device's server answers."""
        ...

    async def ask_sync(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a sync session (`swiftlet.sync.session.messages`). Raises NodeError."""
        ...

    async def held_partitions(self, device: Device, kind: DatabaseKind) -> Sequence[int]:
        """Return the partitions with databases of a kind, ascending."""
        ...

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        """Return a database's state. Raises NotFound."""
        ...

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> Sequence[tuple[str, bytes]]:
        """Return the ends of the next pages of the rows with `after < name <= upto`, with the set hash of each page.

        There is at least one; the last page of all ends at `upto`. Raises NotFound.
        """
        ...

    async def forget_database(self, device: Device, id: DatabaseId, fingerprint: bytes) -> bool:
        """Remove a handoff's copy, if it has this fingerprint and does not belong there; return whether it was removed.

        Raises NotFound when there is none.
        """
        ...
