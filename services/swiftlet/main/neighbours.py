"""A replicator's view of its neighbours, and the Redis through which replicators share theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from aiohttp import web

from swiftlet.boundaries.objects import SyncTransport
from swiftlet.errors import SettingsError
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.sync.failures.neighbours import Neighbours, News, Notice, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.redis_link import RedisOptions
from swiftlet.sync.failures.redis_table import Notices, RedisTable
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.planning.progress import Progress
from swiftlet.sync.replicator import Replicator, probe
from swiftlet.web.statusz import STATUS

_RECALL_S = 3.0
"""Seconds for which the first round waits for what Redis has from before the restart."""


class LocalDevices:
    """Selects the devices of a ring whose addresses are ours."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """`addresses` are those of our devices, each as `host:port/device`."""
        self._addresses = frozenset(addresses)

    def __call__(self, ring: Ring) -> Sequence[Device]:
        """Return this process's devices in a ring."""
        return [device for device in ring.devices if device is not None and device.address in self._addresses]


def observer_of(addresses: Sequence[str], devices: Sequence[Device]) -> Observer:
    """Return the identity of this observer: the first of its nodes, and that node's failure domain in the rings."""
    name = min(address.rpartition("/")[0] for address in addresses)
    domain = next((device.node for device in devices if node_of(device) == name), name)
    return Observer(name, domain)


def make_neighbours(
    settings: ReplicatorSettings,
    addresses: Sequence[str],
    transport: SyncTransport,
    devices: Sequence[Device],
    notices: Notices,
) -> Neighbours:
    """Return the neighbours of a replicator for the devices at `addresses`; `devices` returns those that the rings have
    now.

    Notices for other replicators go to `notices`.
    """
    section = settings.replicator
    # A probe that takes as long as the pause before the next one counts as late.
    timeout_s = min(section.probe_interval_s, section.answer_timeout_s)
    return Neighbours(
        observer_of(addresses, devices),
        FailureTable(section.error_suppression_limit, section.error_suppression_interval_s),
        lambda device: probe(transport, device, timeout_s),
        section.probe_interval_s,
        tell=notices.tell,
    )


def make_redis(
    settings: ReplicatorSettings, group: str, neighbours: Neighbours, progress: Progress, notices: Notices
) -> RedisTable | None:
    """Return the table that a group of replicators shares, None without a Redis.

    Raises SettingsError when its URL is invalid.
    """
    redis, section = settings.redis, settings.replicator
    if redis.url is None:
        return None
    options = RedisOptions(
        redis.url,
        redis.password_file,
        redis.connect_timeout_s,
        redis.answer_timeout_s,
        section.heartbeat_interval_s,
        redis.ca_file,
        redis.certificate_file,
    )
    try:
        return RedisTable(options, group, neighbours, notices, progress.text)
    except ValueError as error:
        raise SettingsError(f"redis.url: {error}") from error


def report_on(app: web.Application, replicator: Replicator, redis: RedisTable | None) -> None:
    """Add the fields about rounds and neighbours to the status report."""

    def failures() -> dict[str, object]:
        state = None if redis is None else "up" if redis.is_up else "away"
        problem = None if redis is None or redis.problem is None else asdict(redis.problem)
        return {**replicator.neighbours.report(), "redis": state, "redisProblem": problem}

    app[STATUS].add("failures", failures)
    app[STATUS].add("round", replicator.progress.report)
    app[STATUS].add("lastRounds", lambda: list(replicator.progress.rounds))


async def join(replicator: Replicator, redis: RedisTable | None) -> None:
    """Tell the others that this replicator runs, and take over its earlier state, if Redis has it soon enough."""
    if redis is None:
        return
    redis.notices.tell(Notice(News.JOINED, replicator.neighbours.me.name))
    try:
        async with asyncio.timeout(_RECALL_S):
            await redis.first_try.wait()
    except TimeoutError:
        return
    replicator.progress.recall(redis.recalled)
