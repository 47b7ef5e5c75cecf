"""Runs many small pieces of work concurrently, up to a limit, and large ones outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
LARGE_BYTES = 64 * 1024
"""Work on more bytes is done in a thread, so that other requests of the process get their turns."""
ROW_BYTES = 128
"""The bytes of work that a row of a listing counts as, so that pages of more than some hundred rows use a thread."""


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` on `size` bytes returns: run at once when they are few, else in a thread."""
    if size <= LARGE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], limit: int) -> None:
    """Run `work` on all items, at most `limit` at a time; the first error ends the rest and is raised."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    tasks = [asyncio.ensure_future(worker()) for _ in range(limit)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
