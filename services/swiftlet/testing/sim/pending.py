"""The pending updates of a simulated object device: the rules of the native store's set, on simulated time.

An update is durable with its write. Acknowledgements count as durable too: a device that has lost one delivers a row
once more, and rows merge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """The newest write, the container replicas of all of them, and since when the oldest is pending.

    `post`: the newest is a POST. The sender of its row may not have seen older writes that are pending here, so the
    timestamp is then one above it, and only the device acknowledges it.
    """

    timestamp: Timestamp
    replicas: frozenset[int]
    since_s: float
    post: bool = False


class PendingSet:
    """The pending updates of one device; `now_s` is simulated time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._updates: dict[bytes, PendingUpdate] = {}

    def __contains__(self, digest: bytes) -> bool:
        """Return whether an update of an object is pending."""
        return digest in self._updates

    def __len__(self) -> int:
        """Return how many objects have pending updates."""
        return len(self._updates)

    def add(self, digest: bytes, timestamp: Timestamp, replicas: Collection[int], post: bool) -> None:
        """Add the row of a write that has become durable."""
        old = self._updates.get(digest)
        if old is None:
            self._updates[digest] = PendingUpdate(timestamp, frozenset(replicas), self._now_s(), post)
            return
        apart = timestamp >= old.timestamp or old.post if post else timestamp < old.timestamp and old.post
        newest = Timestamp(max(old.timestamp, timestamp).value + apart)
        kind = post if timestamp > old.timestamp else old.post
        self._updates[digest] = PendingUpdate(newest, old.replicas.union(replicas), old.since_s, kind)

    def acknowledge(self, digest: bytes, timestamp: Timestamp) -> None:
        """Record that the rows of this version and older ones were delivered."""
        update = self._updates.get(digest)
        if update is not None and update.timestamp <= timestamp:
            del self._updates[digest]

    def due(self, age_s: float) -> list[tuple[bytes, PendingUpdate]]:
        """Return what has been pending for so long."""
        if not self._updates:
            return []
        before_s = self._now_s() - age_s
        return [(digest, update) for digest, update in self._updates.items() if update.since_s <= before_s]
