"""The replicator: `swiftlet replicator`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict

from aiohttp import web

from swiftlet.context import new_request_id, request_id
from swiftlet.errors import Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.nodes import use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.rings import RingSet, use_rings
from swiftlet.main.serving import serve_app
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.sync.replicator import Replicator
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions

_log = get_logger("replicator")


def create_app(settings: ReplicatorSettings) -> web.Application:
    """An application for health and metrics, with the replicator's rounds in its background."""
    app = create_base_app(settings.service, trust_request_ids=True)
    rings = RingSet.of(settings, account=False, container=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    policies = use_policies(app, settings, rings)
    transport = use_object_transport(app, settings.cluster, settings.replicator)
    section = settings.replicator
    replicator = Replicator(_LocalDevices(section.devices), rings.objects, transport, section.concurrency)

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(lambda: _rounds(replicator, policies, section.interval_s)):
            yield

    app.cleanup_ctx.append(rounds)
    return app


class _LocalDevices:
    """Picks the devices of a ring whose addresses are ours."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = frozenset(addresses)

    def __call__(self, ring: Ring) -> Sequence[Device]:
        return [device for device in ring.devices if device is not None and device.address in self._addresses]


async def _rounds(replicator: Replicator, policies: Policies, interval_s: float) -> None:
    # Replicators that are started together should not ask the same peers at the same time ever after.
    await asyncio.sleep(interval_s * random.random())  # noqa: S311
    while True:
        began = time.monotonic()
        request_id.set(new_request_id())
        try:
            report = await replicator.run_round([policy.index for policy in policies])
        except Unavailable as error:
            _log.info("round put off", reason=str(error))
        else:
            write = _log.debug if report.clean else _log.info
            write("round", **asdict(report))
        await asyncio.sleep(max(0.0, began + interval_s - time.monotonic()))


def run(settings: ReplicatorSettings) -> int:
    """Work until asked to end; the exit code."""
    section = settings.replicator
    options = ServeOptions(drain_s=settings.drain_s)
    return serve_app(lambda: create_app(settings), section.host, section.port, options)
