"""What the operator counts about itself, and the port it shows that on. Not in here: the state of clusters, which is in
their conditions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

RECONCILE_SECONDS = Histogram(
    "swiftlet_operator_reconcile_seconds",
    "Time of one reconcile of one cluster, without the time that it waited for a worker.",
    ["outcome"],
    buckets=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
"""`outcome`: done, failed (tried again later) or refused (somebody else leads)."""
REQUESTS = Counter(
    "swiftlet_operator_api_requests_total",
    "Requests to the API server, watches not counted.",
    ["method", "resource", "code"],
)
"""`resource` is the plural of a kind, empty for a list of kinds; `code` is the answer's, 0 without one."""
LEADS = Gauge("swiftlet_operator_leads", "1 while this process may write, 0 otherwise.")


@asynccontextmanager
async def served(port: int | None) -> AsyncIterator[None]:
    """`GET /metrics` on `port` of all addresses, nothing when it is None; OSError when the port is taken."""
    if port is None:
        yield
        return
    app = web.Application()
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
