"""How late the event loop of a process is: while one request keeps it busy, all others wait.

A task wakes up every `INTERVAL_S` and measures how much later than requested that was. Two numbers are reported: the
lateness, which clients feel whatever its cause, and the time that the loop's own thread has computed meanwhile, which
is the work of this process alone, also on a machine that is busy with others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import Histogram

INTERVAL_S = 0.5
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LAG = Histogram(
    "swiftlet_event_loop_lag_seconds",
    "How much later than asked a process's event loop has gone on with a task.",
    ["service"],
    buckets=_BUCKETS_S,
)
WORK = Histogram(
    "swiftlet_event_loop_work_seconds",
    "How much of that time the event loop's thread has been computing.",
    ["service"],
    buckets=_BUCKETS_S,
)


def watch_loop(app: web.Application, service: str) -> None:
    """Measure the event loop for the life of an application."""

    async def watching(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.ensure_future(_watch(service))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    app.cleanup_ctx.append(watching)


async def _watch(service: str) -> None:
    lag, work = LAG.labels(service).observe, WORK.labels(service).observe
    while True:
        began_s, worked_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(INTERVAL_S)
        late_s = max(0.0, time.monotonic() - began_s - INTERVAL_S)
        lag(late_s)
        work(min(late_s, time.thread_time() - worked_s))
