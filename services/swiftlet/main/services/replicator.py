"""The replicator: `swiftlet replicator`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

from aiohttp import web

from swiftlet.context import new_request_id, request_id
from swiftlet.errors import SettingsError, Unavailable
from swiftlet.main.background import in_background
from swiftlet.main.garbage_collection import collect_garbage_seldom
from swiftlet.main.moves_report import report_moves
from swiftlet.main.neighbours import join, make_redis, report_on
from swiftlet.main.routing import REMEMBERED_S
from swiftlet.main.services.replicated import Work, use_work
from swiftlet.main.services.serving import serve_app
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.failures.redis_table import RedisTable
from swiftlet.sync.planning.report import RegionGauges, RoundReport
from swiftlet.sync.planning.tasks import Selection
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS

_log = get_logger("replicator")


def create_app(settings: ReplicatorSettings) -> web.Application:
    """Return an application for health, metrics and status, with the replicator's rounds in its background."""
    app = create_base_app(settings.service, trust_request_ids=True)
    work = use_work(app, settings)
    replicator = work.replicator
    redis = make_redis(settings, work.group, replicator.neighbours, replicator.progress, work.notices)
    # Expirers, reapers and container sync have caches.
    caches = settings.expirer.enabled or settings.reaper.enabled or settings.realms.file is not None
    report_moves(app, REMEMBERED_S if caches else 0.0)
    app[STATUS].add("devices", lambda: replicator.standings.report(work.ring_name))
    gauges = RegionGauges()
    report_on(app, replicator, redis)
    if work.repairer is not None:
        app[STATUS].add("repairs", work.repairer.status)
    if work.packs is not None:
        app[STATUS].add("packs", work.packs.status)
        app[STATUS].add("packing", work.packs.running)

    def show() -> None:
        regions = replicator.standings.regions()
        gauges.show({(work.ring_name(policy), region): one for (policy, region), one in regions.items()})

    async def rounds(_app: web.Application) -> AsyncIterator[None]:
        collect_garbage_seldom()
        async with (
            in_background(lambda: replicate(work, redis, show)),
            in_background(lambda: repair(work, show)),
            in_background(lambda: pack(work)),
        ):
            yield

    app.cleanup_ctx.append(rounds)
    return app


_LOOK_S = 1.0
"""Seconds between checks whether the local devices answer, or whether there is a new ring."""
_JITTER = 0.25
"""The share of the interval by which pauses differ, so that replicators don't ask the same peers at once in every
round.
"""


async def replicate(work: Work, redis: RedisTable | None, after: Callable[[], None]) -> None:
    """Do rounds until cancelled: the first one as soon as a local device answers, others about every `interval_s`.
    `after` is called after each.

    A round follows at once when rings change, since what was equal under the old ring proves nothing for the new one;
    and when a neighbour is back.
    """
    replicator = work.replicator
    while not await replicator.is_served(work.indexes()):  # noqa: ASYNC110 - another process, it tells nobody
        await asyncio.sleep(min(_LOOK_S, work.interval_s))
    for index in work.indexes():
        replicator.know(index)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(in_background(replicator.neighbours.watch))
        if redis is not None:
            await stack.enter_async_context(in_background(redis.run))
        await join(replicator, redis)
        await _rounds(work, after)


async def _rounds(work: Work, after: Callable[[], None]) -> None:
    replicator = work.replicator
    while True:
        next_round = time.monotonic() + work.interval_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
        seen = work.rings.versions()
        request_id.set(new_request_id())
        report = await replicator.run_round(work.indexes())
        after()
        write = _log.debug if report.clean else _log.info
        write("round", **asdict(report))
        while (
            work.rings.versions() == seen
            and time.monotonic() < next_round
            and not replicator.neighbours.somebody_is_back
            and not await replicator.proof_is_due(work.indexes())
        ):
            await replicator.neighbours.wait_for_back(max(0.0, min(_LOOK_S, next_round - time.monotonic())))


async def repair(work: Work, after: Callable[[], None]) -> None:
    """Repair objects with erasure coding about every `interval_s`, until cancelled; `after` is called after each round.

    A round follows at once when rings change, and when the last one has left something that it could do.
    """
    if work.repairer is None:
        return
    while not await work.replicator.is_served(work.coded()):  # noqa: ASYNC110 - another process, it tells nobody
        await asyncio.sleep(min(_LOOK_S, work.interval_s))
    while True:
        next_round = time.monotonic() + work.interval_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
        seen = work.rings.versions()
        request_id.set(new_request_id())
        report = await work.repairer.run_round(work.coded())
        after()
        write = _log.debug if report.clean else _log.info
        write("round of repairs", **asdict(report))
        if report.goes_on:
            continue
        while work.rings.versions() == seen and (left_s := next_round - time.monotonic()) > 0:  # noqa: ASYNC110 - rings tell nobody
            await asyncio.sleep(min(_LOOK_S, left_s))


async def pack(work: Work) -> None:
    """Pack small objects with erasure coding about every `interval_s`, until cancelled: beside the rounds of repairs,
    which do not wait for it.
    """
    if work.packs is None:
        return
    while not await work.replicator.is_served(work.coded()):  # noqa: ASYNC110 - another process, it tells nobody
        await asyncio.sleep(min(_LOOK_S, work.interval_s))
    while True:
        next_round = time.monotonic() + work.interval_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311
        request_id.set(new_request_id())
        report = await work.packs.run_round(work.coded())
        write = _log.info if report.members or report.retired or report.failed else _log.debug
        write("round of packing", **asdict(report))
        await asyncio.sleep(max(0.0, next_round - time.monotonic()))


@dataclass(frozen=True, slots=True)
class ByHand:
    """The results of a round that was asked for by hand."""

    copies: RoundReport
    """The report about policies with copies, or about databases; if there are none, nothing was compared."""
    coded: CodedReport | None
    """The report about policies with erasure coding; None if there are no such policies."""

    @property
    def is_whole(self) -> bool:
        """Whether everything was compared, and nothing is known to be left to do."""
        copies, coded = self.copies, self.coded
        are_equal = not (copies.failed or copies.skipped) and copies.whole
        return are_equal and (coded is None or not (coded.failed or coded.unchecked or coded.left or coded.unreturned))


async def run_once(
    settings: ReplicatorSettings, partitions: Collection[int], node: str | None, policy: str | None
) -> ByHand:
    """Do one round of the selected partitions and peers. With a node, policies with erasure coding are left out.

    Raises SettingsError for a name that does not exist, or for a node and such a policy, and Unavailable without a ring
    or a device.
    """
    app = create_base_app(settings.service, trust_request_ids=True)
    work = use_work(app, settings, by_hand=True)
    indexes, coded = work.chosen(policy)
    if node is not None and not indexes:
        raise SettingsError(f"--node: {policy} has erasure coding, whose places are compared with all others; omit it")
    coded = [] if node is not None else coded
    replicator = work.replicator
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        devices = {device for index in [*indexes, *coded] for device in work.ring(index).devices if device is not None}
        if node is not None and not any(_is_at(device, node) for device in devices):
            raise SettingsError(f"--node {node}: no device of the rings has that name, address, node or host")
        if not await replicator.is_served([*indexes, *coded]):
            raise Unavailable("no local device answers; are the servers of the devices running?")
        chosen = frozenset(partitions) or None
        peers = None if node is None else lambda device: _is_at(device, node or "")
        copies = await replicator.run_round(indexes, Selection(chosen, peers)) if indexes else RoundReport()
        repaired = await work.repairer.run_round(coded, chosen) if coded and work.repairer is not None else None
        return ByHand(copies, repaired)
    finally:
        await runner.cleanup()


def _is_at(device: Device, name: str) -> bool:
    return name in (device.name, device.address, device.node, device.host, node_of(device))


def run(settings: ReplicatorSettings) -> int:
    """Work until asked to end; return the exit code."""
    section = settings.replicator
    options = ServeOptions(drain_s=settings.drain_s)
    return serve_app(lambda: create_app(settings), section.host, section.port, options)
