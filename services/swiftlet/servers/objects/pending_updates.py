"""The container updates that are pending at a device: rows that are durable with their writes, until acknowledged.

The store keeps the row in the write's own record (`docs/design/2026-11-21-rows.md`), and it is pending from then on.
The writer brings it to the container's replicas and acknowledges it. What nobody has acknowledged for a while is
delivered by `swiftlet.servers.objects.pending_delivery`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from swiftlet.model import ObjectKey
from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """An object's pending row: its newest write that came with one, and the container replicas of all such writes."""

    key: ObjectKey
    timestamp: Timestamp
    replicas: tuple[int, ...]


class PendingUpdates(Protocol):
    """The pending updates of one device. Calls may block; safe from many threads."""

    def due(self, older_than_s: float, limit: int) -> list[PendingUpdate]:
        """Return up to `limit` rows that have been pending for `older_than_s` seconds, the oldest first."""
        ...

    def name(self, key: ObjectKey) -> str | None:
        """Return `/account/container/object` of the object or tombstone with this key; None when there is neither."""
        ...

    def acknowledge(self, acknowledged: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Remove these rows, except those of objects that have been written again; durable some time later."""
        ...

    def count(self) -> int:
        """Return the number of pending updates; never blocks for long."""
        ...

    def oldest_s(self) -> float:
        """Return for how many seconds the oldest row has been pending; 0.0 when there is none."""
        ...
