"""The ConfigMap `X-quotas`: the quota file of the proxies and metadata servers, from the cluster's StorageQuota."""

from __future__ import annotations

from typing import Any

from swiftlet.crd import StorageQuotaSpec
from swiftlet.crd.quota import DEFAULT_LEVEL, Level
from swiftlet.documents import write_document
from swiftlet_operator.build.settings import QUOTAS_FILE
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import CONFIG_MAP, Manifest


def build_quotas(site: Site, quota: StorageQuotaSpec | None) -> Manifest:
    """Return the ConfigMap. It always exists, so that the first StorageQuota restarts nothing; without one it limits
    nothing.
    """
    text = write_document(quotas_of(quota))
    return site.object(CONFIG_MAP, quotas_name(site.name), "quotas", {"data": {QUOTAS_FILE: text}})


def quotas_name(cluster: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{cluster}-quotas"


def quotas_of(quota: StorageQuotaSpec | None) -> dict[str, Any]:
    """Return the quota file as data."""
    if quota is None:
        return {"levels": {DEFAULT_LEVEL: {}}, "assignments": {}}
    return {
        "precise": quota.precise,
        "cache_seconds": quota.cache_seconds,
        "levels": {level.name: _limits(level) for level in quota.levels},
        "assignments": {one.account: one.level for one in quota.assignments},
    }


def _limits(level: Level) -> dict[str, int]:
    limits = {
        "container_count": level.container_count,
        "object_count": level.object_count,
        "container_usage_bytes": level.container_usage_bytes,
        "account_object_count": level.account_object_count,
        "account_usage_bytes": level.account_usage_bytes,
    }
    return {name: value for name, value in limits.items() if value is not None}
