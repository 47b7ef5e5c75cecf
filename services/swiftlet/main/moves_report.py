"""Tells in the status report of a service that it knows of moves of containers between policies.

A mover begins only when all services say so, and waits for those that remember a container longest.
"""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.fresh_cache import CONFIRMED_AT_MOST_S
from swiftlet.front.deciding import VALID_S, WRITE_VALID_S
from swiftlet.settings.sections import ProxySection
from swiftlet.web.statusz import STATUS

FIELD = "policyMoves"
REMEMBERS = "remembersS"


def remembered_s(section: ProxySection) -> float:
    """Return for how many seconds a proxy may act by what a container was.

    The front's grants rest on facts that the replicas of a container confirm. The one that was asked may have lagged
    behind, and then they confirm what was no longer so.
    """
    if not section.front or section.container_info_ttl_s <= WRITE_VALID_S:
        return section.container_info_ttl_s
    return max(section.container_info_ttl_s, CONFIRMED_AT_MOST_S) + VALID_S


def report_moves(app: web.Application, remembers_s: float = 0.0) -> None:
    """Say that this service knows of moves, and that it, and who has a grant of it, may act by what a container was for
    so many seconds after that has changed on all its replicas.
    """
    app[STATUS].add(FIELD, lambda: {REMEMBERS: remembers_s})
