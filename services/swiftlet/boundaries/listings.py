"""Account and container databases on one device of another server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """The forms in which a container server can write a page of a container's listing itself."""

    JSON = "json"
    """The format of the API's JSON listings."""
    PLAIN = "plain"
    """A name and a line feed for each row."""


@dataclass(frozen=True, slots=True)
class ListingChange:
    """The changes of containers on a server: its epoch, the number of the last one, and which containers they were.

    `containers` has the digests of their names; None where it is not known which have changed.
    """

    epoch: str
    number: int
    containers: Sequence[bytes] | None


class ChangeSource(Protocol):
    """What has changed on other nodes, apart from rows."""

    async def changes(self, device: Device, epoch: str, number: int) -> ListingChange:
        """Return what has changed on the device's server since that number in that epoch. Raises NodeError."""
        ...


class ListingTransport(Protocol):
    """Account and container databases on other nodes' devices; `partition` is the database's in its own ring."""

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
        """Create or update a container; return whether it was created. An empty metadata value removes the item.

        `policy` None keeps the existing container's, or takes `default_policy` for a new one. Raises PolicyConflict
        when the container exists with another policy, and TooMuchMetadata where the metadata after the merge is more
        than `bounds` allow, and more than before.
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
        """Merge metadata items (of each the newest wins, an empty value removes it). Raises NotFound and
        TooMuchMetadata.
        """
        ...

    async def delete_container(
        self, device: Device, partition: int, account: str, container: str, timestamp: Timestamp
    ) -> None:
        """Delete the container. Raises NotEmpty and NotFound."""
        ...

    async def container_info(
        self, device: Device, partition: int, account: str, container: str, merged: bool = True
    ) -> ContainerInfo:
        """Return the totals and metadata of the container. Raises NotFound.

        Without `merged` the totals may lack rows that the server has taken and not merged into the database yet, which
        costs it less.
        """
        ...

    async def list_objects(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Return one page of a container's listing with its totals, from one view of the database. Raises NotFound."""
        ...

    async def list_text(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Return a page as `list_objects` does, as text in UTF-8 unless its rows are needed to make it. Raises
        NotFound.
        """
        ...

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        """Merge object rows, of which the newest wins; they are durable on return. Raises NotFound without
        a container.
        """
        ...

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Send rows as `update_rows` does.

        With `later`, for rows that are pending until they are durable, it may return before they are. Then it returns a
        future that is done when they are durable, or fails when that can't be known any more.
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
        """Create or update an account; return whether it was created. Raises TooMuchMetadata."""
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
        """Merge metadata items. Raises NotFound and TooMuchMetadata."""
        ...

    async def delete_account(self, device: Device, partition: int, account: str, timestamp: Timestamp) -> None:
        """Delete the account. Raises NotEmpty while it has containers, and NotFound."""
        ...

    async def account_info(self, device: Device, partition: int, account: str) -> AccountInfo:
        """Return the totals and metadata of the account. Raises NotFound."""
        ...

    async def list_containers(
        self, device: Device, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """Return one page of an account's listing with its totals. Raises NotFound."""
        ...

    async def update_containers(
        self, device: Device, partition: int, account: str, rows: Sequence[ContainerRow]
    ) -> None:
        """Merge container rows and totals, of which the newest win; the account's database is created if it does not
        exist.
        """
        ...

    async def take_claim(
        self, device: Device, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int
    ) -> Excess | None:
        """Hold a claim on an account or container for `life_s` seconds, or change it.

        Returns the reason when it does not fit. Raises NotFound.
        """
        ...

    async def confirm_claim(
        self, device: Device, partition: int, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool
    ) -> Confirmation:
        """End the claim of a finished write once its row is there.

        With `report` the container's totals are reported to its account first.
        """
        ...

    async def cancel_claim(self, device: Device, partition: int, name: DatabaseName, claim_id: str) -> None:
        """Release the claim of a write that failed."""
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...
