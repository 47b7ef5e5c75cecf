"""The state of a container that moves: its text, what is no such text, and which state may follow which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.policy_moves import ITEM, Phase, PolicyMove, check_step, found, parse
from swiftlet.timestamp import MAX_VALUE, Timestamp

STAMPS = st.integers(0, MAX_VALUE).map(Timestamp)
MOVES = st.builds(
    PolicyMove,
    *(st.integers(0, 65_535), st.integers(0, 65_535), st.sampled_from(Phase), STAMPS, STAMPS),
    *(st.none() | STAMPS, st.none() | STAMPS),
).filter(lambda move: move.source != move.target)
ANNOUNCED = PolicyMove(0, 1, Phase.ANNOUNCED, Timestamp(20), Timestamp(10))
MOVING, SETTLED = replace(ANNOUNCED, phase=Phase.MOVING), replace(ANNOUNCED, phase=Phase.SETTLED)
GOOD = ANNOUNCED.text()


@given(MOVES)
def test_a_state_is_read_back_as_it_was_written(move: PolicyMove) -> None:
    assert parse(move.text()) == move
    assert parse(move.text() + "; later=1") == move


@given(st.text())
def test_no_text_raises_anything_but_valueerror(text: str) -> None:
    with pytest.raises(ValueError, match=ITEM):
        parse(text)
    assert found(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace("from=0", "from=-1"), "from is '-1', not the index"),
        (GOOD.replace("to=1", "to=65536"), "to is '65536', not the index"),
        (GOOD.replace("to=1", "to=\u0661"), "not the index"),
        (GOOD.replace("to=1", "to=0"), "from and to are the same policy, 0"),
        (GOOD.replace("announced", "done"), "phase is 'done', not one of announced, moving, settled"),
        (GOOD.replace("since=", "since=x"), "since is 'x"),
        (GOOD + "; known=never", "known is 'never', not a time"),
        (GOOD.rpartition(";")[0], "lacks the field created"),
        (GOOD + "; to=2", "given once"),
        (GOOD + "; " + "x" * 600, "longer than"),
        ("from", "not a field"),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)


@pytest.mark.parametrize(("move", "policy", "used"), [(ANNOUNCED, 0, {0, 1}), (MOVING, 1, {0, 1}), (SETTLED, 1, {1})])
def test_the_policy_of_new_objects_and_those_that_are_used(move: PolicyMove, policy: int, used: set[int]) -> None:
    assert move.policy == policy
    assert set(move.used) == used


BACK = PolicyMove(1, 0, Phase.ANNOUNCED, Timestamp(30), Timestamp(10))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *((None, ANNOUNCED), (ANNOUNCED, MOVING), (MOVING, SETTLED), (ANNOUNCED, None), (None, None)),
        *((SETTLED, BACK), (SETTLED, replace(SETTLED, since=Timestamp(40)))),
    ],
)
def test_a_state_follows_the_one_before(before: PolicyMove | None, after: PolicyMove | None) -> None:
    check_step(0, before, after, lambda _: False)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, MOVING, "has to be announced"),
        (None, SETTLED, "has to be announced"),
        (None, BACK, "has storage policy 0, not 1"),
        (ANNOUNCED, SETTLED, "is announced, after which it can't be settled"),
        (MOVING, ANNOUNCED, "is moving, after which"),
        (SETTLED, MOVING, "is settled, after which"),
        (ANNOUNCED, replace(ANNOUNCED, target=2), "from policy 0 to 1 is announced"),
        (MOVING, BACK, "from policy 0 to 1 is moving"),
        (SETTLED, replace(ANNOUNCED, target=2), "has storage policy 1, not 0"),
        (SETTLED, replace(BACK, phase=Phase.MOVING), "has to be announced"),
        (MOVING, None, "can't be taken back"),
        (SETTLED, None, "can't be taken back"),
    ],
)
def test_no_other_state_does(before: PolicyMove | None, after: PolicyMove | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_step(0, before, after, lambda _: False)


def test_a_container_moves_on_once_the_policy_is_retired_that_it_left() -> None:
    on = PolicyMove(1, 2, Phase.ANNOUNCED, Timestamp(30), Timestamp(10))
    with pytest.raises(ValueError, match="out of policy 0, which has to be retired before"):
        check_step(0, SETTLED, on, lambda policy: policy != 0)
    check_step(0, SETTLED, on, lambda policy: policy == 0)
    check_step(0, SETTLED, BACK, lambda _: False)
