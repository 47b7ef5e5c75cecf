"""The known fingerprints of one device's databases, which replicas compare without opening a file.

They are kept by kind and partition, as peers ask for them that way. Every commit and every removal is entered (`put`,
`drop`); those who keep hashes over partitions subscribe to changes (`follow`). Memory: some 200 bytes for each
database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swiftlet.model import DatabaseId, DatabaseKind

_NONE: Mapping[bytes, bytes] = {}


class Fingerprints:
    """The fingerprints, of 16 bytes, of databases by their digest."""

    def __init__(self) -> None:
        self._known: dict[DatabaseKind, dict[int, dict[bytes, bytes]]] = {kind: {} for kind in DatabaseKind}
        self._followers: list[Callable[[DatabaseKind, int], None]] = []

    def follow(self, follower: Callable[[DatabaseKind, int], None]) -> None:
        """Call `follower` from now on with every partition in which something has changed."""
        self._followers.append(follower)

    def get(self, id: DatabaseId) -> bytes | None:
        """Return the fingerprint of a database, None when it is not known."""
        return self._known[id.kind].get(id.partition, _NONE).get(id.digest)

    def put(self, id: DatabaseId, fingerprint: bytes) -> None:
        """Record the fingerprint of a database."""
        partition = self._known[id.kind].setdefault(id.partition, {})
        if partition.get(id.digest) != fingerprint:
            partition[id.digest] = fingerprint
            self._changed(id)

    def drop(self, id: DatabaseId) -> None:
        """Remove the fingerprint of a database that was removed, or whose fingerprint is in doubt."""
        partition = self._known[id.kind].get(id.partition)
        if partition is None or partition.pop(id.digest, None) is None:
            return
        if not partition:
            del self._known[id.kind][id.partition]
        self._changed(id)

    def _changed(self, id: DatabaseId) -> None:
        for follower in self._followers:
            follower(id.kind, id.partition)

    def partitions(self, kind: DatabaseKind) -> list[int]:
        """Return the partitions with databases of a kind, ascending."""
        return sorted(self._known[kind])

    def of(self, kind: DatabaseKind, partition: int) -> Mapping[bytes, bytes]:
        """Return all known fingerprints of a partition, by digest; the mapping changes with later commits."""
        return self._known[kind].get(partition, _NONE)
