"""A container's database: its objects' names, sizes, ETags and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from swiftlet.errors import PolicyConflict
from swiftlet.listing.database import Database
from swiftlet.listing.head import Head, Report, Totals
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import OFFSET, has_shard_table, loaded, stored
from swiftlet.listing.sethash import object_term
from swiftlet.model import ContainerInfo, ContainerRow, DatabaseKind, MetadataBounds, ObjectRow
from swiftlet.timestamp import Timestamp


class ContainerDb(Database[ObjectRow]):
    """One container through one connection.

    Rows merge newest first. Between rows with one timestamp (two replicas of an object that hold the same POST on
    top of different data, say) a removed one wins, then the larger size, ETag and type: arbitrary, but the same
    everywhere.
    """

    kind = DatabaseKind.CONTAINER
    columns = ("name", "timestamp", "size", "etag", "content_type")
    age_column = "timestamp"
    has_shards = False
    """Whether the container is known to have been split here."""

    def read_head(self) -> Head:
        """With what the shards hold."""
        head = super().read_head()
        self.has_shards = has_shard_table(self.connection)
        return replace(head, away=self._away()) if self.has_shards else head

    def _away(self) -> Totals:
        objects, size = self.connection.execute("SELECT sum(objects), sum(bytes) FROM shard").fetchone()
        return Totals(objects or 0, objects or 0, size or 0)

    def recount_away(self) -> None:
        """What the shards hold has changed."""
        self.head = replace(self.head, away=self._away())

    def pack(self, row: ObjectRow) -> Packed:
        """Columns of a row, and whether it is a marker."""
        return packed(row)

    def decode(self, columns: Packed, deleted: bool) -> ObjectRow:
        """A row from its columns."""
        name, stamp, size, etag, content_type = columns
        return ObjectRow(name, loaded(stamp), size, etag, content_type, deleted)  # type: ignore[arg-type]

    def merge_packed(self, old: Packed, new: Packed) -> Packed:
        """The newer row."""
        return max(old, new, key=_packed_rank)

    def weigh(self, row: Packed) -> tuple[int, int]:
        """One object and its bytes."""
        return 1, row[2]  # type: ignore[return-value]

    def term(self, row: Packed) -> int:
        """See `sethash.object_term`."""
        name, stamp, size, etag, content_type, deleted = row
        return object_term(name, stamp + OFFSET, size, etag, content_type, deleted)  # type: ignore[arg-type, operator]

    def put(
        self,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update; True when created. PolicyConflict, Superseded by a later deletion, TooMuchMetadata."""
        head = self.head
        if head.exists and policy is not None and policy != head.policy:
            raise PolicyConflict(f"{head.name} has storage policy {head.policy}, not {policy}")
        return self._put(timestamp, metadata, default_policy if policy is None else policy, bounds)

    def update(self, rows: Iterable[Packed]) -> int:
        """Merge packed rows into a container that is there; NotFound otherwise. How many changed something."""
        self.require()
        return self.merge_all(rows)

    def info(self) -> ContainerInfo:
        """Totals and metadata; NotFound."""
        head = self.require()
        return ContainerInfo(
            account=head.name.account,
            container=head.name.container or "",
            put_timestamp=head.put_timestamp,
            created=head.created,
            object_count=head.whole.objects,
            bytes_used=head.whole.bytes,
            policy=head.policy,
            metadata=self.metadata(),
        )

    def account_row(self, counted: Timestamp) -> ContainerRow:
        """What the account should know of this container, as of `counted`."""
        head = self.head
        return ContainerRow(
            name=head.name.container or "",
            put_timestamp=head.put_timestamp,
            delete_timestamp=head.delete_timestamp,
            object_count=head.whole.objects,
            bytes_used=head.whole.bytes,
            policy=head.policy,
            reported=counted,
        )

    def mark_reported(self, row: ContainerRow) -> None:
        """The account knows `row`."""
        report = Report(row.put_timestamp, row.delete_timestamp, row.object_count, row.bytes_used, row.policy)
        self.head = replace(self.head, reported=report)


def plain(row: ObjectRow) -> ObjectRow:
    """The row as it is kept: a removed one says nothing but when."""
    return ObjectRow(row.name, row.timestamp, deleted=True) if row.deleted else row


def packed(row: ObjectRow) -> Packed:
    """A row as `ContainerDb` merges it; a removed one has to be plain."""
    return row.name, stored(row.timestamp), row.size, row.etag, row.content_type, int(row.deleted)


def newer(one: ObjectRow, other: ObjectRow) -> ObjectRow:
    """The one of two rows of one name that remains."""
    return max(one, other, key=_rank)


def _rank(row: ObjectRow) -> tuple[int, bool, int, str, str]:
    return row.timestamp.value, row.deleted, row.size, row.etag, row.content_type


def _packed_rank(row: Packed) -> Packed:
    return row[1], row[5], *row[2:5]
