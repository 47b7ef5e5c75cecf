"""The Swift API server: `swiftlet proxy`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from swiftlet.api.app import add_api_routes
from swiftlet.api.context.core import ApiOptions
from swiftlet.api.context.logins import Logins
from swiftlet.api.context.revoking import Revocations
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.api.writing.quota_checks import stop_checking
from swiftlet.auth.failures import LoginLimit
from swiftlet.front.withdrawing import Withdrawals
from swiftlet.main.certificates import FAILURES as certificate_failures
from swiftlet.main.certificates import Certificates
from swiftlet.main.cluster import finish_slow_replicas, use_cluster
from swiftlet.main.garbage_collection import collect_garbage_seldom
from swiftlet.main.grant_epochs import object_servers, tell_of_changes
from swiftlet.main.keys import use_tokens
from swiftlet.main.moves_report import report_moves
from swiftlet.main.nodes import bodies_for, use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.quotas import use_quotas
from swiftlet.main.realms import use_realms
from swiftlet.main.reloading import keep_current
from swiftlet.main.remembering import remembered_s
from swiftlet.main.rings import RingSet, hand_out_rings, use_rings
from swiftlet.main.services.front import add_front
from swiftlet.main.services.serving import serve_app
from swiftlet.main.services.swift_api import swift_api
from swiftlet.main.shared_versions import SharedVersions
from swiftlet.main.users import keep_revocations, use_users
from swiftlet.main.warming import keep_warm
from swiftlet.placement.plan import Place
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.settings import ProxySection, ProxySettings
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.web.app import create_base_app
from swiftlet.web.management import MANAGEMENT
from swiftlet.web.serve import ServeOptions


def create_app(
    settings: ProxySettings,
    certificates: Certificates | None = None,
    changes: SharedChanges | None = None,
    versions: SharedVersions | None = None,
) -> web.Application:
    """Return the API server's application, which keeps `certificates` up to date.

    It shares `changes`, and the `versions` of the users file in use, with other processes.
    """
    app = create_base_app(settings.service, trust_request_ids=False, managed_apart=True)
    rings = RingSet.of(settings)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    report_moves(app, remembered_s(settings.proxy))
    hand_out_rings(app[MANAGEMENT], rings)
    waits = RowWaits(settings.proxy.row_wait_s, settings.proxy.post_quorum_wait_s)
    transport = use_object_transport(app, settings.cluster, settings.proxy, settings.service)
    place = Place(settings.proxy.region, settings.proxy.zone)
    policies = use_policies(app, settings, rings)
    listings, objects, rows, known = use_cluster(
        app, settings.cluster, settings.proxy, waits, rings, transport, policies, place
    )
    finish_slow_replicas(app, settings.drain_s, rows.drain)
    users = use_users(app, settings.auth, versions)
    clock, withdrawals = TimestampClock(), Withdrawals()
    revocations = Revocations(listings, clock)
    conditions = (users.still, revocations.check)
    api = swift_api(
        listings=listings,
        objects=objects,
        tokens=use_tokens(app, settings.cluster, settings.auth.token_life_s, conditions),
        revocations=revocations,
        users=users,
        logins=Logins(
            users,
            LoginLimit(settings.auth.max_failures, settings.auth.failure_window_s),
            settings.auth.trusted_networks,
        ),
        clock=clock,
        options=_options(settings, policies),
        quotas=use_quotas(app, settings.quota),
        bodies=bodies_for(transport),
        changes=changes or SharedChanges(),
        changed=withdrawals.withdraw,
        confirmations=known,
        realms=use_realms(app, settings.realms),
    )
    if settings.cluster.direct_access:
        tell_of_changes(app, api.changes, transport.client, policies, rings)
    keep_warm(app, transport.client, place, lambda: object_servers(policies, rings))
    app.on_startup.append(_keep_what_is_there)
    app.cleanup_ctx.append(_checking)
    keep_revocations(app, revocations, settings.auth.revocations_check_interval_s)
    add_api_routes(app, api)
    add_front(app, api, rings, transport, settings, withdrawals, transport.client, certificates, transport.coded)
    if certificates is not None:
        interval_s = settings.proxy.tls_check_interval_s
        certificates.show()
        keep_current(app, "TLS certificate", certificates.reload, certificate_failures, interval_s, certificates.show)
    return app


async def _checking(_app: web.Application) -> AsyncIterator[None]:
    yield
    await stop_checking()


async def _keep_what_is_there(_app: web.Application) -> None:
    collect_garbage_seldom()


def _options(settings: ProxySettings, policies: Policies) -> ApiOptions:
    return ApiOptions(
        limits=settings.limits,
        policies=policies,
        client_timeout_s=settings.proxy.client_timeout_s,
        small_object_bytes=settings.proxy.small_object_bytes,
        container_info_ttl_s=settings.proxy.container_info_ttl_s,
        storage_url=settings.proxy.storage_url,
        tempurl=settings.tempurl,
        formpost=settings.formpost,
        cors=settings.cors,
        rate_limits=settings.rate_limits,
        symlink=settings.symlink,
        versioning=settings.versioning,
        bulk=settings.bulk,
        static_web=settings.static_web,
    )


def certificates_of(section: ProxySection) -> Certificates | None:
    """Return the API port's certificate, None for plain HTTP. Raises SettingsError when it can't be used."""
    if section.tls_cert_file is None or section.tls_key_file is None:
        return None
    return Certificates(section.tls_cert_file, section.tls_key_file)


def run(settings: ProxySettings) -> int:
    """Serve until asked to end; return the exit code."""
    section = settings.proxy
    # These are made before there are workers, so that all of them share them.
    certificates, changes, versions = certificates_of(section), SharedChanges(), SharedVersions(section.workers)
    options = ServeOptions(
        drain_s=settings.drain_s,
        idle_s=section.idle_drain_s,
        max_line_size=settings.limits.max_header_size,
        max_field_size=settings.limits.max_header_size,
        backlog=section.backlog,
        tls=certificates.context if certificates is not None else None,
        management=(section.host, section.management_port),
    )

    def app() -> web.Application:
        return create_app(settings, certificates, changes, versions)

    return serve_app(app, section.host, section.port, options, section.workers)
