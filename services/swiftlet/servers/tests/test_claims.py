"""Claims of one replica: what fits beside rows and other claims, and when a claim ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import DeviceFailed, NodeBusy, NodeError, NotFound
from swiftlet.listing.pool import ListingStore
from swiftlet.model import (
    Amounts,
    Bounds,
    Claim,
    Confirmation,
    ContainerRow,
    DatabaseId,
    DatabaseName,
    Excess,
    ObjectRow,
)
from swiftlet.ring.model import Device
from swiftlet.servers.containers import claims as claims_module
from swiftlet.servers.containers.claims import Claims
from swiftlet.servers.tests.listing_cluster import HASH_PATH, http_cluster
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_listing import HttpListingTransport

NAME = DatabaseName("a", "c")
ACCOUNT = DatabaseName("a")
FIVE = Bounds(objects=5)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def claim(number: int, objects: int = 1, size: int = 0, containers: int = 0) -> Claim:
    return Claim(f"{number:032x}", Amounts(containers, objects, size))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path, HASH_PATH)
    await made.put_container(1, "a", "c", Timestamp(5), {}, None, 0)
    yield made
    await made.close()


@pytest.fixture
def claims(store: ListingStore, clock: Clock) -> Claims:
    return Claims(store, clock=clock)


async def test_rows_and_claims_count_together(store: ListingStore, claims: Claims) -> None:
    await store.update_rows(1, "a", "c", [ObjectRow(str(n), Timestamp(6), 10) for n in range(3)])
    assert await claims.take(1, NAME, claim(1), FIVE, 60) is None
    assert await claims.take(1, NAME, claim(2), FIVE, 60) is None
    assert await claims.take(1, NAME, claim(3), FIVE, 60) == Excess("objects", 5, 5, 1)
    assert await claims.take(1, NAME, claim(3, size=1), Bounds(bytes=30), 60) == Excess("bytes", 30, 30, 1)
    # What takes nothing of what is full is let in.
    assert await claims.take(1, NAME, claim(4, objects=0), FIVE, 60) is None


async def test_of_many_at_once_as_many_get_in_as_fit(claims: Claims) -> None:
    answers = await asyncio.gather(*(claims.take(1, NAME, claim(n), FIVE, 60) for n in range(50)))
    assert answers.count(None) == 5


async def test_a_claim_that_grows_is_not_counted_twice(claims: Claims) -> None:
    bounds = Bounds(bytes=100)
    assert await claims.take(1, NAME, claim(1, size=60), bounds, 60) is None
    assert await claims.take(1, NAME, claim(1, size=100), bounds, 60) is None
    assert await claims.take(1, NAME, claim(1, size=101), bounds, 60) == Excess("bytes", 100, 0, 101)
    assert await claims.take(1, NAME, claim(2, size=1), bounds, 60) == Excess("bytes", 100, 100, 1)


async def test_a_claim_ends_when_its_row_is_there_not_before(store: ListingStore, claims: Claims) -> None:
    one = Bounds(objects=1)
    assert await claims.take(1, NAME, claim(1), one, 60) is None
    # Done, but the row is still on its way: it counts until it has come, and then as a row.
    assert await claims.confirm(1, NAME, claim(1).id, "o", Timestamp(7), False) == Confirmation(False, False)
    assert await claims.take(1, NAME, claim(2), one, 60) == Excess("objects", 1, 1, 1)
    await store.update_rows(1, "a", "c", [ObjectRow("o", Timestamp(7), 1)])
    assert await claims.take(1, NAME, claim(2), Bounds(objects=2), 60) is None
    assert claims.held() == 1
    assert await claims.take(1, NAME, claim(3), Bounds(objects=2), 60) == Excess("objects", 2, 2, 1)


async def test_an_older_row_does_not_end_a_claim(store: ListingStore, claims: Claims) -> None:
    await store.update_rows(1, "a", "c", [ObjectRow("o", Timestamp(6), 1)])
    await claims.take(1, NAME, claim(1), FIVE, 60)
    assert not (await claims.confirm(1, NAME, claim(1).id, "o", Timestamp(7), False)).listed
    assert claims.held() == 1


async def test_claims_end_by_cancel_and_by_time(claims: Claims, clock: Clock) -> None:
    one = Bounds(objects=1)
    await claims.take(1, NAME, claim(1), one, 60)
    await claims.cancel(1, NAME, claim(1).id)
    assert await claims.take(1, NAME, claim(2), one, 60) is None
    clock.now = 60
    assert await claims.take(1, NAME, claim(3), one, 60) is None
    assert claims.held() == 1
    await claims.cancel(1, NAME, claim(3).id)
    assert claims._books == {}


async def test_containers_of_an_account(store: ListingStore, claims: Claims) -> None:
    two = Bounds(containers=2)
    assert await claims.take(2, ACCOUNT, claim(1, 0, 0, 1), two, 60) is None
    assert await claims.take(2, ACCOUNT, claim(2, 0, 0, 1), two, 60) is None
    assert await claims.take(2, ACCOUNT, claim(3, 0, 0, 1), two, 60) == Excess("containers", 2, 2, 1)
    await store.update_containers(2, "a", [ContainerRow("c", Timestamp(9), object_count=3, bytes_used=30)])
    assert (await claims.confirm(2, ACCOUNT, claim(1).id, "c", Timestamp(9), False)).listed
    assert await claims.take(2, ACCOUNT, claim(3, 0, 0, 1), two, 60) == Excess("containers", 2, 2, 1)
    assert await claims.take(2, ACCOUNT, claim(4, 1), Bounds(objects=3), 60) == Excess("objects", 3, 3, 1)


async def test_the_account_is_told_before_a_confirmed_write_counts_there(store: ListingStore, clock: Clock) -> None:
    told = []

    async def report(id: object) -> bool:
        told.append(id)
        # What comes meanwhile is pending again, and does not matter to those whose rows have been told of.
        await store.update_rows(1, "a", "c", [ObjectRow(str(len(told)), Timestamp(7), 1)])
        return len(told) > 1

    claims = Claims(store, report, clock)
    await store.update_rows(1, "a", "c", [ObjectRow("o", Timestamp(7), 1)])
    # At first it can't be brought anywhere.
    assert await claims.confirm(1, NAME, claim(1).id, "o", Timestamp(7), True) == Confirmation(True, False)
    assert await claims.confirm(1, NAME, claim(1).id, "o", Timestamp(7), True) == Confirmation(True, True)
    assert len(told) == 2


async def test_many_who_confirm_at_once_share_reports(store: ListingStore, clock: Clock) -> None:
    reports: list[int] = []
    rows = [ObjectRow(str(n), Timestamp(7), 1) for n in range(50)]
    gate = asyncio.Event()

    async def report(id: object) -> bool:
        reports.append((await store.container_info(1, "a", "c")).object_count)
        return await gate.wait()

    claims = Claims(store, report, clock)
    await store.update_rows(1, "a", "c", rows[:1])
    first = asyncio.create_task(claims.confirm(1, NAME, claim(0).id, "0", Timestamp(7), True))
    async with asyncio.timeout(10):
        while not reports:  # noqa: ASYNC110 - nothing tells of a report
            await asyncio.sleep(0.001)
    await store.update_rows(1, "a", "c", rows)
    others = [asyncio.create_task(claims.confirm(1, NAME, claim(n).id, str(n), Timestamp(7), True)) for n in range(50)]
    while claims._books or not claims._next_report:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    gate.set()
    await asyncio.gather(first, *others)
    # The second report saw all rows that it is for.
    assert (reports[0], reports[-1]) == (1, 50)
    assert len(reports) == 2
    assert (claims._reporting, claims._next_report) == ({}, {})


async def test_a_container_that_is_not_there_has_no_room(claims: Claims) -> None:
    with pytest.raises(NotFound):
        await claims.take(1, DatabaseName("a", "none"), claim(1), FIVE, 60)
    assert claims._books == {}


async def test_claims_are_limited(claims: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "MAX_CLAIMS", 2)
    for number in (1, 2):
        await claims.take(1, NAME, claim(number), Bounds(), 60)
    with pytest.raises(NodeBusy):
        await claims.take(1, NAME, claim(3), Bounds(), 60)
    assert await claims.take(1, NAME, claim(2, size=5), Bounds(), 60) is None


async def test_over_the_wire(tmp_path: Path) -> None:
    async with http_cluster(tmp_path, 1) as cluster:
        transport, device = cluster.transport, cluster.devices[0]
        await transport.put_container(device, 1, "a", "c", Timestamp(5), {}, None, 0)
        assert await transport.take_claim(device, 1, NAME, claim(1), Bounds(objects=1), 60) is None
        excess = await transport.take_claim(device, 1, NAME, claim(2), Bounds(objects=1), 60)
        assert excess == Excess("objects", 1, 1, 1)
        confirmed = await transport.confirm_claim(device, 1, NAME, claim(1).id, "o", Timestamp(9), False)
        assert confirmed == Confirmation(False, False)
        await transport.cancel_claim(device, 1, NAME, claim(1).id)
        assert await transport.take_claim(device, 1, NAME, claim(2), Bounds(objects=1), 60) is None
        assert await transport.take_claim(device, 1, ACCOUNT, claim(2, 0, 0, 1), Bounds(containers=1), 60) is None
        for bad in (Claim("x", Amounts()), Claim("0" * 32, Amounts(objects=-1))):
            with pytest.raises(NodeError):
                await transport.take_claim(device, 1, NAME, bad, Bounds(), 60)
        with pytest.raises(NodeError):
            await transport.take_claim(device, 1, NAME, claim(3), Bounds(), 0)


async def test_many_who_wait_share_one_look(
    store: ListingStore, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, read = 0, store.read

    async def counted(id: DatabaseId, operation: Callable[..., object]) -> object:
        nonlocal looks
        looks += 1
        return await read(id, operation)

    monkeypatch.setattr(store, "read", counted)
    answers = await asyncio.gather(*(claims.take(1, NAME, claim(n), Bounds(objects=20), 60) for n in range(50)))
    # In the order in which they came.
    assert [answer is None for answer in answers] == [True] * 20 + [False] * 30
    assert looks == 1
    confirmed = await asyncio.gather(
        *(claims.confirm(1, NAME, claim(n).id, str(n), Timestamp(7), False) for n in range(20))
    )
    assert (set(confirmed), looks) == ({Confirmation(False, False)}, 2)
    await asyncio.gather(*(claims.cancel(1, NAME, claim(n).id) for n in range(20)))
    assert (claims.held(), claims._books, looks) == (0, {}, 2)


async def test_what_waits_is_served_as_it_came(claims: Claims) -> None:
    one = Bounds(objects=1)
    wishes: list[Awaitable[Excess | None]] = [
        claims.take(1, NAME, claim(1), one, 60),
        claims.take(1, NAME, claim(2), one, 60),
        claims.cancel(1, NAME, claim(1).id),
        claims.take(1, NAME, claim(3), one, 60),
    ]
    assert await asyncio.gather(*wishes) == [None, Excess("objects", 1, 1, 1), None, None]
    assert claims.held() == 1


async def test_a_look_that_fails_fails_who_waited_for_it_and_nobody_else(
    store: ListingStore, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.read

    async def failing(id: DatabaseId, operation: Callable[..., object]) -> object:
        raise DeviceFailed("the disk is gone")

    assert await claims.take(1, NAME, claim(0), FIVE, 60) is None
    monkeypatch.setattr(store, "read", failing)
    takes = (claims.take(1, NAME, claim(n), FIVE, 60) for n in range(1, 4))
    answers = await asyncio.gather(*takes, return_exceptions=True)
    assert [type(answer) for answer in answers] == [DeviceFailed] * 3
    monkeypatch.setattr(store, "read", read)
    assert claims.held() == 1
    assert await claims.take(1, NAME, claim(1), FIVE, 60) is None


async def test_who_goes_away_while_waiting_holds_nothing(claims: Claims) -> None:
    tasks = [asyncio.create_task(claims.take(1, NAME, claim(n), FIVE, 60)) for n in range(5)]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert claims.held() == 1


async def test_many_over_the_wire_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_cluster(tmp_path, 1) as cluster:
        transport, device = cluster.transport, cluster.devices[0]
        assert isinstance(transport, HttpListingTransport)
        await transport.put_container(device, 1, "a", "c", Timestamp(5), {}, None, 0)
        paths, call = [], transport._call

        async def seen(device: Device, method: str, path: str, *rest: Any) -> dict[str, Any]:
            paths.append(path.partition("/claims")[2])
            return await call(device, method, path, *rest)

        monkeypatch.setattr(transport, "_call", seen)
        takes = (transport.take_claim(device, 1, NAME, claim(n), Bounds(objects=20), 60) for n in range(50))
        answers = await asyncio.gather(*takes)
        assert answers == [None] * 20 + [Excess("objects", 20, 20, 1)] * 30
        # What is wrong with one is its own answer.
        mixed: list[Claim] = [claim(0, size=1), Claim("x", Amounts()), claim(1, size=1), Claim("y", Amounts())]
        found = await asyncio.gather(
            transport.take_claim(device, 1, NAME, claim(2), FIVE, 60),
            *(transport.take_claim(device, 1, NAME, one, Bounds(), 60) for one in mixed),
            return_exceptions=True,
        )
        assert [type(one) for one in found[1:]] == [type(None), NodeError, type(None), NodeError]
        confirmations = (
            transport.confirm_claim(device, 1, NAME, claim(n).id, str(n), Timestamp(9), False) for n in range(20)
        )
        assert set(await asyncio.gather(*confirmations)) == {Confirmation(False, False)}
        await asyncio.gather(*(transport.cancel_claim(device, 1, NAME, claim(n).id) for n in range(20)))
        assert paths == ["", "", "/confirm", "/cancel"]
        assert transport._queues._under_way == {}
        missing = DatabaseName("a", "none")
        takes = (transport.take_claim(device, 1, missing, claim(n), FIVE, 60) for n in range(3))
        found = await asyncio.gather(*takes, return_exceptions=True)
        assert [type(one) for one in found] == [NotFound] * 3
