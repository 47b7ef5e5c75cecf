"""A proxy that ends: the replicas that were slower than their write's quorum still get their copies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web

from swiftlet.main.cluster import finish_slow_replicas
from swiftlet.placement.fanout import write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.tests.cluster import make_ring
from swiftlet.placement.write_plan import plan_write
from swiftlet.ring.model import Device


class SlowReplica:
    """A proxy whose writes have one replica that ends when it is `let`."""

    def __init__(self, drain_s: float) -> None:
        self.let = asyncio.Event()
        self.events: list[str] = []
        self.app = web.Application()
        self.app.cleanup_ctx.append(self._transport)
        finish_slow_replicas(self.app, drain_s, self._rows)
        self.app.router.add_put("/", self._put)

    async def _transport(self, _app: web.Application) -> AsyncIterator[None]:
        yield
        self.events.append("transport closed")

    async def _rows(self, timeout_s: float) -> None:
        """Rows and acknowledgements get what is left of the time."""
        self.events.append("rows" if timeout_s else "no time for rows")

    async def _put(self, _request: web.Request) -> web.Response:
        plan = plan_write(make_ring(4), 0)

        async def operation(index: int, _device: Device) -> None:
            if index == 2:
                await self.let.wait()
                self.events.append("third replica")

        outcome = await write_all(plan, operation, NodeHealth(), post_quorum_wait_s=0.0)
        return web.Response(text=str(len(outcome.replies)))


@pytest.mark.parametrize(
    ("drain_s", "events"),
    [(30.0, ["third replica", "rows", "transport closed"]), (0.05, ["no time for rows", "transport closed"])],
)
async def test_they_finish_before_the_transport_closes(drain_s: float, events: list[str]) -> None:
    proxy = SlowReplica(drain_s)
    runner = web.AppRunner(proxy.app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with ClientSession() as session, session.put(f"http://{host}:{port}/") as answer:
        assert await answer.text() == "2"
    begun = time.monotonic()
    cleanup = asyncio.create_task(runner.cleanup())
    if drain_s > 1:
        done, _ = await asyncio.wait({cleanup}, timeout=0.2)
        assert not done, "the proxy waits for the slow replica"
        proxy.let.set()
    await cleanup
    assert time.monotonic() - begun < 10
    assert proxy.events == events
    proxy.let.set()
