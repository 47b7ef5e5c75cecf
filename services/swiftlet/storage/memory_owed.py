"""The in-memory twin of what a device owes: the same rules as the native store's set, on a clock of one's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet.model import ObjectKey
from swiftlet.storage.owed_rows import OwedRow
from swiftlet.timestamp import Timestamp


@dataclass(slots=True)
class _Debt:
    """The newest write, the replicas of all of them, and since when the oldest of them is owed."""

    timestamp: Timestamp
    replicas: set[int]
    since_s: float
    post: bool
    """Whether the newest write is a POST."""


class MemoryOwed:
    """`OwedRows` of one device; `limit` rows make it full."""

    def __init__(self, limit: int = 100_000, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is owed yet; `clock` in seconds."""
        self._limit = limit
        self._clock = clock
        self._debts: dict[ObjectKey, _Debt] = {}
        self._names: dict[ObjectKey, str] = {}

    @property
    def full(self) -> bool:
        """Whether writes that come with a row should be refused."""
        return len(self._debts) >= self._limit

    def owe(self, key: ObjectKey, timestamp: Timestamp, name: str, replicas: Sequence[int], post: bool = False) -> None:
        """A write with a row has become durable.

        Where a POST is the newest of several, the timestamp is one above it, so that only the device settles them: who
        brings the POST's row may not have seen what else is here.
        """
        self._names[key] = name
        debt = self._debts.get(key)
        if debt is None:
            self._debts[key] = _Debt(timestamp, set(replicas), self._clock(), post)
            return
        apart = timestamp >= debt.timestamp or debt.post if post else timestamp < debt.timestamp and debt.post
        if timestamp > debt.timestamp:
            debt.post = post
        debt.timestamp = Timestamp(max(debt.timestamp, timestamp).value + apart)
        debt.replicas.update(replicas)

    def let_pass(self, seconds: float) -> None:
        """Everything has been owed for longer by so much."""
        for debt in self._debts.values():
            debt.since_s -= seconds

    def owed(self, older_than_s: float, limit: int) -> list[OwedRow]:
        """See `OwedRows.owed`."""
        before_s = self._clock() - older_than_s
        old = sorted((debt.since_s, key.hex, key) for key, debt in self._debts.items() if debt.since_s <= before_s)
        debts = ((key, self._debts[key]) for _, _, key in old[:limit])
        return [OwedRow(key, debt.timestamp, tuple(sorted(debt.replicas))) for key, debt in debts]

    def name(self, key: ObjectKey) -> str | None:
        """See `OwedRows.name`."""
        return self._names.get(key)

    def settle(self, settled: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """See `OwedRows.settle`."""
        for key, timestamp in settled:
            debt = self._debts.get(key)
            if debt is not None and debt.timestamp <= timestamp:
                del self._debts[key]

    def count(self) -> int:
        """See `OwedRows.count`."""
        return len(self._debts)

    def oldest_s(self) -> float:
        """See `OwedRows.oldest_s`."""
        return max((self._clock() - debt.since_s for debt in self._debts.values()), default=0.0)
