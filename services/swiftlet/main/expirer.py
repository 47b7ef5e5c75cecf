"""The expirer beside the replicator: which nodes there are, and its rounds in the background."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import asdict

from aiohttp import web

from swiftlet.context import new_request_id, request_id
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.expiry.expirer import Expirer
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.main.background import in_background
from swiftlet.main.cluster import use_cluster
from swiftlet.main.ring_names import ACCOUNT, CONTAINER
from swiftlet.main.rings import RingSet
from swiftlet.peers import ObjectTransport
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.row_delivery import RowWaits
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.web.logs import get_logger

_JITTER = 0.25
"""Share of the interval by which rounds may begin earlier, so that expirers don't all work at once."""
_log = get_logger("expirer")


def use_expirer(
    app: web.Application, settings: ReplicatorSettings, rings: RingSet, policies: Policies, transport: ObjectTransport
) -> None:
    """Run an expirer for the life of `app`, if it is enabled; until it has its rings it does nothing."""
    section = settings.expirer
    if not section.enabled:
        return
    rings.add(ACCOUNT)
    rings.add(CONTAINER)
    cluster, waits = settings.cluster, RowWaits()
    listings, objects, rows = use_cluster(app, cluster, settings.replicator, waits, rings, transport)
    expirer = Expirer(
        ExpiryQueue(listings, TimestampClock().next),
        objects,
        section,
        lambda: nodes_of(rings, policies),
        {address.partition("/")[0] for address in settings.replicator.devices},
        cluster.reclaim_age_s,
    )

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(lambda: expire(expirer, section.interval_s)):
            yield
        await drain_background(settings.drain_s)
        await rows.drain(settings.drain_s)

    app.cleanup_ctx.append(rounds)


def nodes_of(rings: RingSet, policies: Policies) -> set[str]:
    """Where expirers run: beside the devices of all policies, as `host:port`."""
    nodes: set[str] = set()
    for policy in policies:
        try:
            devices = rings.objects(policy.index).devices
        except Unavailable:
            continue
        nodes |= {f"{device.host}:{device.port}" for device in devices if device is not None}
    return nodes


async def expire(expirer: Expirer, interval_s: float) -> None:
    """Rounds until cancelled, `interval_s` or a little less apart; one that fails is followed by the next."""
    while True:
        next_round = time.monotonic() + interval_s * random.uniform(1 - _JITTER, 1)  # noqa: S311
        request_id.set(new_request_id())
        try:
            report = await expirer.run_round()
        except SwiftletError as error:
            _log.warning("round put off", error=str(error))
        else:
            write = _log.debug if report.clean else _log.info
            write("round", **asdict(report))
        await asyncio.sleep(max(0.0, next_round - time.monotonic()))
