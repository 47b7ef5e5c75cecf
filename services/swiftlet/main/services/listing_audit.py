"""The listing audit beside the replicators: of rows for container servers, of objects for object servers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.neighbours import LocalDevices
from swiftlet.main.nodes import use_listing_transport, use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.ring_names import CONTAINER, object_ring
from swiftlet.main.rings import RingSet
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import RingError
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.sync.audit.coded import Coded
from swiftlet.sync.audit.looking import Copies, Look, Objects
from swiftlet.sync.audit.objects import ObjectsAudit
from swiftlet.sync.audit.pace import AuditSettings
from swiftlet.sync.audit.rows import RowsAudit
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.native_coded_repair import NativeCodedRepair
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.web.logs import get_logger
from swiftlet.web.statusz import STATUS

_JITTER = 0.25
"""The share of the interval by which passes may begin earlier, so that auditors don't all work at once."""
_log = get_logger("listing-audit")


def use_rows_audit(
    app: web.Application, settings: ReplicatorSettings, rings: RingSet, listings: HttpListingTransport
) -> None:
    """Prove the rows of this replicator's databases while `app` runs, if enabled."""
    section = settings.replicator
    if not section.listing_audit_interval_s:
        return
    policies = use_policies(app, settings, rings)
    for policy in policies:
        rings.add(object_ring(policy.index))
    transport = use_object_transport(app, settings.cluster, section, settings.service)
    objects = _objects(transport, rings, policies, settings.cluster.hash_path)
    audit = RowsAudit(
        listings,
        objects,
        LocalDevices(section.databases),
        rings.container,
        settings.cluster.hash_path,
        pace(settings),
        in_force=policies.move_in_force,
    )
    _in_background(app, audit.run_once, section.listing_audit_interval_s)


def use_objects_audit(
    app: web.Application,
    settings: ReplicatorSettings,
    rings: RingSet,
    policies: Policies,
    transport: NativeObjectTransport,
) -> None:
    """Look up the objects of this replicator's devices in their listings while `app` runs, if enabled."""
    section = settings.replicator
    if not section.listing_audit_interval_s:
        return
    rings.add(CONTAINER)
    hash_path = settings.cluster.hash_path
    audit = ObjectsAudit(
        transport,
        use_listing_transport(app, settings.cluster, section),
        _objects(transport, rings, policies, hash_path),
        LocalDevices(section.devices),
        rings.objects,
        rings.container,
        hash_path,
        pace(settings),
        in_force=policies.move_in_force,
    )
    _in_background(
        app, lambda: audit.run_once([*policies.of_copies, *policies.coded]), section.listing_audit_interval_s
    )


def _objects(transport: NativeObjectTransport, rings: RingSet, policies: Policies, hash_path: HashPath) -> Objects:
    """Return what gives verdicts on rows, by whole objects and by those with erasure coding."""

    def sound(policy: int) -> Ring:
        ring, coding = rings.objects(policy), policies.coding(policy)
        if coding is not None:
            try:
                coding.check_ring(ring.part_power, ring.replica_count)
            except RingError as error:
                raise Unavailable(f"storage policy {policies.name_of(policy)}: {error}") from error
        return ring

    copies = Copies(transport, sound)
    coded = Coded(transport.coded, NativeCodedRepair(transport.coded), transport.head, sound, policies.coding)

    def look(policy: int) -> Look:
        return copies if policies.coding(policy) is None else coded

    return Objects(look, hash_path)


def pace(settings: ReplicatorSettings) -> AuditSettings:
    """Return how fast the audit goes, and how old rows have to be."""
    section = settings.replicator
    return AuditSettings(
        rows_per_s=section.listing_audit_rows_per_s,
        min_age_s=section.listing_audit_min_age_s,
        share=section.listing_audit_share,
    )


def _in_background(app: web.Application, run_once: Callable[[], Awaitable[int]], interval_s: float) -> None:
    state: dict[str, object] = {"wrongRows": None, "lastPass": None}

    async def passes() -> None:
        while True:
            await asyncio.sleep(interval_s * random.uniform(1 - _JITTER, 1))  # noqa: S311
            try:
                state["wrongRows"] = await run_once()
                state["lastPass"] = time.time()
            except Unavailable as error:
                _log.info("the listing audit can't run now", error=str(error))
            except SwiftletError as error:
                _log.warning("a pass of the listing audit ended early", error=str(error))

    async def audited(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(passes):
            yield

    app.cleanup_ctx.append(audited)
    app[STATUS].add("listingAudit", lambda: dict(state))
