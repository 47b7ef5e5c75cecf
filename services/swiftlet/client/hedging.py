"""Hedged reads: one that takes longer than 95 of 100 others is asked a second time; the first answer counts.

A second request costs the store as much as the first. At most one in twenty requests is hedged, however slow the store
is: the latency from which it is done follows the store's.
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from swiftlet.client.errors import ClientError

T = TypeVar("T")
_WINDOW = 200
_LEAST_KNOWN = 20
_LEAST_S = 0.005
_PART = 0.05
_MOST_SAVED = 5.0
"""The number of second requests that may be saved up for later."""


class Latencies:
    """Times to first byte of the last answers."""

    def __init__(self) -> None:
        """Start without any answer."""
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        """Note an answer; the oldest is forgotten."""
        self._recent.append(seconds)
        insort(self._sorted, seconds)
        if len(self._recent) > _WINDOW:
            self._sorted.remove(self._recent.popleft())

    def p95_s(self) -> float | None:
        """Return the seconds within which 95 of 100 answers began; None while too few are known."""
        if len(self._sorted) < _LEAST_KNOWN:
            return None
        return max(_LEAST_S, self._sorted[len(self._sorted) * 95 // 100])


class Hedge:
    """Asks twice where once takes long."""

    def __init__(self) -> None:
        """Know no latency yet."""
        self._latencies = Latencies()
        self._saved = 1.0

    async def first(self, attempt: Callable[[], Awaitable[T]], discard: Callable[[T], Awaitable[None]]) -> T:
        """Return what the first successful of at most two attempts returns; `discard` gets what the other returns.

        When one fails while the other is under way, that one is waited for; when both do, the first one's error is
        raised.
        """
        self._saved = min(_MOST_SAVED, self._saved + _PART)
        wait_s = self._latencies.p95_s()
        if wait_s is None:
            return await self._timed(attempt)
        tasks = [asyncio.ensure_future(self._timed(attempt))]
        taken: asyncio.Future[T] | None = None
        try:
            await asyncio.wait(tasks, timeout=wait_s)
            if not tasks[0].done() and self._saved >= 1:
                self._saved -= 1
                tasks.append(asyncio.ensure_future(self._timed(attempt)))
            taken = await _first_success(tasks)
            return taken.result()
        finally:
            others = [task for task in tasks if task is not taken]
            for task in others:
                task.cancel()
            for result in await asyncio.gather(*others, return_exceptions=True):
                if not isinstance(result, BaseException):
                    await discard(result)

    async def _timed(self, attempt: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        result = await attempt()
        self._latencies.add(time.monotonic() - began)
        return result


async def _first_success(tasks: Sequence[asyncio.Future[T]]) -> asyncio.Future[T]:
    """Return the first task that succeeds; the first of all when none does."""
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done and not task.cancelled() and not isinstance(task.exception(), ClientError):
                return task
    return tasks[0]
