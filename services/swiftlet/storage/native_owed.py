"""What a native store owes, as `OwedRows`."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet.model import ObjectKey
from swiftlet.native_values import replicas_of
from swiftlet.storage.owed_rows import OwedRow
from swiftlet.store.native import NativeStore
from swiftlet.timestamp import Timestamp


class NativeOwed:
    """The owed rows of a native store; see `OwedRows`."""

    def __init__(self, store: NativeStore) -> None:
        """`store` stays the caller's to close."""
        self._store = store

    def owed(self, older_than_s: float, limit: int) -> list[OwedRow]:
        """Up to `limit` rows that have been owed for `older_than_s` seconds, the oldest first."""
        found = self._store.owed(older_than_s, limit)
        return [OwedRow(key, timestamp, replicas_of(bits)) for key, timestamp, bits in found]

    def name(self, key: ObjectKey) -> str | None:
        """`/account/container/object` of what is held under the key, a tombstone too; None when nothing is."""
        return self._store.name(key)

    def settle(self, settled: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Owe these no longer, unless a newer write of the object came."""
        self._store.settle(settled)

    def count(self) -> int:
        """Rows owed."""
        return self._store.owed_count()[0]

    def oldest_s(self) -> float:
        """Seconds since the oldest of them is owed; 0.0 when there is none."""
        return self._store.owed_count()[1]
