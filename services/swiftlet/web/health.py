"""`/healthz`: the process answers. `/readyz`: it can serve, and is not on its way out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

Check = Callable[[], "str | Awaitable[str | None] | None"]
"""A function that returns why the service can't serve now, or None."""


@dataclass(slots=True)
class Readiness:
    """Whether this process should get requests; `draining` is True once it was asked to end."""

    draining: bool = False
    checks: dict[str, Check] = field(default_factory=dict)

    def add(self, name: str, check: Check) -> None:
        """Add a check, which is called for each answer of `/readyz`."""
        self.checks[name] = check

    async def reasons(self) -> list[str]:
        """Return the reasons why the service is not ready; none if it is."""
        found = ["draining: the process is about to end"] if self.draining else []
        for name, check in self.checks.items():
            reason = check()
            if inspect.isawaitable(reason):
                reason = await reason
            if reason is not None:
                found.append(f"{name}: {reason}")
        return found


READINESS = web.AppKey("readiness", Readiness)


def add_health_routes(app: web.Application) -> None:
    """Add the routes of Kubernetes' probes to an application."""
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    reasons = await request.app[READINESS].reasons()
    if reasons:
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))
    return web.Response(text="ready\n")
