"""What is made of container replicas' answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from swiftlet.errors import NotFound
from swiftlet.model import ObjectRow
from swiftlet.peers import RowFate, RowUpdate
from swiftlet.placement.row_delivery import Answer, RowDelivery, RowWaits, container_missing, fate_of, through
from swiftlet.placement.row_lanes import RowLanes, Taken
from swiftlet.timestamp import Timestamp

LETTERS = {"L": Answer.LISTED, "R": Answer.REFUSED, "S": Answer.SILENT}


def answers(text: str) -> dict[int, Answer]:
    """`L` listed, `R` refused, `S` silent, `.` not answered yet; the first letter is replica 0."""
    return {replica: LETTERS[letter] for replica, letter in enumerate(text) if letter != "."}


@pytest.mark.parametrize(
    ("said", "fate", "settled"),
    [
        ("LLL", RowFate.LISTED, {0, 1, 2}),
        ("L..", RowFate.LISTED, {0}),
        ("LS.", RowFate.LISTED, {0}),
        ("LR.", RowFate.LISTED, {0, 1}),
        ("LRS", RowFate.LISTED, {0, 1}),
        ("R..", RowFate.QUEUED, set()),
        ("RSS", RowFate.QUEUED, set()),
        ("SSS", RowFate.QUEUED, set()),
        ("...", RowFate.QUEUED, set()),
        ("RRR", RowFate.NO_CONTAINER, {0, 1, 2}),
        ("RRS", RowFate.NO_CONTAINER, {0, 1, 2}),
        ("RRL", RowFate.NO_CONTAINER, {0, 1, 2}),
        ("L", RowFate.LISTED, {0}),
        ("R", RowFate.NO_CONTAINER, {0}),
        ("RL", RowFate.LISTED, {0, 1}),
        ("RS", RowFate.QUEUED, set()),
        ("RR", RowFate.NO_CONTAINER, {0, 1}),
        ("RRLL", RowFate.LISTED, {0, 1, 2, 3}),
        ("RRRL", RowFate.NO_CONTAINER, {0, 1, 2, 3}),
    ],
)
def test_the_fate_of_a_row_and_who_is_settled(said: str, fate: RowFate, settled: set[int]) -> None:
    replicas = len(said)
    assert fate_of(answers(said), replicas) is fate
    assert {replica for replica in range(replicas) if through({replica}, answers(said), replicas)} == settled
    assert container_missing(answers(said), replicas) is (fate is RowFate.NO_CONTAINER)


def test_a_device_of_several_replicas_is_settled_when_all_of_them_have_answered() -> None:
    assert not through({0, 2}, answers("L.."), 3)
    assert not through({0, 2}, answers("LLS"), 3)
    assert through({0, 2}, answers("L.L"), 3)
    assert through({0, 2}, answers("L.R"), 3)


class AtOnce:
    """Lanes whose answers are there before anybody looks."""

    def submit_all(
        self, _account: str, _container: str, replica: int, _rows: Sequence[ObjectRow], _wait_s: float, later: bool
    ) -> asyncio.Future[Taken]:
        future: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        future.set_exception(NotFound(f"replica {replica} has no such container"))
        return future


async def test_answers_that_came_before_anybody_waited_count() -> None:
    delivery = RowDelivery(
        cast(RowLanes, AtOnce()),
        lambda _slot, _device: None,
        RowWaits(),
        lambda slot: RowUpdate("a", "c", (slot,)),
        3,
    )
    assert await delivery.finish(ObjectRow("o", Timestamp(1)))
