"""The users file of a process: checked every few seconds; the last good one stays in force."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import Counter

from swiftlet.api.context.revoking import Revocations
from swiftlet.auth.users import Users
from swiftlet.main.background import in_background
from swiftlet.main.reloading import keep_current
from swiftlet.main.shared_versions import SharedVersions
from swiftlet.settings import AuthSection
from swiftlet.web.statusz import STATUS
from swiftlet.web.workers import worker_number

FAILURES = Counter("swiftlet_users_load_failures_total", "Changed users files that could not be used.")


def keep_revocations(app: web.Application, revocations: Revocations, interval_s: float) -> None:
    """Keep `app` informed of tokens that other processes have revoked, while it runs."""

    async def refreshing(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(lambda: revocations.keep_current(interval_s)):
            yield

    app.cleanup_ctx.append(refreshing)
    app[STATUS].add("revocations", lambda: len(revocations.revoked))


def use_users(app: web.Application, auth: AuthSection, versions: SharedVersions | None = None) -> Users:
    """Return the users of `app`, kept up to date while it runs. Raises SettingsError when the file can't be used at
    all.

    `versions` records the versions of the file that the workers of the service use.
    """
    users = Users(auth.users_file)
    shared = versions or SharedVersions()

    def tell() -> None:
        shared.tell(worker_number() if versions is not None else 0, users.version)

    def of_workers() -> list[str | None]:
        tell()
        return shared.all()

    tell()
    keep_current(app, "users file", users.reload, FAILURES, auth.users_check_interval_s, tell)
    app[STATUS].add("users", lambda: users.version)
    app[STATUS].add("usersOfWorkers", of_workers)
    return users
