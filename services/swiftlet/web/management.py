"""Pages of a service for its administrators: `/metrics` for Prometheus and `/statusz`, with the health of the process.

These pages name servers, keys and rates, and cost more than a small request. So a service whose port clients reach
answers them on another port, by an application of its own: `serve` runs the one under `MANAGEMENT` there.
"""

from __future__ import annotations

from aiohttp import web

from swiftlet.web.health import READINESS, add_health_routes
from swiftlet.web.metrics import HttpMetrics, metrics_page
from swiftlet.web.requests import around_requests, mark_response
from swiftlet.web.statusz import STATUS, add_status_route

MANAGEMENT = web.AppKey("management", web.Application)


def management_of(app: web.Application, metrics: HttpMetrics) -> web.Application:
    """Return an application with the pages about `app`, which has a readiness and a status board."""
    management = web.Application(middlewares=[around_requests(metrics, trust_peers=False)])
    management[READINESS] = app[READINESS]
    management[STATUS] = app[STATUS]
    management.on_response_prepare.append(mark_response)
    add_health_routes(management)
    add_management_routes(management)
    return management


def add_management_routes(app: web.Application) -> None:
    """Serve `/metrics` and `/statusz` in `app`."""
    app.router.add_get("/metrics", _metrics)
    add_status_route(app)


async def _metrics(_request: web.Request) -> web.Response:
    body, content_type = metrics_page()
    return web.Response(body=body, headers={"Content-Type": content_type})
