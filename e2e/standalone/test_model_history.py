"""Tests of the model that says what may be seen after kills."""

from __future__ import annotations

import pytest

from e2e.standalone.model_history import History, Operation, Outcome, Version, Versions, always

A = Version("a", 1, "type/a", "1")
B = Version("b", 2, "type/b", "2")


def put(history: History, version: Version | None, begun: float, ended: float, outcome: Outcome = Outcome.DONE) -> None:
    """A PUT, or a DELETE for None."""
    history.begin(Operation(begun, always(version))).end(ended, outcome)


def post(
    history: History,
    number: str,
    begun: float,
    ended: float,
    outcome: Outcome = Outcome.DONE,
    content_type: str | None = None,
) -> None:
    history.begin(Operation(begun, number=number, content_type=content_type)).end(ended, outcome)


def in_the_end(history: History) -> Versions:
    return history.allowed(100.0, 101.0)


@pytest.fixture
def history() -> History:
    """Of an object that was put from 1 to 2."""
    made = History()
    put(made, A, 1.0, 2.0)
    return made


def test_there_is_nothing_at_first() -> None:
    assert in_the_end(History()) == {None}


def test_what_was_acknowledged_hides_what_was_before(history: History) -> None:
    put(history, B, 3.0, 4.0)
    assert in_the_end(history) == {B}
    put(history, None, 5.0, 6.0)
    assert in_the_end(history) == {None}


def test_what_failed_may_count_or_not(history: History) -> None:
    put(history, B, 3.0, 4.0, Outcome.MAYBE)
    assert in_the_end(history) == {A, B}
    put(history, None, 5.0, 6.0, Outcome.MAYBE)
    assert in_the_end(history) == {A, B, None}


def test_what_was_refused_does_not_count(history: History) -> None:
    put(history, B, 3.0, 4.0, Outcome.NOTHING)
    assert in_the_end(history) == {A}


def test_of_two_at_the_same_time_either_may_win(history: History) -> None:
    put(history, B, 1.5, 3.0)
    assert in_the_end(history) == {A, B}


def test_a_reader_may_see_what_runs_beside_it_and_what_that_replaces(history: History) -> None:
    history.begin(Operation(3.0, always(B)))
    assert history.allowed(2.1, 2.9) == {A}
    assert history.allowed(2.1, 3.5) == {A, B}
    assert history.allowed(50.0, 51.0) == {A, B}


def test_a_reader_who_began_before_the_answer_may_see_the_state_before(history: History) -> None:
    put(history, B, 3.0, 4.0)
    assert history.allowed(3.5, 9.0) == {A, B}
    assert history.allowed(4.5, 9.0) == {B}


def test_a_post_replaces_metadata_and_only_a_content_type_that_it_names(history: History) -> None:
    post(history, "7", 3.0, 4.0)
    assert in_the_end(history) == {Version("a", 1, "type/a", "7")}
    post(history, "8", 5.0, 6.0, content_type="posted/8")
    post(history, "9", 7.0, 8.0)
    assert in_the_end(history) == {Version("a", 1, "posted/8", "9")}
    put(history, B, 9.0, 10.0)
    assert in_the_end(history) == {B}


def test_a_post_that_failed_may_have_set_its_content_type_and_nothing_else_that_shows(history: History) -> None:
    post(history, "8", 3.0, 4.0, Outcome.MAYBE, content_type="posted/8")
    post(history, "9", 5.0, 6.0)
    assert in_the_end(history) == {Version("a", 1, "type/a", "9"), Version("a", 1, "posted/8", "9")}


def test_a_post_counts_for_data_that_failed_and_come_late(history: History) -> None:
    put(history, B, 3.0, 4.0, Outcome.MAYBE)
    post(history, "7", 5.0, 6.0)
    assert in_the_end(history) == {Version("a", 1, "type/a", "7"), Version("b", 2, "type/b", "7")}


def test_a_post_beside_a_put_may_be_older_or_newer(history: History) -> None:
    put(history, B, 3.0, 5.0)
    post(history, "7", 4.0, 6.0)
    assert in_the_end(history) == {B, Version("b", 2, "type/b", "7")}


def test_what_was_settled_is_all_that_there_is(history: History) -> None:
    put(history, B, 3.0, 4.0, Outcome.MAYBE)
    history.settle(B)
    assert in_the_end(history) == {B}
