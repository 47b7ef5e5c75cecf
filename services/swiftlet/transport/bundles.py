"""Requests that wait for each other: few are in progress, those that come meanwhile share the next message.

Many writers of one account ask the same replicas about the same database, and proxies that use many containers ask each
container server about many. A message for each of them costs more than what it asks for, so those that may go together
share a queue. Nobody waits for company: what comes while none is in progress is sent at once.

Fault model: a message that fails is the failure of all requests in it; none of them is sent again here. A caller that
goes away while its request waits is left out; one that goes away later has been served. A device that hangs holds its
queue for as long as one message may take: a request behind it waits at most for that one and for its own.
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
    """The queues by what requests share; a queue exists while requests wait in it. Runs in one event loop."""

    def __init__(
        self, send: Callable[[K, Sequence[I]], Awaitable[Sequence[R | BaseException]]], most: int, at_once: int = 1
    ) -> None:
        """`send` gets at most `most` requests and returns an answer or an error for each, in the same order; what it
        raises is the error of all. A queue has up to `at_once` messages in progress.
        """
        self._send = send
        self._most = most
        self._at_once = at_once
        self._waiting: dict[K, deque[tuple[I, asyncio.Future[R]]]] = {}
        self._under_way: dict[K, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, place: K, item: I) -> R:
        """Return the answer; raises the error of the message or of the answer."""
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
        """Return the next requests that somebody still waits for."""
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
