"""Set hashes: 16 bytes that are equal exactly when two suffixes hold the same entries.

The hash of a set is the sum modulo 2^128 of xxh3-128 over each entry's fixed-width form, so that a write costs one
subtraction and one addition and the order of writes leaves no trace. Somebody who may choose entries freely could forge
sums. Replicas of one cluster trust each other, and digests depend on the cluster's secrets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from swiftlet_native import xxh3_128

from swiftlet.model import DIGEST_SIZE, Entry

HASH_SIZE = 16
"""Bytes of a set hash."""
_MODULUS = 1 << 128
_ENTRY = struct.Struct(f">{DIGEST_SIZE}sBQQQ")

EMPTY = 0
"""The set hash of nothing, as a number."""


def term(entry: Entry) -> int:
    """Return the contribution of an entry: xxh3-128 of digest, kind and the three timestamps, all big-endian."""
    packed = _ENTRY.pack(
        entry.digest,
        entry.kind,
        entry.timestamp.value,
        entry.meta_timestamp.value,
        entry.content_type_timestamp.value,
    )
    return int.from_bytes(xxh3_128(packed), "big")


def add(total: int, entry: Entry) -> int:
    """Return the set hash with one more entry."""
    return (total + term(entry)) % _MODULUS


def subtract(total: int, entry: Entry) -> int:
    """Return the set hash without one entry, which must have been in the set."""
    return (total - term(entry)) % _MODULUS


def of_entries(entries: Iterable[Entry]) -> int:
    """Return the hash of a whole set."""
    total = EMPTY
    for entry in entries:
        total += term(entry)
    return total % _MODULUS


def to_bytes(total: int) -> bytes:
    """Return the hash as on the wire: 16 bytes, big-endian."""
    return total.to_bytes(HASH_SIZE, "big")


def root(suffixes: Mapping[str, bytes]) -> bytes:
    """Return one hash over a partition: xxh3-128 of its suffixes and their set hashes, by suffix."""
    return xxh3_128(b"".join(suffix.encode("ascii") + value for suffix, value in sorted(suffixes.items())))
