"""Brings what sessions want moved: many small objects at a time where that can be done, the others one by one.

As many batches travel at a time as single objects do, and a batch is no larger than the largest object that travels as
a whole, so the bound on memory is the same. Everything goes as fast as the budget lets it.

Fault model: a peer may be away or break off, which ends the session; the node is suspected to be unreachable. An object
that a device can't give, or does not take, does not stop the others; if that happens often the device is in trouble,
and the session ends. An object whose outcome a batch does not tell, for whatever reason, is brought alone, and that
shows the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

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
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.moving.copies_wire import MAX_OBJECTS, Changed
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.moving.replica_kind import Moved, ReplicaKind
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.report import PULLED, PULLED_BYTES, PUSHED, PUSHED_BYTES, REGION_BYTES, RoundReport
from swiftlet.sync.session.answers import needs_of, partitions_of
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import MoveOutcome
from swiftlet.sync.session.session_result import Outdated, SessionResult, as_node_error

MOVES_PER_SLOT = 4
"""Objects that are moved at a time for each concurrent session; small ones are in memory as a whole."""
MAX_REFUSED = 16
"""Objects of a session that may fail because of a device before the session ends."""
_PULLED = {need: PULLED.labels(need.value) for need in Need}
_PUSHED = {need: PUSHED.labels(need.value) for need in Need}
_log = structlog.get_logger("replicator")


class Mover:
    """Moves the objects of one round."""

    def __init__(
        self,
        replica_kind: ReplicaKind,
        report: RoundReport,
        neighbours: Neighbours,
        pace: Pace,
        outdated: Callable[[DevicePartitions], bool],
    ) -> None:
        """Take the same arguments as `swiftlet.sync.asking.driver.Driver`."""
        self._replica_kind = replica_kind
        self._report = report
        self._neighbours = neighbours
        self._pace = pace
        self._outdated = outdated
        self._moving = asyncio.Semaphore(MOVES_PER_SLOT * pace.concurrency)

    async def move_many(
        self, own: DevicePartitions, result: SessionResult, peer: int, objects: Sequence[tuple[int, Push]], pull: bool
    ) -> list[MoveOutcome]:
        """Move all objects, given with their partitions, some at a time; an error that ends the session is raised at
        the end.
        """
        partitions = Counter(partitions_of(objects))
        if pull:
            result.lacking.update(partitions)
            own.standing.lacks_many(result.lacking, partitions)
        work = _Work(own, result, peer, objects, pull)
        spots: Sequence[int] = range(len(objects))
        if self._replica_kind.many is not None:
            await self._carry_all(work, range(0, len(objects), MAX_OBJECTS), self._bring_many)
            spots = work.alone
        await self._carry_all(work, spots, self._bring_one)
        for partition in partitions:
            own.roots.pop(partition, None)
        if work.ended:
            raise work.ended[0]
        return work.outcomes

    async def _carry_all(
        self, work: _Work, spots: Sequence[int], bring: Callable[[_Work, int], Awaitable[None]]
    ) -> None:
        """Move the objects at these positions, some at a time."""
        waiting = iter(spots)
        at_a_time = min(len(spots), MOVES_PER_SLOT * self._pace.allowed)
        await asyncio.gather(*(self._carry(work, waiting, bring) for _ in range(at_a_time)))

    async def _carry(self, work: _Work, waiting: Iterator[int], bring: Callable[[_Work, int], Awaitable[None]]) -> None:
        """Move one object or batch after the other, until none waits or an error ends the session."""
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
        assert self._replica_kind.many is not None
        peer, source, target = self._way(work)
        batch = work.objects[start : start + MAX_OBJECTS]
        try:
            outcomes = await self._replica_kind.many(
                work.own.policy, source, target, batch, self._paced(work.own, peer)
            )
        except (NodeUnreachable, NodeTimeout):
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            _log.info(
                "a batch of objects failed, so they are sent one by one",
                source=source.name,
                target=target.name,
                reason=str(error),
            )
            work.alone += range(start, start + len(batch))
            return
        sizes = [outcome for outcome in outcomes if isinstance(outcome, int)]
        if len(sizes) == len(batch):
            work.outcomes[start : start + len(batch)] = [MoveOutcome.MOVED] * len(batch)
            self._moved(work, batch, sizes)
            return
        came: list[tuple[int, Push]] = []
        try:
            for index, outcome in enumerate(outcomes, start):
                if outcome is None:
                    work.alone.append(index)
                elif isinstance(outcome, int):
                    work.outcomes[index] = MoveOutcome.MOVED
                    came.append(work.objects[index])
                else:
                    work.outcomes[index] = self._became(work, index, outcome)
        finally:
            self._moved(work, came, sizes)

    def _way(self, work: _Work) -> tuple[Device, Device, Device]:
        """Return the peer, the source and the target; Outdated when there is a newer ring."""
        own = work.own
        if self._outdated(own):
            raise Outdated(f"there is a newer ring of policy {own.policy}")
        peer = own.device_of(work.peer)
        return (peer, peer, own.device) if work.pull else (peer, own.device, peer)

    def _paced(self, own: DevicePartitions, peer: Device) -> Moved:
        """Return what is told of bytes that go to a peer or come from it, and returns when more may go."""
        if peer.region == own.device.region:
            return self._pace.moved
        return partial(self._pace.moved_over, peer.region, own.places.nodes)

    async def _bring_one(self, work: _Work, index: int) -> None:
        own, (partition, push) = work.own, work.objects[index]
        peer, source, target = self._way(work)
        key = ObjectKey(own.policy, partition, push.entry.digest)
        outcome: int | SwiftletError
        try:
            outcome = await self._replica_kind.carry(own, source, target, key, push, self._paced(own, peer))
        except (NodeUnreachable, NodeTimeout):
            # It may be this side's own device that is away.
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            outcome = error
        work.outcomes[index] = self._became(work, index, outcome)

    def _became(self, work: _Work, index: int, outcome: int | SwiftletError) -> MoveOutcome:
        """Return the outcome of a move by the bytes that went or by its error; raise the error after too
        many of them.
        """
        result, (partition, push) = work.result, work.objects[index]
        if isinstance(outcome, int):
            self._moved(work, [(partition, push)], [outcome])
            return MoveOutcome.MOVED
        key = push.entry.digest.hex()
        if isinstance(outcome, Superseded | NotFound | Changed):
            _log.debug(
                "a copy is not needed any more, because the object has changed",
                peer=work.peer,
                key=key,
                reason=str(outcome),
            )
            if work.pull:
                result.lacking[partition] -= 1
                work.own.standing.lacks_many(result.lacking, (partition,))
            return MoveOutcome.OVERTAKEN
        _log.warning("a peer refused an object", peer=work.peer, pull=work.pull, key=key, error=str(outcome))
        result.unsent[work.peer] += 1
        if isinstance(outcome, NodeError | DeviceFailed) and result.unsent[work.peer] > MAX_REFUSED:
            raise as_node_error(outcome) from outcome
        return MoveOutcome.REFUSED

    def _moved(self, work: _Work, came: Sequence[tuple[int, Push]], sizes: Sequence[int]) -> None:
        """Count objects that arrived, and the bytes of each."""
        result = work.result
        if work.pull:
            partitions = Counter(partitions_of(came))
            result.pulled.update(partitions)
            result.lacking.subtract(partitions)
            work.own.standing.lacks_many(result.lacking, partitions)
            self._report.pulled += len(came)
        else:
            result.pushed[work.peer] += len(came)
            self._report.pushed += len(came)
        for need, count in Counter(needs_of(came)).items():
            (_PULLED if work.pull else _PUSHED)[need].inc(count)
        (PULLED_BYTES if work.pull else PUSHED_BYTES).inc(sum(sizes))
        region = work.own.device_of(work.peer).region
        if region != work.own.device.region:
            REGION_BYTES.labels(region, "pulled" if work.pull else "pushed").inc(sum(sizes))


class _Work:
    """The objects that are to be moved, and their outcomes so far."""

    def __init__(
        self, own: DevicePartitions, result: SessionResult, peer: int, objects: Sequence[tuple[int, Push]], pull: bool
    ) -> None:
        self.own = own
        self.result = result
        self.peer = peer
        self.objects = objects
        self.pull = pull
        self.outcomes = [MoveOutcome.OVERTAKEN] * len(objects)
        self.alone: list[int] = []
        """Objects that no batch could bring."""
        self.ended: list[SwiftletError] = []

    def end(self, error: SwiftletError) -> None:
        """Something has happened that ends the session."""
        self.result.troubled.add(self.peer)
        self.ended.append(error)
