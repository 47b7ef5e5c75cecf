"""Phases of the native generator's load on a store in this process, which a file breaks."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swiftlet.bench.comparison import compare
from swiftlet.bench.degrade.commands import Commands
from swiftlet.bench.degrade.modes import mode_of
from swiftlet.bench.degrade.phases import PHASES, TASK_PHASES, measured, together, way_of
from swiftlet.bench.degrade.pictures import picture
from swiftlet.bench.errors import BenchError
from swiftlet.bench.figures import FIRST_SUCCESS, WHOLE
from swiftlet.bench.page import render
from swiftlet.bench.results import Result, appended
from swiftlet.bench.runner import Options
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.table import notes
from swiftlet.bench.target import Target
from swiftlet.bench.tests.store import Store

LOAD = Scenario.model_validate(
    {
        "title": "small",
        "objects": 5,
        "sizes": {"fixed": 100},
        "operations": {"read": 1, "head": 1},
        "closed": {"connections": [2], "think_s": 0.01},
        "duration_s": 60,
    }
)
SECONDS = 0.8


@pytest.fixture
def broken(store: Store, tmp_path: Path) -> Path:
    """While this file is there the store answers reads with an error."""
    file = tmp_path / "broken"
    store.fault = lambda method, *_: 503 if method in ("GET", "HEAD") and file.exists() else None
    return file


@pytest.fixture
def load(store: Store, broken: Path) -> Callable[..., Result]:
    def run(*, runs: int = 1, scenario: Scenario = LOAD, stops: Callable[[], int] = lambda: 0, **fields: Any) -> Result:
        file = shlex.quote(str(broken))
        given = {"name": "away", "break": f"touch {file}", "mend": f"rm -f {file}", "seconds": SECONDS, **fields}
        mode = mode_of({name: value for name, value in given.items() if value is not None})
        target = Target(f"{store.endpoint}/v1/AUTH_test", "token")
        way = way_of(mode, Commands(mode.within_s))
        return measured(scenario, target, way, Options(prefix="b", runs=runs, stops=stops))

    return run


def kinds(result: Result) -> list[set[str]]:
    return [set(step.total.failures) for step in result.steps]


def test_what_clients_notice_is_told_by_phase(load: Callable[..., Result], store: Store, broken: Path) -> None:
    result = load(whole=f"test ! -e {shlex.quote(str(broken))}")
    assert [(step.run, step.mode, step.phase) for step in result.steps] == [(1, "away", phase) for phase in PHASES]
    before, during, after = result.steps
    assert before.total.failures == {}
    assert set(during.total.failures) == {"status 503"}
    assert after.total.succeeded > 0
    # Nothing succeeds before it is mended, which is a phase later.
    assert during.first_success_s is not None
    assert during.first_success_s > SECONDS / 2
    assert after.is_whole
    assert after.whole_s is not None
    assert (before.act_s, during.is_whole) == (None, None)
    assert not store.objects
    assert not store.containers
    assert any(note.startswith("away, broken: failed: ") and "status 503" in note for note in notes(result))
    assert Result.model_validate_json(result.model_dump_json()) == result
    page = render(result)
    assert page.count("<svg") == 2
    assert "broken at 0.8, mended at 1.6; whole again after 0 s" in page
    assert page.count("<tr>") == 1 + 3
    assert picture(result, "away").count("99th percentile") == 2


def test_redundancy_that_is_not_complete_in_time_is_told(load: Callable[..., Result]) -> None:
    result = load(whole="false", within_s=3)
    assert (result.steps[-1].whole_s, result.steps[-1].is_whole) == (None, False)
    assert "away, mended: redundancy was not complete in time." in notes(result)
    assert "not whole again in time" in render(result)


def test_a_break_that_takes_longer_than_its_phase_is_told(load: Callable[..., Result]) -> None:
    result = load(**{"break": "sleep 1.2"})
    assert [step.total.failures for step in result.steps] == [{}, {}, {}]
    assert any(note.startswith("away, broken: the command took 1 s, longer than the phase") for note in notes(result))


def test_a_task_lasts_as_long_as_it_takes_and_is_not_mended(load: Callable[..., Result], broken: Path) -> None:
    result = load(**{"break": f"sleep 1; touch {shlex.quote(str(broken))}"}, mend=None, task=True, seconds=0.3)
    assert [step.phase for step in result.steps] == list(TASK_PHASES)
    assert result.steps[1].window_s > 1
    assert result.steps[2].whole_s is not None
    assert 1 <= result.steps[2].whole_s <= result.steps[1].window_s
    assert broken.exists()
    assert [step.ended_early for step in result.steps] == [None, None, None]


def test_what_fails_to_break_ends_it_with_its_words_and_is_mended(
    load: Callable[..., Result], store: Store, broken: Path
) -> None:
    file = shlex.quote(str(broken))
    with pytest.raises(BenchError, match=r"^break of away: .* failed with exit code 4: no such pod$"):
        load(**{"break": f"touch {file}; echo no such pod >&2; exit 4"})
    assert not broken.exists()
    assert not store.objects
    with pytest.raises(BenchError, match=r"mend of away: `exit 5` failed with exit code 5: .* put it right by hand"):
        load(mend="exit 5")


def test_an_interrupted_run_is_mended_before_objects_are_deleted(
    load: Callable[..., Result], store: Store, broken: Path
) -> None:
    was_broken: list[bool] = []

    def fault(method: str, *_: object) -> int | None:
        if method == "DELETE":
            was_broken.append(broken.exists())
        return None

    store.fault = fault
    result = load(stops=lambda: int(broken.exists() or bool(was_broken)))
    assert result.is_cut_short
    assert [step.phase for step in result.steps] == ["before", "broken"]
    assert was_broken
    assert not any(was_broken)
    assert not broken.exists()
    assert not store.objects


def test_results_are_compared_by_phase(load: Callable[..., Result], broken: Path) -> None:
    whole = f"test ! -e {shlex.quote(str(broken))}"
    one = load(runs=2, whole=whole)
    assert [step.run for step in one.steps] == [run for run in (1, 2) for _ in PHASES]
    other = appended(load(whole=whole), load(whole=whole))
    assert {step.run for step in other.steps} == {1, 2}
    rows = compare(one, other)
    assert {row.key.phase for row in rows} == {f"away, {phase}" for phase in PHASES}
    figures = {(row.key.phase, row.figure): row for row in rows}
    assert figures["away, broken", FIRST_SUCCESS].before > 0
    assert figures["away, mended", WHOLE].before > 0
    longer = load(seconds=0.6)
    with pytest.raises(BenchError, match="duration_s differ"):
        compare(one, longer)
    changed = longer.model_copy(update={"scenario": one.scenario})
    with pytest.raises(BenchError, match="phases were not equally long in away"):
        compare(one, changed)


def test_modes_of_several_files_are_one_result(load: Callable[..., Result]) -> None:
    both = together([load(seconds=0.3), load(name="again", seconds=0.3)], LOAD)
    assert list(both.modes) == ["away", "again"]
    assert len(both.steps) == 6
    assert render(both).count("<svg") == 4


@pytest.mark.parametrize("connections", [{"connections": [1, 2]}, {"ramp": {"first": 1, "last": 2}}])
def test_the_load_of_phases_is_one_step(load: Callable[..., Result], connections: Any) -> None:
    scenario = Scenario.model_validate({**LOAD.document(), "closed": connections})
    with pytest.raises(BenchError, match=r"--set closed.connections=8"):
        load(scenario=scenario)
