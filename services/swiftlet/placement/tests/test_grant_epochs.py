"""Who is told that grants count no more, when, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from swiftlet.errors import NodeUnreachable
from swiftlet.placement import grant_epochs
from swiftlet.placement.grant_epochs import GrantEpochs
from swiftlet.ring.model import Device

ONE, OTHER = (Device(number, f"d{number}", f"h{number}", 6200, "d", "r", "z", "n", 1.0) for number in (1, 2))
Told = tuple[int, str, str, int]


class World:
    """Two servers, of which some may be away."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.away: set[int] = set()
        self.tried = 0
        self.now = 1000.0

    async def tell(self, device: Device, account: str, container: str, before_ms: int) -> None:
        self.tried += 1
        if device.id in self.away:
            raise NodeUnreachable("it is away")
        self.told.append((device.id, account, container, before_ms))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110 - looking is cheap
                await asyncio.sleep(0.001)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[World, GrantEpochs]]:
    monkeypatch.setattr(grant_epochs, "_TOGETHER_S", 0.001)
    monkeypatch.setattr(grant_epochs, "_PAUSES_S", (0.001,))
    world = World()
    epochs = GrantEpochs(world.tell, lambda: [ONE, OTHER], lambda: world.now)
    task = asyncio.create_task(epochs.run())
    yield world, epochs
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_each_server_is_told_each_change_once(world: tuple[World, GrantEpochs]) -> None:
    there, epochs = world
    for container in ("c", "c", ""):
        epochs.note("a", container)
    await there.until(lambda: len(there.told) == 4)
    assert sorted(there.told) == [(id, "a", container, 1_000_000) for id in (1, 2) for container in ("", "c")]


async def test_who_was_away_is_told_later(world: tuple[World, GrantEpochs]) -> None:
    there, epochs = world
    there.away = {1}
    epochs.note("a", "c")
    await there.until(lambda: bool(there.told))
    there.now += 5
    epochs.note("a", "d")
    await there.until(lambda: len(there.told) == 2)
    there.now += 5
    there.away = set()
    await there.until(lambda: len(there.told) == 4)
    assert sorted(there.told[2:]) == [(1, "a", "c", 1_000_000), (1, "a", "d", 1_005_000)]


async def test_who_was_not_reached_by_another_is_told_until_it_was(world: tuple[World, GrantEpochs]) -> None:
    there, epochs = world
    there.away = {1}
    epochs.owe([ONE], {("a", ""): 1_000_000})
    await there.until(lambda: there.tried == 1)
    there.now += 5
    there.away = set()
    await there.until(lambda: bool(there.told))
    assert there.told == [(1, "a", "", 1_000_000)]


async def test_what_has_ended_by_itself_is_not_told(world: tuple[World, GrantEpochs]) -> None:
    there, epochs = world
    there.away = {1}
    epochs.note("a", "c")
    await there.until(lambda: bool(there.told))
    there.now += grant_epochs.LONGEST_LIFE_S + 1
    tried = there.tried
    await there.until(lambda: there.tried > tried and not epochs._owed)
    there.away = set()
    epochs.note("b", "")
    await there.until(lambda: len(there.told) == 3)
    assert sorted(there.told[1:]) == [(id, "b", "", round(there.now * 1000)) for id in (1, 2)]


async def test_of_too_many_changes_accounts_are_told(
    world: tuple[World, GrantEpochs], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, epochs = world
    monkeypatch.setattr(grant_epochs, "_MAX_CHANGES", 2)
    for container in ("c", "d", "e", "f"):
        epochs.note("a", container)
    await there.until(lambda: len(there.told) == 6)
    assert {container for _, _, container, _ in there.told} == {"c", "d", ""}
