"""Account and container databases on one device of another server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from swiftlet.model import (
    AccountInfo,
    Bounds,
    Claim,
    Confirmation,
    ContainerInfo,
    ContainerRow,
    DatabaseName,
    Excess,
    ListingQuery,
    MetadataBounds,
    ObjectRow,
    Subdir,
)
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp


class PageForm(Enum):
    """How a page of a container's listing may be written where its rows are."""

    JSON = "json"
    """The format of the API's JSON listings."""
    PLAIN = "plain"
    """A name and a line feed for each row."""


class ListingTransport(Protocol):
    """Account and container databases on other nodes' devices. `partition` is the database's in its own ring."""

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
        """Create or update a container; True when created. An empty metadata value removes the item.

        TooMuchMetadata where what there is after the merge is more than `bounds` allow, and more than before.
        `policy` None keeps the existing container's, or `default_policy` for a new one; PolicyConflict when it
        exists with another one.
        """
        ...

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
        """Merge metadata items (each newest wins, an empty value removes); NotFound, TooMuchMetadata."""
        ...

    async def delete_container(
        self, device: Device, partition: int, account: str, container: str, timestamp: Timestamp
    ) -> None:
        """Delete the container; NotEmpty, NotFound."""
        ...

    async def container_info(self, device: Device, partition: int, account: str, container: str) -> ContainerInfo:
        """Totals and metadata; NotFound."""
        ...

    async def list_objects(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """One page of a container's listing with its totals, from one view of the database; NotFound."""
        ...

    async def list_text(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Return a page as `list_objects` does, as text in UTF-8 unless its rows are needed to make it; NotFound."""
        ...

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        """Merge object rows, newest wins; durable on return. NotFound when there is no such container."""
        ...

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Send rows as `update_rows` does; with `later`, for rows that are pending until they are durable, it may
        return before.

        Then it returns what is done when they are durable, or fails when that can't be known any more.
        """
        ...

    async def put_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update an account; True when created. TooMuchMetadata."""
        ...

    async def post_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata items; NotFound, TooMuchMetadata."""
        ...

    async def delete_account(self, device: Device, partition: int, account: str, timestamp: Timestamp) -> None:
        """Delete; NotEmpty while it has containers, NotFound."""
        ...

    async def account_info(self, device: Device, partition: int, account: str) -> AccountInfo:
        """Totals and metadata; NotFound."""
        ...

    async def list_containers(
        self, device: Device, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """One page of an account's listing with its totals; NotFound."""
        ...

    async def update_containers(
        self, device: Device, partition: int, account: str, rows: Sequence[ContainerRow]
    ) -> None:
        """Merge container rows and totals, newest wins; creates the account's database if it is not there."""
        ...

    async def take_claim(
        self, device: Device, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int
    ) -> Excess | None:
        """Hold a claim on an account or container for `life_s`, or change it; why not if it does not fit. NotFound."""
        ...

    async def confirm_claim(
        self, device: Device, partition: int, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool
    ) -> Confirmation:
        """A write is done: its claim ends with its row. `report`: the account is told of a container's totals first."""
        ...

    async def cancel_claim(self, device: Device, partition: int, name: DatabaseName, claim_id: str) -> None:
        """End a claim whose write has failed; nothing is counted for it any more."""
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...
