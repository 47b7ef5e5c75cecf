"""The set hash of a database's rows: the sum modulo 2^128 of xxh3-128 over each row's canonical text.

Kept incrementally: a change subtracts the old row's term and adds the new one's, so that two replicas learn by 16
bytes whether they hold the same rows, removed ones included. Every field takes part: equal hashes mean equal
rows, not just equal versions.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from swiftlet.model import ContainerRow, DatabaseState, ListingRow, ObjectRow

_MODULUS = 1 << 128
SIZE = 16
"""Bytes of a set hash."""


def term(row: ListingRow) -> int:
    """One row's share in the set hash."""
    match row:
        case ObjectRow():
            text = (
                f"{row.timestamp.value},{row.deleted:d},{row.size},{len(row.name)},{len(row.etag)},"
                f"{row.name}{row.etag}{row.content_type}"
            )
        case ContainerRow():
            text = (
                f"{row.put_timestamp.value},{row.delete_timestamp.value},{row.object_count},{row.bytes_used},"
                f"{row.policy},{row.reported.value},{row.name}"
            )
    return xxhash.xxh3_128_intdigest(text.encode("utf-8"))


def add(digest: bytes, change: int) -> bytes:
    """A set hash after terms were added (and others subtracted): `change` is their sum."""
    return ((int.from_bytes(digest, "big") + change) % _MODULUS).to_bytes(SIZE, "big")


def of(rows: Iterable[ListingRow]) -> bytes:
    """The set hash of some rows."""
    return add(bytes(SIZE), sum(term(row) for row in rows))


def fingerprint(state: DatabaseState) -> bytes:
    """16 bytes that are equal when two replicas of a database are."""
    hasher = xxhash.xxh3_128(state.rows_digest)
    stamps = (state.created, state.put_timestamp, state.delete_timestamp)
    hasher.update(",".join([*(str(stamp.value) for stamp in stamps), str(state.policy)]).encode("ascii"))
    for item in state.metadata:
        name, value = item.name.encode("utf-8"), item.value.encode("utf-8")
        hasher.update(b";%d,%d,%d," % (item.timestamp.value, len(name), len(value)) + name + value)
    return hasher.digest()
