"""Reads and small PUTs without Python in a service that has the API."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from swiftlet.api.core import SwiftApi
from swiftlet.hot_path.hot_path import HotPath, HotSettings
from swiftlet.hot_path.routes import Peers
from swiftlet.main.background import in_background
from swiftlet.peers import ObjectTransport
from swiftlet.placement.rings import Rings
from swiftlet.web.front import FRONT_DOOR
from swiftlet.web.statusz import STATUS


def use_hot_path(
    app: web.Application, api: SwiftApi, rings: Rings, transport: ObjectTransport, settings: HotSettings
) -> None:
    """Have the connections of `app` come through a native front, if objects are read natively at all."""
    if not isinstance(transport, Peers):
        return
    hot = HotPath(app, api, rings, transport, settings)

    async def beside(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(hot.renew), in_background(hot.record):
            yield

    app[FRONT_DOOR] = hot
    app[STATUS].add("hot_path", hot.status)
    app.cleanup_ctx.append(beside)
