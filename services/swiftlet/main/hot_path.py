"""Reads and small PUTs without Python in a service that has the API, where its settings let that be."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from swiftlet.api.core import SwiftApi
from swiftlet.hot_path.hot_path import HotPath, HotSettings, HotStatus
from swiftlet.hot_path.routes import Peers
from swiftlet.main.background import in_background
from swiftlet.peers import ObjectTransport
from swiftlet.placement.rings import Rings
from swiftlet.settings import ProxySection, ProxySettings
from swiftlet.web.front import FRONT_LISTENER
from swiftlet.web.statusz import STATUS


def add_hot_path(
    app: web.Application, api: SwiftApi, rings: Rings, transport: ObjectTransport, settings: ProxySettings
) -> None:
    """Have the connections of `app` come through a native front, unless it could answer nothing; the status report's
    `hot_path` says which."""
    section = settings.proxy
    reason = why_cold(section, transport)
    if reason is None and isinstance(transport, Peers):
        timeouts = section.client_timeout_s, section.answer_timeout_s
        hot = HotSettings(settings.cluster.hash_path, *timeouts, writes=section.hot_put)
        use_hot_path(app, api, rings, transport, hot)
    else:
        app[STATUS].add("hot_path", lambda: HotStatus(state=f"off: {reason}", connections=0, answered=0, waiting=0))


def why_cold(section: ProxySection, transport: ObjectTransport) -> str | None:
    """Why no request can be hot; None if some may be."""
    if not section.hot_path:
        return "proxy.hot_path is false"
    if section.tls_cert_file is not None:
        return "the port speaks TLS"
    if not isinstance(transport, Peers):
        return "cluster.object_transport is http"
    return None


def use_hot_path(app: web.Application, api: SwiftApi, rings: Rings, peers: Peers, settings: HotSettings) -> None:
    """Have the connections of `app` come through a native front."""
    hot = HotPath(app, api, rings, peers, settings)

    async def beside(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(hot.renew), in_background(hot.record):
            yield

    app[FRONT_LISTENER] = hot
    app[STATUS].add("hot_path", hot.status)
    app.cleanup_ctx.append(beside)
