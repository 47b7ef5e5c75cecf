"""What identifies a listing database and what its replicas compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from swiftlet.model import ContainerRow, ObjectRow
from swiftlet.timestamp import Timestamp

ListingRow: TypeAlias = ObjectRow | ContainerRow
"""A row of a container's database or of an account's."""


class DatabaseKind(Enum):
    """What a database lists; the value is its directory's name and its word in URLs."""

    CONTAINER = "containers"
    """Objects of one container."""
    ACCOUNT = "accounts"
    """Containers of one account."""


@dataclass(frozen=True, slots=True)
class DatabaseId:
    """One database on a device: its kind, its partition in that kind's ring, its name's digest."""

    kind: DatabaseKind
    partition: int
    digest: bytes

    def __str__(self) -> str:
        """As its directory's path on the device."""
        return f"{self.kind.value}/{self.partition}/{self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """Whose database it is; `container` None for an account's."""

    account: str
    container: str | None = None

    def __str__(self) -> str:
        """`/account[/container]`."""
        return f"/{self.account}" if self.container is None else f"/{self.account}/{self.container}"


@dataclass(frozen=True, slots=True, order=True)
class MetadataItem:
    """One metadata item; an empty value says that the item was removed then."""

    name: str
    timestamp: Timestamp
    value: str


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Everything about a database but its rows; of these it has the set hash.

    `metadata` is sorted by name. Two replicas with equal states are equal.
    """

    name: DatabaseName
    created: Timestamp
    put_timestamp: Timestamp
    delete_timestamp: Timestamp
    policy: int
    metadata: tuple[MetadataItem, ...]
    rows_digest: bytes

    @property
    def deleted(self) -> bool:
        """Whether the deletion is newer than the last PUT."""
        return self.delete_timestamp > self.put_timestamp


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of one database with `after < name <= upto`, by name, removed ones included; `upto` "" is the end."""

    rows: Sequence[ListingRow]
    upto: str


def visible(items: Mapping[str, MetadataItem]) -> dict[str, str]:
    """Names and values of the items that were not removed."""
    return {name: items[name].value for name in sorted(items) if items[name].value}
