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
from collections.abc import Callable, Iterator, Sequence

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
from swiftlet.sync.compare import Need, Push
from swiftlet.sync.copies_wire import MAX_OBJECTS, Changed
from swiftlet.sync.course import Course, Outdated, as_node_error
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.report import PULLED, PULLED_BYTES, PUSHED, PUSHED_BYTES, RoundReport
from swiftlet.sync.session.effects import Fate, Move
from swiftlet.sync.share import Share
from swiftlet.sync.wares import Wares

MOVES_PER_SLOT = 4
"""Objects on their way at a time for each session that may be under way. Small ones are in memory as a whole."""
MAX_REFUSED = 16
"""Objects of a session that may fail on a device's side, without a reason that is theirs, before the session ends."""
_PULLED = {need: PULLED.labels(need.value) for need in Need}
_PUSHED = {need: PUSHED.labels(need.value) for need in Need}
_Spot = tuple[int, int]
"""An object: the number of its move, and its own in it."""
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

    async def move_all(self, share: Share, course: Course, moves: Sequence[Move]) -> list[list[Fate]]:
        """All objects, some at a time; what ends the session ends it once those under way are through."""
        for one in moves:
            if one.pull:
                course.lacking[one.partition] += len(one.objects)
                share.standing.lacks(one.partition, course.lacking[one.partition])
        work = _Work(share, course, moves)
        spots = [(number, index) for number, one in enumerate(moves) for index in range(len(one.objects))]
        if self._wares.many is not None:
            batches = _batches(moves, spots)
            waiting = iter(batches)
            await asyncio.gather(*(self._carry_batches(work, waiting) for _ in range(self._at_a_time(len(batches)))))
            spots = work.alone
        alone = iter(spots)
        await asyncio.gather(*(self._carry(work, alone) for _ in range(self._at_a_time(len(spots)))))
        for one in moves:
            share.roots.pop(one.partition, None)
        if work.ended:
            raise work.ended[0]
        return work.fates

    def _at_a_time(self, count: int) -> int:
        return min(count, MOVES_PER_SLOT * self._pace.allowed)

    async def _carry_batches(self, work: _Work, batches: Iterator[list[_Spot]]) -> None:
        """One of those who carry batches, one after the other, until none waits or something ends it."""
        for batch in batches:
            try:
                async with self._moving:
                    if work.ended:
                        return
                    await self._bring_many(work, batch)
            except SwiftletError as error:
                work.end(work.moves[batch[0][0]], error)
                return

    async def _bring_many(self, work: _Work, batch: list[_Spot]) -> None:
        assert self._wares.many is not None
        share, move = work.share, work.moves[batch[0][0]]
        peer, source, target = self._way(share, move)
        pushes = [(work.moves[number].partition, work.moves[number].objects[index]) for number, index in batch]
        try:
            outcomes = await self._wares.many(share.policy, source, target, pushes, self._pace.moved)
        except (NodeUnreachable, NodeTimeout):
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            _log.info("objects go one by one", source=source.name, target=target.name, reason=str(error))
            work.alone += batch
            return
        came: list[tuple[int, Push, int]] = []
        try:
            for (number, index), outcome in zip(batch, outcomes, strict=True):
                if outcome is None:
                    work.alone.append((number, index))
                elif isinstance(outcome, int):
                    work.fates[number][index] = Fate.MOVED
                    one = work.moves[number]
                    came.append((one.partition, one.objects[index], outcome))
                else:
                    work.fates[number][index] = self._became(work, work.moves[number], index, outcome)
        finally:
            self._moved(share, work.course, move, came)

    async def _carry(self, work: _Work, waiting: Iterator[_Spot]) -> None:
        """One of those who carry objects, one after the other, until none waits or something ends it."""
        for number, index in waiting:
            try:
                async with self._moving:
                    if work.ended:
                        return
                    work.fates[number][index] = await self._bring(work, work.moves[number], index)
            except SwiftletError as error:
                work.end(work.moves[number], error)
                return

    def _way(self, share: Share, move: Move) -> tuple[Device, Device, Device]:
        """The peer, and from where to where; Outdated."""
        if self._outdated(share):
            raise Outdated(f"there is a newer ring of policy {share.policy}")
        peer = share.device_of(move.peer)
        return (peer, peer, share.device) if move.pull else (peer, share.device, peer)

    async def _bring(self, work: _Work, move: Move, index: int) -> Fate:
        share, push = work.share, move.objects[index]
        peer, source, target = self._way(share, move)
        key = ObjectKey(share.policy, move.partition, push.entry.digest)
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
        return self._became(work, move, index, outcome)

    def _became(self, work: _Work, move: Move, index: int, outcome: int | SwiftletError) -> Fate:
        """An object's fate by the bytes that went or by what kept it; raises when there was too much of that."""
        course, push = work.course, move.objects[index]
        if isinstance(outcome, int):
            self._moved(work.share, course, move, [(move.partition, push, outcome)])
            return Fate.MOVED
        if isinstance(outcome, Superseded | NotFound | Changed):
            _log.debug("overtaken", peer=move.peer, key=push.entry.digest.hex(), reason=str(outcome))
            if move.pull:
                course.lacking[move.partition] -= 1
                work.share.standing.lacks(move.partition, course.lacking[move.partition])
            return Fate.OVERTAKEN
        key = push.entry.digest.hex()
        _log.warning("object refused", peer=move.peer, pull=move.pull, key=key, error=str(outcome))
        course.unsent[move.peer] += 1
        if isinstance(outcome, NodeError | DeviceFailed) and course.unsent[move.peer] > MAX_REFUSED:
            raise as_node_error(outcome) from outcome
        return Fate.REFUSED

    def _moved(self, share: Share, course: Course, move: Move, came: Sequence[tuple[int, Push, int]]) -> None:
        """Count what went the same way as this move: partitions, objects, and the bytes of each."""
        if move.pull:
            for partition, count in Counter([partition for partition, _, _ in came]).items():
                course.pulled[partition] += count
                course.lacking[partition] -= count
                share.standing.lacks(partition, course.lacking[partition])
            self._report.pulled += len(came)
        else:
            course.pushed[move.peer] += len(came)
            self._report.pushed += len(came)
        for need, count in Counter([push.need for _, push, _ in came]).items():
            (_PULLED if move.pull else _PUSHED)[need].inc(count)
        (PULLED_BYTES if move.pull else PUSHED_BYTES).inc(sum([size for _, _, size in came]))


class _Work:
    """What is to be moved, and what came of it so far."""

    def __init__(self, share: Share, course: Course, moves: Sequence[Move]) -> None:
        self.share = share
        self.course = course
        self.moves = moves
        self.fates: list[list[Fate]] = [[Fate.OVERTAKEN] * len(one.objects) for one in moves]
        self.alone: list[_Spot] = []
        """What no batch could bring."""
        self.ended: list[SwiftletError] = []

    def end(self, move: Move, error: SwiftletError) -> None:
        """Something has happened that ends the session."""
        self.course.troubled.add(move.peer)
        self.ended.append(error)


def _batches(moves: Sequence[Move], spots: Sequence[_Spot]) -> list[list[_Spot]]:
    """Objects that go the same way, as many as share a batch."""
    ways: dict[tuple[int, bool], list[_Spot]] = {}
    for spot in spots:
        move = moves[spot[0]]
        ways.setdefault((move.peer, move.pull), []).append(spot)
    return [way[start : start + MAX_OBJECTS] for way in ways.values() for start in range(0, len(way), MAX_OBJECTS)]
