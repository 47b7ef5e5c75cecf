"""The expirer and the account reaper beside the replicator: their nodes, and their rounds in the background."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial

from aiohttp import web

from swiftlet.context import new_request_id, request_id
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.expiry.expirer import Expirer
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.reaper import Reaper
from swiftlet.main.background import in_background
from swiftlet.main.cluster import finish_slow_replicas, use_cluster
from swiftlet.main.ring_names import ACCOUNT, CONTAINER
from swiftlet.main.rings import RingSet
from swiftlet.main.routing import routed_in_background
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.web.logs import get_logger

_JITTER = 0.25
"""The share of the interval by which rounds may begin earlier, so that expirers don't all work at once."""
_log = get_logger("expirer")


def use_expirer(
    app: web.Application,
    settings: ReplicatorSettings,
    rings: RingSet,
    policies: Policies,
    transport: NativeObjectTransport,
) -> None:
    """Run an expirer and a reaper for the life of `app`, if enabled; until they have their rings they do nothing."""
    section, reaping = settings.expirer, settings.reaper
    if not (section.enabled or reaping.enabled):
        return
    rings.add(ACCOUNT)
    rings.add(CONTAINER)
    cluster, waits = settings.cluster, RowWaits()
    listings, objects, rows, _ = use_cluster(app, cluster, settings.replicator, waits, rings, transport, policies)
    routed, clock = routed_in_background(objects, listings, policies), TimestampClock()
    nodes = partial(nodes_of, rings, policies)
    mine = {address.partition("/")[0] for address in settings.replicator.devices}
    expirer = Expirer(ExpiryQueue(listings, clock.next), routed, section, nodes, mine, cluster.reclaim_age_s)
    reaper = Reaper(listings, routed, reaping, nodes, mine, clock.next)

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if section.enabled:
                await stack.enter_async_context(in_background(lambda: expire(expirer, section.interval_s)))
            if reaping.enabled:
                await stack.enter_async_context(in_background(lambda: expire(reaper, reaping.interval_s)))
            yield

    finish_slow_replicas(app, settings.drain_s, rows.drain)
    app.cleanup_ctx.append(rounds)


def nodes_of(rings: RingSet, policies: Policies) -> set[str]:
    """Return the nodes where expirers run, those of all policies' devices, as `host:port`."""
    nodes: set[str] = set()
    for policy in policies:
        try:
            devices = rings.objects(policy.index).devices
        except Unavailable:
            continue
        nodes |= {f"{device.host}:{device.port}" for device in devices if device is not None}
    return nodes


async def expire(expirer: Expirer | Reaper, interval_s: float) -> None:
    """Do rounds until cancelled, `interval_s` or a little less apart; a failed round does not prevent the next."""
    while True:
        next_round = time.monotonic() + interval_s * random.uniform(1 - _JITTER, 1)  # noqa: S311
        request_id.set(new_request_id())
        try:
            report = await expirer.run_round()
        except SwiftletError as error:
            _log.warning("a round of the expirer is skipped", error=str(error))
        else:
            write = _log.debug if report.clean else _log.info
            write("round", **asdict(report))
        await asyncio.sleep(max(0.0, next_round - time.monotonic()))
