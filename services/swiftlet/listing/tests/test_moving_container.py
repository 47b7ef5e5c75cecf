"""A container's database while the container moves to another storage policy."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swiftlet.errors import NotFound, PolicyConflict, Superseded
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.tests.test_merge import fresh
from swiftlet.model import DatabaseKind, ObjectRow
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.timestamp import Timestamp

A, B = 0, 1
CREATED = Timestamp(10)
ANNOUNCED = PolicyMove(A, B, Phase.ANNOUNCED, Timestamp(20), CREATED)
STATES = [ANNOUNCED, replace(ANNOUNCED, phase=Phase.MOVING), replace(ANNOUNCED, phase=Phase.SETTLED)]
PHASES = [(None, A), (STATES[0], A), (STATES[1], B), (STATES[2], B)]
OPEN: list[sqlite3.Connection] = []
"""The databases that a test has made."""


class Container:
    """One replica of a container."""

    def __init__(self, root: Path) -> None:
        """It exists, has policy A, and the account knows of it."""
        connection = fresh(root, DatabaseKind.CONTAINER)
        OPEN.append(connection)
        self.database = ContainerDb(connection)
        self.put(CREATED)
        self.report()

    def put(self, at: Timestamp, policy: int | None = None) -> bool:
        self.database.begin()
        try:
            return self.database.put(at, {}, policy, A)
        finally:
            self.database.commit()

    def post(self, at: int, text: str) -> None:
        self.database.begin()
        try:
            self.database.post(Timestamp(at), {ITEM: text})
        finally:
            self.database.commit()

    def report(self) -> None:
        self.database.begin()
        self.database.mark_reported(self.database.account_row(Timestamp(1000)))
        self.database.commit()

    def delete(self, at: int) -> None:
        self.database.begin()
        self.database.delete(Timestamp(at))
        self.database.commit()

    def add(self, at: int) -> None:
        self.database.begin()
        self.database.merge([ObjectRow("o", Timestamp(at), 1, "e", "t")])
        self.database.commit()

    def take(self, other: Container) -> None:
        """Merge another replica's state."""
        self.database.begin()
        self.database.merge_state(other.database.state())
        self.database.commit()

    def bring(self, state: PolicyMove | None) -> None:
        """Set one phase after the other up to this one."""
        for number, one in enumerate(STATES):
            if state is not None and STATES.index(state) >= number:
                self.post(20 + number, one.text())


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.mark.parametrize(("state", "policy"), PHASES)
def test_the_policy_is_that_of_the_phase(container: Container, state: PolicyMove | None, policy: int) -> None:
    container.bring(state)
    info = container.database.info()
    assert (info.policy, info.move) == (policy, state)
    assert container.database.account_row(Timestamp(1000)).policy == policy
    assert not container.put(Timestamp(30), policy)
    with pytest.raises(PolicyConflict, match=f"has storage policy {policy}, not {1 - policy}"):
        container.put(Timestamp(31), 1 - policy)
    again = ContainerDb(container.database.connection)
    assert (again.head.policy_now, again.head.move) == (policy, state)


@pytest.mark.parametrize(("state", "policy"), PHASES)
def test_the_account_is_told_when_the_policy_becomes_another(
    container: Container, state: PolicyMove | None, policy: int
) -> None:
    container.bring(state)
    assert container.database.head.unreported == (policy != A)
    container.report()
    assert not container.database.head.unreported
    assert not ContainerDb(container.database.connection).head.unreported


def test_a_state_that_does_not_follow_is_refused_and_changes_nothing(container: Container) -> None:
    for text, reason in [
        (STATES[1].text(), "has to be announced"),
        (replace(ANNOUNCED, source=7).text(), "has storage policy 0, not 7"),
        ("from=x", "lacks the field to"),
        ("\x00", "is not a field"),
    ]:
        with pytest.raises(PolicyConflict, match=reason):
            container.post(20, text)
    assert container.database.info().move is None
    with pytest.raises(PolicyConflict, match="by a POST, not by a PUT"):
        container.database.put(Timestamp(20), {ITEM: ANNOUNCED.text()}, None, A)


def test_a_state_that_would_lose_by_its_timestamp_is_refused(container: Container) -> None:
    container.post(20, STATES[0].text())
    with pytest.raises(Superseded) as refused:
        container.post(19, STATES[1].text())
    assert refused.value.timestamp == Timestamp(20)
    container.post(20, STATES[0].text())
    container.post(21, STATES[1].text())
    assert container.database.info().move == STATES[1]


def test_what_was_announced_can_be_taken_back(container: Container) -> None:
    container.bring(STATES[0])
    container.post(30, "")
    assert (container.database.info().move, container.database.info().policy) == (None, A)


def test_a_stored_value_that_cannot_be_read_counts_as_none(container: Container, tmp_path: Path) -> None:
    other = Container(tmp_path)
    with other.database.connection as connection:
        connection.execute("INSERT INTO metadata (name, timestamp, value) VALUES (?, 5, 'phase=odd')", (ITEM,))
    container.take(other)
    assert (container.database.info().move, container.database.info().policy) == (None, A)
    container.bring(STATES[2])
    assert container.database.info().move == STATES[2]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_replicas_in_different_phases_agree_on_the_newest(tmp_path: Path, order: tuple[int, ...]) -> None:
    replicas = [Container(tmp_path) for _ in range(3)]
    for replica, state in zip(replicas, (None, STATES[0], STATES[1]), strict=True):
        replica.bring(state)
    assert [replica.database.info().policy for replica in replicas] == [A, A, B]
    for one in order:
        for other in order:
            replicas[one].take(replicas[other])
    for one in order:
        replicas[one].take(replicas[order[-1]])
    assert [replica.database.info().move for replica in replicas] == [STATES[1]] * 3
    assert len({replica.database.fingerprint() for replica in replicas}) == 1
    assert all(replica.database.head.unreported for replica in replicas)


def test_a_container_that_is_created_again_does_not_move(container: Container) -> None:
    container.bring(STATES[2])
    container.delete(50)
    with pytest.raises(NotFound):
        container.post(51, "")
    assert container.put(Timestamp(60))
    info = container.database.info()
    assert (info.policy, info.move) == (A, None)
    assert container.database.account_row(Timestamp(1000)).policy == A
    with pytest.raises(PolicyConflict, match="of one that was deleted"):
        container.post(70, STATES[0].text())
    again = replace(ANNOUNCED, created=Timestamp(60))
    container.post(70, again.text())
    assert container.database.info().move == again


def test_a_state_that_comes_to_a_replica_after_the_deletion_does_not_count_for_the_next_container(
    container: Container, tmp_path: Path
) -> None:
    late = Container(tmp_path)
    late.bring(STATES[0])
    late.post(80, STATES[1].text())
    container.delete(50)
    assert container.put(Timestamp(60))
    container.take(late)
    late.take(container)
    assert container.database.info().move is late.database.info().move is None
    assert container.database.fingerprint() == late.database.fingerprint()


def test_a_deletion_that_is_undone_leaves_the_state(container: Container) -> None:
    container.bring(STATES[1])
    container.delete(50)
    container.add(40)
    info = container.database.info()
    assert (info.policy, info.move) == (B, STATES[1])


@pytest.mark.parametrize(("state", "policy"), PHASES[2:])
def test_a_deleted_container_still_uses_its_policies(container: Container, state: PolicyMove, policy: int) -> None:
    container.bring(state)
    container.delete(50)
    assert container.database.head.policies_used == state.used
    assert policy in container.database.head.policies_used
