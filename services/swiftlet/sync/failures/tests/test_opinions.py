"""Whose word counts, and for how long."""

from __future__ import annotations

import pytest

from swiftlet.sync.failures.opinions import MAX_STATEMENTS, Evidence, Observer, Opinions, Verdict, judge

ME = Observer("me:1", "zone-0")
ONE, OTHER, BESIDE = Observer("one:1", "zone-1"), Observer("other:1", "zone-2"), Observer("beside:1", "zone-1")
N = "n:1"


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(), Verdict.WELL),
        (Evidence(exceptions=True), Verdict.FAILED),
        (Evidence(exceptions=True, cut_off=True), Verdict.DOUBTED),
        (Evidence(exceptions=True, cut_off=True, voices=1), Verdict.FAILED),
        (Evidence(voices=1), Verdict.WELL),
        (Evidence(voices=1, tried_in_vain=True), Verdict.FAILED),
        (Evidence(tried_in_vain=True), Verdict.WELL),
        (Evidence(voices=2), Verdict.FAILED),
        (Evidence(voices=2, answered=True), Verdict.WELL),
        (Evidence(voices=9, majority=True), Verdict.WELL),
        (Evidence(voices=2, majority=True, tried_in_vain=True), Verdict.FAILED),
    ],
)
def test_verdicts(evidence: Evidence, verdict: Verdict) -> None:
    assert judge(evidence) is verdict


def test_observers_in_one_failure_domain_are_one_voice_and_ones_own_domain_is_none() -> None:
    opinions = Opinions(ME, 60)
    opinions.hear(ONE, {N: 0}, 100)
    opinions.hear(BESIDE, {N: 0}, 100)
    opinions.hear(Observer("neighbour:1", ME.domain), {N: 0}, 100)
    opinions.hear(ME, {N: 0}, 100)
    assert opinions.voices(N, 100) == 1
    opinions.hear_failed(OTHER, N, 101)
    assert opinions.voices(N, 101) == 2
    assert opinions.last(N, 101) == 101


def test_what_is_said_counts_until_the_interval_is_over_or_it_is_taken_back() -> None:
    opinions = Opinions(ME, 60)
    opinions.hear(ONE, {N: 50, "late:1": 70, "ahead:1": -5}, 100)
    assert opinions.nodes(100) == {N, "ahead:1"}
    assert opinions.voices(N, 109) == 1
    assert opinions.voices(N, 110) == 0
    opinions.hear_failed(ONE, "m:1", 105)
    assert opinions.nodes(105) == {N, "m:1", "ahead:1"}, "a notice adds to what was said"
    assert opinions.voices(N, 110) == 0, "and makes it no younger"
    opinions.hear_well(ONE.name, "m:1")
    assert opinions.voices("m:1", 106) == 0
    opinions.forget(ONE.name)
    assert opinions.nodes(106) == set()


def test_said_again_it_is_as_old_as_its_last_exception() -> None:
    opinions = Opinions(ME, 60)
    opinions.hear(ONE, {N: 0}, 100)
    opinions.hear(ONE, {N: 10}, 130)
    opinions.hear(OTHER, {N: 15}, 130)
    assert opinions.last(N, 130) == 120
    assert opinions.last(N, 300) is None


def test_who_says_too_much_is_not_believed() -> None:
    opinions = Opinions(ME, 60)
    opinions.hear(ONE, {f"n{number}:1": 0 for number in range(MAX_STATEMENTS + 1)}, 100)
    assert opinions.nodes(100) == set()
