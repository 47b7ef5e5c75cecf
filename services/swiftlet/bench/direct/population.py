"""Which objects one process has stored: those that can be read, those in use, and those that nobody knows about."""

from __future__ import annotations

import random
from collections import Counter

_DRAWS = 16
"""How often an object that nobody uses is looked for by chance."""


class Population:
    """Objects with the numbers `offset`, `offset + stride` and so on."""

    def __init__(self, offset: int, stride: int, chance: random.Random) -> None:
        self._offset, self._stride, self._chance = offset, stride, chance
        self._given = 0
        self._live: list[int] = []
        self._busy: Counter[int] = Counter()
        self._doubtful: list[int] = []

    def __len__(self) -> int:
        """Return how many can be read."""
        return len(self._live)

    def fresh(self) -> int:
        """Return a number that no object had before."""
        number = self._given * self._stride + self._offset
        self._given += 1
        return number

    def any(self) -> int:
        """Return a number that an object has or had, or the first one."""
        return self._chance.randrange(max(1, self._given)) * self._stride + self._offset

    def pick(self) -> int | None:
        """Return an object to read or to write over, which nobody deletes before it is released."""
        if not self._live:
            return None
        number = self._chance.choice(self._live)
        self._busy[number] += 1
        return number

    def take(self) -> int | None:
        """Return an object to delete, which nobody uses, and nobody will."""
        for _ in range(_DRAWS if self._live else 0):
            place = self._chance.randrange(len(self._live))
            if not self._busy[self._live[place]]:
                self._live[place], self._live[-1] = self._live[-1], self._live[place]
                return self._live.pop()
        return None

    def take_last(self) -> int | None:
        """Return an object to delete in the end, doubtful ones too."""
        left = self._live or self._doubtful
        return left.pop() if left else None

    def release(self, number: int) -> None:
        """Note that an operation on an object has ended."""
        self._busy[number] -= 1
        if self._busy[number] <= 0:
            del self._busy[number]

    def created(self, number: int) -> None:
        """Note that an object exists from now on."""
        self._live.append(number)

    def doubt(self, number: int) -> None:
        """Note that an object may or may not exist."""
        self._doubtful.append(number)
