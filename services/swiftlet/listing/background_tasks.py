"""Background tasks whose end is reported exactly once, whatever happens.

Rows have no task or future of their own, but a callback. If a callback did not come, its caller would wait for ever,
and the database would take no more writes.

Fault model: a listener may raise; that is logged, and the others are still called. A task may raise, be cancelled at
any point, or be cancelled before its first step; its end is reported even then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

Ended = Callable[[BaseException | None], None]
"""A callback for the end of a task: it gets the task's error, CancelledError when it was cancelled, or None."""


class BackgroundTasks:
    """Tasks that nobody awaits: each is kept until it ends, and its end is reported. Used from one event loop."""

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
    """Call one of several listeners; its exception is logged and does not reach the others."""
    try:
        listener(*news)
    except Exception as error:
        report(f"{listener!r} has failed", error)


def report(message: str, error: BaseException) -> None:
    """Log an error that nobody waits for, as the event loop logs those of its own callbacks."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def resolve(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    """Give a future its result or error, unless nobody waits for it any more."""
    if answer.done():
        return
    if isinstance(error, StopIteration):
        # Futures do not accept StopIteration.
        raised = RuntimeError("StopIteration")
        raised.__cause__ = error
        error = raised
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)
