"""Sizes of objects as a few of them with weights, from a distribution as scenarios and workloads have it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

PIECES = 64
"""Into how many parts a continuous distribution is divided: means are right to a percent or better."""
_SIGMAS = 5.0
"""How far from the middle of a normal distribution the parts begin."""

Piece = tuple[float, int, int, int | None, float]
"""Weight, least, most, and of a lognormal distribution median and sigma of the logarithm."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes in bytes, each with its share of all objects; shares add up to 1."""

    shares: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float:
        """Return the mean size in bytes."""
        return math.fsum(share * size for share, size in self.shares)

    def share_above(self, size: float) -> float:
        """Return the share of objects that are larger."""
        return math.fsum(share for share, one in self.shares if one > size)


def fixed(size: float) -> Sizes:
    """Return one size for all."""
    return Sizes(((1.0, size),))


def of_pieces(pieces: Iterable[Piece]) -> Sizes:
    """Return the sizes of a distribution."""
    given = [(weight, _parts(least, most, median, sigma)) for weight, least, most, median, sigma in pieces]
    total = math.fsum(weight for weight, _ in given)
    return Sizes(tuple((weight / total * share, size) for weight, parts in given for share, size in parts if weight))


def _parts(least: int, most: int, median: int | None, sigma: float) -> list[tuple[float, float]]:
    if median is not None and sigma > 0:
        return _lognormal(least, most, median, sigma)
    if median is not None:
        return [(1.0, float(min(max(median, least), most)))]
    if least == most:
        return [(1.0, float(least))]
    step = (most - least) / PIECES
    return [(1 / PIECES, least + (number + 0.5) * step) for number in range(PIECES)]


def _lognormal(least: int, most: int, median: int, sigma: float) -> list[tuple[float, float]]:
    """Return parts of equal width on the logarithmic scale, each with its mean; the last ones reach into the tail."""
    normal = NormalDist()
    width = (2 * _SIGMAS + sigma) / PIECES
    edges = [-math.inf, *(-_SIGMAS + number * width for number in range(1, PIECES)), math.inf]
    parts = []
    for low, high in pairwise(edges):
        share = normal.cdf(high) - normal.cdf(low)
        if share <= 0:
            continue
        # The mean of exp(sigma * z) between two z.
        factor = (normal.cdf(high - sigma) - normal.cdf(low - sigma)) / share
        size = median * math.exp(min(sigma * sigma / 2, 700.0)) * factor
        parts.append((share, min(max(size, float(least)), float(most))))
    return parts
