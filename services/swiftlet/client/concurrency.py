"""Many things at a time, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TypeVar

from swiftlet.client.errors import ClientError

T = TypeVar("T")
R = TypeVar("R")


async def run_all(items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Return the results of work on all items, in their order, `at_once` of them under way at a time.

    When one fails, or the caller is cancelled, the others are cancelled and have ended before its error is raised.
    """
    results: dict[int, R] = {}
    async with aclosing(_work(_numbered(items), lambda pair: work(pair[1]), at_once)) as ended:
        async for number, _, result in ended:
            if isinstance(result, BaseException):
                raise result
            results[number] = result
    return [results[number] for number in sorted(results)]


async def run_each(
    items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[R]], at_once: int
) -> AsyncGenerator[tuple[T, R | ClientError], None]:
    """Yield each item with the result of the work on it, or with the error that it ended with, as they end."""
    async with aclosing(_work(_numbered(items), lambda pair: work(pair[1]), at_once)) as ended:
        async for _, item, result in ended:
            if isinstance(result, BaseException) and not isinstance(result, ClientError):
                raise result
            yield item, result


async def _work(
    items: AsyncIterator[tuple[int, T]], work: Callable[[tuple[int, T]], Awaitable[R]], at_once: int
) -> AsyncGenerator[tuple[int, T, R | BaseException], None]:
    running: dict[asyncio.Future[R], tuple[int, T]] = {}
    is_exhausted = False
    try:
        while True:
            while not is_exhausted and len(running) < at_once:
                try:
                    pair = await anext(items)
                except StopAsyncIteration:
                    is_exhausted = True
                    break
                running[asyncio.ensure_future(work(pair))] = pair
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number, item = running.pop(task)
                outcome: R | BaseException = _outcome(task)
                yield number, item, outcome
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _outcome(task: asyncio.Future[R]) -> R | BaseException:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()


async def _numbered(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[tuple[int, T]]:
    number = 0
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield number, item
            number += 1
        return
    for item in items:
        yield number, item
        number += 1
