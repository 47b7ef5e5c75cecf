"""The replicator: `swiftlet replicator`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict

from aiohttp import web

from swiftlet.context import new_request_id, request_id
from swiftlet.errors import SettingsError, Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.expirer import use_expirer
from swiftlet.main.neighbours import LocalDevices, join, make_neighbours, make_redis, report_on
from swiftlet.main.nodes import use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet, use_rings
from swiftlet.main.serving import serve_app
from swiftlet.peers import ObjectTransport
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.settings.policies import Policies
from swiftlet.sync.cases import Selection
from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.failures.redis_table import RedisTable
from swiftlet.sync.pacing import Pace
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.report import RoundReport
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS

_log = get_logger("replicator")


def create_app(settings: ReplicatorSettings) -> web.Application:
    """An application for health, metrics and status, with the replicator's rounds in its background."""
    app = create_base_app(settings.service, trust_request_ids=True)
    rings = RingSet.of(settings, account=False, container=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    policies = use_policies(app, settings, rings)
    transport = use_object_transport(app, settings.cluster, settings.replicator, settings.service)
    section = settings.replicator
    replicator = make_replicator(settings, rings, policies, transport)
    use_expirer(app, settings, rings, policies, transport)
    redis = make_redis(settings, replicator.neighbours, replicator.progress)
    app[STATUS].add("devices", lambda: replicator.standings.report(object_ring))
    report_on(app, replicator, redis)

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(lambda: replicate(replicator, policies, section.interval_s, rings.versions, redis)):
            yield

    app.cleanup_ctx.append(rounds)
    return app


def make_replicator(
    settings: ReplicatorSettings, rings: RingSet, policies: Policies, transport: ObjectTransport
) -> Replicator:
    """A replicator for the devices that the settings name."""
    section = settings.replicator
    local = LocalDevices(section.devices)
    known = [device for policy in policies for device in _devices(rings, local, policy.index)]
    return Replicator(
        local,
        rings.objects,
        transport,
        reclaim_age_s=settings.cluster.reclaim_age_s,
        pace=Pace(section.concurrency, section.bytes_per_s),
        neighbours=make_neighbours(settings, transport, known),
        mode=ROUND_MODES[section.mode],
    )


def _devices(rings: RingSet, local: LocalDevices, policy: int) -> Sequence[Device]:
    try:
        return local(rings.objects(policy))
    except Unavailable:
        return []


_LOOK_S = 1.0
"""Seconds between looks whether the local devices answer, or whether there is a new ring."""
_JITTER = 0.25
"""Share of the interval by which pauses differ, so that replicators don't ask the same peers at once ever after."""


async def replicate(
    replicator: Replicator,
    policies: Policies,
    interval_s: float,
    rings: Callable[[], object],
    redis: RedisTable | None = None,
) -> None:
    """Rounds until cancelled: the first one as soon as a local device answers, others every `interval_s` or so.

    A round follows at once on a change of `rings()`: what was equal under the old ring proves nothing for the new one;
    and when a neighbour is back.
    """
    while not await replicator.is_served(_indexes(policies)):  # noqa: ASYNC110 - another process, it tells nobody
        await asyncio.sleep(min(_LOOK_S, interval_s))
    for policy in _indexes(policies):
        replicator.know(policy)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(in_background(replicator.neighbours.watch))
        if redis is not None:
            await stack.enter_async_context(in_background(redis.run))
        await join(replicator, redis)
        await _rounds(replicator, policies, interval_s, rings)


async def _rounds(replicator: Replicator, policies: Policies, interval_s: float, rings: Callable[[], object]) -> None:
    while True:
        next_round = time.monotonic() + interval_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
        seen = rings()
        request_id.set(new_request_id())
        report = await replicator.run_round(_indexes(policies))
        write = _log.debug if report.clean else _log.info
        write("round", **asdict(report))
        while rings() == seen and time.monotonic() < next_round and not replicator.neighbours.somebody_is_back:
            await replicator.neighbours.wait_for_back(max(0.0, min(_LOOK_S, next_round - time.monotonic())))


def _indexes(policies: Policies) -> list[int]:
    return [policy.index for policy in policies]


async def run_once(
    settings: ReplicatorSettings, partitions: Collection[int], node: str | None, policy: str | None
) -> RoundReport:
    """One round, of what was asked for; SettingsError for what there is not, Unavailable without a ring or a device."""
    app = create_base_app(settings.service, trust_request_ids=True)
    rings = RingSet.of(settings, account=False, container=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    policies = use_policies(app, settings, rings)
    indexes = [found.index for found in policies if policy is None or found.name.lower() == policy.lower()]
    if not indexes:
        known = ", ".join(found.name for found in policies)
        raise SettingsError(f"--policy {policy}: there is no such policy, only {known}")
    transport = use_object_transport(app, settings.cluster, settings.replicator, settings.service)
    replicator = make_replicator(settings, rings, policies, transport)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        devices = {device for index in indexes for device in rings.objects(index).devices if device is not None}
        if node is not None and not any(_is_at(device, node) for device in devices):
            raise SettingsError(f"--node {node}: no device of the rings has that name, address, node or host")
        if not await replicator.is_served(indexes):
            raise Unavailable("no local device answers; is the object server running?")
        return await replicator.run_round(
            indexes,
            Selection(
                frozenset(partitions) or None, None if node is None else lambda device: _is_at(device, node or "")
            ),
        )
    finally:
        await runner.cleanup()


def _is_at(device: Device, name: str) -> bool:
    return name in (device.name, device.address, device.node, device.host, node_of(device))


def run(settings: ReplicatorSettings) -> int:
    """Work until asked to end; the exit code."""
    section = settings.replicator
    options = ServeOptions(drain_s=settings.drain_s)
    return serve_app(lambda: create_app(settings), section.host, section.port, options)
