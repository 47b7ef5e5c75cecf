"""Many things at a time: order, errors, cancellation, slow sources, memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from swiftlet.client.concurrency import Room, in_thread, run_all, run_each
from swiftlet.client.errors import ClientError, LocalError


async def test_results_are_in_order_and_few_are_under_way() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number % 10):
            await asyncio.sleep(0)
        running -= 1
        return number * 2

    assert await run_all(range(50), work, 4) == [number * 2 for number in range(50)]
    assert most == 4


async def test_others_have_ended_when_an_error_is_told() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 3:
            raise LocalError("no")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    with pytest.raises(LocalError):
        await run_all(range(10), work, 4)
    assert sorted(ended) == [0, 1, 2]


async def test_a_source_that_waits_holds_up_no_result() -> None:
    is_seen = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await is_seen.wait()
        yield 2

    async def work(number: int) -> int:
        return number

    seen: list[tuple[int, int | ClientError]] = []
    async for item, result in run_each(source(), work, 4):
        seen.append((item, result))
        is_seen.set()
    assert seen == [(1, 1), (2, 2)]


async def test_an_error_of_the_source_ends_the_work() -> None:
    has_begun, is_cancelled = asyncio.Event(), asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await has_begun.wait()
        raise ValueError("source")

    async def work(_: int) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    with pytest.raises(ValueError, match="source"):
        await run_all(source(), work, 4)
    assert is_cancelled.is_set()


async def test_a_thread_has_ended_before_its_cancellation_is_told() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(60)
        ended.set()

    task = asyncio.ensure_future(in_thread(work))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.wait([task], timeout=0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_room_is_waited_for() -> None:
    room = Room(100)
    await room.take(60)
    more = asyncio.ensure_future(room.take(50))
    await asyncio.wait([more], timeout=0)
    assert not more.done()
    room.give(60)
    await more
    room.give(50)
    # More than there ever is: alone.
    await room.take(1000)
    room.give(1000)
