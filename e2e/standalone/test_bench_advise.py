"""`bench.advise`: a step in which operations fail is begun again, but not for ever. What a lost device takes is counted
without what services take at rest, and without what those had taken that were killed for it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pytest

from bench.advise import run as advise
from bench.advise.run import TRIES, Bench, OperationsFailError
from e2e.standalone.cluster import Cluster
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


IDLE = 0.5


class Store:
    """A store of which services were killed: they are waited for a while later, and the others do something at rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.services: dict[str, object] = {"object-1": {}, "object-2": {}, "replicator": {}}
        self.now_s = self.worked_s = 0.0
        self._waited_for_s = 0.0
        self._killed_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(advise, "_seconds", self._seconds)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _seconds(self, _cluster: object) -> float:
        killed_s = self._killed_s if self.now_s >= self._waited_for_s else 0.0
        return self.worked_s + killed_s + IDLE * self.now_s

    @property
    def pids(self) -> dict[str, int]:
        left = self.services if self.now_s < self._waited_for_s else {"object-2"}
        return dict.fromkeys(left, 1)

    def kill(self, *_services: str) -> None:
        self._waited_for_s, self._killed_s = self.now_s + 1, self._killed_s + 100

    def start(self, *_services: str) -> None:
        self._sleep(3)
        self.worked_s += 7

    def unproved(self, _service: str) -> list[object]:
        self._sleep(5)
        return [None]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_lost_device_is_counted_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    store = cast("Cluster", Store(monkeypatch))
    for one in (tmp_path / "records", tmp_path / "files" / "large"):
        one.parent.mkdir(exist_ok=True)
        one.write_bytes(b"bytes")
    taken_s = advise.until_whole(store, tmp_path, IDLE, is_lost=is_lost, wanted=0)
    assert taken_s == pytest.approx(7)
    assert any(tmp_path.iterdir()) is not is_lost
