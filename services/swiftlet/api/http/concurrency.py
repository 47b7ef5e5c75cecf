"""Many small pieces of work at once, but never more than a few; and large ones beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
LARGE_BYTES = 64 * 1024
"""Work on more than this is done in a thread: other requests of the process get their turns meanwhile."""
ROW_BYTES = 128
"""About what a listing's row is in work, so that pages of more than some hundred rows are."""


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, which has to do with `size` bytes: at once when they are few, else from a thread."""
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
