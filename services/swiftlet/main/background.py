"""Work beside the requests: it ends with the service, and ends the service when it fails unexpectedly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from swiftlet.web.logs import get_logger

_log = get_logger("background")


@asynccontextmanager
async def in_background(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `work` beside the block and cancel it at its end.

    When `work` fails, the process is asked to end and the block's exit raises the error: a service whose background
    work has died only seems to work, and its successor starts with a clean state.
    """

    async def run() -> None:
        try:
            await work()
        except Exception:
            _log.exception("background work failed, and the process ends")
            signal.raise_signal(signal.SIGTERM)
            raise

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended
