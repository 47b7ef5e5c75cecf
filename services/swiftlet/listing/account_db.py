"""An account's database: its containers' names and totals.

Several container servers report the totals of one container, each of its own replica. A report carries the time at
which it was counted (`ContainerRow.reported`), and the newest one wins: whichever replica changes last also reports
last, and by then has what the others have. While replicas differ the totals may alternate between theirs; once the
container's replicas agree and each has reported, every account replica shows the true ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from swiftlet.listing import policy_totals, sethash
from swiftlet.listing.database import Database
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import loaded, stored
from swiftlet.model import AccountInfo, ContainerRow, DatabaseKind, MetadataBounds
from swiftlet.timestamp import ZERO, Timestamp


class AccountDb(Database[ContainerRow]):
    """The database of one account, through one connection.

    Rows merge by parts: the newest PUT, the newest DELETE, and the totals and policy that were counted last (of two
    counted at the same time the larger ones). An account that was never PUT is created with its first row.
    """

    kind = DatabaseKind.ACCOUNT
    columns = (
        "name",
        "put_timestamp",
        "delete_timestamp",
        "object_count",
        "bytes_used",
        "policy",
        "reported",
    )
    age_column = "delete_timestamp"

    def pack(self, row: ContainerRow) -> Packed:
        """Return the columns of a row, and 1 for a marker or 0 for a live row."""
        stamps = stored(row.put_timestamp), stored(row.delete_timestamp)
        counts = row.object_count, row.bytes_used, row.policy
        return row.name, *stamps, *counts, stored(row.reported), int(row.deleted)

    def decode(self, columns: Packed, deleted: bool) -> ContainerRow:
        """Return the row with these columns."""
        name, put, delete, objects, size, policy, reported = columns
        return ContainerRow(name, loaded(put), loaded(delete), objects, size, policy, loaded(reported))  # type: ignore[arg-type]

    def merge_packed(self, old: Packed, new: Packed) -> Packed:
        """Return the newest of each part of two rows of one name."""
        return self.pack(combined(self.unpack(old), self.unpack(new)))

    def weigh(self, row: Packed) -> tuple[int, int]:
        """Return the container's totals, objects and bytes."""
        return row[3], row[4]  # type: ignore[return-value]

    def term(self, row: Packed) -> int:
        """Return the row's term in the set hash."""
        return sethash.term(self.unpack(row))

    def put(self, timestamp: Timestamp, metadata: Mapping[str, str], bounds: MetadataBounds | None = None) -> bool:
        """Create or update the account; return whether it was created.

        Raises Superseded when it was deleted later, and TooMuchMetadata.
        """
        return self._put(timestamp, metadata, 0, bounds)

    def update(self, rows: Sequence[ContainerRow]) -> int:
        """Merge rows; return how many of them changed something."""
        if rows and self.head.put_timestamp == ZERO and self.head.delete_timestamp == ZERO:
            self._put(max(row.put_timestamp for row in rows), {}, 0)
        return self.merge(rows)

    def info(self) -> AccountInfo:
        """Return the totals and metadata of the account. Raises NotFound."""
        head = self.require()
        return AccountInfo(
            account=head.name.account,
            put_timestamp=head.put_timestamp,
            created=head.created,
            container_count=head.totals.rows,
            object_count=head.totals.objects,
            bytes_used=head.totals.bytes,
            metadata=self.metadata(),
            policies=policy_totals.read(self.connection),
        )

    def verify(self) -> None:
        """Raise DamagedDatabase unless the totals, also those by policy, and the set hash match the rows."""
        super().verify()
        if not policy_totals.agree(self.connection):
            raise DamagedDatabase(f"{self.head.name}: the rows do not add up to the totals by policy kept with them")


def combined(one: ContainerRow, other: ContainerRow) -> ContainerRow:
    """Return the row that two rows of one name merge into."""
    return replace(
        max(one, other, key=_rank),
        put_timestamp=max(one.put_timestamp, other.put_timestamp),
        delete_timestamp=max(one.delete_timestamp, other.delete_timestamp),
    )


def _rank(row: ContainerRow) -> tuple[int, int, int, int]:
    return row.reported.value, row.object_count, row.bytes_used, row.policy
