"""The account reaper over a cluster in memory, with databases away and with itself killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.quotas import connect_accounts
from swiftlet.errors import NotFound
from swiftlet.expiry.reaper import Reaper, ReaperQueue, ReaperReport, marked_at
from swiftlet.main.routing import routed_in_background
from swiftlet.model import ListingQuery
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.moving import Move, Moved, MovingObjects
from swiftlet.placement.routing import AnyObjects
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster, at, memory_cluster
from swiftlet.placement.tests.phases import bring
from swiftlet.policy_moves import Phase
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies
from swiftlet.settings.reaper import ReaperSection
from swiftlet.timestamp import TimestampClock

NODES = [f"h{number}:6200" for number in range(5)]
CLOCK = TimestampClock()
HIDDEN = "\0versions\0c1"


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        await made.listings.put_account(ACCOUNT, at(1), {})
        reporters = connect_accounts(made)
        for container in ("c1", "c2", HIDDEN):
            await made.make_container(container)
            for number in range(4):
                name = f"\0o\0{number:020d}" if container == HIDDEN else f"o{number}"
                await made.put(2, path=Path(ACCOUNT, container, name))
        yield made
        for reporter in reporters:
            await reporter.stop()


def reaper(
    cluster: MemoryCluster,
    objects: AnyObjects | None = None,
    mine: list[str] = NODES,
    delay_s: float = 0.0,
    now_s: float | None = None,
) -> Reaper:
    section = ReaperSection(delay_s=delay_s, objects_per_second=100_000)
    now = CLOCK.now().seconds + 1 if now_s is None else now_s
    used = objects or cluster.objects
    return Reaper(cluster.listings, used, section, lambda: NODES, mine, CLOCK.next, lambda: now)


def queue(cluster: MemoryCluster) -> ReaperQueue:
    return ReaperQueue(cluster.listings, CLOCK.next)


async def left(cluster: MemoryCluster) -> int:
    """Objects of the account that some device still has."""
    count = 0
    for container in ("c1", "c2", HIDDEN):
        for number in range(4):
            name = f"\0o\0{number:020d}" if container == HIDDEN else f"o{number}"
            count += bool(cluster.holders(Path(ACCOUNT, container, name)))
    return count


async def test_everything_goes_and_then_the_account(cluster: MemoryCluster) -> None:
    await queue(cluster).delete(ACCOUNT)
    assert marked_at(await cluster.listings.account_info(ACCOUNT)) is not None
    report = await reaper(cluster).run_round()
    assert report == ReaperReport(accounts=1, containers=3, objects=12)
    assert await left(cluster) == 0
    with pytest.raises(NotFound):
        await cluster.listings.account_info(ACCOUNT)
    assert (await reaper(cluster).run_round()).clean
    assert [row async for row in queue(cluster).waiting()] == []
    await cluster.listings.put_account(ACCOUNT, CLOCK.next(), {})
    info, rows = await cluster.listings.list_containers(ACCOUNT, ListingQuery())
    assert marked_at(info) is None
    assert rows == []


async def test_nothing_goes_before_its_time_nor_without_a_mark(cluster: MemoryCluster) -> None:
    await queue(cluster).delete(ACCOUNT)
    report = await reaper(cluster, delay_s=3600).run_round()
    assert report == ReaperReport(waiting=1)
    await cluster.listings.post_account(ACCOUNT, CLOCK.next(), {"X-Account-Sysmeta-Deleted-At": ""})
    assert (await reaper(cluster).run_round()).clean
    assert await left(cluster) == 12
    later = CLOCK.now().seconds + 100_000
    assert (await reaper(cluster, now_s=later).run_round()).clean
    assert [row async for row in queue(cluster).waiting()] == []
    assert await left(cluster) == 12


class Killed(Exception):
    """The process ends here."""


class DyingObjects:
    """Deletes so many objects and then takes the process down."""

    def __init__(self, objects: ClusterObjects, after: int) -> None:
        self.objects = objects
        self.after = after

    async def delete(self, *place: object) -> object:
        self.after -= 1
        if self.after < 0:
            raise Killed
        return await self.objects.delete(*place)  # type: ignore[arg-type]


async def test_killed_at_each_object_it_goes_on_where_it_was(cluster: MemoryCluster) -> None:
    await queue(cluster).delete(ACCOUNT)
    for after in range(4):
        dying = DyingObjects(cluster.objects, after)
        with pytest.raises(BaseExceptionGroup):
            await reaper(cluster, dying).run_round()  # type: ignore[arg-type]
    report = await reaper(cluster).run_round()
    assert report.accounts == 1
    assert await left(cluster) == 0


async def test_two_reapers_and_objects_that_are_gone(cluster: MemoryCluster) -> None:
    await queue(cluster).delete(ACCOUNT)
    await cluster.objects.delete(Path(ACCOUNT, "c1", "o1"), 0, at(3))
    for _ in range(2):
        await reaper(cluster, mine=NODES[:2]).run_round()
        await reaper(cluster, mine=NODES[2:], now_s=CLOCK.now().seconds + 10_000).run_round()
    assert await left(cluster) == 0
    with pytest.raises(NotFound):
        await cluster.listings.account_info(ACCOUNT)


async def test_what_can_not_be_removed_waits(cluster: MemoryCluster) -> None:
    await queue(cluster).delete(ACCOUNT)
    with cluster.down(*cluster.devices):
        report = await reaper(cluster).run_round()
    assert report.failed >= 12
    assert report.accounts == 0
    assert (await reaper(cluster).run_round()).accounts == 1
    assert await left(cluster) == 0


@pytest.mark.parametrize("phase", Phase)
async def test_objects_of_containers_that_move_go_from_both_policies(cluster: MemoryCluster, phase: Phase) -> None:
    for container in ("c1", HIDDEN):
        await bring(cluster, phase, container)
    moved = [Path(ACCOUNT, "c1", "o0"), Path(ACCOUNT, HIDDEN, f"\0o\0{0:020d}")]

    async def no_pace(_size: int) -> None:
        return None

    for path in moved:
        assert await MovingObjects(cluster.objects, Move(0, 1, 1)).move(path, no_pace) is Moved.MOVED
    await queue(cluster).delete(ACCOUNT)
    policies = Policies([PolicySection(index=0, name="gold", default=True), PolicySection(index=1, name="silver")])
    objects = routed_in_background(cluster.objects, cluster.listings, policies)
    assert await reaper(cluster, objects).run_round() == ReaperReport(accounts=1, containers=3, objects=12)
    assert await left(cluster) == 0
    for path in moved:
        with pytest.raises(NotFound):
            await cluster.objects.head(path, 1, newest=True)
