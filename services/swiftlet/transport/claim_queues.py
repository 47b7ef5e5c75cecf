"""Requests about claims that wait for each other: one is in progress, those that come meanwhile share the next message.

Many writers of one account ask the same replicas about the same database, each several times. A message for each of
them costs more than what it asks for; so those of one kind about one database at one device share a queue.

Fault model: a message that fails is the failure of all requests in it; none of them is sent again here. A caller that
goes away while its request waits is left out; one that goes away later has been served. A device that hangs holds its
queue for as long as one message may take: a request behind it waits at most for that one and for its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from swiftlet.errors import SwiftletError
from swiftlet.transport.claims_wire import MAX_MANY

K = TypeVar("K", bound=Hashable)
Fields = dict[str, Any]
Send = Callable[[K, Sequence[Fields]], Awaitable[Sequence[Fields | SwiftletError]]]
"""Sends several requests in one message; returns their answers in the same order."""


@dataclass(slots=True)
class _Queue:
    waiting: deque[tuple[Fields, asyncio.Future[Fields]]] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None


class ClaimQueues(Generic[K]):
    """The queues, one for each database; a queue exists while requests wait in it. Runs in one event loop."""

    def __init__(self, send: Send[K]) -> None:
        """`send` gets at most `MAX_MANY` requests at a time."""
        self._send = send
        self._queues: dict[K, _Queue] = {}

    async def ask(self, key: K, fields: Fields) -> Fields:
        """Return the answer; raises the SwiftletError of the message or of the answer."""
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(key, _Queue())
        queue.waiting.append((fields, answer))
        if queue.work is None:
            queue.work = asyncio.create_task(self._serve(key, queue))
        return await answer

    async def _serve(self, key: K, queue: _Queue) -> None:
        try:
            while queue.waiting:
                some = [queue.waiting.popleft() for _ in range(min(MAX_MANY, len(queue.waiting)))]
                batch = [(fields, answer) for fields, answer in some if not answer.done()]
                if batch:
                    await self._send_batch(key, batch)
        finally:
            del self._queues[key]
            for _, answer in queue.waiting:
                answer.cancel()

    async def _send_batch(self, key: K, batch: Sequence[tuple[Fields, asyncio.Future[Fields]]]) -> None:
        found: Sequence[Fields | BaseException]
        try:
            found = await self._send(key, [fields for fields, _ in batch])
        except Exception as error:
            # The error is raised where the answers are awaited.
            found = [error] * len(batch)
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        for (_, answer), what in zip(batch, found, strict=True):
            if answer.done():
                continue
            if isinstance(what, BaseException):
                answer.set_exception(what)
            else:
                answer.set_result(what)
