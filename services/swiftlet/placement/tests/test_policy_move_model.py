"""The rules of a move between policies hold in all interleavings, and each of them is needed."""

from __future__ import annotations

import pytest

from swiftlet.placement.tests.policy_move_model import Wrong, explore_all


@pytest.mark.parametrize(("clients", "kills"), [(1, 1), (2, 0)])
def test_nothing_is_lost_or_comes_back_in_any_interleaving(clients: int, kills: int) -> None:
    assert explore_all(clients, kills) > 1000


@pytest.mark.parametrize("fault", ["read-b-first", "no-second-look", "later-tombstone", "post-b-first", "plain-delete"])
def test_a_rule_that_is_left_out_is_missed_by_one_client(fault: str) -> None:
    with pytest.raises(Wrong):
        explore_all(1, 0, fault)


def test_a_rule_that_is_left_out_is_missed_by_two_clients_and_a_kill() -> None:
    """These two suffice."""
    with pytest.raises(Wrong):
        explore_all(2, 1, "delete-a-first", ("post", "expire"))
