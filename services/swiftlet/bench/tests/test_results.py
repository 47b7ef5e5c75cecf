"""Times, points and results as values, and how tables show them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swiftlet.bench.errors import BenchError
from swiftlet.bench.figures import ALL, FIGURES, P99, Key, keys, values
from swiftlet.bench.page import render
from swiftlet.bench.points import Points
from swiftlet.bench.results import MAX_POINTS, Failures, OperationResult, Result, StepResult, appended, read_result
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.table import cell, notes, print_result
from swiftlet.bench.tests.results import operation, result, step
from swiftlet.bench.times import Times, merged


def test_quantiles_are_those_of_sorted_times() -> None:
    times = Times(counts=((1_000_000_000, 1), (2_000_000_000, 98), (9_000_000_000, 1)))
    assert times.count == 100
    assert times.quantiles_s([0.0, 0.01, 0.02, 0.5, 0.99, 0.991, 1.0]) == [1, 1, 2, 2, 2, 9, 9]
    assert times.mean_s == pytest.approx(2.06)
    assert times.max_s == 9
    assert (Times().quantile_s(0.5), Times().mean_s, Times().max_s) == (None, None, None)
    assert merged([times, Times(counts=((1_000_000_000, 2),))]).counts[0] == (1_000_000_000, 3)


def test_points_are_bounded_and_keep_sums() -> None:
    points = Points()
    for number in range(1, 10_001):
        recent = {"succeeded": number % 7, "failed": 1, "moved_bytes": 50, "p99_s": 0.5 if number == 77 else 0.1}
        points.add(number * 0.25, 0.25, recent)
    kept = points.all()
    assert MAX_POINTS / 4 < len(kept) <= MAX_POINTS
    assert sum(point.failed for point in kept) == 10_000
    assert kept[-1].at_s == 2500
    assert max(point.p99_s for point in kept) == 0.5
    begins = [0.0, *(point.at_s for point in kept)]
    total = sum(point.operations_per_s * (point.at_s - begin) for begin, point in zip(begins, kept, strict=False))
    assert total == pytest.approx(sum(number % 7 for number in range(1, 10_001)))
    assert all(point.bytes_per_s == pytest.approx(200) for point in kept)


def test_results_are_read_back_or_refused(tmp_path: Path, document: dict[str, Any]) -> None:
    file, made = tmp_path / "r.json", result(document, [step()])
    file.write_text(made.model_dump_json())
    assert read_result(file) == made
    for content, message in [
        ("{}", "no result of `swiftlet bench run --json`: scenario"),
        ("[", "no result"),
        (made.model_copy(update={"version": 4}).model_dump_json(), "has version 4"),
    ]:
        file.write_text(content)
        with pytest.raises(BenchError, match=message):
            read_result(file)
    with pytest.raises(BenchError, match="No such file"):
        read_result(tmp_path / "none")


def test_runs_are_added_to_those_of_the_same_scenario(document: dict[str, Any]) -> None:
    one = result(document, [step(run=1), step(run=2)])
    both = appended(one, one)
    assert [found.run for found in both.steps] == [1, 2, 3, 4]
    assert both.runs == 4
    other = result({**document, "seed": 2, "title": "other"}, [step()])
    with pytest.raises(BenchError, match="these differ: seed"):
        appended(one, other)


def test_figures_are_of_each_step_and_of_all_operations_together(document: dict[str, Any]) -> None:
    two = {"read": operation(p=5), "create": operation(p=7)}
    made = result(document, [step(connections=8, operations=two), step(connections=1), step(run=2, connections=8)])
    found = keys(made)
    assert [(key.connections, key.operation) for key in found] == [(8, "read"), (8, "create"), (8, ALL), (1, "read")]
    assert values(made, Key(8, None, "create"), P99) == [0.007]
    assert values(made, Key(8, None, ALL), P99) == [0.007, 0.005]


def printed(made: Result) -> str:
    out = io.StringIO()
    print_result(made, Console(file=out, width=250))
    return out.getvalue()


def test_a_table_says_what_a_reader_has_to_know(document: dict[str, Any]) -> None:
    failing = operation(failures={"status 503": Failures(count=3, example="GET /v1/a/c/o")})
    late = Times(counts=((50_000_000, 10),))
    text = printed(
        result(document, [step(operations={"read": failing}, busiest=0.95, lateness=late, ended_early="no object")])
    )
    for part in ("100", "5 ms", "Failed: 3 times status 503, such as GET /v1/a/c/o", "it may be the limit"):
        assert part in text
    for part in ("50 ms late", "A step ended early: no object.", "COSBench"):
        assert part in text
    assert "CPU" not in printed(result(document, [step()]))
    assert any("Cut short" in note for note in notes(result(document, [step()], is_cut_short=True)))
    assert any("Medians of 2 runs" in note for note in notes(result(document, [step(), step(run=2)])))


def test_a_step_in_which_nothing_happened_is_shown(document: dict[str, Any]) -> None:
    empty = OperationResult(succeeded=0, ended=0, bytes=0, latency=Times(), first_byte=Times(), failures={})
    nothing: StepResult = step(operations={"read": empty}).model_copy(update={"window_s": 0.0, "all_succeeded": 0})
    assert "nothing was measured" in printed(result(document, [nothing]))


def test_a_scenario_survives_its_document(document: dict[str, Any]) -> None:
    scenario = Scenario.model_validate(document)
    assert Scenario.model_validate(scenario.document()) == scenario


def test_a_report_tells_the_thousandth_and_the_first_byte(document: dict[str, Any]) -> None:
    # Of a thousand two take 800 ms, eighteen 100 ms and the others 10 ms; their first byte comes after a fifth.
    counts = ((10_000_000, 980), (100_000_000, 18), (800_000_000, 2))
    whole, first = Times(counts=counts), Times(counts=tuple((nanos // 5, count) for nanos, count in counts))
    found = operation().model_copy(update={"latency": whole, "first_byte": first})
    made = result(document, [step(operations={"read": found})])
    (key,) = keys(made)
    cells = {figure.title: cell(made, key, figure) for figure in FIGURES}
    wanted = {"p50": "10 ms", "p95": "10 ms", "p99": "100 ms", "p99.9": "800 ms", "max": "800 ms", "first byte": "2 ms"}
    assert {title: cells[title] for title in wanted} == wanted
    page = render(made)
    assert all(f"<th>{title}</th>" in page for title in wanted)
    assert page.count("<td>800 ms</td>") == 2
