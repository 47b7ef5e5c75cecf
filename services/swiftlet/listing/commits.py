"""Which transactions of a device go to its threads together.

Updates of many containers come in one message of a proxy. Each has a transaction of its own database, which takes less
than handing it to a thread and hearing of it; so those that begin in one turn of the event loop and wait for no sync go
to a thread together. Whatever waits for a sync, or opens its database first, goes alone.

What must hold: each database that was added gets exactly one `finish`, whatever becomes of those beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from swiftlet.listing.background_tasks import tell
from swiftlet.listing.thread_pool import ThreadPool
from swiftlet.listing.writer import Outcome, Write

_AT_ONCE = 16
"""Transactions in one job at most: the first of them is answered when the last is done."""


class Waiting(Protocol):
    """A database with writes that wait; `attempt` is called in a worker thread, the rest in the event loop."""

    @property
    def ready(self) -> bool:
        """Whether its connection is open."""
        ...

    def next_batch(self) -> list[Write]:
        """The writes of its next transaction."""
        ...

    def attempt(self, batch: Sequence[Write]) -> Outcome | BaseException:
        """Carry out a transaction; what came of it."""
        ...

    def finish(self, batch: Sequence[Write], outcome: Outcome | BaseException) -> None:
        """Tell those who wait; not called for an empty batch before its end was told, too."""
        ...


_Turn = tuple[Waiting, list[Write]]


class Commits:
    """The transactions of one device. Used from one event loop."""

    def __init__(self, pool: ThreadPool) -> None:
        """`pool` carries them out."""
        self._pool = pool
        self._waiting: list[Waiting] = []

    def add(self, database: Waiting) -> None:
        """Begin its next transaction at the end of this turn of the event loop; it has none under way."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._start)
        self._waiting.append(database)

    def _start(self) -> None:
        databases, self._waiting = self._waiting, []
        quick: list[_Turn] = []
        for database in databases:
            batch = database.next_batch()
            if database.ready and all(write.later for write in batch):
                quick.append((database, batch))
            else:
                self._do([(database, batch)])
        for start in range(0, len(quick), _AT_ONCE):
            self._do(quick[start : start + _AT_ONCE])

    def _do(self, turns: list[_Turn]) -> None:
        self._pool.do(partial(_attempt, turns), partial(_finish, turns))


def _attempt(turns: list[_Turn]) -> list[Outcome | BaseException]:
    return [database.attempt(batch) for database, batch in turns]


def _finish(turns: list[_Turn], outcomes: list[Outcome | BaseException] | None, error: BaseException | None) -> None:
    for index, (database, batch) in enumerate(turns):
        outcome = outcomes[index] if outcomes is not None else error or RuntimeError("no outcome")
        tell(database.finish, batch, outcome)
