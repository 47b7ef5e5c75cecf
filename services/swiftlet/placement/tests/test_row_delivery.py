"""What is made of container replicas' answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import NotFound
from swiftlet.model import ObjectRow
from swiftlet.placement.rows.row_delivery import (
    Answer,
    RowDelivery,
    RowWaits,
    UpdateOutcome,
    container_missing,
    outcome_of,
    through,
)
from swiftlet.placement.rows.row_queues import RowQueues, Taken
from swiftlet.timestamp import Timestamp

LETTERS = {"L": Answer.LISTED, "R": Answer.REFUSED, "S": Answer.SILENT}


def answers(text: str) -> dict[int, Answer]:
    """`L` listed, `R` refused, `S` silent, `.` not answered yet; the first letter is replica 0."""
    return {replica: LETTERS[letter] for replica, letter in enumerate(text) if letter != "."}


@pytest.mark.parametrize(
    ("said", "outcome", "acknowledged"),
    [
        ("LLL", UpdateOutcome.LISTED, {0, 1, 2}),
        ("L..", UpdateOutcome.LISTED, {0}),
        ("LS.", UpdateOutcome.LISTED, {0}),
        ("LR.", UpdateOutcome.LISTED, {0, 1}),
        ("LRS", UpdateOutcome.LISTED, {0, 1}),
        ("R..", UpdateOutcome.QUEUED, set()),
        ("RSS", UpdateOutcome.QUEUED, set()),
        ("SSS", UpdateOutcome.QUEUED, set()),
        ("...", UpdateOutcome.QUEUED, set()),
        ("RRR", UpdateOutcome.NO_CONTAINER, {0, 1, 2}),
        ("RRS", UpdateOutcome.NO_CONTAINER, {0, 1, 2}),
        ("RRL", UpdateOutcome.NO_CONTAINER, {0, 1, 2}),
        ("L", UpdateOutcome.LISTED, {0}),
        ("R", UpdateOutcome.NO_CONTAINER, {0}),
        ("RL", UpdateOutcome.LISTED, {0, 1}),
        ("RS", UpdateOutcome.QUEUED, set()),
        ("RR", UpdateOutcome.NO_CONTAINER, {0, 1}),
        ("RRLL", UpdateOutcome.LISTED, {0, 1, 2, 3}),
        ("RRRL", UpdateOutcome.NO_CONTAINER, {0, 1, 2, 3}),
    ],
)
def test_the_outcome_of_a_row_and_who_is_acknowledged(
    said: str, outcome: UpdateOutcome, acknowledged: set[int]
) -> None:
    replicas = len(said)
    assert outcome_of(answers(said), replicas) is outcome
    assert {replica for replica in range(replicas) if through({replica}, answers(said), replicas)} == acknowledged
    assert container_missing(answers(said), replicas) is (outcome is UpdateOutcome.NO_CONTAINER)


def test_a_device_of_several_replicas_gets_an_acknowledgement_when_all_of_them_have_answered() -> None:
    assert not through({0, 2}, answers("L.."), 3)
    assert not through({0, 2}, answers("LLS"), 3)
    assert through({0, 2}, answers("L.L"), 3)
    assert through({0, 2}, answers("L.R"), 3)


class AtOnce:
    """Queues whose answers are there before anybody looks."""

    def submit_all(
        self, _account: str, _container: str, replica: int, _rows: Sequence[ObjectRow], _wait_s: float, later: bool
    ) -> asyncio.Future[Taken]:
        future: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        future.set_exception(NotFound(f"replica {replica} has no such container"))
        return future


async def test_answers_that_came_before_anybody_waited_count() -> None:
    delivery = RowDelivery(
        cast(RowQueues, AtOnce()),
        lambda _slot, _device: None,
        RowWaits(),
        lambda slot: ContainerUpdate("a", "c", (slot,)),
        3,
    )
    assert await delivery.finish(ObjectRow("o", Timestamp(1)))
