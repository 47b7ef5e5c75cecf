"""Background tasks whose end is reported exactly once, whatever happens.

Rows have no task or future of their own: they hang on calls back. So a call back that does not come is a caller that
waits for ever, and a database that takes no more writes.

Fault model: who is told may raise; that is reported, and those behind it are told all the same. A task may raise, be
cancelled at any point, or be cancelled before its first step; its end is told even then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

Ended = Callable[[BaseException | None], None]
"""Told what a task has raised, CancelledError when it was cancelled, None when it came to its end."""


class BackgroundTasks:
    """Tasks that nobody awaits: each is kept until it ends, and its end is told. Used from one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], ended: Ended) -> None:
        """Begin a task; `ended` is called in the event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._over, ended))

    def _over(self, ended: Ended, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        ended(asyncio.CancelledError() if task.cancelled() else task.exception())


def tell(listener: Callable[..., object], *news: object) -> None:
    """Tell one of several: what it raises is reported, and kept from the others."""
    try:
        listener(*news)
    except Exception as error:
        report(f"{listener!r} has failed", error)


def report(message: str, error: BaseException) -> None:
    """Say what nobody waits for, as the event loop says it of its own callbacks."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def resolve(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    """Give a future its result or error, unless nobody waits for it any more."""
    if answer.done():
        return
    if isinstance(error, StopIteration):
        # A future takes anything but this one.
        raised = RuntimeError("StopIteration")
        raised.__cause__ = error
        error = raised
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)
