"""The databases and objects of the whole cluster, for services that read and write both."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from swiftlet.main.background import in_background
from swiftlet.main.nodes import use_listing_transport
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listing_changes import ListingChanges
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.metrics import MOVED_READS
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.lagging import Lagging
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.rows.row_updates import RowRouter
from swiftlet.settings import ClusterSection
from swiftlet.settings.policies import Policies
from swiftlet.settings.sections import NodeTimeouts
from swiftlet.transport.native_objects import NativeObjectTransport


def use_cluster(
    app: web.Application,
    cluster: ClusterSection,
    timeouts: NodeTimeouts,
    waits: RowWaits,
    rings: Rings,
    transport: NativeObjectTransport,
    policies: Policies,
    place: Place = ANYWHERE,
) -> tuple[ClusterListings, ClusterObjects, RowRouter, ListingChanges]:
    """Return listings, objects over `transport`, what brings the rows of objects to listings, and what knows of changes
    of containers; for the life of `app`. `policies` tell what acknowledges writes, and how objects are coded; what is
    near `place` is read first.
    """
    listing_transport = use_listing_transport(app, cluster, timeouts)
    lagging = Lagging()
    listings = ClusterListings(
        rings, listing_transport, cluster.hash_path, NodeHealth(), waits.straggler_wait_s, lagging, place
    )
    changes = ListingChanges(rings.container, listing_transport, cluster.hash_path)
    queues = RowQueues(rings.container, listing_transport, cluster.hash_path)
    quorums = policies.write_quorum
    rows = RowRouter(rings, queues, Acknowledgements(transport), cluster.hash_path, waits, lagging, place, quorums)
    objects = ClusterObjects(
        rings,
        transport,
        rows,
        cluster.hash_path,
        NodeHealth(moved=MOVED_READS.inc),
        waits.straggler_wait_s,
        write_timeout_s=timeouts.answer_timeout_s,
        place=place,
        quorums=quorums,
        coded=transport.coded,
        codings=policies.coding,
        pack_below=policies.pack_below,
    )

    async def telling(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(objects.missed.run), in_background(changes.run):
            yield

    app.cleanup_ctx.append(telling)
    return listings, objects, rows, changes


def finish_slow_replicas(app: web.Application, drain_s: float, drain_rows: Callable[[float], Awaitable[None]]) -> None:
    """When `app` ends, let slow replicas of acknowledged writes finish, then rows and acknowledgements.

    They and the requests in progress have `drain_s` together. Call this after the transports were added, because an
    application ends last what was added first.
    """
    asked_to_end: list[float] = []

    async def note(_app: web.Application) -> None:
        asked_to_end.append(time.monotonic())

    async def finishing(_app: web.Application) -> AsyncIterator[None]:
        yield
        begun = asked_to_end[0] if asked_to_end else time.monotonic()
        await drain_background(max(0.0, begun + drain_s - time.monotonic()))
        await drain_rows(max(0.0, begun + drain_s - time.monotonic()))

    app.on_shutdown.append(note)
    app.cleanup_ctx.append(finishing)
