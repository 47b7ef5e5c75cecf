"""The rows that a simulated object device owes: the rules of the native store's set, on simulated time.

Durable with the write that they belong to. Settling is taken as durable too: a device that has forgotten it delivers a
row once more, and rows merge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class Debt:
    """The newest write, the container's replicas of all of them, and since when the oldest is owed.

    `post`: the newest is a POST. Who brings its row may not have seen older writes that are owed here, so the timestamp
    is then one above it, and only the device settles the debt.
    """

    timestamp: Timestamp
    replicas: frozenset[int]
    since_s: float
    post: bool = False


class OwedSet:
    """One device's; `now_s` is simulated time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Nothing is owed."""
        self._now_s = now_s
        self._debts: dict[bytes, Debt] = {}

    def __contains__(self, digest: bytes) -> bool:
        """Whether anything of an object is owed."""
        return digest in self._debts

    def __len__(self) -> int:
        """How many objects' rows are owed."""
        return len(self._debts)

    def owe(self, digest: bytes, timestamp: Timestamp, replicas: Collection[int], post: bool) -> None:
        """A write with a row has become durable."""
        old = self._debts.get(digest)
        if old is None:
            self._debts[digest] = Debt(timestamp, frozenset(replicas), self._now_s(), post)
            return
        apart = timestamp >= old.timestamp or old.post if post else timestamp < old.timestamp and old.post
        newest = Timestamp(max(old.timestamp, timestamp).value + apart)
        kind = post if timestamp > old.timestamp else old.post
        self._debts[digest] = Debt(newest, old.replicas.union(replicas), old.since_s, kind)

    def settle(self, digest: bytes, timestamp: Timestamp) -> None:
        """The rows of this version and older ones have been brought."""
        debt = self._debts.get(digest)
        if debt is not None and debt.timestamp <= timestamp:
            del self._debts[digest]

    def due(self, age_s: float) -> list[tuple[bytes, Debt]]:
        """What has been owed for so long."""
        before_s = self._now_s() - age_s
        return [(digest, debt) for digest, debt in self._debts.items() if debt.since_s <= before_s]
