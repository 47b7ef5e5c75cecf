"""One pass over a container that moves: each object that its source policy still has is moved, and deletions that
somebody may have left half done are completed.

A pass may end at any point and be repeated: a row whose object has been moved before costs one question. An object that
can't be moved is named and stays where it is, and the pass goes on with the next one; the caller begins another pass.
After `MAX_FAILED` of them a pass is broken off, because then it is not single objects that are at fault.

A container may be deleted during a pass, and created again with the same name and another policy. Then what is found in
the source belongs there. Therefore, before an object is copied, the container is asked whether it still moves: what was
found before a positive answer was there while it moved.

Fault model: devices of either policy, replicas of databases, and this process may fail at any call. Several passes over
one container, by whatever processes, don't harm each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from swiftlet.api.http.reserved import is_reserved
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.expiry.expirer import LONGEST_UPLOAD_S
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.tasks import Task, delete_at_of
from swiftlet.model import DatabaseName, ObjectInfo, ObjectRow
from swiftlet.names import Path
from swiftlet.placement.moving import Moved, MovingObjects, moment_after
from swiftlet.policy_mover.fence import Fence
from swiftlet.policy_mover.rows import RowWalk

CONCURRENCY = 8
"""Objects of a container that are moved at the same time."""
MAX_FAILED = 1000
"""Objects that could not be moved after which a pass is broken off; as many are named."""
CLOCKS_S = 3600.0
"""Seconds by which the clocks of services are taken to differ at most, where it is decided which deletions are old."""


class NoLongerMoves(SwiftletError):
    """The container was deleted, or has another state than at the beginning of the pass."""


Bytes = Callable[[int], Awaitable[None]]
"""Awaited with a number of bytes before these are sent."""


@dataclass(slots=True)
class PassReport:
    """What one pass has done so far."""

    rows: int = 0
    """Objects in the listing that were looked at."""
    markers: int = 0
    """Deletions that were looked at."""
    moved: int = 0
    bytes: int = 0
    """Bytes that were sent to the target."""
    left: int = 0
    """Objects that the source has; only a pass that moves nothing counts them."""
    completed: int = 0
    """Deletions of which something was left."""
    failed: dict[str, str] = field(default_factory=dict)
    """The objects that could not be moved, with the reasons."""
    unheard: dict[str, str] = field(default_factory=dict)
    """Replicas of the listing that could not be read, with the reasons."""

    @property
    def is_whole(self) -> bool:
        """Whether all rows of all replicas have been dealt with."""
        return not self.failed and not self.unheard

    @property
    def found_nothing(self) -> bool:
        """Whether it proves that the source has nothing of what is listed."""
        return self.is_whole and not (self.moved or self.left or self.completed)


class ContainerPass:
    """One pass over one container."""

    def __init__(
        self,
        walk: RowWalk,
        container: DatabaseName,
        objects: MovingObjects,
        policies: tuple[int, int],
        queue: ExpiryQueue,
        announced_s: float,
        still: Callable[[], Awaitable[None]],
        report: PassReport,
        pace: Bytes,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """`walk` yields the container's rows. `policies` are the source and the target. `announced_s` is when the move
        was announced, in seconds since the epoch. `still` raises NoLongerMoves. What is done is told to `report` at
        once.
        """
        self._walk, self._container, self._objects, self._queue = walk, container, objects, queue
        self._source, self._target = policies
        # A deletion by the expirer is as old as the object, but not older than the longest upload takes.
        self._old_s = announced_s - LONGEST_UPLOAD_S - CLOCKS_S
        self._report, self._pace = report, pace
        self._fence = Fence(still)
        self._gate = asyncio.Semaphore(concurrency)

    async def move(self) -> None:
        """Move what the source has. Raises NotFound without the container, NoLongerMoves, and Unavailable when its
        listing can't be read or too much fails.
        """
        await self._each(self._move)

    async def look(self) -> None:
        """Count what the source has, and change nothing; as `move` otherwise."""
        await self._each(self._look)

    async def _each(self, work: Callable[[Path, ObjectRow], Awaitable[None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                async for rows in self._walk.pages():
                    for row in rows:
                        if row.deleted and row.timestamp.seconds < self._old_s:
                            continue
                        await self._gate.acquire()
                        group.create_task(self._one(work, row))
                        if len(self._report.failed) >= MAX_FAILED:
                            raise Unavailable(f"{MAX_FAILED} objects could not be moved; the pass is broken off")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        finally:
            self._report.unheard |= self._walk.unheard

    async def _one(self, work: Callable[[Path, ObjectRow], Awaitable[None]], row: ObjectRow) -> None:
        path = Path(self._container.account, self._container.container, row.name)
        try:
            await work(path, row)
        except NoLongerMoves:
            raise
        except SwiftletError as error:
            self._report.failed[row.name] = str(error)
        finally:
            self._gate.release()
        self._report.rows += not row.deleted
        self._report.markers += row.deleted

    async def _look(self, path: Path, _row: ObjectRow) -> None:
        is_there = await self._objects.left(path) is not None
        self._report.left += is_there

    async def _move(self, path: Path, row: ObjectRow) -> None:
        if row.deleted:
            was_left = await self._objects.delete_again(path, row.timestamp)
            self._report.completed += was_left
            # The source may have a newer object, whose row is on its way.
        replaced: list[Task] = []

        async def prepare(info: ObjectInfo) -> None:
            await self._fence.passed()
            delete_at = None if is_reserved(path) else delete_at_of(info.metadata)
            if delete_at is None:
                return
            await self._queue.add(Task(delete_at, path, self._target, moment_after(info.modified)))
            replaced.append(Task(delete_at, path, self._source, info.modified))

        async def pace(size: int) -> None:
            await self._pace(size)
            self._report.bytes += size

        if await self._objects.move(path, pace, prepare) is Moved.MOVED:
            self._report.moved += 1
            for task in replaced:
                await self._queue.remove(task.container, [task])
