"""What a round of repairs has to do, the least redundant first, and how much of it one round does. No I/O.

A round goes through everything before it repairs anything, so that an object with few fragments does not wait for
others. It remembers as much as it may rebuild; of more than that the most redundant is left to the next round.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Keyed(Protocol):
    """Something that may be found twice."""

    @property
    def key(self) -> Hashable:
        """Return what is equal only for what does the same."""
        ...


T = TypeVar("T", bound=Keyed)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one round rebuilds at most; what is being rebuilt at the moment is finished."""

    fragments: int
    size_bytes: int


class Budget:
    """What is left to one round."""

    def __init__(self, bounds: Bounds) -> None:
        """`bounds` are those of the round."""
        self._fragments = bounds.fragments
        self._bytes = bounds.size_bytes

    @property
    def is_spent(self) -> bool:
        """Whether the round rebuilds nothing more."""
        return self._fragments <= 0 or self._bytes <= 0

    def spend(self, made_bytes: int) -> None:
        """A fragment of so many bytes was rebuilt."""
        self._fragments -= 1
        self._bytes -= made_bytes


class Backlog(Generic[T]):
    """Repairs with a limit on their number: the least redundant are kept."""

    def __init__(self, most: int) -> None:
        """`most` repairs are kept."""
        self._most = most
        self._kept: list[tuple[int, float, int, T]] = []
        self._keys: set[Hashable] = set()
        self._added = 0
        self.dropped = 0
        """Repairs that were not kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, redundancy: int, repair: T) -> bool:
        """Add a repair of an object that this many places show; return False if it is there already."""
        if repair.key in self._keys:
            return False
        self._added += 1
        self._keys.add(repair.key)
        # Those of equal redundancy are in random order, so that the replicators of two places seldom make the same
        # fragment at the same time. The number is never the same twice, as repairs have no order.
        item = (-redundancy, random.random(), self._added, repair)  # noqa: S311
        if len(self._kept) < self._most:
            heapq.heappush(self._kept, item)
        else:
            self._keys.discard(heapq.heappushpop(self._kept, item)[3].key)
            self.dropped += 1
        return True

    def take_all(self) -> list[T]:
        """Take out the repairs; return them, the least redundant first."""
        kept = sorted(self._kept, key=lambda item: item[:3], reverse=True)
        self._kept, self._keys = [], set()
        return [repair for *_, repair in kept]
