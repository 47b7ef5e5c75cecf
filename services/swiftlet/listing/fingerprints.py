"""The fingerprints of one device's databases, as far as they are known: what replicas compare, without opening a file.

Kept by kind and partition, as that is how peers ask for them. Every commit and every removal is told (`put`, `drop`);
who keeps hashes over a partition is told of it (`follow`). Memory: some 200 bytes for each database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swiftlet.model import DatabaseId, DatabaseKind

_NONE: Mapping[bytes, bytes] = {}


class Fingerprints:
    """16 bytes for each database, by its digest."""

    def __init__(self) -> None:
        self._known: dict[DatabaseKind, dict[int, dict[bytes, bytes]]] = {kind: {} for kind in DatabaseKind}
        self._followers: list[Callable[[DatabaseKind, int], None]] = []

    def follow(self, follower: Callable[[DatabaseKind, int], None]) -> None:
        """Tell `follower` of every partition in which something has changed, from now on."""
        self._followers.append(follower)

    def get(self, id: DatabaseId) -> bytes | None:
        """A database's, None when it is not known."""
        return self._known[id.kind].get(id.partition, _NONE).get(id.digest)

    def put(self, id: DatabaseId, fingerprint: bytes) -> None:
        """A database has this one now."""
        partition = self._known[id.kind].setdefault(id.partition, {})
        if partition.get(id.digest) != fingerprint:
            partition[id.digest] = fingerprint
            self._changed(id)

    def drop(self, id: DatabaseId) -> None:
        """A database is gone, or not to be relied on."""
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
        """All known ones of a partition, by digest; a view that changes."""
        return self._known[kind].get(partition, _NONE)
