"""The databases and objects of the whole cluster, for services that read and write both."""

from __future__ import annotations

from aiohttp import web

from swiftlet.main.nodes import use_listing_transport
from swiftlet.peers import ObjectTransport
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.lagging import Lagging
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.objects import ClusterObjects
from swiftlet.placement.rings import Rings
from swiftlet.placement.row_delivery import RowWaits
from swiftlet.placement.row_lanes import RowLanes
from swiftlet.placement.rows import RowRouter
from swiftlet.placement.settling import Settling
from swiftlet.settings import ClusterSection
from swiftlet.settings.sections import NodeTimeouts


def use_cluster(
    app: web.Application,
    cluster: ClusterSection,
    timeouts: NodeTimeouts,
    waits: RowWaits,
    rings: Rings,
    transport: ObjectTransport,
) -> tuple[ClusterListings, ClusterObjects, RowRouter]:
    """Listings, objects over `transport`, and what brings the rows of the ones to the others; for the life of `app`."""
    listing_transport = use_listing_transport(app, cluster, timeouts)
    lagging = Lagging()
    listings = ClusterListings(
        rings, listing_transport, cluster.hash_path, NodeHealth(), waits.straggler_wait_s, lagging
    )
    lanes = RowLanes(rings.container, listing_transport, cluster.hash_path)
    rows = RowRouter(rings, lanes, Settling(transport), cluster.hash_path, waits, lagging)
    objects = ClusterObjects(
        rings,
        transport,
        rows,
        cluster.hash_path,
        NodeHealth(),
        waits.straggler_wait_s,
        write_timeout_s=timeouts.answer_timeout_s,
    )
    return listings, objects, rows
