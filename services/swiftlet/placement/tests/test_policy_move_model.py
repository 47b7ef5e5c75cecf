"""The rules of a move between policies hold in all interleavings, and each of them is needed."""

from __future__ import annotations

import pytest

from swiftlet.placement.tests.policy_move_model import Wrong, explore_all


@pytest.mark.parametrize(("clients", "kills"), [(1, 1), (2, 0)])
def test_nothing_is_lost_or_comes_back_in_any_interleaving(clients: int, kills: int) -> None:
    assert explore_all(clients, kills) > 1000


@pytest.mark.parametrize(
    ("fault", "kills"),
    [
        ("read-b-first", 0),
        ("no-second-look", 0),
        ("later-tombstone", 0),
        ("post-b-first", 0),
        ("plain-delete", 0),
        ("delete-a-first", 1),
    ],
)
def test_a_rule_that_is_left_out_is_missed(fault: str, kills: int) -> None:
    with pytest.raises(Wrong):
        explore_all(2, kills, fault)
