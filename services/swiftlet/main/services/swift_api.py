"""The Swift API of a process, with its caches in front of the listings."""

from __future__ import annotations

from collections.abc import Callable

from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.context.core import ApiOptions, SwiftApi
from swiftlet.api.context.deleted_accounts import of_live_accounts
from swiftlet.api.context.fresh_cache import Confirmations
from swiftlet.api.context.logins import Logins
from swiftlet.api.context.rate_limits import RateLimits
from swiftlet.api.context.revoking import Revocations
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.auth.tokens import Tokens
from swiftlet.auth.users import Users
from swiftlet.boundaries.bodies import Bodies
from swiftlet.container_sync.realms import RealmsFile
from swiftlet.container_sync.registry import SyncRegistry
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.main.routing import routed
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.listings import ClusterListings
from swiftlet.quota import QuotaFile
from swiftlet.quota.usage import RememberedUsage, usage_source
from swiftlet.timestamp import TimestampClock


def swift_api(
    *,
    listings: ClusterListings,
    objects: ClusterObjects,
    tokens: Tokens,
    revocations: Revocations,
    users: Users,
    logins: Logins,
    clock: TimestampClock,
    options: ApiOptions,
    changes: SharedChanges,
    changed: Callable[[str], None],
    confirmations: Confirmations[tuple[str, str]] | None = None,
    quotas: QuotaFile | None = None,
    bodies: Bodies | None = None,
    realms: RealmsFile | None = None,
) -> SwiftApi:
    """Return the API; `changed` is called with an account when something cached of it was removed or has changed.

    `confirmations` are of containers by account and name. The conditions of `tokens` are those of `users` and
    `revocations`.
    """
    ttl_s = options.container_info_ttl_s
    accounts = AccountCache(listings.account_info, ttl_s, changes=changes, changed=changed)
    facts = of_live_accounts(listings.container_facts, accounts)
    totals = of_live_accounts(listings.container_info, accounts)
    containers = ContainerCache(facts, totals, ttl_s, changes=changes, changed=changed, confirmations=confirmations)
    return SwiftApi(
        listings=listings,
        objects=routed(objects, containers, options.policies),
        tokens=tokens,
        revocations=revocations,
        users=users,
        logins=logins,
        clock=clock,
        options=options,
        quotas=quotas or QuotaFile(None),
        bodies=bodies,
        changes=changes,
        usage=RememberedUsage(usage_source(listings)),
        containers=containers,
        accounts=accounts,
        expiry=ExpiryQueue(listings, clock.next),
        rates=RateLimits(options.rate_limits, containers),
        realms=realms or RealmsFile(None),
        copied=SyncRegistry(listings, clock.next),
    )
