"""The boundary through which replicas of a listing database compare and complete each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, ListingRow, RowPage
from swiftlet.ring.model import Device


class ListingSyncTransport(Protocol):
    """Databases on other nodes' devices, whole. Errors as with `ListingTransport`."""

    async def differing(self, device: Device, databases: Sequence[tuple[DatabaseId, bytes]]) -> Sequence[DatabaseId]:
        """Which of these databases are not there with this fingerprint."""
        ...

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
        """What is there with `after < name <= upto` ("" for no bound), or None when its set hash is `digest`.

        The page may end before `upto` and says where; it is at most as long as a page of sync.
        """
        ...

    async def merge_rows(self, device: Device, id: DatabaseId, name: DatabaseName, rows: Sequence[ListingRow]) -> None:
        """Merge rows there, whatever the database's state; durable on return."""
        ...
