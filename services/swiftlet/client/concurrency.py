"""Many things at a time, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from swiftlet.client.errors import ClientError

T = TypeVar("T")
R = TypeVar("R")


async def run_all(items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Return the results of work on all items, in their order, `at_once` of them under way at a time.

    When one fails, or the caller is cancelled, the others are cancelled and have ended before its error is raised.
    """
    results: dict[int, R] = {}
    async with aclosing(_work(items, work, at_once)) as ended:
        async for number, _, result in ended:
            if isinstance(result, BaseException):
                raise result
            results[number] = result
    return [results[number] for number in sorted(results)]


async def run_each(
    items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[R]], at_once: int
) -> AsyncGenerator[tuple[T, R | ClientError], None]:
    """Yield each item with the result of the work on it, or with the error that it ended with, as they end."""
    async with aclosing(_work(items, work, at_once)) as ended:
        async for _, item, result in ended:
            if isinstance(result, BaseException) and not isinstance(result, ClientError):
                raise result
            yield item, result


async def in_thread(work: Callable[[], R]) -> R:
    """Return what work returns, done by a thread. When the caller is cancelled, the thread ends before that is told.

    So a descriptor that the thread uses can be closed, and its number taken for another file, without harm.
    """
    ending = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(ending)
    except asyncio.CancelledError:
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ending])
        if not ending.cancelled():
            ending.exception()
        raise


class Room:
    """A number of bytes that may be in memory at a time."""

    def __init__(self, size: int) -> None:
        """Begin with all of it."""
        self._size = size
        self._taken = 0
        self._given = asyncio.Event()

    async def take(self, size: int) -> None:
        """Return when there is room for so much, or nothing else is in it; it is taken then."""
        while self._taken and self._taken + size > self._size:
            self._given.clear()
            await self._given.wait()
        self._taken += size

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._taken -= size
        self._given.set()


async def _work(
    items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[R]], at_once: int
) -> AsyncGenerator[tuple[int, T, R | BaseException], None]:
    """Yield the numbers of items, the items, and what has come of the work on them, as it ends.

    The next item is waited for beside the work: neither holds up the other.
    """
    source = _items(items)
    running: dict[asyncio.Future[R], tuple[int, T]] = {}
    coming: asyncio.Future[tuple[T] | None] | None = None
    taken = 0
    is_exhausted = False
    try:
        while True:
            if coming is None and not is_exhausted and len(running) < at_once:
                coming = asyncio.ensure_future(anext(source, None))
            waiting: set[asyncio.Future[Any]] = {*running} if coming is None else {*running, coming}
            if not waiting:
                return
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if coming is not None and coming in done:
                item = coming.result()
                coming = None
                if item is None:
                    is_exhausted = True
                else:
                    running[asyncio.ensure_future(work(item[0]))] = (taken, item[0])
                    taken += 1
            for task in [task for task in running if task in done]:
                outcome: R | BaseException = _outcome(task)
                yield *running.pop(task), outcome
    finally:
        ending: list[asyncio.Future[Any]] = [*running] if coming is None else [*running, coming]
        for one in ending:
            one.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


def _outcome(task: asyncio.Future[R]) -> R | BaseException:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()


async def _items(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[tuple[T], None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield (item,)
        return
    for item in items:
        yield (item,)
