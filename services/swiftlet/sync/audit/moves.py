"""Which containers move to another storage policy, by the states of their databases: the audit leaves them alone.

It takes a row whose object no device of the container's policy has for one of a lost object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from swiftlet.model import DatabaseState
from swiftlet.policy_moves import ITEM, PolicyMove, of_container

InForce: TypeAlias = Callable[[PolicyMove | None], PolicyMove | None]
"""Returns a move if both its policies may have objects."""


def always(move: PolicyMove | None) -> PolicyMove | None:
    """Return the move: for who does not know which policies were retired."""
    return move


def move_of(state: DatabaseState) -> PolicyMove | None:
    """Return the move that a replica of a container's database shows."""
    text = next((item.value for item in state.metadata if item.name == ITEM), None)
    return of_container(text, state.created, state.delete_timestamp)
