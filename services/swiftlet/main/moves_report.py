"""Tells in the status report of a service that it knows of moves of containers between policies.

A mover begins only when all services say so, and waits for those that remember a container longest.
"""

from __future__ import annotations

from aiohttp import web

from swiftlet.web.statusz import STATUS

FIELD = "policyMoves"
REMEMBERS = "remembersS"


def report_moves(app: web.Application, remembers_s: float = 0.0) -> None:
    """Say that this service knows of moves, and that it, and who has a grant of it, may act by what a container was for
    so many seconds after that has changed on all its replicas.
    """
    app[STATUS].add(FIELD, lambda: {REMEMBERS: remembers_s})
