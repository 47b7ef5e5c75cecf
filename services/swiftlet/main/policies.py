"""The storage policies of a process: a file's are looked at every few seconds, together with the rings they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import Counter

from swiftlet.errors import SettingsError
from swiftlet.main.background import in_background
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet
from swiftlet.settings import ServiceSettings
from swiftlet.settings.policies import Policies
from swiftlet.web.logs import get_logger

FAILURES = Counter("swiftlet_policies_load_failures_total", "Changed policies files that could not be used.")

_log = get_logger("policies")


def use_policies(app: web.Application, settings: ServiceSettings, rings: RingSet) -> Policies:
    """The policies of `app`; with a policies file, new ones come into force while it runs, once their ring is there."""
    policies = settings.load_policies()
    if settings.cluster.policies_file is None:
        return policies

    async def watch() -> None:
        problem = ""
        while True:
            await asyncio.sleep(settings.cluster.ring_check_interval_s)
            problem = await asyncio.to_thread(_look, policies, rings, problem)

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(watch):
            yield

    app.cleanup_ctx.append(watched)
    return policies


def _look(policies: Policies, rings: RingSet, before: str) -> str:
    """Take over what the file says; what is wrong with it, said once per problem."""
    try:
        announced = policies.announced()
    except SettingsError as error:
        if str(error) != before:
            FAILURES.inc()
            _log.warning("policies file not usable, the last good one stays in force", problem=str(error))
        return str(error)
    for policy in announced:
        rings.add(object_ring(policy.index))
    if policies.take(announced, lambda index: rings.has(object_ring(index))):
        _log.info("policies changed", names=[policy.name for policy in policies])
    return ""
