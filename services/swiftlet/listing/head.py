"""The head of a listing database: its single row of timestamps, totals, and the last report to the account."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from swiftlet.listing import sethash
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.schema import loaded, stored
from swiftlet.model import ContainerRow, DatabaseName
from swiftlet.policy_moves import PolicyMove
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of live rows, and of the objects and bytes that they stand for."""

    rows: int = 0
    objects: int = 0
    bytes: int = 0

    def plus(self, more: Totals) -> Totals:
        """Return the sum of these totals and of `more`."""
        return Totals(self.rows + more.rows, self.objects + more.objects, self.bytes + more.bytes)


@dataclass(frozen=True, slots=True)
class Report:
    """The last report about a container to its account: timestamps, totals, policy."""

    put_timestamp: Timestamp
    delete_timestamp: Timestamp
    objects: int
    bytes: int
    policy: int


@dataclass(frozen=True, slots=True)
class Head:
    """The single row of the table `info`."""

    name: DatabaseName
    created: Timestamp
    put_timestamp: Timestamp
    delete_timestamp: Timestamp
    policy: int
    totals: Totals
    rows_digest: bytes
    reported: Report
    away: Totals = Totals()
    """The totals of the container's shards, as far as this replica knows them; `info` does not include them."""
    move: PolicyMove | None = None
    """The container's move to another policy, from its metadata; `info` does not include it."""

    @property
    def policy_now(self) -> int:
        """The storage policy that the container has: `policy` until it moves."""
        return self.policy if self.move is None else self.move.policy

    @property
    def policies_used(self) -> frozenset[int]:
        """The policies in which the container has objects or is about to."""
        return frozenset({self.policy}) if self.move is None else self.move.used

    @property
    def whole(self) -> Totals:
        """The totals including those of the shards."""
        return self.totals.plus(self.away)

    def counted(self, more: Totals, rows_digest: bytes) -> Head:
        """Return the head after a change of rows: with `more` added to the totals, and with this set hash."""
        totals = self.totals.plus(more)
        stamps = self.created, self.put_timestamp, self.delete_timestamp
        return Head(self.name, *stamps, self.policy, totals, rows_digest, self.reported, self.away, self.move)

    def after_report(self, row: ContainerRow) -> Head:
        """Return the head once the account was told `row`."""
        report = Report(row.put_timestamp, row.delete_timestamp, row.object_count, row.bytes_used, row.policy)
        return replace(self, reported=report)

    @property
    def deleted(self) -> bool:
        """Whether the deletion is newer than the last PUT."""
        return self.delete_timestamp > self.put_timestamp

    @property
    def exists(self) -> bool:
        """Whether it was PUT and not deleted since."""
        return self.put_timestamp > ZERO and not self.deleted

    @property
    def unreported(self) -> bool:
        """Whether the account does not have the newest totals yet."""
        told, own, away = self.reported, self.totals, self.away
        return self.put_timestamp > ZERO and not (
            own.objects + away.objects == told.objects
            and own.bytes + away.bytes == told.bytes
            and self.put_timestamp == told.put_timestamp
            and self.delete_timestamp == told.delete_timestamp
            and self.policy_now == told.policy
        )


_READ_HEAD = """
SELECT account, container, created, put_timestamp, delete_timestamp, policy, row_count, object_count, bytes_used,
    rows_digest, reported_put, reported_delete, reported_objects, reported_bytes, reported_policy
FROM info WHERE id = 1
"""
_WRITE_HEAD = """
UPDATE info SET created = ?, put_timestamp = ?, delete_timestamp = ?, policy = ?, row_count = ?, object_count = ?,
    bytes_used = ?, rows_digest = ?, reported_put = ?, reported_delete = ?, reported_objects = ?, reported_bytes = ?,
    reported_policy = ?
WHERE id = 1
"""


def read_head(connection: sqlite3.Connection) -> Head:
    """Return the head on disk. Raises DamagedDatabase when it is missing."""
    columns = connection.execute(_READ_HEAD).fetchone()
    if columns is None or len(columns[9]) != sethash.SIZE:
        raise DamagedDatabase("the database's info row is missing or malformed")
    account, container, created, put, delete, policy, rows, objects, size, digest, *reported = columns
    return Head(
        DatabaseName(account, container),
        loaded(created),
        loaded(put),
        loaded(delete),
        policy,
        Totals(rows, objects, size),
        digest,
        Report(loaded(reported[0]), loaded(reported[1]), reported[2], reported[3], reported[4]),
    )


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    """Store a changed head in the running transaction."""
    connection.execute(_WRITE_HEAD, _head_columns(head))


def _head_columns(head: Head) -> tuple[int | bytes, ...]:
    totals, told = head.totals, head.reported
    return (
        stored(head.created),
        stored(head.put_timestamp),
        stored(head.delete_timestamp),
        head.policy,
        totals.rows,
        totals.objects,
        totals.bytes,
        head.rows_digest,
        stored(told.put_timestamp),
        stored(told.delete_timestamp),
        told.objects,
        told.bytes,
        told.policy,
    )
