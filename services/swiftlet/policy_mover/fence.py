"""Checks that are shared by those who wait for one at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Fence:
    """A check that answers whether something still holds, made as often as needed and not more.

    Who has seen something and then passes knows that the check was made after that. All who come while a check runs
    share the next one.
    """

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        """`check` raises what hinders."""
        self._check = check
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def passed(self) -> None:
        """Return after a check that began after this was called. Raises what the check raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        await asyncio.shield(self._next)

    async def _after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait({running})
        self._running, self._next = self._next, None
        await self._check()
