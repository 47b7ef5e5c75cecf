"""Times of operations as the generator has them: how many took about so long, to three digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_DISTINCT = 100_000
"""Distinct times: a histogram of three digits from a microsecond to an hour has fewer."""

_Counts = Annotated[tuple[tuple[int, int], ...], Field(max_length=MAX_DISTINCT)]


class Times(BaseModel):
    """Nanoseconds in ascending order, each with how many took about so long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    counts: _Counts = ()

    @property
    def count(self) -> int:
        """Return how many there are."""
        return sum(count for _, count in self.counts)

    @property
    def mean_s(self) -> float | None:
        """Return the mean in seconds, None when there are none."""
        total = self.count
        return sum(nanos * count for nanos, count in self.counts) / total / 1e9 if total else None

    @property
    def max_s(self) -> float | None:
        """Return the longest in seconds, None when there are none."""
        return self.counts[-1][0] / 1e9 if self.counts else None

    def quantile_s(self, share: float) -> float | None:
        """Return the time in seconds that this share did not exceed, None when there are none."""
        return self.quantiles_s([share])[0] if self.counts else None

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Return the times of ascending shares. There has to be at least one time."""
        wanted = [max(1, round(share * self.count + 0.499999)) for share in shares]
        found, passed, place = [], 0, 0
        for nanos, count in self.counts:
            passed += count
            while place < len(wanted) and passed >= wanted[place]:
                found.append(nanos / 1e9)
                place += 1
        return found + [self.counts[-1][0] / 1e9] * (len(wanted) - place)


def merged(several: Iterable[Times]) -> Times:
    """Return the times of all of them."""
    sums: dict[int, int] = {}
    for one in several:
        for nanos, count in one.counts:
            sums[nanos] = sums.get(nanos, 0) + count
    return Times(counts=tuple(sorted(sums.items())))
