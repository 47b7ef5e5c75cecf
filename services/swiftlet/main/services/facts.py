"""What a metadata server knows of accounts and containers, by which it decides as a proxy does."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.api.context.account_cache import AccountCache
from swiftlet.api.context.container_cache import ContainerCache, FetchContainer
from swiftlet.api.context.core import ApiOptions
from swiftlet.api.context.deleted_accounts import of_live_accounts
from swiftlet.placement.listings import ClusterListings
from swiftlet.quota import QuotaFile
from swiftlet.settings import MetadataSettings
from swiftlet.settings.policies import Policies


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The options, caches and quotas on which decisions rest; implements `swiftlet.api.context.core.Facts`."""

    options: ApiOptions
    containers: ContainerCache
    accounts: AccountCache
    quotas: QuotaFile


def known_facts(
    settings: MetadataSettings, listings: ClusterListings, policies: Policies, quotas: QuotaFile
) -> KnownFacts:
    """Return the facts that one metadata server process has."""
    ttl_s = settings.metadata.container_info_ttl_s
    accounts = AccountCache(listings.account_info, ttl_s)
    # Without direct access this server says only where objects would be, and has no ring of accounts.
    direct = settings.cluster.direct_access
    fetch: tuple[FetchContainer, FetchContainer] = listings.container_facts, listings.container_info
    if direct:
        fetch = of_live_accounts(fetch[0], accounts), of_live_accounts(fetch[1], accounts)
    containers = ContainerCache(*fetch, ttl_s)
    options = ApiOptions(
        settings.limits,
        policies,
        container_info_ttl_s=ttl_s,
        rate_limits=settings.rate_limits,
        versioning=settings.versioning,
    )
    return KnownFacts(options, containers, accounts, quotas)
