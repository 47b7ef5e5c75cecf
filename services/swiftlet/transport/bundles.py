"""Questions for one place that go together while others are under way.

The first ones are sent at once and alone; what comes while they are under way waits, and goes in one request. So nobody
waits for company, and a place that is asked by many has few requests to answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class Bundles(Generic[K, I, R]):
    """Questions by the places they are for; used from one event loop."""

    def __init__(
        self, send: Callable[[K, Sequence[I]], Awaitable[Sequence[R | BaseException]]], most: int, at_once: int = 1
    ) -> None:
        """`send` asks a place at most `most` questions and returns an answer or an error for each, in their order; what
        it raises is everybody's error. A place has up to `at_once` requests under way.
        """
        self._send = send
        self._most = most
        self._at_once = at_once
        self._waiting: dict[K, deque[tuple[I, asyncio.Future[R]]]] = {}
        self._under_way: dict[K, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, place: K, item: I) -> R:
        """Return the answer to a question, or raise its error."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, deque()).append((item, answer))
        if self._under_way.get(place, 0) < self._at_once:
            self._under_way[place] = self._under_way.get(place, 0) + 1
            task = asyncio.get_running_loop().create_task(self._work(place))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _work(self, place: K) -> None:
        try:
            while bundle := self._next(place):
                await self._carry(place, bundle)
        finally:
            self._under_way[place] -= 1
            if not self._under_way[place]:
                del self._under_way[place]
                for _, answer in self._waiting.pop(place, ()):
                    answer.cancel()

    def _next(self, place: K) -> list[tuple[I, asyncio.Future[R]]]:
        """Return the next questions that somebody still waits for."""
        bundle: list[tuple[I, asyncio.Future[R]]] = []
        waiting = self._waiting.get(place)
        while waiting and len(bundle) < self._most:
            item, answer = waiting.popleft()
            if not answer.done():
                bundle.append((item, answer))
        return bundle

    async def _carry(self, place: K, bundle: Sequence[tuple[I, asyncio.Future[R]]]) -> None:
        try:
            results = await self._send(place, [item for item, _ in bundle])
        except Exception as error:
            results = [error] * len(bundle)
        except BaseException:
            for _, answer in bundle:
                answer.cancel()
            raise
        for (_, answer), result in zip(bundle, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)

    async def close(self) -> None:
        """Cancel what is under way, and what waits."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
