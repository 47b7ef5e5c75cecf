"""What `swiftlet policy move` is built from: the cluster as a member of it reads and writes it, and a mover on top.

Fault model: that of `swiftlet.policy_mover`. The process may be ended at any time and started again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import web

from swiftlet.api.http.reserved import versions_container
from swiftlet.errors import NotFound, SettingsError, Unavailable
from swiftlet.expiry.expirer import Pace
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.main.cluster import finish_slow_replicas, use_cluster
from swiftlet.main.commands.moves_known import KnownMoves
from swiftlet.main.commands.policy_usage import find
from swiftlet.main.nodes import use_listing_transport, use_node_client, use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.rings import RingSet, use_rings
from swiftlet.model import DatabaseId, DatabaseName
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.moving import Move, MovingObjects
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.policy_mover.container_pass import ContainerPass, PassReport
from swiftlet.policy_mover.mover import TOGETHER, Mover, Told
from swiftlet.policy_mover.phases import CanNotMove, Phases
from swiftlet.policy_mover.rows import RowWalk
from swiftlet.policy_mover.states import MoveStates
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.ring.model import Device
from swiftlet.settings import ProxySettings
from swiftlet.settings.policies import Policies
from swiftlet.timestamp import TimestampClock
from swiftlet.web.app import create_base_app

PAGE = 1000
"""Containers that are listed at a time."""
ATTEMPTS = 6
"""The number of devices that a deletion or a POST may have to wait for one after the other, in both policies together:
more than one handoff for each is not reckoned with.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which containers are to be moved where.

    `account` and `container` restrict the move, None to nothing. `rate` is bytes per second, None for no limit.
    `again` looks through settled containers, too.
    """

    source: str
    target: str
    account: str | None = None
    container: str | None = None
    rate: int | None = None
    services: Sequence[str] = ()
    together: int = TOGETHER
    again: bool = False


@dataclass(slots=True)
class Moving:
    """A mover with all that it needs, while its connections are open."""

    mover: Mover
    phases: Phases
    listed: Callable[[], AsyncIterator[DatabaseName]]
    make_pass: Callable[[DatabaseName, PolicyMove, PassReport], ContainerPass]
    services_s: Callable[[], Awaitable[float]]
    """Returns what `KnownMoves.services_s` does."""
    objects: ClusterObjects


def policy_index(policies: Policies, name: str, argument: str) -> int:
    """Return the index of a policy. Raises SettingsError, which names the argument."""
    policy = policies.named(name)
    if policy is None:
        known = ", ".join(one.name for one in policies)
        raise SettingsError(f"{argument}: there is no policy {name}; the policies are: {known}")
    return policy.index


def checked(policies: Policies, source: str, target: str) -> tuple[int, int]:
    """Return the indexes of both policies. Raises SettingsError when containers can't move from one to the other."""
    indexes = policy_index(policies, source, "SOURCE"), policy_index(policies, target, "TARGET")
    if indexes[0] == indexes[1]:
        raise SettingsError(f"TARGET: {target} is the policy that the containers have; name another one")
    into = policies.at(indexes[1])
    assert into is not None
    if into.deprecated:
        raise SettingsError(f"TARGET: policy {into.name} is deprecated and takes no new containers; name another one")
    return indexes


@asynccontextmanager
async def moving(settings: ProxySettings, wanted: Wanted, tell: Callable[[Told], None]) -> AsyncIterator[Moving]:
    """Open the cluster to move containers. Raises SettingsError and Unavailable."""
    app = create_base_app(settings.service, trust_request_ids=False)
    cluster, section = settings.cluster, settings.proxy
    rings = RingSet.of(settings)
    use_rings(app, rings, cluster.ring_check_interval_s)
    policies = use_policies(app, settings, rings)
    source, target = checked(policies, wanted.source, wanted.target)
    for index in (source, target):
        rings.objects(index)
    waits = RowWaits(section.row_wait_s, section.post_quorum_wait_s)
    objects_transport = use_object_transport(app, cluster, section, "mover")
    listings, objects, rows, _ = use_cluster(app, cluster, section, waits, rings, objects_transport, policies)
    finish_slow_replicas(app, settings.drain_s, rows.drain)
    transport = use_listing_transport(app, cluster, section)
    clock = TimestampClock()
    requests_s = ATTEMPTS * (section.connect_timeout_s + section.answer_timeout_s)
    kinds = ["proxy", "replicator", *(["metadata"] if cluster.direct_access else [])]
    known = KnownMoves(
        use_node_client(app, cluster, section), lambda: _servers(rings, policies), wanted.services, requests_s, kinds
    )
    states = MoveStates(transport, rings.container, cluster.hash_path, clock)
    phases = Phases(states, source, target, known.services_s, time.time, policies.name_of)
    queue, pace = ExpiryQueue(listings, clock.next), pace_of(wanted.rate)

    def make_pass(container: DatabaseName, move: PolicyMove, report: PassReport) -> ContainerPass:
        return ContainerPass(
            RowWalk(transport, rings.container, cluster.hash_path, container),
            container,
            MovingObjects(objects, Move.of(move)),
            (source, target),
            queue,
            (move.announced or move.since).seconds,
            lambda: phases.still(container),
            report,
            pace,
        )

    def listed() -> AsyncIterator[DatabaseName]:
        return containers(settings, listings, wanted, (source, target))

    mover = Mover(phases, make_pass, tell, time.time, asyncio.sleep, wanted.together, wanted.again)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        if wanted.account is not None and wanted.container is not None:
            await _check(phases, DatabaseName(wanted.account, wanted.container))
        yield Moving(mover, phases, listed, make_pass, known.services_s, objects)
    finally:
        await runner.cleanup()


async def _check(phases: Phases, container: DatabaseName) -> None:
    try:
        await phases.standing(container)
    except NotFound:
        raise SettingsError(
            f"--container: account {container.account} has no container {container.container}"
        ) from None
    except CanNotMove as problem:
        raise SettingsError(f"--container: {problem}") from problem


def pace_of(rate: int | None) -> Callable[[int], Awaitable[None]]:
    """Return what limits bytes to so many per second; None is no limit."""
    if rate is not None:
        return Pace(rate).wait

    async def at_once(_size: int) -> None:
        return None

    return at_once


def _servers(rings: RingSet, policies: Policies) -> Iterator[Device]:
    """Yield the devices of all rings: their servers have to know of moves."""
    for ring in (rings.account(), rings.container(), *(rings.objects(policy.index) for policy in policies)):
        yield from (device for device in ring.devices if device is not None)


async def containers(
    settings: ProxySettings, listings: ClusterListings, wanted: Wanted, policies: tuple[int, int]
) -> AsyncIterator[DatabaseName]:
    """Yield the containers that are to be moved, or have been: the named one with its hidden one for versions, or all
    of the source policy. Raises Unavailable when some may be missing.
    """
    if wanted.account is not None and wanted.container is not None:
        async for one in _named(listings, wanted.account, wanted.container):
            yield one
        return
    after: DatabaseId | None = None
    while True:
        page = await find(settings, wanted.source, after, PAGE, moved=True)
        for found in page.containers:
            move = found.move
            is_elsewhere = move is not None and move.phase is Phase.SETTLED and move.policy not in policies
            if wanted.account in (None, found.name.account) and not is_elsewhere:
                yield found.name
        if not page.is_whole:
            raise Unavailable(f"containers may be missing: too many servers could not be asked: {page.unheard}")
        after = page.more
        if after is None:
            return


async def _named(listings: ClusterListings, account: str, container: str) -> AsyncIterator[DatabaseName]:
    for name in (container, versions_container(container)):
        with suppress(NotFound):
            await listings.container_info(account, name)
            yield DatabaseName(account, name)
