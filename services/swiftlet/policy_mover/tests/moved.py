"""A container of the cluster in memory that moves from policy 0 to policy 1, and passes over it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from swiftlet.errors import NotFound
from swiftlet.expiry.tests.support import queue_of
from swiftlet.model import DatabaseName, ListingQuery, ObjectInfo, ObjectRow
from swiftlet.names import Path
from swiftlet.placement.moving import Move, MovingObjects
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster
from swiftlet.policy_mover.container_pass import ContainerPass, PassReport
from swiftlet.policy_mover.rows import RowWalk

SOURCE, TARGET = 0, 1
NAME = DatabaseName(ACCOUNT, CONTAINER)
ANNOUNCED_S = 1.0


class Killed(BaseException):
    """The mover ended, as SIGKILL ends it."""


async def still_moves() -> None:
    """The container has not changed."""


async def no_pace(_size: int) -> None:
    """Go on at once."""


def path_of(name: str) -> Path:
    """An object of the container."""
    return Path(ACCOUNT, CONTAINER, name)


def moving(cluster: MemoryCluster) -> MovingObjects:
    """The container's objects as clients see them in the phase `moving`."""
    return MovingObjects(cluster.objects, Move(SOURCE, TARGET, TARGET))


def a_pass(
    cluster: MemoryCluster,
    report: PassReport,
    concurrency: int = 1,
    still: Callable[[], Awaitable[None]] = still_moves,
) -> ContainerPass:
    """A pass over the container."""
    walk = RowWalk(cluster.listing_transport, cluster.rings.container, HASH_PATH, NAME)
    queue = queue_of(cluster)
    return ContainerPass(
        walk, NAME, moving(cluster), (SOURCE, TARGET), queue, ANNOUNCED_S, still, report, no_pace, concurrency
    )


async def run(cluster: MemoryCluster, concurrency: int = 4) -> PassReport:
    """Make a pass; what it did."""
    report = PassReport()
    await a_pass(cluster, report, concurrency).move()
    return report


async def in_policy(cluster: MemoryCluster, policy: int, name: str) -> ObjectInfo | None:
    """What one policy has of an object."""
    try:
        return await cluster.objects.head(path_of(name), policy, newest=True)
    except NotFound:
        return None


async def body_of(cluster: MemoryCluster, name: str) -> bytes:
    """What a client reads."""
    download = await moving(cluster).get(path_of(name))
    return b"".join([chunk async for chunk in download.chunks()])


async def rows(cluster: MemoryCluster) -> list[ObjectRow]:
    """The container's listing."""
    _, found = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
    return [row for row in found if isinstance(row, ObjectRow)]


class Killer:
    """Ends a mover before one of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls: tuple[object, str]) -> None:
        """Count these methods of these objects."""
        self.left: int | None = None
        """Calls until the mover ends; None for never."""
        for owner, name in calls:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., object]) -> Callable[..., object]:
        async def call(*args: object, **more: object) -> object:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return await real(*args, **more)  # type: ignore[misc]

        return call


async def was_killed(work: Awaitable[object]) -> bool:
    """Whether the work ended by a kill, perhaps in one of its tasks."""
    try:
        await work
    except Killed:
        return True
    except BaseExceptionGroup as ended:
        return ended.subgroup(Killed) is not None
    return False
