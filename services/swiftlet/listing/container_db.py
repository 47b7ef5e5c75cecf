"""A container's database: its objects' names, sizes, ETags and types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from swiftlet import policy_moves
from swiftlet.errors import PolicyConflict, Superseded
from swiftlet.listing.database import Database
from swiftlet.listing.descriptions import Description
from swiftlet.listing.head import Head, Totals
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import OFFSET, has_shard_table, loaded, stored
from swiftlet.listing.sethash import object_term
from swiftlet.model import ContainerInfo, ContainerRow, DatabaseKind, MetadataBounds, MetadataItem, ObjectRow
from swiftlet.policy_moves import PolicyMove
from swiftlet.timestamp import ZERO, Timestamp


class ContainerDb(Database[ObjectRow]):
    """The database of one container, through one connection.

    Rows merge as `ObjectRow.merged` says, field by field.
    """

    kind = DatabaseKind.CONTAINER
    columns = ("name", "timestamp", "size", "etag", "content_type", "content_type_timestamp", "meta_timestamp")
    age_column = "timestamp"
    has_shards = False
    """Whether the container is known to have been split here."""
    _move_item: tuple[str | None] | None = None
    """What the metadata has of a move; None while it has not been read."""

    def read_head(self) -> Head:
        """Return the head on disk, with the totals of the shards."""
        head = super().read_head()
        self.has_shards = has_shard_table(self.connection)
        if self.has_shards:
            head = replace(head, away=self._away())
        move = self._move_of(head)
        return head if move is None else replace(head, move=move)

    def commit(self) -> None:
        """End the transaction as every database does, with what it made of the container's move."""
        if (move := self._move_of(self.head)) != self.head.move:
            self.head = replace(self.head, move=move)
        super().commit()

    def _forget_items(self) -> None:
        super()._forget_items()
        self._move_item = None

    def _move_of(self, head: Head) -> PolicyMove | None:
        """Return the container's move by its metadata; none when that is about an earlier container of the name."""
        if self._move_item is None:
            query = "SELECT value FROM metadata WHERE name = ?"
            columns = self.connection.execute(query, (policy_moves.ITEM,)).fetchone()
            self._move_item = (columns[0] if columns else None,)
        return policy_moves.of_container(self._move_item[0], head.created, head.delete_timestamp)

    def _away(self) -> Totals:
        objects, size = self.connection.execute("SELECT sum(objects), sum(bytes) FROM shard").fetchone()
        return Totals(objects or 0, objects or 0, size or 0)

    def recount_away(self) -> None:
        """Count again what the shards hold, after that has changed."""
        self.head = replace(self.head, away=self._away())

    def pack(self, row: ObjectRow) -> Packed:
        """Return the columns of a row, and 1 for a marker or 0 for a live row."""
        return packed(row)

    def decode(self, columns: Packed, deleted: bool) -> ObjectRow:
        """Return the row with these columns."""
        return _unpacked((*columns, int(deleted)))

    def merge_packed(self, old: Packed, new: Packed) -> Packed:
        """Merge two rows of one name, as `ObjectRow.merged` does."""
        return merge_packed(old, new)

    def weigh(self, row: Packed) -> tuple[int, int]:
        """Return the row's totals: one object and its bytes."""
        return 1, row[2]  # type: ignore[return-value]

    def term(self, row: Packed) -> int:
        """Return the row's term in the set hash, as `sethash.object_term` does."""
        name, stamp, size, etag, content_type, typed, posted, deleted = row
        typed_at = 0 if typed is None else typed + OFFSET  # type: ignore[operator]
        posted_at = 0 if posted is None else posted + OFFSET  # type: ignore[operator]
        return object_term(name, stamp + OFFSET, size, etag, content_type, typed_at, posted_at, deleted)  # type: ignore[arg-type, operator]

    def put(
        self,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
        refused: Collection[int] = (),
    ) -> bool:
        """Create or update the container; return whether it was created.

        Raises PolicyConflict, also for a new container of a policy that is `refused`; Superseded when the container was
        deleted later; and TooMuchMetadata.
        """
        head = self.head
        if policy_moves.ITEM in metadata:
            raise PolicyConflict(f"{policy_moves.ITEM} is set by a POST, not by a PUT")
        if head.exists and policy is not None and policy != (now := self.head_now.policy_now):
            raise PolicyConflict(f"{head.name} has storage policy {now}, not {policy}")
        wanted = default_policy if policy is None else policy
        if not head.exists and wanted in refused:
            raise PolicyConflict(f"storage policy {wanted} is deprecated, and {head.name} can't be created with it")
        return self._put(timestamp, metadata, wanted, bounds)

    @property
    def head_now(self) -> Head:
        """The head with the move as this transaction has left it."""
        return replace(self.head, move=self._move_of(self.head))

    def post(
        self,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
        is_retired: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Merge metadata items. Raises NotFound, TooMuchMetadata; PolicyConflict for a state of a move which does not
        follow from the one here, and Superseded for one that would lose to it.

        `is_retired` returns whether a policy is no longer in the list of policies.
        """
        if policy_moves.ITEM in metadata:
            self._check_step(timestamp, metadata[policy_moves.ITEM], is_retired)
        super().post(timestamp, metadata, bounds)

    def _check_step(self, timestamp: Timestamp, text: str, is_retired: Callable[[int], bool]) -> None:
        self.require()
        head, before = self.head_now, self.items().get(policy_moves.ITEM)
        try:
            after = policy_moves.parse(text) if text else None
            if after is not None and after.created <= head.delete_timestamp < head.created:
                raise ValueError(f"it was created at {head.created}, and the state is of one that was deleted")
            policy_moves.check_step(head.policy, head.move, after, is_retired)
        except ValueError as error:
            raise PolicyConflict(f"{head.name}: {error}") from error
        if before is not None and before > MetadataItem(policy_moves.ITEM, timestamp, text):
            raise Superseded(f"{head.name} has a state of its move from {before.timestamp}", before.timestamp)

    def update(self, rows: Iterable[Packed]) -> int:
        """Merge packed rows; return how many of them changed something. Raises NotFound without a container."""
        self.require()
        return self.merge_all(rows)

    def info(self) -> ContainerInfo:
        """Return the totals and metadata of the container. Raises NotFound."""
        self.require()
        head = self.head_now
        return ContainerInfo(
            account=head.name.account,
            container=head.name.container or "",
            put_timestamp=head.put_timestamp,
            created=head.created,
            object_count=head.whole.objects,
            bytes_used=head.whole.bytes,
            policy=head.policy_now,
            metadata=self.metadata(),
            move=head.move,
        )

    def described(self) -> Description:
        """Return head and description, of the same moment."""
        head = self.head_now
        return Description(head, self.info() if head.exists else None)

    def account_row(self, counted: Timestamp) -> ContainerRow:
        """Return the totals that the account should have of this container, as of `counted`."""
        return account_row(self.head_now, counted)

    def mark_reported(self, row: ContainerRow) -> None:
        """Note that the account has `row`."""
        self.head = self.head.after_report(row)


def account_row(head: Head, counted: Timestamp) -> ContainerRow:
    """Return the totals that the account should have of a container with this head, as of `counted`."""
    return ContainerRow(
        name=head.name.container or "",
        put_timestamp=head.put_timestamp,
        delete_timestamp=head.delete_timestamp,
        object_count=head.whole.objects,
        bytes_used=head.whole.bytes,
        policy=head.policy_now,
        reported=counted,
    )


def packed(row: ObjectRow) -> Packed:
    """Return a plain row in the form that `ContainerDb` merges: its columns with stored timestamps, and 1
    for a marker.
    """
    typed, posted = row.content_type_timestamp, row.meta_timestamp
    return (
        row.name,
        stored(row.timestamp),
        row.size,
        row.etag,
        row.content_type,
        stored(typed) if typed > ZERO else None,
        stored(posted) if posted > ZERO else None,
        int(row.deleted),
    )


def _unpacked(row: Packed) -> ObjectRow:
    name, stamp, size, etag, content_type, typed, posted, deleted = row
    return ObjectRow(
        name,  # type: ignore[arg-type]
        loaded(stamp),  # type: ignore[arg-type]
        size,  # type: ignore[arg-type]
        etag,  # type: ignore[arg-type]
        content_type,  # type: ignore[arg-type]
        bool(deleted),
        ZERO if typed is None else loaded(typed),  # type: ignore[arg-type]
        ZERO if posted is None else loaded(posted),  # type: ignore[arg-type]
    )


def merge_packed(old: Packed, new: Packed) -> Packed:
    """Merge two rows as `ObjectRow.merged` does; this is fast for rows without POSTs, which nearly all are."""
    if old[5] is new[5] is old[6] is new[6] is None and old[1] != new[1]:
        return old if old[1] > new[1] else new  # type: ignore[operator]
    return packed(_unpacked(old).merged(_unpacked(new)))
