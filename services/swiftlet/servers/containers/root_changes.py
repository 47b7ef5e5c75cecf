"""The partitions whose roots have changed, in the order of their changes: a list of bounded length. No I/O."""

from __future__ import annotations

from collections import deque
from itertools import count, islice

MOST = 1 << 16
"""The longest list; who has not asked for so many changes reads all roots."""
_APART = 1 << 40
"""The distance between the positions of two lists, which is longer than any list gets."""

_lists = count()


class RootChanges:
    """The changes of one kind of databases on one device; its positions mean nothing in another list."""

    def __init__(self) -> None:
        self._list: deque[int] = deque(maxlen=MOST)
        self._next = next(_lists) * _APART

    def add(self, partition: int) -> None:
        """Add a partition that has changed."""
        self._list.append(partition)
        self._next += 1

    def since(self, position: int | None) -> tuple[int, set[int] | None]:
        """Return the next position and what has changed since a position; None instead of that if it is not known."""
        if position is None or not 0 <= self._next - position <= len(self._list):
            return self._next, None
        return self._next, set(islice(self._list, len(self._list) - (self._next - position), None))
