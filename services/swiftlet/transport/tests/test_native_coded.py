"""A read of a coded object as Python hears of it: what its client does not take gives its memory back.

Fault model: a client that takes nothing for a while; a process that is stopped in the middle.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from swiftlet.errors import NodeError
from swiftlet.transport.native_coded import STILL_S, NativeCodedGet, Waiter

LONG_S = 60.0
INFO: Any = (b"/a/c/o", 1 << 20, 5, b"etag", 0, b"text/plain", [], [], 0, 0)


class FakeReading:
    """The native side of a read that is open, and all of which has come; and whoever is told of its end."""

    def __init__(self) -> None:
        self.waiting = [b"hello"]
        self.copies = 0
        self.news = asyncio.Event()
        self.is_closed = False

    def info(self) -> Any:
        """Describe the object."""
        return INFO

    def is_small(self) -> bool:
        """Tell that it has fragments."""
        return False

    def take(self) -> bytes | None:
        """Give what waits."""
        return self.waiting.pop(0) if self.waiting else None

    def ended(self) -> Any:
        """Tell that all has come."""
        return "whole", None, []

    def copy(self) -> None:
        """Count the calls."""
        self.copies += 1
        self.news.set()

    def hedges(self) -> int:
        """Tell that nothing was late."""
        return 0

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True

    def mute(self, _token: int) -> None:
        """Hear no more."""


async def opened(reading: FakeReading) -> NativeCodedGet:
    get = NativeCodedGet(cast("Any", reading), cast("Any", None), Waiter(), cast("Any", reading), 7)
    await get.begin()
    return get


async def test_what_nobody_takes_is_copied_again_and_again_until_it_is_closed() -> None:
    reading = FakeReading()
    get = await opened(reading)
    for _ in range(3):
        reading.news.clear()
        await asyncio.wait_for(reading.news.wait(), LONG_S)
    assert [chunk async for chunk in get.chunks()] == [b"hello"]
    await get.close()
    timer = get._moment
    assert timer is not None
    assert timer.cancelled()
    assert reading.is_closed


async def test_nothing_is_copied_of_what_was_taken_meanwhile() -> None:
    reading = FakeReading()
    get = await opened(reading)
    before = get._taken
    assert [chunk async for chunk in get.chunks()] == [b"hello"]
    get._look(before)
    assert reading.copies == 0
    get._look(get._taken)
    assert reading.copies == 1
    await get.close()


@pytest.mark.parametrize("is_seen_first_by_the_timer", [False, True])
async def test_what_was_checked_before_a_long_stop_is_not_passed_on(is_seen_first_by_the_timer: bool) -> None:
    get = await opened(FakeReading())
    get._ran_at -= STILL_S + 1
    if is_seen_first_by_the_timer:
        get._look(get._taken)
    with pytest.raises(NodeError, match="stood still"):
        await anext(get.chunks())
    await get.close()


async def test_what_took_long_to_find_is_passed_on() -> None:
    reading = FakeReading()
    get = NativeCodedGet(cast("Any", reading), cast("Any", None), Waiter(), cast("Any", reading), 7)
    get._ran_at -= STILL_S + 1
    await get.begin()
    assert [chunk async for chunk in get.chunks()] == [b"hello"]
    await get.close()
