"""Connects a metadata server that gives grants with facts, keys, room of quotas, and a way to tell object servers
that grants count no more, and what devices have missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from swiftlet_native import cluster_certificates

from swiftlet.api.requests.grant_answers import Commons
from swiftlet.api.requests.grant_decisions import Decisions
from swiftlet.api.requests.grant_slices import GrantSlices
from swiftlet.api.requests.grants import GrantsApi, Told, add_grant_routes
from swiftlet.api.requests.missed import Allowances, MissedApi, add_missed_route
from swiftlet.auth.tokens import Tokens
from swiftlet.main.background import in_background
from swiftlet.main.grant_epochs import object_servers, teller
from swiftlet.main.keys import use_keys
from swiftlet.main.nodes import native_settings, use_devices
from swiftlet.main.rings import RingSet
from swiftlet.main.services.facts import KnownFacts
from swiftlet.placement.grant_epochs import GrantEpochs, tell_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.missed import Missed
from swiftlet.quota.usage import RememberedUsage, usage_source
from swiftlet.settings import MetadataSettings
from swiftlet.transport.native_client import NativeClient


def use_grants(
    app: web.Application,
    settings: MetadataSettings,
    tokens: Tokens,
    facts: KnownFacts,
    listings: ClusterListings,
    rings: RingSet,
) -> None:
    """Give grants while `app` runs."""
    cluster, section = settings.cluster, settings.metadata
    keys = use_keys(app, cluster)
    client = NativeClient(native_settings(cluster, section, "metadata"), keys.current)
    keys.follow(client.set_keys)

    tell = teller(client)
    epochs = GrantEpochs(tell, lambda: object_servers(facts.options.policies, rings))

    missed = Missed(use_devices(app, cluster, section), NodeHealth())

    async def telling(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(epochs.run), in_background(missed.run):
            yield
        await client.close()

    app.cleanup_ctx.append(telling)
    authorities: list[str] = []
    if cluster.encryption != "none":

        def follow(changed: Sequence[bytes]) -> None:
            authorities[:] = cluster_certificates(list(changed))[0]

        keys.follow(follow)

    async def revoke(account: str, before_ms: int) -> Told:
        servers = object_servers(facts.options.policies, rings)
        revoked = {(account, ""): before_ms}
        unreached = await tell_all(tell, servers, revoked)
        epochs.owe(unreached, revoked)
        return Told(len(servers), {f"{device.host}:{device.port}": why for device, why in unreached.items()})

    usage = RememberedUsage(usage_source(listings))
    api = GrantsApi(
        tokens=tokens,
        facts=facts,
        decisions=Decisions(facts),
        commons=Commons(facts, rings, cluster.hash_path, cluster.native_port_offset),
        slices=GrantSlices(listings.claims, usage, facts.quotas),
        keys=lambda: keys.current,
        authorities=lambda: authorities,
        revoke=revoke,
        life_s=section.grant_life_s,
        max_life_s=section.max_grant_life_s,
    )
    add_grant_routes(app, api)
    add_missed_route(app, MissedApi(tokens, facts, rings, cluster.hash_path, missed, Allowances()))
