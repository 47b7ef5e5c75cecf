"""The transports of a service: connections to storage nodes that are closed when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from swiftlet.main.keys import use_keys
from swiftlet.settings import ClusterSection
from swiftlet.settings.sections import NodeTimeouts
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.http_objects import HttpObjectTransport
from swiftlet.web.statusz import STATUS


def http_settings(timeouts: NodeTimeouts) -> HttpSettings:
    """How patient a service is with storage nodes."""
    return HttpSettings(
        connect_timeout_s=timeouts.connect_timeout_s,
        answer_timeout_s=timeouts.answer_timeout_s,
        idle_timeout_s=timeouts.answer_timeout_s,
    )


def use_listing_transport(
    app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts
) -> HttpListingTransport:
    """Account and container databases on other nodes, for the life of `app`."""
    transport = HttpListingTransport(NodeClient(http_settings(timeouts), use_keys(app, cluster).signing))
    _use(app, transport)
    return transport


def use_object_transport(app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts) -> HttpObjectTransport:
    """Objects on other nodes, for the life of `app`."""
    transport = HttpObjectTransport(http_settings(timeouts), use_keys(app, cluster).signing)
    _use(app, transport)
    return transport


_HTTP = web.AppKey("http_transports", list[HttpListingTransport | HttpObjectTransport])


def _use(app: web.Application, transport: HttpListingTransport | HttpObjectTransport) -> None:
    """Close it with `app`, and count its peers in the status report."""
    if _HTTP not in app:
        mine = app[_HTTP] = []
        app[STATUS].add("transports", lambda: {"http": len({peer for one in mine for peer in one.connected()})})
    app[_HTTP].append(transport)

    async def closing(_app: web.Application) -> AsyncIterator[None]:
        yield
        await transport.close()

    app.cleanup_ctx.append(closing)
