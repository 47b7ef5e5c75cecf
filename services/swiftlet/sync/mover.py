"""Brings what sessions want moved: many small objects at a time where that can be done, the others one by one.

Batches are as many at a time as single objects are, and no larger than the largest of those that travel as a whole: the
bound on memory is the same. All go as fast as the budget lets them.

Fault model: a peer may be away or break off, which ends the session; the node is suspected to be out of reach. One
object that can't be had from a device, or will not be taken, keeps no other from going; if that happens often the
device is in trouble, and the session ends. What a batch tells nothing about, for whatever reason, is brought alone, and
that tells why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog

from swiftlet.errors import (
    DeviceFailed,
    NodeBusy,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotFound,
    Superseded,
    SwiftletError,
)
from swiftlet.model import ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.copies_wire import MAX_OBJECTS, Changed
from swiftlet.sync.course import Course, Outdated, as_node_error
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.report import PULLED, PULLED_BYTES, PUSHED, PUSHED_BYTES, RoundReport
from swiftlet.sync.session.answers import needs_of, partitions_of
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import Fate
from swiftlet.sync.share import Share
from swiftlet.sync.wares import Wares

MOVES_PER_SLOT = 4
"""Objects on their way at a time for each session that may be under way. Small ones are in memory as a whole."""
MAX_REFUSED = 16
"""Objects of a session that may fail on a device's side, without a reason that is theirs, before the session ends."""
_PULLED = {need: PULLED.labels(need.value) for need in Need}
_PUSHED = {need: PUSHED.labels(need.value) for need in Need}
_log = structlog.get_logger("replicator")


class Mover:
    """Moves the objects of one round."""

    def __init__(
        self,
        wares: Wares,
        report: RoundReport,
        neighbours: Neighbours,
        pace: Pace,
        outdated: Callable[[Share], bool],
    ) -> None:
        """As for `swiftlet.sync.driver.Driver`."""
        self._wares = wares
        self._report = report
        self._neighbours = neighbours
        self._pace = pace
        self._outdated = outdated
        self._moving = asyncio.Semaphore(MOVES_PER_SLOT * pace.concurrency)

    async def move_many(
        self, share: Share, course: Course, peer: int, objects: Sequence[tuple[int, Push]], pull: bool
    ) -> list[Fate]:
        """All objects (with their partitions), some at a time; what ends the session ends it once all are through."""
        partitions = Counter(partitions_of(objects))
        if pull:
            course.lacking.update(partitions)
            share.standing.lacks_many(course.lacking, partitions)
        work = _Work(share, course, peer, objects, pull)
        spots: Sequence[int] = range(len(objects))
        if self._wares.many is not None:
            await self._carry_all(work, range(0, len(objects), MAX_OBJECTS), self._bring_many)
            spots = work.alone
        await self._carry_all(work, spots, self._bring_one)
        for partition in partitions:
            share.roots.pop(partition, None)
        if work.ended:
            raise work.ended[0]
        return work.fates

    async def _carry_all(
        self, work: _Work, spots: Sequence[int], bring: Callable[[_Work, int], Awaitable[None]]
    ) -> None:
        """Bring what is at each of these spots, some at a time."""
        waiting = iter(spots)
        at_a_time = min(len(spots), MOVES_PER_SLOT * self._pace.allowed)
        await asyncio.gather(*(self._carry(work, waiting, bring) for _ in range(at_a_time)))

    async def _carry(self, work: _Work, waiting: Iterator[int], bring: Callable[[_Work, int], Awaitable[None]]) -> None:
        """One of those who carry, one thing after the other, until none waits or something ends it."""
        for spot in waiting:
            try:
                async with self._moving:
                    if work.ended:
                        return
                    await bring(work, spot)
            except SwiftletError as error:
                work.end(error)
                return

    async def _bring_many(self, work: _Work, start: int) -> None:
        assert self._wares.many is not None
        peer, source, target = self._way(work)
        batch = work.objects[start : start + MAX_OBJECTS]
        try:
            outcomes = await self._wares.many(work.share.policy, source, target, batch, self._pace.moved)
        except (NodeUnreachable, NodeTimeout):
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            _log.info("objects go one by one", source=source.name, target=target.name, reason=str(error))
            work.alone += range(start, start + len(batch))
            return
        sizes = [outcome for outcome in outcomes if isinstance(outcome, int)]
        if len(sizes) == len(batch):
            work.fates[start : start + len(batch)] = [Fate.MOVED] * len(batch)
            self._moved(work, batch, sizes)
            return
        came: list[tuple[int, Push]] = []
        try:
            for index, outcome in enumerate(outcomes, start):
                if outcome is None:
                    work.alone.append(index)
                elif isinstance(outcome, int):
                    work.fates[index] = Fate.MOVED
                    came.append(work.objects[index])
                else:
                    work.fates[index] = self._became(work, index, outcome)
        finally:
            self._moved(work, came, sizes)

    def _way(self, work: _Work) -> tuple[Device, Device, Device]:
        """The peer, and from where to where; Outdated."""
        share = work.share
        if self._outdated(share):
            raise Outdated(f"there is a newer ring of policy {share.policy}")
        peer = share.device_of(work.peer)
        return (peer, peer, share.device) if work.pull else (peer, share.device, peer)

    async def _bring_one(self, work: _Work, index: int) -> None:
        share, (partition, push) = work.share, work.objects[index]
        peer, source, target = self._way(work)
        key = ObjectKey(share.policy, partition, push.entry.digest)
        outcome: int | SwiftletError
        try:
            outcome = await self._wares.carry(share, source, target, key, push, self._pace.moved)
        except (NodeUnreachable, NodeTimeout):
            # It may be this side's own device that is away.
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            outcome = error
        work.fates[index] = self._became(work, index, outcome)

    def _became(self, work: _Work, index: int, outcome: int | SwiftletError) -> Fate:
        """An object's fate by the bytes that went or by what kept it; raises when there was too much of that."""
        course, (partition, push) = work.course, work.objects[index]
        if isinstance(outcome, int):
            self._moved(work, [(partition, push)], [outcome])
            return Fate.MOVED
        key = push.entry.digest.hex()
        if isinstance(outcome, Superseded | NotFound | Changed):
            _log.debug("overtaken", peer=work.peer, key=key, reason=str(outcome))
            if work.pull:
                course.lacking[partition] -= 1
                work.share.standing.lacks_many(course.lacking, (partition,))
            return Fate.OVERTAKEN
        _log.warning("object refused", peer=work.peer, pull=work.pull, key=key, error=str(outcome))
        course.unsent[work.peer] += 1
        if isinstance(outcome, NodeError | DeviceFailed) and course.unsent[work.peer] > MAX_REFUSED:
            raise as_node_error(outcome) from outcome
        return Fate.REFUSED

    def _moved(self, work: _Work, came: Sequence[tuple[int, Push]], sizes: Sequence[int]) -> None:
        """Count objects that arrived, and the bytes of each."""
        course = work.course
        if work.pull:
            partitions = Counter(partitions_of(came))
            course.pulled.update(partitions)
            course.lacking.subtract(partitions)
            work.share.standing.lacks_many(course.lacking, partitions)
            self._report.pulled += len(came)
        else:
            course.pushed[work.peer] += len(came)
            self._report.pushed += len(came)
        for need, count in Counter(needs_of(came)).items():
            (_PULLED if work.pull else _PUSHED)[need].inc(count)
        (PULLED_BYTES if work.pull else PUSHED_BYTES).inc(sum(sizes))


class _Work:
    """What is to be moved, and what came of it so far."""

    def __init__(
        self, share: Share, course: Course, peer: int, objects: Sequence[tuple[int, Push]], pull: bool
    ) -> None:
        self.share = share
        self.course = course
        self.peer = peer
        self.objects = objects
        self.pull = pull
        self.fates = [Fate.OVERTAKEN] * len(objects)
        self.alone: list[int] = []
        """What no batch could bring."""
        self.ended: list[SwiftletError] = []

    def end(self, error: SwiftletError) -> None:
        """Something has happened that ends the session."""
        self.course.troubled.add(self.peer)
        self.ended.append(error)
