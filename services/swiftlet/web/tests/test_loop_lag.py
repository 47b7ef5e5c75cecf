"""The event loop's lateness is measured, and of what comes from its own work."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web
from prometheus_client import REGISTRY

from swiftlet.web.loop_lag import INTERVAL_S, watch_loop


def measured(name: str, service: str, part: str = "sum", **labels: str) -> float:
    full = f"swiftlet_event_loop_{name}_seconds_{part}"
    return REGISTRY.get_sample_value(full, {"service": service, **labels}) or 0.0


async def looks(service: str, count: float) -> None:
    async with asyncio.timeout(30):
        while measured("lag", service, "count") < count:  # noqa: ASYNC110 - a metric tells nobody
            await asyncio.sleep(0.01)


async def test_work_that_does_not_give_way_is_seen() -> None:
    app = web.Application()
    watch_loop(app, "busy")
    runner = web.AppRunner(app)
    await runner.setup()
    await looks("busy", 1)
    before = measured("work", "busy")
    end = time.thread_time() + 3 * INTERVAL_S
    while time.thread_time() < end:
        pass
    await looks("busy", measured("lag", "busy", "count") + 1)
    assert measured("lag", "busy") >= measured("work", "busy")
    assert measured("work", "busy") - before >= INTERVAL_S
    await runner.cleanup()


async def test_waiting_is_no_work() -> None:
    """However late it is because of others: what counts is the time that this thread has computed."""
    app = web.Application()
    before_s = time.thread_time()
    watch_loop(app, "idle")
    runner = web.AppRunner(app)
    await runner.setup()
    await looks("idle", 3)
    assert measured("work", "idle") <= time.thread_time() - before_s
    await runner.cleanup()
