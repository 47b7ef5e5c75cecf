"""The application that every service starts from."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from swiftlet.web.connection_drain import last_answers
from swiftlet.web.health import READINESS, Readiness, add_health_routes
from swiftlet.web.loop_lag import watch_loop
from swiftlet.web.malformed import log_without_bytes
from swiftlet.web.management import MANAGEMENT, add_management_routes, management_of
from swiftlet.web.metrics import HttpMetrics
from swiftlet.web.requests import around_requests, mark_response
from swiftlet.web.statusz import STATUS, StatusBoard

METRICS = web.AppKey("http_metrics", HttpMetrics)

_UNLIMITED = 0
"""The `client_max_size` of services that read bodies in pieces and enforce their own limits."""


def create_base_app(
    service: str,
    *,
    trust_request_ids: bool,
    middlewares: Sequence[Middleware] = (),
    client_max_size: int = _UNLIMITED,
    managed_apart: bool = False,
) -> web.Application:
    """Return an application with request ids, an answer to unexpected errors, metrics, health routes and a status
    board.

    `trust_request_ids` tells whether callers are peers whose `X-Trans-Id` counts (storage servers), or clients whose
    does not (proxies). `middlewares` run inside of it, the first one outermost. With `managed_apart` the application
    under `MANAGEMENT` answers `/metrics` and `/statusz` instead of this one, because clients reach this one.
    """
    log_without_bytes()
    metrics = HttpMetrics(service)
    app = web.Application(
        middlewares=[around_requests(metrics, trust_request_ids), *middlewares], client_max_size=client_max_size
    )
    app[METRICS] = metrics
    app[READINESS] = Readiness()
    app[STATUS] = StatusBoard(service)
    app.on_response_prepare.append(mark_response)
    app.on_response_prepare.append(last_answers(app[READINESS]))
    watch_loop(app, service)
    add_health_routes(app)
    if managed_apart:
        app[MANAGEMENT] = management_of(app, metrics)
    else:
        add_management_routes(app)
    return app
