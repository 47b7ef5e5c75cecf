"""Two results, several runs each: ratios, intervals, verdicts."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from swiftlet.bench.comparison import (
    BETTER,
    MAX_EXACT_RUNS,
    TOO_FEW,
    UNPROVED,
    WORSE,
    Row,
    bootstrap,
    compare,
    mann_whitney,
)
from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Failures, Result, Usage
from swiftlet.bench.tests.results import operation, result, step
from swiftlet.bench.verdicts import document as plain
from swiftlet.bench.verdicts import print_comparison


def runs(document: dict[str, Any], latencies_ms: Sequence[float], ended: Sequence[int] | None = None) -> Result:
    counts = ended or [1000] * len(latencies_ms)
    made = [
        step(run=number, operations={"read": operation(p=p, ended=count)})
        for number, (p, count) in enumerate(zip(latencies_ms, counts, strict=True), start=1)
    ]
    return result(document, made)


def by_figure(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.figure.name: row for row in rows}


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        # From the tables of the test: 2/20, 2/70, 2/252; no difference at all.
        ([1, 2, 3], [4, 5, 6], 0.1),
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 2 / 252),
        ([5, 5, 5, 5], [5, 5, 5, 5], 1.0),
        ([1, 4, 5, 8], [2, 3, 6, 7], 1.0),
    ],
)
def test_the_test_has_the_known_probabilities(before: list[float], after: list[float], p: float) -> None:
    assert mann_whitney(before, after) == pytest.approx(p)


def test_the_exact_test_counts_all_choices_also_with_ties() -> None:
    before, after = [1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 4.0, 4.0, 5.0]
    every = [*before, *after]
    ranks = [sum(one < other for one in every) + (sum(one == other for one in every) + 1) / 2 for other in every]
    middle = len(before) * (len(every) + 1) / 2
    observed = abs(sum(ranks[: len(before)]) - middle)
    chosen = [abs(sum(some) - middle) for some in itertools.combinations(ranks, len(before))]
    expected = sum(distance >= observed for distance in chosen) / len(chosen)
    assert mann_whitney(before, after) == pytest.approx(expected)


def test_many_runs_are_tested_by_the_normal_distribution() -> None:
    chance = random.Random(4)
    for shift in (0.0, 0.3, 1.0):
        before = [chance.gauss(0, 1) for _ in range(MAX_EXACT_RUNS)]
        after = [chance.gauss(shift, 1) for _ in range(MAX_EXACT_RUNS)]
        exact = mann_whitney(before, after)
        # One run more, in the middle of the others, changes little.
        assert mann_whitney([*before, shift / 2], after) == pytest.approx(exact, abs=0.05)
    assert mann_whitney([1.0] * 30, [1.0] * 30) == 1.0


def test_the_test_rarely_finds_a_difference_where_there_is_none() -> None:
    chance = random.Random(7)
    found = sum(
        mann_whitney([chance.random() for _ in range(5)], [chance.random() for _ in range(5)]) <= 0.05
        for _ in range(400)
    )
    assert found / 400 <= 0.06


def test_the_interval_holds_the_ratio() -> None:
    interval = bootstrap([100, 101, 99, 100, 102], [200, 202, 198, 201, 199])
    assert interval is not None
    assert 1.9 < interval[0] <= 2.0 <= interval[1] < 2.1
    assert bootstrap([100], [200]) is None
    assert bootstrap([0, 0], [1, 1]) is None


def test_slower_is_worse_and_more_is_better(document: dict[str, Any]) -> None:
    before = runs(document, [5.0, 5.1, 5.2, 5.3], [1000, 1001, 1002, 1003])
    after = runs(document, [9.0, 9.1, 9.2, 9.3], [1200, 1201, 1202, 1203])
    rows = by_figure(compare(before, after))
    assert rows["p99_s"].verdict == WORSE
    assert rows["p99_s"].ratio == pytest.approx(9.15 / 5.15)
    assert rows["p99_s"].before_spread == pytest.approx(0.3 / 5.15)
    assert rows["operations_per_s"].verdict == BETTER
    assert {row.verdict for row in compare(before, before)} == {UNPROVED}
    assert "failed" not in rows
    assert "cpu_per_operation_s" not in rows


def test_few_runs_prove_nothing(document: dict[str, Any]) -> None:
    rows = compare(runs(document, [5, 5, 5]), runs(document, [9, 9, 9, 9]))
    assert {row.verdict for row in rows} == {TOO_FEW}
    assert {row.p for row in rows} == {None}


def test_processor_time_and_failures_are_compared_too(document: dict[str, Any]) -> None:
    def made(cpu_s: float, failed: int) -> Result:
        usage = Usage(cpu_s=cpu_s, rss_bytes=1, read_bytes=None, written_bytes=None, processes=1)
        failures = {"timeout": Failures(count=failed, example="GET /")} if failed else {}
        operations = {"create": operation(), "read": operation(failures=failures)}
        return result(document, [step(run=n, operations=operations, usage=usage) for n in range(1, 5)])

    found = compare(made(1.0, 0), made(2.0, 3))
    assert [row.key.operation for row in found if row.figure.name.startswith("cpu")] == ["all"]
    rows = by_figure(found)
    assert rows["cpu_per_operation_s"].ratio == pytest.approx(2.0)
    assert rows["cpu_per_operation_s"].verdict == WORSE
    assert (rows["failed"].ratio, rows["failed"].verdict) == (None, WORSE)


def test_different_scenarios_are_not_compared(document: dict[str, Any]) -> None:
    other = {**document, "title": "renamed", "seed": 9, "page": 7}
    with pytest.raises(BenchError, match="page, seed differ"):
        compare(runs(document, [1]), runs(other, [1]))
    one, two = result(document, [step(connections=1)]), result(document, [step(connections=2)])
    with pytest.raises(BenchError, match="no step in common"):
        compare(one, two)


def test_what_was_cut_short_is_not_compared(document: dict[str, Any]) -> None:
    before = runs(document, [5, 6, 7, 8])
    cut = step(run=9, operations={"read": operation(p=900)}, ended_early="cancelled")
    rows = by_figure(compare(before, before.model_copy(update={"steps": (*before.steps, cut)})))
    assert rows["p99_s"].ratio == 1


def test_a_comparison_is_printed(document: dict[str, Any]) -> None:
    rows = compare(runs(document, [5, 6, 7, 8]), runs(document, [15, 16, 17, 18]))
    out = io.StringIO()
    print_comparison(rows, Console(file=out, width=200))
    for part in ("p99", "2.538", "worse", "0.029", "Mann-Whitney test at 5%"):
        assert part in out.getvalue()
    out = io.StringIO()
    print_comparison(compare(runs(document, [5]), runs(document, [6])), Console(file=out, width=200))
    assert "--append" in out.getvalue()
    assert plain(rows[0])["figure"] == "operations_per_s"
