"""Decides for how long a proxy acts by what it knows of a container."""

from __future__ import annotations

from swiftlet.api.context.fresh_cache import CONFIRMED_AT_MOST_S
from swiftlet.front.deciding import VALID_S, WRITE_VALID_S
from swiftlet.settings.sections import ProxySection


def remembered_s(section: ProxySection) -> float:
    """Return for how many seconds a proxy may act by what a container was.

    The front's grants rest on facts that the replicas of a container confirm. The one that was asked may have lagged
    behind, and then they confirm what was no longer so.
    """
    if not section.front or section.container_info_ttl_s <= WRITE_VALID_S:
        return section.container_info_ttl_s
    return max(section.container_info_ttl_s, CONFIRMED_AT_MOST_S) + VALID_S
