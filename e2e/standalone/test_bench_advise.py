"""`bench.advise`: a step in which operations fail is begun again, but not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.advise import run as advise
from bench.advise.run import TRIES, Bench, OperationsFailError
from swiftlet.advice.costs import shipped
from swiftlet.bench.results import Failures, StepResult
from swiftlet.bench.target import Target
from swiftlet.bench.tests.results import operation, result, step
from swiftlet.main.commands.advise.measuring import LocalStore

DOCUMENT = advise.scenario("1 KB", 10, 1).document()
GOOD = step()
BAD = step(operations={"create": operation(failures={"status 503": Failures(count=7, example="PUT /v1/a/c/o: 503")})})


def steps_of(monkeypatch: pytest.MonkeyPatch, *outcomes: StepResult) -> list[StepResult]:
    """Have runs end so, one after the other; those that are left."""
    left = list(outcomes)
    monkeypatch.setattr(advise, "run", lambda *_: result(DOCUMENT, [left.pop(0)]))
    return left


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(
        LocalStore("http://127.0.0.1:1", "u", "k", tmp_path, {}, 1), Target("http://store/v1/a", "t"), shipped(), {}
    )


def test_a_step_in_which_operations_fail_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    left = steps_of(monkeypatch, *[BAD] * (TRIES - 1), GOOD, GOOD)
    assert bench.step(advise.scenario("1 KB", 10, 1), "b") is GOOD
    assert left == [GOOD]


def test_operations_that_always_fail_end_it_with_what_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    left = steps_of(monkeypatch, *[BAD] * TRIES, GOOD)
    with pytest.raises(OperationsFailError, match=r"each of 3 tries, .* 7 \(status 503: 7, for example PUT /v1/a/c/o"):
        bench.step(advise.scenario("1 KB", 10, 1), "b")
    assert left == [GOOD]
