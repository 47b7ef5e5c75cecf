"""Rows on their way to container servers: together if they come together, bounded, and none the worse for others."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import cast

import pytest

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NodeBusy, NodeTimeout, NotFound
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.placement.rows import row_queues
from swiftlet.placement.rows.row_queues import MAX_BATCH, RowQueues
from swiftlet.placement.tests.cluster import at
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device


class SlowListing:
    """Counts requests, each of which takes a moment, or until it is let go."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.held: asyncio.Event | None = None
        self.durable: asyncio.Future[None] | None = None

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        await (asyncio.sleep(0.001) if self.held is None else self.held.wait())
        if self.error is not None:
            raise self.error
        self.batches.append((device.name, len(rows)))
        return self.durable if later else None


def queues_to(listing: SlowListing, max_waiting: int = 20_000) -> RowQueues:
    devices = [Device(i, f"d{i}", "h", 1, f"d{i}", "r", f"z{i}", "n", 1.0) for i in range(3)]
    ring = Ring(1, 1, 3.0, devices, [array("H", [i, i]) for i in range(3)])
    return RowQueues(lambda: ring, cast(ListingTransport, listing), HashPath(b"p", b"s"), max_waiting)


def row(name: str = "o") -> ObjectRow:
    return ObjectRow(name, at(1))


async def test_rows_that_come_together_go_together() -> None:
    listing = SlowListing()
    queues = queues_to(listing)
    await asyncio.gather(*(queues.send("a", "c", 1, row(str(number))) for number in range(50)))
    assert sum(count for _, count in listing.batches) == 50
    assert len(listing.batches) <= 2
    assert {name for name, _ in listing.batches} == {"d1"}


async def test_writers_together_wait_for_each_other_and_one_alone_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_queues, "GATHER_S", 60.0)
    monkeypatch.setattr(row_queues, "MAX_GATHER_S", 60.0)
    listing = SlowListing()
    queues = queues_to(listing)

    async def sizes() -> list[int]:
        await asyncio.sleep(0.01)
        return [count for _, count in listing.batches]

    for number in range(3):
        await queues.send("a", "c", 0, row(f"alone {number}"))
    await asyncio.gather(queues.send("a", "c", 0, row("1")), queues.send("a", "c", 0, row("2")))
    again = [queues.submit("a", "c", 0, row("3"))]
    assert await sizes() == [1, 1, 1, 2], "the other one is likely to come again, too"
    again.append(queues.submit("a", "c", 0, row("4")))
    await asyncio.gather(*again)
    assert await sizes() == [1, 1, 1, 2, 2]
    many = [queues.submit("a", "c", 0, row(f"many {number}")) for number in range(2 * row_queues.ENOUGH)]
    await asyncio.gather(*many)
    many = [queues.submit("a", "c", 0, row(f"more {number}")) for number in range(row_queues.ENOUGH)]
    await asyncio.gather(*many)
    assert (await sizes())[-1] == row_queues.ENOUGH, "so many need nobody else"
    last = queues.submit("a", "c", 0, row("last"))
    assert not last.done()
    await queues.drain(10)
    assert last.done(), "at the end nothing is held back"


async def test_many_rows_that_are_brought_together_are_of_one_who_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_queues, "GATHER_S", 60.0)
    monkeypatch.setattr(row_queues, "MAX_GATHER_S", 60.0)
    listing = SlowListing()
    queues = queues_to(listing)
    async with asyncio.timeout(10):
        for turn in range(3):
            rows = [row(f"{turn} {number}") for number in range(20)]
            await queues.submit_all("a", "c", 0, rows)
            await queues.submit("a", "c", 0, row(f"{turn} alone"))
    assert [count for _, count in listing.batches] == [20, 1] * 3


async def test_nobody_is_waited_for_longer_than_a_request_takes() -> None:
    listing = SlowListing()
    queues = queues_to(listing)
    await asyncio.gather(*(queues.send("a", "c", 0, row(str(number))) for number in range(5)))
    async with asyncio.timeout(10):
        await queues.send("a", "c", 0, row("one of five"))
    assert [count for _, count in listing.batches] == [5, 1]


async def test_rows_that_may_wait_share_the_news_that_they_are_durable() -> None:
    listing = SlowListing()
    listing.durable = asyncio.get_running_loop().create_future()
    queues = queues_to(listing)
    taken = await asyncio.gather(*(queues.submit("a", "c", 0, row(str(n)), later=True) for n in range(2)))
    assert taken == [listing.durable, listing.durable]
    mixed = await asyncio.gather(
        queues.submit("a", "d", 0, row("may"), later=True), queues.submit("a", "d", 0, row("must not"))
    )
    assert not any(mixed), "one that must be durable makes all of its request so"
    draining = asyncio.create_task(queues.drain(10))
    await asyncio.sleep(0.01)
    assert not draining.done()
    listing.durable.set_result(None)
    await draining


async def test_a_batch_has_a_limit() -> None:
    listing = SlowListing()
    queues = queues_to(listing)
    await asyncio.gather(*(queues.send("a", "c", 1, row(str(number))) for number in range(MAX_BATCH + 10)))
    assert [count for _, count in listing.batches] == [MAX_BATCH, 10]


async def test_failure_reaches_all_who_wait_and_the_next_try_works() -> None:
    listing = SlowListing()
    listing.error = NotFound("no such container")
    queues = queues_to(listing)
    results = await asyncio.gather(*(queues.send("a", "c", 0, row(str(n))) for n in range(5)), return_exceptions=True)
    assert all(isinstance(result, NotFound) for result in results)
    listing.error = None
    await queues.send("a", "c", 0, row())
    assert listing.batches == [("d0", 1)]


async def test_one_who_stops_waiting_harms_nobody() -> None:
    listing = SlowListing()
    queues = queues_to(listing)
    impatient = asyncio.create_task(queues.send("a", "c", 0, row("impatient")))
    patient = asyncio.create_task(queues.send("a", "c", 0, row("patient")))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert sum(count for _, count in listing.batches) >= 1


async def test_behind_a_silent_server_rows_get_too_late_and_are_not_sent() -> None:
    listing = SlowListing()
    listing.held = asyncio.Event()
    queues = queues_to(listing)
    first = queues.submit("a", "c", 0, row("first"), wait_s=0.01)
    await asyncio.sleep(0)
    late = queues.submit("a", "c", 0, row("late"), wait_s=0.01)
    patient = queues.submit("a", "c", 0, row("patient"), wait_s=60)
    await asyncio.wait({first}, timeout=0.05)
    listing.held.set()
    await asyncio.gather(first, patient)
    with pytest.raises(NodeTimeout):
        await late
    assert listing.batches == [("d0", 1), ("d0", 1)], "what was under way in time is sent however long it takes"


async def test_too_many_are_refused_at_once_and_room_comes_back() -> None:
    listing = SlowListing()
    listing.held = asyncio.Event()
    queues = queues_to(listing, max_waiting=2)
    sent = [queues.submit("a", "c", 0, row("1")), queues.submit("a", "d", 0, row("2"))]
    with pytest.raises(NodeBusy, match="2 listing rows are waiting"):
        await queues.submit("a", "e", 0, row("3"))
    listing.held.set()
    await asyncio.gather(*sent)
    await queues.send("a", "e", 0, row("3"))


async def test_at_the_end_what_hangs_is_given_up() -> None:
    listing = SlowListing()
    listing.held = asyncio.Event()
    queues = queues_to(listing)
    hanging = queues.submit("a", "c", 0, row("hanging"))
    await asyncio.sleep(0)
    behind = queues.submit("a", "c", 0, row("behind"))
    await queues.drain(0.01)
    assert hanging.cancelled()
    assert behind.cancelled()
    through = queues.submit("a", "d", 0, row("through"))
    listing.held.set()
    await queues.drain(10)
    assert through.done()
    assert not through.cancelled()
    await queues.drain(10)
