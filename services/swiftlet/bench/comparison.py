"""Whether two results differ, each with several runs.

The ratio is that of medians; its interval is between the 2.5th and the 97.5th percentile of ratios of resampled runs
(a bootstrap with a fixed seed). The verdict is that of the two-sided Mann-Whitney test at 5 %, exact for up to 20 runs
a side: it asks how often runs that come from one distribution would be ranked at least as differently, and assumes
nothing about that distribution. Of twenty rows without any difference about one is called different by chance.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, variance

from swiftlet.bench.errors import BenchError
from swiftlet.bench.figures import COMPARED, FAILED, OF_STEPS, Figure, Key, keys, values
from swiftlet.bench.results import CANCELLED, Result, differences

LEVEL = 0.05
FEWEST_RUNS = 4
"""With three runs a side even the most different ranks come by chance in a tenth of all cases."""
MAX_EXACT_RUNS = 20
"""Runs of a side for which the test is exact; its table grows with their fourth power. With more, the sum of ranks is
taken as normally distributed.
"""
_RESAMPLES = 10_000
_SEED = 1

BETTER, WORSE, UNPROVED, TOO_FEW = "better", "worse", "no difference shown", f"needs {FEWEST_RUNS} runs a side"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a step and an operation in both results."""

    key: Key
    figure: Figure
    before: float
    after: float
    """Medians of all runs."""
    before_spread: float
    after_spread: float
    """The largest value less the smallest, by the median."""
    ratio: float | None
    """None when there is nothing to divide by."""
    interval: tuple[float, float] | None
    p: float | None
    """The probability of the test; None with too few runs."""
    verdict: str


def compare(before: Result, after: Result) -> list[Row]:
    """Return a row for each figure that both results have; BenchError when they can't be compared."""
    if differing := differences(before.scenario, after.scenario):
        named = ", ".join(differing)
        raise BenchError(f"the results are of different scenarios: {named} differ; --set gives one the other's values")
    if differing := _lasted_differently(before, after):
        raise BenchError(f"phases were not equally long in {', '.join(differing)}: give both the same `seconds`")
    before, after = _whole(before), _whole(after)
    known = set(keys(after))
    rows = [
        row
        for key in keys(before)
        if key in known
        for figure in _figures(before, key)
        if (row := _row(key, figure, values(before, key, figure), values(after, key, figure))) is not None
    ]
    if not rows:
        raise BenchError("the results have no step in common")
    return rows


def _figures(result: Result, key: Key) -> Sequence[Figure]:
    """Return what is compared of a step and an operation; some figures are of a step as a whole."""
    steps = [one for one in keys(result) if one.place == key.place]
    return (*COMPARED, *OF_STEPS) if key == steps[-1] else COMPARED


def _lasted_differently(before: Result, after: Result) -> list[str]:
    both = before.modes.keys() & after.modes.keys()
    return sorted(name for name in both if before.modes[name].seconds != after.modes[name].seconds)


def _whole(result: Result) -> Result:
    """Return a result without steps that the user has cut short."""
    steps = tuple(step for step in result.steps if step.ended_early != CANCELLED)
    return result.model_copy(update={"steps": steps})


def _row(key: Key, figure: Figure, before: list[float], after: list[float]) -> Row | None:
    if not before or not after or (figure is FAILED and not any(before) and not any(after)):
        return None
    if not any(before) and not any(after):
        return None
    middle = median(before), median(after)
    p = mann_whitney(before, after) if min(len(before), len(after)) >= FEWEST_RUNS else None
    return Row(
        key,
        figure,
        *middle,
        _spread(before),
        _spread(after),
        middle[1] / middle[0] if middle[0] else None,
        bootstrap(before, after),
        p,
        _verdict(p, before, after, figure),
    )


def _spread(found: Sequence[float]) -> float:
    middle = median(found)
    return (max(found) - min(found)) / middle if middle else 0.0


def _verdict(p: float | None, before: Sequence[float], after: Sequence[float], figure: Figure) -> str:
    if p is None:
        return TOO_FEW
    if p > LEVEL:
        return UNPROVED
    is_higher = sum((b > a) - (b < a) for a in before for b in after) > 0
    return BETTER if is_higher == figure.is_higher_better else WORSE


def bootstrap(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the ratio of medians at 95 %; None with one run a side, or when a median may be 0."""
    if min(len(before), len(after)) < 2 or not all(before):
        return None
    chance = random.Random(_SEED)  # noqa: S311 - nobody has to be kept from guessing it
    ratios = sorted(
        median(chance.choices(after, k=len(after))) / median(chance.choices(before, k=len(before)))
        for _ in range(_RESAMPLES)
    )
    return ratios[round(0.025 * _RESAMPLES)], ratios[round(0.975 * _RESAMPLES) - 1]


def mann_whitney(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the two-sided probability of ranks at least this different when both come from one distribution.

    Exact, also with ties: over all ways to choose which of the runs are the first side's.
    """
    ranks = _double_ranks([*before, *after])
    observed = sum(ranks[: len(before)])
    middle = len(before) * (len(ranks) + 1)
    distance = abs(observed - middle)
    if max(len(before), len(after)) > MAX_EXACT_RUNS:
        # The variance of a sum of ranks that are drawn without putting them back.
        deviation = math.sqrt(len(before) * len(after) / len(ranks) * variance(ranks))
        return 2 * (1 - NormalDist().cdf(distance / deviation)) if deviation else 1.0
    # How many choices of so many runs have which sum of ranks: one run after the other is chosen or not.
    sums: list[Counter[int]] = [Counter() for _ in range(len(before) + 1)]
    sums[0][0] = 1
    for rank in ranks:
        for chosen in range(len(before), 0, -1):
            for total, ways in sums[chosen - 1].items():
                sums[chosen][total + rank] += ways
    every = sums[len(before)]
    extreme = sum(ways for total, ways in every.items() if abs(total - middle) >= distance)
    return extreme / sum(every.values())


def _double_ranks(found: Sequence[float]) -> list[int]:
    """Return twice the rank of each, so that ties, which share the mean of theirs, stay whole numbers."""
    order = sorted(found)
    first = {value: order.index(value) for value in set(found)}
    counts = Counter(found)
    return [2 * first[value] + counts[value] + 1 for value in found]
