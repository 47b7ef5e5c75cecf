"""The metadata server: `swiftlet metadata`."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.requests.locations import LocationsApi, add_location_routes
from swiftlet.main.keys import use_tokens
from swiftlet.main.nodes import use_listing_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.quotas import use_quotas
from swiftlet.main.rings import RingSet, hand_out_rings, use_rings
from swiftlet.main.services.serving import serve_app
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listings import ClusterListings
from swiftlet.settings import MetadataSettings
from swiftlet.web.app import create_base_app
from swiftlet.web.management import MANAGEMENT
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS


def create_app(settings: MetadataSettings) -> web.Application:
    """Return the metadata server's application."""
    app = create_base_app(settings.service, trust_request_ids=False, managed_apart=True)
    cluster = settings.cluster
    rings = RingSet.of(settings, account=False)
    use_rings(app, rings, cluster.ring_check_interval_s)
    hand_out_rings(app[MANAGEMENT], rings)
    transport = use_listing_transport(app, cluster, settings.metadata)
    listings = ClusterListings(rings, transport, cluster.hash_path, NodeHealth())
    tokens = use_tokens(app, cluster, settings.auth.token_life_s)
    containers = ContainerCache(listings.container_info, settings.metadata.container_info_ttl_s)
    api = LocationsApi(tokens.check, containers, rings, cluster.hash_path, use_policies(app, settings, rings))
    use_quotas(app, settings.quota)
    # This server has no users file: it knows users only by their tokens.
    app[STATUS].add("users", lambda: None)
    add_location_routes(app, api)
    return app


def run(settings: MetadataSettings) -> int:
    """Serve until asked to end; return the exit code."""
    section = settings.metadata
    options = ServeOptions(
        drain_s=settings.drain_s,
        idle_s=section.idle_drain_s,
        management=(section.host, section.management_port),
    )
    return serve_app(lambda: create_app(settings), section.host, section.port, options, section.workers)
