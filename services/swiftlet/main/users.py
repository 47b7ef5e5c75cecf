"""The users file of a process: looked at every few seconds, the last good one kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import Counter

from swiftlet.auth.users import Users
from swiftlet.errors import SettingsError
from swiftlet.main.background import in_background
from swiftlet.settings import AuthSection
from swiftlet.web.logs import get_logger

FAILURES = Counter("swiftlet_users_load_failures_total", "Changed users files that could not be used.")

_log = get_logger("users")


def use_users(app: web.Application, auth: AuthSection) -> Users:
    """The users of `app`, kept up to date while it runs; SettingsError when the file can't be used at all."""
    users = Users(auth.users_file)

    async def watch() -> None:
        problem = ""
        while True:
            await asyncio.sleep(auth.users_check_interval_s)
            problem = await asyncio.to_thread(_reload, users, problem)

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(watch):
            yield

    app.cleanup_ctx.append(watched)
    return users


def _reload(users: Users, before: str) -> str:
    """What is wrong with the file now; said once per problem."""
    try:
        if users.reload():
            _log.info("users loaded")
    except SettingsError as error:
        if str(error) != before:
            FAILURES.inc()
            _log.warning("users file not usable, the last good one stays in force", problem=str(error))
        return str(error)
    return ""
