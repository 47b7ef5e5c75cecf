"""What the front hands over goes to aiohttp some at a time, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.front import pacing
from swiftlet.front.connections import Connection
from swiftlet.front.pacing import Pace, Place
from swiftlet.front.tests.conftest import PATIENCE_S, FrontedProxy, until
from swiftlet.front.tests.test_connections import DATA, Connect, Raw, connect

__all__ = ["connect"]

LONG_S = 600.0
SOON_S = 0.3
PYTHONS = "Range: bytes = 0-3"
"""A header with which a request is handed over, whatever grants there are."""


@pytest.fixture(autouse=True)
def two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the loop does."""
    monkeypatch.setattr(pacing, "FEW", 2)
    monkeypatch.setattr(pacing, "MANY", 2)
    monkeypatch.setattr(pacing, "PATIENCE_S", LONG_S)


@pytest.fixture
def all_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a place keeps it, as if the processor were at it all the time."""
    monkeypatch.setattr(Connection, "waits_for_client", lambda _self: False)


@pytest.fixture
def little_patience(two_places: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """To be asked for before `fronted`."""
    monkeypatch.setattr(pacing, "PATIENCE_S", SOON_S)


async def upload(connect: Connect, name: str) -> Raw:
    """A PUT whose body is waited for."""
    client = await connect()
    client.writer.write(client.request(f"Content-Length: {len(DATA)}", "Expect: 100-continue", method="PUT", name=name))
    async with asyncio.timeout(PATIENCE_S):
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    return client


async def full_house(connect: Connect) -> list[Raw]:
    """Two uploads that wait for their bodies in the two places that there are, and a third client behind them."""
    clients = [await upload(connect, "a"), await upload(connect, "b")]
    third = await connect()
    third.writer.write(third.request(PYTHONS))
    return [*clients, third]


@pytest.mark.usefixtures("all_at_work")
async def test_who_finds_no_place_waits_until_a_request_is_answered(fronted: FrontedProxy, connect: Connect) -> None:
    first, second, third = await full_house(connect)
    await until(lambda: fronted.front.status()["waiting"] == 1)
    await asyncio.sleep(SOON_S)
    assert fronted.front.status()["waiting"] == 1
    first.writer.write(DATA)
    assert (await first.answer())[0] == 201
    assert await third.answer() == (206, DATA[:4])
    # The first two are known here: what they ask next takes no place.
    assert await first.ask(PYTHONS) == (206, DATA[:4])
    assert fronted.front.status()["waiting"] == 0
    second.writer.write(DATA)
    assert (await second.answer())[0] == 201


@pytest.mark.usefixtures("all_at_work")
async def test_who_goes_away_leaves_a_place(fronted: FrontedProxy, connect: Connect) -> None:
    first, _, third = await full_house(connect)
    await until(lambda: fronted.front.status()["waiting"] == 1)
    first.writer.transport.abort()
    assert await third.answer() == (206, DATA[:4])


@pytest.mark.usefixtures("all_at_work")
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthcheck"])
async def test_who_watches_over_the_process_waits_for_no_place(
    fronted: FrontedProxy, connect: Connect, path: str
) -> None:
    await full_house(connect)
    await until(lambda: fronted.front.status()["waiting"] == 1)
    watcher = await connect()
    watcher.writer.write(watcher.request(line=f"GET {path} HTTP/1.1"))
    assert (await watcher.answer())[0] in {200, 404}
    assert fronted.front.status()["waiting"] == 1


async def test_clients_that_are_waited_for_have_no_place(connect: Connect) -> None:
    first, second, third = await full_house(connect)
    assert await third.answer() == (206, DATA[:4])
    long = await connect()
    begun = b"x" * 300_000
    long.writer.write(long.request(f"Content-Length: {1 << 20}", method="PUT", name="long") + begun)
    fourth = await connect()
    assert await fourth.ask(PYTHONS) == (206, DATA[:4])
    for client in (first, second):
        client.writer.write(DATA)
        assert (await client.answer())[0] == 201
    long.writer.write(b"x" * ((1 << 20) - len(begun)))
    assert (await long.answer())[0] == 201


@pytest.mark.usefixtures("all_at_work", "little_patience")
async def test_slow_uploads_do_not_keep_others_out(connect: Connect) -> None:
    first, second, third = await full_house(connect)
    assert await third.answer() == (206, DATA[:4])
    for client in (first, second):
        client.writer.write(DATA)
        assert (await client.answer())[0] == 201


async def test_heads_that_do_not_come_take_no_place(connect: Connect) -> None:
    slow = [await connect() for _ in range(5)]
    for client in slow:
        client.writer.write(client.request(PYTHONS)[:-9])
    for _ in range(5):
        assert await (await connect()).ask(PYTHONS) == (206, DATA[:4])
    for client in slow:
        client.writer.write(client.request(PYTHONS)[-9:])
        assert await client.answer() == (206, DATA[:4])


async def test_many_at_once_are_all_answered_some_at_a_time(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    most, take = 0, Pace.take

    def counted(self: Pace) -> Place:
        nonlocal most
        place = take(self)
        most = max(most, pacing.FEW - self.room)
        assert self.room >= 0
        return place

    monkeypatch.setattr(Pace, "take", counted)
    clients = [await connect() for _ in range(60)]
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(client.ask(PYTHONS) for client in clients))
    assert set(answers) == {(206, DATA[:4])}
    assert most == 2


async def test_places_are_free_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", 0.05)
    freed = asyncio.Event()
    pace = Pace(freed.set)
    for _ in range(3):
        first, _second = pace.take(), pace.take()
        assert pace.room == 0
        async with asyncio.timeout(PATIENCE_S):
            while pace.room < 2:
                freed.clear()
                await freed.wait()
        freed.clear()
        first.leave()
        assert not freed.is_set()
    pace.take().leave()
    assert freed.is_set()
    freed.clear()
    place = pace.take()
    pace.close()
    place.leave()
    assert not freed.is_set()


async def test_more_places_while_the_loop_is_not_late_and_few_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MANY", 20)
    monkeypatch.setattr(pacing, "LATE_S", LONG_S)
    pace: Pace

    def fill() -> None:
        while pace.room:
            taken.append(pace.take())

    taken: list[Place] = []
    pace = Pace(fill)
    fill()
    assert len(taken) == pacing.FEW
    await until(lambda: len(taken) == pacing.MANY)
    await asyncio.sleep(SOON_S)
    assert len(taken) == pacing.MANY
    # Late now: who leaves makes no room until few are left.
    monkeypatch.setattr(pacing, "LATE_S", 0.0)
    await asyncio.sleep(SOON_S)
    for place in taken[: pacing.MANY - pacing.FEW]:
        place.leave()
    assert len(taken) == pacing.MANY
    taken[-1].leave()
    assert len(taken) == pacing.MANY + 1
    pace.close()
