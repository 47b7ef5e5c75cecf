"""The boundary through which replicas of a listing database compare and complete each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, ListingRow, ObjectRow, RowPage
from swiftlet.ring.model import Device


class ListingSyncTransport(Protocol):
    """Databases on other nodes' devices, whole. Errors as with `ListingTransport`."""

    async def databases(
        self, device: Device, kind: DatabaseKind, after: DatabaseId | None
    ) -> tuple[Sequence[DatabaseId], bool]:
        """The next page of the databases of a kind that are there, by partition and digest; whether there are more."""
        ...

    async def exchange_state(self, device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Merge `state` there, making the database if need be; the state after that."""
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
        """Put the second row of each pair in the place of the first, where that is there unchanged; how many were.

        Durable on return; NotFound.
        """
        ...

    async def find_rows(self, device: Device, id: DatabaseId, names: Sequence[str]) -> tuple[Sequence[ObjectRow], str]:
        """A container's or shard's rows and markers of these names, and its first split point ("": none); NotFound.

        Rows above the split point are in shards, and not among them.
        """
        ...

    async def knock(self, device: Device) -> None:
        """NodeError unless the device's server answers."""
        ...

    async def ask_sync(self, device: Device, message: bytes) -> bytes:
        """The answer to a question of a sync session (`swiftlet.sync.session.messages`); NodeError."""
        ...

    async def held_partitions(self, device: Device, kind: DatabaseKind) -> Sequence[int]:
        """Partitions with databases of a kind, ascending."""
        ...

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        """A database's state; NotFound."""
        ...

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> Sequence[tuple[str, bytes]]:
        """The next pages of what is there with `after < name <= upto`: where each ends, and its set hash.

        At least one; the last page of all ends at `upto`. NotFound.
        """
        ...

    async def forget_database(self, device: Device, id: DatabaseId, fingerprint: bytes) -> bool:
        """Take a handoff's copy off the device, if it has this fingerprint and does not belong there; whether it went.

        NotFound when there is none.
        """
        ...
