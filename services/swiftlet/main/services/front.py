"""Adds the native front for reads, small PUTs and DELETEs to a service with the API, where its settings allow it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.front.proxy_front import FrontSettings, FrontStatus, ProxyFront
from swiftlet.front.routes import CodedPeers, ContainerPeers, Peers
from swiftlet.front.secure import CertificateInUse
from swiftlet.front.withdrawing import Withdrawals
from swiftlet.main.background import in_background
from swiftlet.placement.rings import Rings
from swiftlet.settings import ProxySection, ProxySettings
from swiftlet.web.front_listener import FRONT_LISTENER
from swiftlet.web.statusz import STATUS


def add_front(
    app: web.Application,
    api: SwiftApi,
    rings: Rings,
    peers: Peers,
    settings: ProxySettings,
    withdrawals: Withdrawals,
    container_peers: ContainerPeers | None = None,
    certificate: CertificateInUse | None = None,
    coded_peers: CodedPeers | None = None,
) -> None:
    """Put a native front before the connections of `app`, unless it could answer nothing.

    `front` in the status report tells which. `withdrawals` are told of changes in the caches of `api`. With a
    `certificate` the front speaks TLS.
    """
    section = settings.proxy
    reason = why_no_front(section)
    if reason is None:
        timeouts = section.client_timeout_s, section.answer_timeout_s
        large_bytes = settings.cluster.native_pool_bytes // 4
        front = FrontSettings(settings.cluster.hash_path, *timeouts, writes=section.front_put, large_bytes=large_bytes)
        use_front(app, api, rings, peers, front, withdrawals, container_peers, certificate, coded_peers)
    else:
        app[STATUS].add("front", lambda: FrontStatus(state=f"off: {reason}", connections=0, answered=0, waiting=0))


def why_no_front(section: ProxySection) -> str | None:
    """Return why the front could answer no request; None if it may answer some."""
    if not section.front:
        return "proxy.front is false"
    return None


def use_front(
    app: web.Application,
    api: SwiftApi,
    rings: Rings,
    peers: Peers,
    settings: FrontSettings,
    withdrawals: Withdrawals,
    container_peers: ContainerPeers | None = None,
    certificate: CertificateInUse | None = None,
    coded_peers: CodedPeers | None = None,
) -> None:
    """Put a native front before the connections of `app`."""
    front = ProxyFront(app, api, rings, peers, settings, withdrawals, container_peers, certificate, coded_peers)

    async def beside(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(front.renew), in_background(front.lend), in_background(front.record):
            yield

    app[FRONT_LISTENER] = front
    app[STATUS].add("front", front.status)
    app.cleanup_ctx.append(beside)
