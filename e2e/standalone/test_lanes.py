"""What a mover of the kill matrix is at, by what it says."""

from __future__ import annotations

from typing import Any

from e2e.standalone.lanes import ANNOUNCED, COPYING, MOVING, Progress


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def at(progress: Progress) -> str | None:
    return progress.activity


def heard(progress: Progress, **said: Any) -> str | None:
    progress.heard({"container": "c", **said})
    return at(progress)


def test_a_mover_is_at_the_phase_that_it_tells_and_copies_once_that_has_lasted() -> None:
    clock = Clock()
    progress = Progress("c", clock)
    assert at(progress) is None, "it starts"
    progress.heard({"container": "other", "phase": "moving", "nextAt": 0.0})
    progress.heard({"settled": 0, "copied": 1, "failed": 0})
    assert at(progress) is None
    assert heard(progress, phase="announced", nextAt=1010.0) == ANNOUNCED
    clock.now_s = 1020.0
    assert at(progress) == ANNOUNCED, "until it tells the next phase"
    assert heard(progress, phase="moving", nextAt=1030.0) == MOVING
    clock.now_s = 1030.0
    assert at(progress) == COPYING
    # A pass has ended.
    assert heard(progress, phase="moving", nextAt=1030.0, moved=3) == COPYING


def test_a_mover_is_at_nothing_while_it_waits_after_a_failure() -> None:
    clock = Clock()
    progress = Progress("c", clock)
    heard(progress, phase="moving", nextAt=990.0)
    for pause_s in (1.0, 2.0, 4.0):
        assert heard(progress, problem="c: 3 objects could not be moved") is None
        clock.now_s += pause_s - 0.1
        assert at(progress) is None
        clock.now_s += 0.1
        assert at(progress) == COPYING
    assert progress.tries == 3
    heard(progress, phase="moving", nextAt=990.0, moved=1)
    assert progress.tries == 3, "what a pass has done says nothing of whether it failed"
    heard(progress, phase="settled", nextAt=None)
    assert progress.tries == 0


def test_a_phase_lasts_from_when_all_replicas_show_it() -> None:
    clock = Clock()
    progress = Progress("c", clock)
    heard(progress, phase="moving", nextAt=1010.0)
    clock.now_s = 1001.0
    assert heard(progress, problem="a/c is not moving on all replicas: d2") is None
    clock.now_s = 1011.9
    assert at(progress) == MOVING
    clock.now_s = 1012.0
    assert at(progress) == COPYING
