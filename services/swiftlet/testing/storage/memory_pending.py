"""The in-memory twin of a device's pending updates: the rules of the native store's set, on a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet.model import ObjectKey
from swiftlet.servers.objects.pending_updates import PendingUpdate
from swiftlet.timestamp import Timestamp


@dataclass(slots=True)
class _Update:
    """The newest write, the replicas of all of them, and since when the oldest of them is pending."""

    timestamp: Timestamp
    replicas: set[int]
    since_s: float
    post: bool
    """Whether the newest write is a POST."""


class MemoryPending:
    """`PendingUpdates` of one device, which is full with `limit` rows."""

    def __init__(self, limit: int = 100_000, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without updates; `clock` is in seconds."""
        self._limit = limit
        self._clock = clock
        self._updates: dict[ObjectKey, _Update] = {}
        self._names: dict[ObjectKey, str] = {}

    @property
    def full(self) -> bool:
        """Return whether writes that come with a row should be refused."""
        return len(self._updates) >= self._limit

    def add(self, key: ObjectKey, timestamp: Timestamp, name: str, replicas: Sequence[int], post: bool = False) -> None:
        """Add the row of a write that has become durable.

        Where a POST is the newest of several writes, the timestamp is one above it, so that only the device
        acknowledges them: the sender of the POST's row may not have seen the others.
        """
        self._names[key] = name
        update = self._updates.get(key)
        if update is None:
            self._updates[key] = _Update(timestamp, set(replicas), self._clock(), post)
            return
        apart = timestamp >= update.timestamp or update.post if post else timestamp < update.timestamp and update.post
        if timestamp > update.timestamp:
            update.post = post
        update.timestamp = Timestamp(max(update.timestamp, timestamp).value + apart)
        update.replicas.update(replicas)

    def let_pass(self, seconds: float) -> None:
        """Make everything appear to be pending for so much longer."""
        for update in self._updates.values():
            update.since_s -= seconds

    def due(self, older_than_s: float, limit: int) -> list[PendingUpdate]:
        """Behaves as `PendingUpdates.due` requires."""
        before_s = self._clock() - older_than_s
        # Others add and acknowledge updates meanwhile, in threads of their own.
        now = self._updates.copy()
        old = sorted((update.since_s, key.hex, key) for key, update in now.items() if update.since_s <= before_s)
        updates = ((key, now[key]) for _, _, key in old[:limit])
        return [PendingUpdate(key, update.timestamp, tuple(sorted(update.replicas))) for key, update in updates]

    def name(self, key: ObjectKey) -> str | None:
        """Behaves as `PendingUpdates.name` requires."""
        return self._names.get(key)

    def acknowledge(self, acknowledged: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Behaves as `PendingUpdates.acknowledge` requires."""
        for key, timestamp in acknowledged:
            update = self._updates.get(key)
            if update is not None and update.timestamp <= timestamp:
                del self._updates[key]

    def count(self) -> int:
        """Behaves as `PendingUpdates.count` requires."""
        return len(self._updates)

    def oldest_s(self) -> float:
        """Behaves as `PendingUpdates.oldest_s` requires."""
        return max((self._clock() - update.since_s for update in self._updates.values()), default=0.0)
