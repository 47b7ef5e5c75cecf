"""What goes together into one update of a container's replicas, and what waits for what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swiftlet.front import row_batches
from swiftlet.front.row_batches import RowBatches
from swiftlet.front.tests.conftest import until
from swiftlet.names import Path
from swiftlet.placement.rows.row_updates import StoredRows
from swiftlet.timestamp import Timestamp

Parts = tuple[
    list[int], bytes, list[int], bytes, list[tuple[tuple[int, int, bytes], int]], list[list[int]], list[list[int]]
]


class FakeFront:
    """Says what is made, and how much is with devices, or waits to be listed."""

    def __init__(self) -> None:
        self.waiting: list[Parts] = []
        self.at_work = 0
        self.delivering = 0
        self.answered: list[tuple[list[int], bool]] = []

    def make(
        self,
        token: int,
        container: bytes = b"/a/c/",
        policy: int = 0,
        row_bytes: int = 0,
        deleted: bool = False,
        parts: Sequence[int] = (),
    ) -> None:
        """One object more is on all of its devices, or gone from them."""
        row = json.dumps([f"{token}" + "x" * row_bytes, token + 1, 0, "", "", deleted]).encode()
        written = [((policy, 1, b"d" * 16), token + 1)]
        self.waiting.append(([token], container, [1, 2, 4], row, written, [[0, 1, 2]], [list(parts)]))

    def made(self) -> list[Parts]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def storing(self) -> int:
        return self.at_work

    def rows(self) -> dict[str, int]:
        return {"delivering": self.delivering, "not_durable": 0, "acknowledging": 0}

    def listed(self, tokens: list[int], is_listed: bool) -> None:
        self.answered.append((tokens, is_listed))
        self.at_work -= len(tokens)


class FakeObjects:
    """Lists when it may."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_missing = False
        self.deleted: list[str | None] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def by_policy(self) -> FakeObjects:
        return self

    async def list_stored(self, stored: StoredRows) -> bool:
        self.batches.append([row.name for row in stored.rows])
        await self.gate.wait()
        return self.is_missing

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> None:
        self.deleted.append(path.obj)


@pytest.fixture
def front() -> FakeFront:
    return FakeFront()


@pytest.fixture
async def objects() -> FakeObjects:
    return FakeObjects()


@pytest.fixture
def delivered() -> list[tuple[list[str], list[list[int]]]]:
    """Rows that were told to be delivered, by name, with the slices of room that they take parts of."""
    return []


@pytest.fixture
async def made(
    front: FakeFront,
    objects: FakeObjects,
    delivered: list[tuple[list[str], list[list[int]]]],
    monkeypatch: pytest.MonkeyPatch,
) -> RowBatches:
    monkeypatch.setattr(row_batches, "GATHER_S", 60.0)
    clock = SimpleNamespace(observe=lambda stamp: None, next=lambda: Timestamp(1000))
    containers = SimpleNamespace(forget=lambda account, container: None)
    api = SimpleNamespace(objects=objects, clock=clock, containers=containers)
    rings = SimpleNamespace(objects=lambda policy: SimpleNamespace(devices=["d0", "d1", "d2"]))

    def note(stored: StoredRows, parts: Sequence[Sequence[int]]) -> None:
        delivered.append(([row.name for row in stored.rows], [list(some) for some in parts]))

    return RowBatches(cast("Any", front), cast("Any", api), cast("Any", rings), note)


async def test_one_alone_does_not_wait(made: RowBatches, front: FakeFront, objects: FakeObjects) -> None:
    front.make(1)
    front.at_work = 1
    made.take()
    await until(lambda: bool(front.answered))
    assert (objects.batches, front.answered) == ([["1"]], [([1], True)])


async def test_those_that_are_made_wait_for_those_that_devices_have(
    made: RowBatches, front: FakeFront, objects: FakeObjects
) -> None:
    front.at_work = 3
    for token in (1, 2):
        front.make(token)
        made.take()
        await asyncio.sleep(0)
    assert not objects.batches
    front.make(3)
    made.take()
    await until(lambda: bool(front.answered))
    assert objects.batches == [["1", "2", "3"]]


async def test_those_that_are_being_listed_are_not_waited_for(
    made: RowBatches, front: FakeFront, objects: FakeObjects
) -> None:
    objects.gate.clear()
    front.make(1)
    front.at_work = 1
    made.take()
    await until(lambda: len(objects.batches) == 1)
    front.make(2)
    front.at_work = 2
    made.take()
    await until(lambda: len(objects.batches) == 2)
    objects.gate.set()
    await until(lambda: len(front.answered) == 2)


async def test_a_device_that_is_slow_is_not_waited_for_long(
    made: RowBatches, front: FakeFront, objects: FakeObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_batches, "GATHER_S", 0.01)
    front.make(1)
    front.at_work = 2
    made.take()
    assert not objects.batches
    await until(lambda: bool(front.answered))
    assert front.at_work == 1


async def test_plenty_does_not_wait(
    made: RowBatches, front: FakeFront, objects: FakeObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_batches, "ENOUGH", 3)
    front.at_work = 1000
    for token in range(3):
        front.make(token)
        made.take()
    await until(lambda: bool(front.answered))
    assert objects.batches == [["0", "1", "2"]]


async def test_containers_and_policies_are_kept_apart_and_batches_limited(
    made: RowBatches, front: FakeFront, objects: FakeObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_batches, "MAX_ROWS", 2)
    monkeypatch.setattr(row_batches, "MAX_BYTES", 1000)
    for token in (1, 2, 3):
        front.make(token)
    front.make(4, b"/a/d/")
    front.make(5, policy=1)
    front.make(6, row_bytes=990)
    front.make(7)
    made.take()
    await until(lambda: len(front.answered) == len(objects.batches) > 0)
    names = [[name.rstrip("x") for name in batch] for batch in objects.batches]
    assert names == [["1", "2"], ["3"], ["4"], ["5"], ["6"], ["7"]]
    assert all(is_listed for _, is_listed in front.answered)


async def test_in_a_container_that_is_gone_deletions_succeed_and_objects_are_deleted(
    made: RowBatches, front: FakeFront, objects: FakeObjects
) -> None:
    objects.is_missing = True
    for token in range(4):
        front.make(token, deleted=token % 2 == 1)
    made.take()
    await until(lambda: len(front.answered) == 2)
    assert front.answered == [([1, 3], True), ([0, 2], False)]
    assert objects.deleted == ["0", "2"]


async def test_rows_that_take_room_are_told_of_once_they_are_delivered(
    made: RowBatches, front: FakeFront, objects: FakeObjects, delivered: list[tuple[list[str], list[list[int]]]]
) -> None:
    front.make(1, parts=[10, 20])
    front.make(2, deleted=True)
    front.make(3, b"/a/d/")
    objects.gate.clear()
    made.take()
    await until(lambda: len(objects.batches) == 2)
    assert delivered == []
    objects.gate.set()
    await until(lambda: len(front.answered) == 2)
    assert delivered == [(["1", "2"], [[10, 20], []])]
    objects.is_missing = True
    front.make(4, parts=[10])
    made.take()
    await until(lambda: len(front.answered) == 3)
    assert len(delivered) == 1, "what becomes of it is not known"
