"""The pending updates of a native store, as `PendingUpdates`."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet.model import ObjectKey
from swiftlet.native_values import replicas_of
from swiftlet.servers.objects.pending_updates import PendingUpdate
from swiftlet.store.native import NativeStore
from swiftlet.timestamp import Timestamp


class NativePending:
    """Implements `PendingUpdates` by a native store."""

    def __init__(self, store: NativeStore) -> None:
        """`store` is closed by the caller."""
        self._store = store

    def due(self, older_than_s: float, limit: int) -> list[PendingUpdate]:
        """Return up to `limit` rows that have been pending for `older_than_s` seconds, the oldest first."""
        found = self._store.pending_updates(older_than_s, limit)
        return [PendingUpdate(key, timestamp, replicas_of(bits)) for key, timestamp, bits in found]

    def name(self, key: ObjectKey) -> str | None:
        """Return `/account/container/object` of the object or tombstone with this key; None when there is neither."""
        return self._store.name(key)

    def acknowledge(self, acknowledged: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Remove these rows, except those of objects that have been written again."""
        self._store.acknowledge(acknowledged)

    def count(self) -> int:
        """Return the number of pending updates."""
        return self._store.pending_count()[0]

    def oldest_s(self) -> float:
        """Return for how many seconds the oldest row has been pending; 0.0 when there is none."""
        return self._store.pending_count()[1]
