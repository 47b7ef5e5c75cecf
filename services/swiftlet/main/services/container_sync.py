"""Container sync beside the replicator of objects: what it reads, other clusters, and its rounds in the background."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial

import aiohttp
from aiohttp import web

from swiftlet.api.reading.synced_form import synced_form
from swiftlet.container_sync.comparing import Here
from swiftlet.container_sync.peer import HttpPeer, make_session
from swiftlet.container_sync.realms import Target
from swiftlet.container_sync.registry import SyncRegistry
from swiftlet.container_sync.worker import ContainerSync
from swiftlet.context import new_request_id, request_id
from swiftlet.errors import SwiftletError
from swiftlet.expiry.ranks import rank_of
from swiftlet.main.background import in_background
from swiftlet.main.cluster import use_cluster
from swiftlet.main.nodes import use_listing_transport
from swiftlet.main.realms import use_realms
from swiftlet.main.ring_names import ACCOUNT, CONTAINER
from swiftlet.main.rings import RingSet
from swiftlet.main.routing import routed_in_background
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.web.logs import get_logger
from swiftlet.web.statusz import STATUS

_JITTER = 0.25
"""The share of the interval by which rounds may begin earlier, so that nodes don't all work at once."""
_log = get_logger("container-sync")


def use_container_sync(
    app: web.Application,
    settings: ReplicatorSettings,
    rings: RingSet,
    policies: Policies,
    transport: NativeObjectTransport,
    nodes: Callable[[], set[str]],
) -> None:
    """Copy containers to other clusters while `app` runs, if there are realms; `nodes` (`host:port`) do the same.

    Raises SettingsError when the realms file can't be used.
    """
    section, cluster = settings.container_sync, settings.cluster
    if not section.enabled or settings.realms.file is None:
        return
    realms = use_realms(app, settings.realms)
    rings.add(ACCOUNT)
    rings.add(CONTAINER)
    listings, objects, _, _ = use_cluster(app, cluster, settings.replicator, RowWaits(), rings, transport, policies)
    here = Here(
        registry=SyncRegistry(listings, TimestampClock().next),
        listings=listings,
        databases=use_listing_transport(app, cluster, settings.replicator),
        objects=routed_in_background(objects, listings, policies),
        ring=rings.container,
        hash_path=cluster.hash_path,
        describe=synced_form,
    )
    mine = {address.partition("/")[0] for address in settings.replicator.devices}

    def rank(container: str) -> int | None:
        return rank_of(container, nodes(), mine)

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        session = make_session(section.concurrency + section.containers, section.timeout_s, section.ca_file)
        sync = ContainerSync(here, realms, partial(_peer, session), rank, section)
        app[STATUS].add("containerSync", sync.report)
        async with session, in_background(lambda: _rounds(sync, section.interval_s)):
            yield

    app.cleanup_ctx.append(rounds)


def _peer(session: aiohttp.ClientSession, target: Target, user_key: str) -> HttpPeer:
    return HttpPeer(session, target, user_key)


async def _rounds(sync: ContainerSync, interval_s: float) -> None:
    while True:
        next_round = time.monotonic() + interval_s * random.uniform(1 - _JITTER, 1)  # noqa: S311
        request_id.set(new_request_id())
        try:
            report = await sync.run_round()
        except SwiftletError as error:
            _log.warning("a round of container sync is skipped", error=str(error))
        else:
            write = _log.debug if report.clean else _log.info
            write("round", **asdict(report))
        await asyncio.sleep(max(0.0, next_round - time.monotonic()))
