"""The metadata server: `swiftlet metadata`."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.revoking import Revocations
from swiftlet.api.requests.locations import LocationsApi, add_location_routes
from swiftlet.api.requests.ring_downloads import RingDownloads, add_ring_routes
from swiftlet.auth.tokens import Condition, Tokens
from swiftlet.main.keys import use_tokens
from swiftlet.main.moves_report import report_moves
from swiftlet.main.nodes import use_listing_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.quotas import use_quotas
from swiftlet.main.rings import RingSet, hand_out_rings, use_rings
from swiftlet.main.services.facts import known_facts
from swiftlet.main.services.serving import serve_app
from swiftlet.main.users import keep_revocations, use_users
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listings import ClusterListings
from swiftlet.settings import MetadataSettings
from swiftlet.timestamp import TimestampClock
from swiftlet.web.app import create_base_app
from swiftlet.web.management import MANAGEMENT
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS


def create_app(settings: MetadataSettings) -> web.Application:
    """Return the metadata server's application."""
    app = create_base_app(settings.service, trust_request_ids=False, managed_apart=True)
    cluster = settings.cluster
    rings = RingSet.of(settings, account=cluster.direct_access)
    use_rings(app, rings, cluster.ring_check_interval_s)
    grants_s = settings.metadata.max_grant_life_s if cluster.direct_access else 0
    report_moves(app, settings.metadata.container_info_ttl_s + grants_s)
    hand_out_rings(app[MANAGEMENT], rings)
    transport = use_listing_transport(app, cluster, settings.metadata)
    listings = ClusterListings(rings, transport, cluster.hash_path, NodeHealth())
    tokens = _tokens(app, settings, listings)
    policies = use_policies(app, settings, rings)
    facts = known_facts(settings, listings, policies, use_quotas(app, settings.quota))
    add_location_routes(app, LocationsApi(tokens.check, facts.containers, rings, cluster.hash_path, policies))
    add_ring_routes(app, RingDownloads(tokens.check, rings, policies, facts))
    if cluster.direct_access:
        # Only here is it needed, and it needs native code that a server without it does not.
        from swiftlet.main.services.direct_access import use_grants

        use_grants(app, settings, tokens, facts, listings, rings)
    return app


def _tokens(app: web.Application, settings: MetadataSettings, listings: ClusterListings) -> Tokens:
    """Return what checks tokens. Who gives grants knows, as proxies do, which users and tokens are no longer good;
    a server that only says where objects are knows users by their tokens alone.
    """
    conditions: list[Condition] = []
    if settings.cluster.direct_access:
        revocations = Revocations(listings, TimestampClock())
        keep_revocations(app, revocations, settings.auth.revocations_check_interval_s)
        conditions.append(revocations.check)
    if settings.cluster.direct_access and settings.auth.users_file is not None:
        conditions.append(use_users(app, settings.auth).still)
    else:
        app[STATUS].add("users", lambda: None)
    return use_tokens(app, settings.cluster, settings.auth.token_life_s, conditions)


def run(settings: MetadataSettings) -> int:
    """Serve until asked to end; return the exit code."""
    section = settings.metadata
    options = ServeOptions(
        drain_s=settings.drain_s,
        idle_s=section.idle_drain_s,
        management=(section.host, section.management_port),
    )
    return serve_app(lambda: create_app(settings), section.host, section.port, options, section.workers)
