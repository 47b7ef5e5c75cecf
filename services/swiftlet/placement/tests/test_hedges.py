"""Reads of a second device while the first one is late: who answers, how often, and what is let go of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NodeUnreachable, NotFound
from swiftlet.placement.hedges import LEAST_KNOWN, MOST_SAVED, WINDOW, Hedges
from swiftlet.placement.tests.cluster import PATH, MemoryCluster, memory_cluster
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.ring.model import Device

FIRST, SECOND = DEVICES[:2]


class Reader:
    """Devices that answer when they may, and a clock that somebody sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hedged = 0
        self.asked_another = asyncio.Event()
        self.hedges = Hedges(self._count, clock=lambda: self.now)
        self.may_answer = {device.id: asyncio.Event() for device in DEVICES}
        self.errors: dict[int, Exception] = {}
        self.cancelled: list[int] = []
        self.discarded: list[int] = []

    def _count(self) -> None:
        self.hedged += 1
        self.asked_another.set()

    async def operation(self, device: Device) -> int:
        try:
            await self.may_answer[device.id].wait()
        except asyncio.CancelledError:
            self.cancelled.append(device.id)
            raise
        if device.id in self.errors:
            raise self.errors[device.id]
        return device.id

    async def discard(self, result: int) -> None:
        self.discarded.append(result)

    async def read(self, *others: Device) -> tuple[Device, int]:
        return await self.hedges.first(self.operation, FIRST, lambda: next(iter(others), None), self.discard)

    async def know(self, took_s: float = 0.0, times: int = LEAST_KNOWN) -> None:
        """Have the first device answer so often after so long."""
        self.may_answer[FIRST.id].set()

        async def slowly(device: Device) -> int:
            self.now += took_s
            return device.id

        for _ in range(times):
            await self.hedges.first(slowly, FIRST, lambda: None, self.discard)
        self.may_answer[FIRST.id].clear()


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Whoever is late is late at once."""
    monkeypatch.setattr("swiftlet.placement.hedges.LEAST_S", 0.0)
    return Reader()


async def test_late_is_who_takes_longer_than_95_of_100() -> None:
    reader = Reader()
    await reader.know(0.01, LEAST_KNOWN - 1)
    assert reader.hedges._late_s(FIRST) is None, "too few are known"
    await reader.know(0.02, 1)
    assert reader.hedges._late_s(FIRST) == pytest.approx(0.02)
    assert reader.hedges._late_s(SECOND) is None
    await reader.know(0.0, WINDOW)
    assert reader.hedges._late_s(FIRST) == 0.005, "the former ones are forgotten"


async def test_the_second_device_answers_for_one_that_is_late(reader: Reader) -> None:
    await reader.know()
    reader.may_answer[SECOND.id].set()
    assert await reader.read(SECOND) == (SECOND, SECOND.id)
    assert (reader.hedged, reader.cancelled, reader.discarded) == (1, [FIRST.id], [])


@pytest.mark.parametrize("error", [NotFound("not here"), NodeUnreachable("refused")])
async def test_the_first_device_is_still_waited_for(reader: Reader, error: Exception) -> None:
    await reader.know()
    reader.errors[SECOND.id] = error
    reader.may_answer[SECOND.id].set()
    reading = asyncio.ensure_future(reader.read(SECOND))
    await reader.asked_another.wait()
    reader.may_answer[FIRST.id].set()
    assert await reading == (FIRST, FIRST.id)


async def test_the_error_is_that_of_the_first_device(reader: Reader) -> None:
    await reader.know()
    reader.errors = {FIRST.id: NotFound("first"), SECOND.id: NotFound("second")}
    for event in reader.may_answer.values():
        event.set()
    with pytest.raises(NotFound, match="first"):
        await reader.read(SECOND)


async def test_without_another_device_or_knowledge_nobody_else_is_asked(reader: Reader) -> None:
    for known in (False, True):
        if known:
            await reader.know()
        reading = asyncio.ensure_future(reader.read(*([] if known else [SECOND])))
        for _ in range(20):
            await asyncio.sleep(0)
        reader.may_answer[FIRST.id].set()
        assert await reading == (FIRST, FIRST.id)
        reader.may_answer[FIRST.id].clear()
    assert reader.hedged == 0


async def test_at_most_one_read_in_twenty_is_asked_twice(reader: Reader) -> None:
    await reader.know(times=1000)
    reader.may_answer[SECOND.id].set()

    async def later() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        reader.may_answer[FIRST.id].set()

    for _ in range(200):
        reader.may_answer[FIRST.id].clear()
        await asyncio.gather(reader.read(SECOND), later())
    assert 10 <= reader.hedged <= 200 * 0.05 + MOST_SAVED


async def test_who_goes_away_leaves_nothing_behind(reader: Reader) -> None:
    await reader.know()
    reading = asyncio.ensure_future(reader.read(SECOND))
    await reader.asked_another.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert sorted(reader.cancelled) == [FIRST.id, SECOND.id]


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path) as made:
        await made.make_container()
        await made.put(2)
        yield made


async def test_objects_are_read_from_another_replica_meanwhile(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swiftlet.placement.hedges.LEAST_S", 0.0)
    for _ in range(300):
        assert (await cluster.objects.head(PATH, 0)).size == 4
    slow = cluster.primaries()[0]
    cluster.transport.link(slow).delay_s = 3600.0
    for _ in range(2):
        async with asyncio.timeout(60):
            assert await cluster.read() == b"data"
