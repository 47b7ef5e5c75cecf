"""Decides which transactions of a device go to its threads together.

A proxy sends updates of many containers in one message. Each needs a transaction of its own database, which takes less
time than passing it to a thread and hearing of its end. So transactions that begin in one turn of the event loop and
wait for no sync go to a thread together. A transaction that waits for a sync, or has to open its database first, goes
alone.

Invariant: each database that was added gets exactly one `finish`, whatever happens to those beside it.
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
"""Transactions in one job at most: the first of them is answered only when the last is done."""


class Waiting(Protocol):
    """A database with writes that wait; `attempt` is called in a worker thread, the other methods in the event loop."""

    @property
    def ready(self) -> bool:
        """Whether the connection of the database is open."""
        ...

    def next_batch(self) -> list[Write]:
        """Return the writes of the next transaction."""
        ...

    def attempt(self, batch: Sequence[Write]) -> Outcome | BaseException:
        """Carry out a transaction; return its outcome or its error."""
        ...

    def finish(self, batch: Sequence[Write], outcome: Outcome | BaseException) -> None:
        """Report the outcome to the callers of the writes. An empty batch is finished as well."""
        ...


_Turn = tuple[Waiting, list[Write]]


class Commits:
    """The transactions of one device. Used from one event loop."""

    def __init__(self, pool: ThreadPool) -> None:
        """`pool` carries out the transactions."""
        self._pool = pool
        self._waiting: list[Waiting] = []

    def add(self, database: Waiting) -> None:
        """Begin the next transaction of a database at the end of this turn of the event loop; it has none now."""
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
