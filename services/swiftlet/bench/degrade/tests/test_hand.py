"""What breaks and mends in which phase, what is told of it, and that nothing is left broken."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from swiftlet.bench.degrade.hand import BROKEN, MENDED, Acts, Hand
from swiftlet.bench.errors import BenchError
from swiftlet.bench.runner import Progress


def progress(succeeded: int = 0) -> Progress:
    return Progress("run", succeeded, 0, 0.0, {"succeeded": succeeded})


def until(hand: Hand, is_so: Callable[[], bool], succeeded: int = 0) -> None:
    while not is_so():
        hand.at(progress(succeeded))


class Deeds:
    """What was done, in its order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def named(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)

    def fails(self) -> None:
        self.done.append("tried")
        raise BenchError("it did not break")


def test_each_thing_is_done_once_in_its_phase_and_success_counts_after_breaking() -> None:
    deeds = Deeds()

    def until_whole(_: threading.Event) -> bool:
        deeds.done.append("whole")
        return True

    hand = Hand(Acts(deeds.named("broken"), deeds.named("mended"), until_whole))
    hand.begins()
    hand.at(progress(5))
    assert deeds.done == []
    hand.begins()
    until(hand, lambda: BROKEN in hand.act_s and hand.rests)
    assert hand.first_success_s is None
    until(hand, lambda: hand.first_success_s is not None, succeeded=1)
    first = hand.first_success_s
    hand.begins()
    until(hand, lambda: hand.is_whole is not None, succeeded=1)
    hand.end()
    assert deeds.done == ["broken", "mended", "whole"]
    assert hand.first_success_s == first
    assert hand.whole_s is not None
    assert hand.act_s[MENDED] <= hand.whole_s


def test_what_is_interrupted_while_broken_is_mended_and_nobody_waits_for_redundancy() -> None:
    deeds = Deeds()

    def never(_: threading.Event) -> bool:
        raise AssertionError("nobody waits")

    hand = Hand(Acts(deeds.named("broken"), deeds.named("mended"), never), asked=lambda: 1)
    hand.begins()
    hand.begins()
    until(hand, lambda: BROKEN in hand.act_s and hand.rests)
    hand.end()
    assert deeds.done == ["broken", "mended"]
    assert hand.is_whole is None


def test_breaking_that_is_under_way_is_ended_and_mended() -> None:
    ends, deeds = threading.Event(), Deeds()

    def breaks() -> None:
        ends.wait()
        raise BenchError("it was ended")

    hand = Hand(Acts(breaks, deeds.named("mended"), None, ends=ends.set, mends_always=True), asked=lambda: 1)
    hand.begins()
    hand.begins()
    hand.at(progress())
    hand.end()
    assert deeds.done == ["mended"]


def test_breaking_that_fails_is_told_and_mended_where_it_may_have_begun() -> None:
    deeds = Deeds()
    hand = Hand(Acts(deeds.fails, deeds.named("mended"), None, mends_always=True))
    hand.begins()
    hand.begins()
    until(hand, lambda: hand.has_failed)
    with pytest.raises(BenchError, match="it did not break"):
        hand.end()
    assert deeds.done == ["tried", "mended"]
    failed = Hand(Acts(deeds.fails, deeds.fails, None, mends_always=True))
    failed.begins()
    failed.begins()
    until(failed, lambda: failed.has_failed)
    with pytest.raises(BenchError, match="it did not break; and then it did not break"):
        failed.end()


def test_mending_waits_for_breaking_that_takes_longer_than_its_phase() -> None:
    goes_on, deeds = threading.Event(), Deeds()

    def breaks() -> None:
        goes_on.wait()
        deeds.done.append("broken")

    hand = Hand(Acts(breaks, deeds.named("mended"), None))
    for _ in range(MENDED):
        hand.begins()
        hand.at(progress())
    assert deeds.done == []
    goes_on.set()
    hand.end()
    assert deeds.done == ["broken", "mended"]
