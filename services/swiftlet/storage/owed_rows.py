"""What a device owes to containers: rows that are durable with their writes, until somebody says that they are through.

A store that keeps the row in the write's own record (`docs/design/2026-11-21-rows.md`) owes it from then on. Whoever
wrote brings it to the container's replicas and settles it; what nobody has settled for a while is delivered by
`swiftlet.storage.owed_delivery`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from swiftlet.model import ObjectKey
from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class OwedRow:
    """An object whose row is owed: its newest write that came with one, and the container replicas of all of them."""

    key: ObjectKey
    timestamp: Timestamp
    replicas: tuple[int, ...]


class OwedRows(Protocol):
    """The owed rows of one device. Calls may block; safe from many threads."""

    def owed(self, older_than_s: float, limit: int) -> list[OwedRow]:
        """Up to `limit` rows that have been owed for `older_than_s` seconds, the oldest first."""
        ...

    def name(self, key: ObjectKey) -> str | None:
        """`/account/container/object` of what is held under the key, a tombstone too; None when nothing is."""
        ...

    def settle(self, settled: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Owe these no longer, unless a newer write of the object came; durable at some time later."""
        ...

    def count(self) -> int:
        """Rows owed; never blocks for long."""
        ...

    def oldest_s(self) -> float:
        """Seconds since the oldest of them is owed; 0.0 when there is none."""
        ...
