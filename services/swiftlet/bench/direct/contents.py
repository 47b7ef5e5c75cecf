"""The sizes and the bytes of objects, which follow from the seed and the number of each."""

from __future__ import annotations

import random
from collections.abc import Sequence

from swiftlet.bench.scenario import Piece

_PERIOD = 1_048_573
"""After so many bytes the text repeats itself; a prime number, so that blocks begin at other places of it each time."""


class Contents:
    """Objects of a scenario: stretches of one endless text, each beginning at a place of its own."""

    def __init__(self, seed: int, pieces: Sequence[Piece]) -> None:
        """`pieces` are the distribution of sizes, as `Sizes.pieces` has it."""
        self._seed = seed
        self._pieces = pieces
        self._weights = [weight for weight, *_ in pieces]
        self._text = random.Random(seed).randbytes(_PERIOD)  # noqa: S311

    def size(self, number: int) -> int:
        """Return the size of an object in bytes."""
        chance = random.Random(f"{self._seed} {number} size")  # noqa: S311
        _, least, most, median, sigma = chance.choices(self._pieces, self._weights)[0]
        if median is None:
            return chance.randint(least, most)
        return min(max(round(median * chance.lognormvariate(0.0, sigma)), least), most)

    def body(self, number: int) -> bytes:
        """Return the bytes of an object."""
        size = self.size(number)
        start = hash((self._seed, number)) % _PERIOD
        if start + size <= _PERIOD:
            return self._text[start : start + size]
        return (self._text[start:] + self._text * (size // _PERIOD + 1))[:size]
