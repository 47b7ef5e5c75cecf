"""Checking who logs in, the same for all protocols: failures are limited, counted and logged, secrets never are.

A name that nobody has is not logged either: it may be a secret that was typed in the wrong place.
"""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web
from prometheus_client import Counter

from swiftlet.api.core import SwiftApi
from swiftlet.auth.users import User
from swiftlet.errors import Unauthorized

FAILED = Counter("swiftlet_logins_failed_total", "Logins refused: unknown user or wrong secret.")
_log = structlog.get_logger("auth")


async def log_in(api: SwiftApi, request: web.Request, login: str, secret: str) -> User:
    """The user `ACCOUNT:USER` by the secret; Unauthorized, TooManyFailures."""
    subjects = (f"user {login[:512]}", f"address {request.remote}")
    api.failures.admit(*subjects)
    try:
        return await asyncio.to_thread(api.users.login, login, secret)
    except Unauthorized:
        api.failures.failed(*subjects)
        FAILED.inc()
        _log.info("login refused", user=login if api.users.knows(login) else "unknown", remote=request.remote)
        raise
