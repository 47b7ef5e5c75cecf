"""Values that cross boundaries: what stores hold, transports carry and the API shows. They have no
behaviour, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeAlias

from swiftlet.policy_moves import PolicyMove
from swiftlet.timestamp import ZERO, Timestamp

DIGEST_SIZE = 16
"""Bytes of a name's digest."""
SUFFIX_CHARS = 3
"""The number of hex digits at the end of a digest that name its suffix."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The location of an object on a device: storage policy index, partition, and the 16-byte digest of its name."""

    policy: int
    partition: int
    digest: bytes

    @property
    def hex(self) -> str:
        """Return the digest in hex, 32 digits."""
        return self.digest.hex()

    @property
    def suffix(self) -> str:
        """Return the digest's last three hex digits: the unit in which partitions are compared."""
        return self.digest.hex()[-SUFFIX_CHARS:]


class Kind(IntEnum):
    """The kind of an object's newest record."""

    DATA = 1
    TOMBSTONE = 2


@dataclass(frozen=True, slots=True)
class PutRecord:
    """Everything about a new version of an object except its bytes.

    `name` is `/account/container/object`; `metadata` is what a POST replaces as a whole (user metadata,
    Content-Encoding, X-Delete-At, ...); `sysmeta` is fixed by the PUT. Content-Type is a field of its own because a
    POST may change it or leave it.
    """

    name: str
    timestamp: Timestamp
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    sysmeta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutFooter:
    """The part of a record that is known only after the last byte: size in bytes, ETag, xxh3-64 of the data."""

    size: int
    etag: str
    xxh3: int


@dataclass(frozen=True, slots=True)
class PostRecord:
    """Metadata that replaces an object's from `timestamp` on.

    With `content_type` None the type stays as it is; otherwise it counts from `content_type_timestamp` (the same as
    `timestamp` when a client sends both at once).
    """

    timestamp: Timestamp
    metadata: Mapping[str, str]
    content_type: str | None = None
    content_type_timestamp: Timestamp = ZERO


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A stored object after all PUTs and POSTs are merged.

    `timestamp` is the data's, `meta_timestamp` that of the newest POST (equal to `timestamp` when none),
    `content_type_timestamp` that of the request that set the content type last.
    """

    name: str
    timestamp: Timestamp
    size: int
    etag: str
    xxh3: int | None
    """xxh3-64 of the data; None of objects with erasure coding, of which each cell has its own."""
    content_type: str
    metadata: Mapping[str, str]
    sysmeta: Mapping[str, str]
    meta_timestamp: Timestamp
    content_type_timestamp: Timestamp

    @property
    def modified(self) -> Timestamp:
        """Return the newest of its timestamps: `X-Timestamp` and `Last-Modified` in the API."""
        return max(self.timestamp, self.meta_timestamp)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One object when partitions are compared: the versions of it that a device holds, in 16 + 1 + 3 x 8 bytes."""

    digest: bytes
    kind: Kind
    timestamp: Timestamp
    meta_timestamp: Timestamp = ZERO
    content_type_timestamp: Timestamp = ZERO


@dataclass(frozen=True, slots=True)
class Usage:
    """A device's fullness in bytes, the number of objects and tombstones on it (None where counting is too costly),
    and whether bodies are written past the page cache (None where there are none).
    """

    total_bytes: int
    free_bytes: int
    objects: int | None = None
    writes_directly: bool | None = None


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One object's row in its container's listing; `deleted` rows are kept as markers until reclaimed.

    `timestamp` is the data's or the deletion's, and ranks size and ETag. `content_type_timestamp` and `meta_timestamp`
    are those of POSTs that set the content type and the metadata, ZERO when none is newer than `timestamp`. A marker
    keeps a newer content type and its timestamps, for data between the deletion and the POST may still arrive.
    """

    name: str
    timestamp: Timestamp
    size: int = 0
    etag: str = ""
    content_type: str = ""
    deleted: bool = False
    content_type_timestamp: Timestamp = ZERO
    meta_timestamp: Timestamp = ZERO

    @classmethod
    def of(cls, name: str, info: ObjectInfo) -> ObjectRow:
        """Return the row of an object as a device holds it, POSTs included."""
        stamp = info.timestamp
        typed = info.content_type_timestamp if info.content_type_timestamp > stamp else ZERO
        posted = info.meta_timestamp if info.meta_timestamp > stamp else ZERO
        return cls(name, stamp, info.size, info.etag, info.content_type, False, typed, posted)

    @property
    def modified(self) -> Timestamp:
        """Return the newest of its timestamps: `last_modified` in listings."""
        return max(self.timestamp, self.meta_timestamp)

    @property
    def plain(self) -> ObjectRow:
        """Return the row in its stored form: without redundant timestamps, and without size and ETag when it is
        deleted.
        """
        typed = self.content_type_timestamp if self.content_type_timestamp > self.timestamp else ZERO
        posted = self.meta_timestamp if self.meta_timestamp > self.timestamp else ZERO
        if not self.deleted:
            return replace(self, content_type_timestamp=typed, meta_timestamp=posted)
        content_type = self.content_type if typed > ZERO else ""
        return ObjectRow(self.name, self.timestamp, 0, "", content_type, True, typed, posted)

    def merged(self, other: ObjectRow) -> ObjectRow:
        """Return the merge of two rows of one name in stored form: each field is from the newest write that set it.

        Size, ETag and deletion rank by `timestamp`, the content type by its own timestamp or the data's, metadata by
        theirs. Where timestamps are equal a deletion wins, then the larger value: arbitrary, but the same everywhere.
        Merging is commutative, associative and idempotent.
        """
        data = max(self, other, key=lambda row: (row.timestamp, row.deleted, row.size, row.etag))
        typed, content_type = max(
            (max(row.timestamp, row.content_type_timestamp), row.content_type) for row in (self, other)
        )
        return replace(
            data,
            content_type=content_type,
            content_type_timestamp=typed,
            meta_timestamp=max(self.meta_timestamp, other.meta_timestamp),
        ).plain


@dataclass(frozen=True, slots=True)
class Subdir:
    """A common prefix in a listing with a delimiter; it includes the delimiter."""

    name: str


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container's row in its account's listing.

    `reported` is when a container server counted the totals; the newest count wins.
    """

    name: str
    put_timestamp: Timestamp
    delete_timestamp: Timestamp = ZERO
    object_count: int = 0
    bytes_used: int = 0
    policy: int = 0
    reported: Timestamp = ZERO

    @property
    def deleted(self) -> bool:
        """Return whether the deletion is newer than the creation."""
        return self.delete_timestamp > self.put_timestamp


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """A container's totals and metadata (values with the headers' names as the client sent them, canonical case)."""

    account: str
    container: str
    put_timestamp: Timestamp
    created: Timestamp
    object_count: int
    bytes_used: int
    policy: int
    """The policy of new objects: while the container moves, that which `move` says."""
    metadata: Mapping[str, str]
    move: PolicyMove | None = None
    """Its move from one storage policy to another."""


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """An account's totals and metadata."""

    account: str
    put_timestamp: Timestamp
    created: Timestamp
    container_count: int
    object_count: int
    bytes_used: int
    metadata: Mapping[str, str]
    policies: Mapping[int, Amounts] = field(default_factory=dict)
    """The totals by storage policy, of policies that have containers."""


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """The query of a listing; names in `marker` and `end_marker` are excluded from the answer.

    `path` is the older way to list one level (prefix + "/" + delimiter "/" without subdirs); `reverse` reverses the
    order and the meaning of the markers.
    """

    limit: int = 10_000
    marker: str = ""
    end_marker: str = ""
    prefix: str = ""
    delimiter: str = ""
    path: str | None = None
    reverse: bool = False


ListingRow: TypeAlias = ObjectRow | ContainerRow
"""A row of a container's database or of an account's."""


class DatabaseKind(Enum):
    """What a database lists; the value is the name of its directory and its word in URLs."""

    CONTAINER = "containers"
    """Objects of one container."""
    ACCOUNT = "accounts"
    """Containers of one account."""


@dataclass(frozen=True, slots=True)
class DatabaseId:
    """One database on a device: its kind, its partition in that kind's ring, and its name's digest."""

    kind: DatabaseKind
    partition: int
    digest: bytes

    def __str__(self) -> str:
        """Return the path of its directory on the device."""
        return f"{self.kind.value}/{self.partition}/{self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """The account and container of a database; `container` is None for an account's."""

    account: str
    container: str | None = None

    def __str__(self) -> str:
        """Return the path `/account[/container]`."""
        return f"/{self.account}" if self.container is None else f"/{self.account}/{self.container}"


@dataclass(frozen=True, slots=True, order=True)
class MetadataItem:
    """One metadata item; an empty value records that the item was removed then."""

    name: str
    timestamp: Timestamp
    value: str


@dataclass(frozen=True, slots=True)
class MetadataBounds:
    """The most metadata with names that begin with `prefix` that an account or container may have, over all
    requests.
    """

    prefix: str
    items: int
    size_bytes: int
    """The largest total size in bytes of names, without the prefix, and values."""

    @property
    def remembered(self) -> int:
        """Return how many names there may be including recently removed ones, which replicas have to remember."""
        return 10 * self.items


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """Everything about a database but its rows; of the rows it has the set hash.

    `metadata` is sorted by name. Replicas with equal states are equal.
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
        """Return whether the deletion is newer than the last PUT."""
        return self.delete_timestamp > self.put_timestamp


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of one database with `after < name <= upto`, by name, including removed ones; `upto` "" means up
    to the end.
    """

    rows: Sequence[ListingRow]
    upto: str


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts in an account or container: containers (of an account), objects and bytes."""

    containers: int = 0
    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that an account or container may hold of each amount; None is no limit."""

    containers: int | None = None
    objects: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The amounts that a write in progress is going to take, by an id that no other write has."""

    id: str
    asked: Amounts


@dataclass(frozen=True, slots=True)
class Excess:
    """Why a claim was refused: at most `most` of `what` (a field of Amounts) fit, and `used` are taken, including
    claims.
    """

    what: str
    most: int
    used: int
    asked: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a database replica knows of a finished write: whether it lists it, and whether the account was told."""

    listed: bool
    reported: bool


@dataclass(frozen=True, slots=True)
class RowsChange:
    """The amounts in a shard's replica after an update, and how much more that is than before."""

    objects: int
    bytes: int
    more_objects: int
    more_bytes: int


@dataclass(frozen=True, slots=True)
class ShardLook:
    """The state of a replica of a shard, or of a split container's own database.

    `points` bound it or split it; `beyond`: it has rows above the first one. `moving`: this replica still has rows to
    move. `founded`: its container's replica began it, so it was not made by sync. `middle`: where to split it, if that
    was asked and it has enough rows.
    """

    objects: int
    bytes: int
    points: tuple[str, ...]
    beyond: bool
    moving: bool
    founded: bool
    middle: str | None = None
