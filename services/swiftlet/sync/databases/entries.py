"""A database in the terms of sync sessions: its ring as a policy, its fingerprint as an entry's version.

A fingerprint has 16 bytes and says nothing of newer or older. It is spread over the three timestamps of an entry, so
that set hashes, roots and messages are those of objects. Nobody may read these timestamps as times.
"""

from __future__ import annotations

from itertools import pairwise

from swiftlet.model import DatabaseId, DatabaseKind, Entry, Kind, ObjectKey
from swiftlet.timestamp import Timestamp
from swiftlet.transport.wire import WireError

RINGS = {65536: DatabaseKind.ACCOUNT, 65537: DatabaseKind.CONTAINER}
"""The policy numbers of the rings of databases in messages; those of objects are smaller."""
POLICIES = {kind: policy for policy, kind in RINGS.items()}
"""The policy number of each kind of database, the inverse of `RINGS`."""
RING_NAMES = {DatabaseKind.ACCOUNT: "account", DatabaseKind.CONTAINER: "container"}
"""Names of the rings of databases."""

_CUTS = (0, 6, 11, 16)
"""The positions at which a fingerprint is divided, so that each part is less than the highest timestamp."""


def kind_of(policy: int) -> DatabaseKind:
    """Return the kind of databases with this policy number; WireError when there is none."""
    kind = RINGS.get(policy)
    if kind is None:
        raise WireError(
            f"policy {policy} is not the number of a ring of databases; these are {', '.join(map(str, RINGS))}"
        )
    return kind


def ring_name(policy: int) -> str:
    """Return the name of a ring of databases."""
    return RING_NAMES[RINGS[policy]]


def entry_of(digest: bytes, fingerprint: bytes) -> Entry:
    """Return the entry that stands for a database."""
    first, second, third = (Timestamp(int.from_bytes(fingerprint[start:end], "big")) for start, end in pairwise(_CUTS))
    return Entry(digest, Kind.DATA, first, second, third)


def fingerprint_of(entry: Entry) -> bytes:
    """Return the fingerprint in an entry; WireError when it holds none."""
    parts = (entry.timestamp.value, entry.meta_timestamp.value, entry.content_type_timestamp.value)
    try:
        return b"".join(
            part.to_bytes(end - start, "big") for part, start, end in zip(parts, _CUTS, _CUTS[1:], strict=False)
        )
    except OverflowError as error:
        raise WireError(f"the entry of {entry.digest.hex()} holds no fingerprint") from error


def database_of(key: ObjectKey) -> DatabaseId:
    """Return the database for which an entry of a session stands."""
    return DatabaseId(RINGS[key.policy], key.partition, key.digest)
