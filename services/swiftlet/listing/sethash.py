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
NOT_A_DIGEST = b"\xff" * SIZE
"""A set hash that no rows have: a server that compares it with its own answers with its rows."""


def term(row: ListingRow) -> int:
    """Return the row's term in the set hash."""
    match row:
        case ObjectRow():
            posts = row.content_type_timestamp.value, row.meta_timestamp.value
            return object_term(row.name, row.timestamp.value, row.size, row.etag, row.content_type, *posts, row.deleted)
        case ContainerRow():
            text = (
                f"{row.put_timestamp.value},{row.delete_timestamp.value},{row.object_count},{row.bytes_used},"
                f"{row.policy},{row.reported.value},{row.name}"
            )
    return xxhash.xxh3_128_intdigest(text.encode("utf-8"))


def object_term(
    name: str, timestamp: int, size: int, etag: str, content_type: str, typed: int, posted: int, deleted: int
) -> int:
    """Return an object row's term from its fields; `typed` and `posted` are the timestamps of POSTs, 0 for none."""
    text = f"{timestamp},{typed},{posted},{deleted:d},{size},{len(name)},{len(etag)},{name}{etag}{content_type}"
    return xxhash.xxh3_128_intdigest(text.encode("utf-8"))


def add(digest: bytes, change: int) -> bytes:
    """Return a set hash after a change, which is the sum of the added terms less that of the subtracted ones."""
    return ((int.from_bytes(digest, "big") + change) % _MODULUS).to_bytes(SIZE, "big")


def of(rows: Iterable[ListingRow]) -> bytes:
    """Return the set hash of some rows."""
    return add(bytes(SIZE), sum(term(row) for row in rows))


def fingerprint(state: DatabaseState) -> bytes:
    """Return 16 bytes that are equal when two replicas of a database are."""
    return fingerprint_of(state.rows_digest, fingerprint_text(state))


def fingerprint_text(state: DatabaseState) -> bytes:
    """Return the text that a fingerprint covers behind the rows' set hash."""
    stamps = (state.created, state.put_timestamp, state.delete_timestamp)
    parts = [",".join([*(str(stamp.value) for stamp in stamps), str(state.policy)]).encode("ascii")]
    for item in state.metadata:
        name, value = item.name.encode("utf-8"), item.value.encode("utf-8")
        parts.append(b";%d,%d,%d," % (item.timestamp.value, len(name), len(value)) + name + value)
    return b"".join(parts)


def fingerprint_of(rows_digest: bytes, text: bytes) -> bytes:
    """Return the fingerprint of a set hash of rows and the text of `fingerprint_text`."""
    return xxhash.xxh3_128_digest(rows_digest + text)
