"""The state of a round that is being executed: what is left to do, what waits for nodes that are away, and what came
of what was done. No I/O.

Results of sessions are entered into the ledgers; by them the partitions go on to their next peers or have reached
their end, which the report, the progress and the devices' standings are told of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import NOT_DONE, Found, PartitionLedger
from swiftlet.sync.planning.planned_round import LeftOut, PlannedRound
from swiftlet.sync.planning.progress import Progress
from swiftlet.sync.planning.report import PROVED, RoundReport
from swiftlet.sync.planning.task_queue import PendingReturn, TaskQueue
from swiftlet.sync.planning.tasks import ReturnTask, SessionTask
from swiftlet.sync.session.effects import Terms
from swiftlet.sync.session.queue import HandoffReturn
from swiftlet.sync.session.session_result import Outdated, SessionResult
from swiftlet.sync.session.topology import First, neighbours

MANY = 1024
"""Partitions of a session whose messages are about many at a time."""
FEW = 64
"""Partitions that are compared at the same time, where messages are about one each, in sessions of their own."""
_LESS = 8
"""By how much sessions get smaller after a failure."""

_log = structlog.get_logger("replicator")


class RoundState:
    """The state of one round, for all devices and policies."""

    def __init__(
        self,
        planned: PlannedRound,
        terms: Callable[[DevicePartitions], Terms],
        report: RoundReport,
        neighbours: Neighbours,
        progress: Progress,
        outdated: Callable[[DevicePartitions], bool],
    ) -> None:
        """`terms` gives the terms of a device's sessions; `outdated`: whether there is a newer ring than its own."""
        self._planned = planned
        self._terms = terms
        self._report = report
        self._neighbours = neighbours
        self._progress = progress
        self._outdated = outdated
        self._ledgers = {id(device.own): device.ledger for device in planned.devices}
        """The ledgers by the identity of their device's partitions."""
        self._left_out: dict[str, list[LeftOut]] = {}
        self._waiting_returns: dict[str, list[PendingReturn]] = {}
        for device in planned.devices:
            for out in device.left_out:
                self._left_out.setdefault(node_of(out.peer), []).append(out)
        self.task_queue = TaskQueue(self._size, planned.first)
        """What is left to do."""
        self.task_queue.add_returns((device.own, handoff) for device in planned.devices for handoff in device.returns)

    def _size(self, own: DevicePartitions) -> int:
        """How many partitions go into sessions at a time."""
        return MANY if self._terms(own).mode.first is First.BATCH else FEW

    def begin(self) -> None:
        """Put everything that was planned into the queue, and what needs no session behind."""
        everything: list[tuple[DevicePartitions, Collection[int]]] = []
        for device in self._planned.devices:
            everything += [(device.own, device.concluded), (device.own, device.ledger.unproved)]
        everything += [(own, (handoff.partition,)) for own, handoff in self.task_queue.returns]
        self._progress.begin(everything)
        for device in self._planned.devices:
            self._progress.done_all(device.own, device.concluded)
        for ledger in self._ledgers.values():
            self._advance(ledger, ledger.unproved, gather=False)

    def _advance(self, ledger: PartitionLedger, partitions: Iterable[int], *, gather: bool) -> None:
        """On to each partition's next peer, or to its end."""
        ready, done = ledger.next_of(partitions)
        for peer, differs, some in ready:
            late = self._progress.were_done(ledger.own, some)
            self.task_queue.compare(ledger.own, peer, some, differ=differs, late=late, gather=gather)
        if done:
            self._end(ledger, done)

    def _end(self, ledger: PartitionLedger, partitions: set[int]) -> None:
        """All their peers were compared, or left out."""
        own = ledger.own
        not_whole = ledger.not_whole(partitions)
        self._progress.done_all(own, partitions - not_whole)
        for partition in not_whole:
            self._progress.done(own, partition, False)
        if self._planned.selection.peers is not None:
            return
        in_order = ledger.in_order(partitions) if self._terms(own).mode.pull else set()
        own.standing.compared_all(in_order, checked=True)
        for partition in partitions - in_order:
            if found := ledger.found(partition):
                own.standing.compared(
                    partition,
                    # Two peers mostly have the same objects, so what is lacking is what one of them has, not the sum.
                    behind=max(one.behind for one in found),
                    unsent=sum(one.unsent for one in found),
                    checked=all(one.done and one.proof for one in found),
                )

    # Sessions.

    def may_hold(self, task: SessionTask) -> bool:
        """Whether to hold this session now; if not, its partitions are given up or left out, and are done with."""
        ledger = self._ledgers[id(task.own)]
        if self._outdated(task.own):
            self._give_up(ledger, set(task.partitions))
            return False
        if self._neighbours.skips(node_of(task.peer)):
            partitions = frozenset(task.partitions)
            self._report.count("skipped", len(partitions))
            self._left_out.setdefault(node_of(task.peer), []).append(LeftOut(task.own, task.peer, partitions))
            self._conclude(ledger, task.peer, other=dict.fromkeys(partitions, NOT_DONE))
            return False
        return True

    def take_result(self, task: SessionTask, result: SessionResult) -> None:
        """Enter the result of a session, and queue again what it has not told of."""
        own, peer, partitions = task.own, task.peer, set(task.partitions)
        ledger = self._ledgers[id(own)]
        self._take_told(ledger, peer, result, partitions)
        unfinished = partitions - result.proved - result.repaired.keys()
        if not unfinished:
            return
        if isinstance(result.error, Outdated):
            self._give_up(ledger, unfinished)
        elif len(partitions) == 1:
            (partition,) = partitions
            _log.info("peer skipped", peer=peer.name, partition=partition, error=str(result.error))
            self._count(ledger, peer, "failed", partitions)
            behind = result.lacking[partition]
            self._conclude(ledger, peer, other={partition: Found(done=False, proof=False, behind=behind)})
        else:
            size = max(1, len(partitions) // _LESS)
            waiting = list(unfinished)
            for start in range(0, len(waiting), size):
                self.task_queue.retry(SessionTask(own, peer, False, waiting[start : start + size]))

    def _give_up(self, ledger: PartitionLedger, partitions: Collection[int]) -> None:
        """There is a newer ring: its own round will look at these."""
        ledger.give_up(partitions)
        for partition in partitions:
            self._progress.done(ledger.own, partition, False)

    def _take_told(self, ledger: PartitionLedger, peer: Device, result: SessionResult, partitions: set[int]) -> None:
        """Note and count what a session has told of these partitions."""
        repaired = result.repaired.keys() & partitions
        equal = (result.proved & partitions) - repaired
        if pulled := result.pulled.keys() & (repaired | equal):
            ledger.compare_again(peer.id, pulled)
        left = {partition: one for partition in repaired if (one := result.repaired[partition]) is not None}
        # Who only pushes has not seen what the peer has besides.
        proof = self._terms(ledger.own).mode.pull
        other = {partition: Found(True, proof, one.behind, one.unsent) for partition, one in left.items()}
        if not proof:
            other.update(dict.fromkeys(repaired - left.keys(), Found(proof=False)))
        failed = {partition for partition, one in left.items() if one.behind or one.unsent}
        PROVED.inc(len(equal))
        self._count(ledger, peer, "equal", equal - ledger.own.bare)
        self._count(ledger, peer, "differs", repaired - failed)
        self._count(ledger, peer, "failed", failed)
        self._conclude(ledger, peer, equal=equal, repaired=repaired - other.keys(), other=other)

    def _count(self, ledger: PartitionLedger, peer: Device, result: str, partitions: Collection[int]) -> None:
        """Count comparisons; those that were made once more are the same ones, unless they failed this time."""
        again = len(ledger.is_again(peer.id, partitions)) if partitions else 0
        if len(partitions) > again:
            self._report.count(result, len(partitions) - again)
        if result == "failed":
            self._report.failed += again

    def _conclude(
        self,
        ledger: PartitionLedger,
        peer: Device,
        *,
        equal: Collection[int] = (),
        repaired: Collection[int] = (),
        other: dict[int, Found] | None = None,
    ) -> None:
        other = other or {}
        ledger.conclude(peer.id, equal=equal, repaired=repaired, other=other)
        self._advance(ledger, {*equal, *repaired, *other}, gather=True)

    # Handoffs.

    def return_task(self, own: DevicePartitions, handoff: HandoffReturn) -> ReturnTask | None:
        """The session of a handoff that is to be returned now, None if there is a newer ring.

        It is returned again to the primaries that are left out now, when their nodes are back.
        """
        if self._outdated(own):
            self._progress.done(own, handoff.partition, False)
            return None
        primaries = [own.device_of(peer) for peer in handoff.primaries]
        out = self._neighbours.away(primaries)
        for peer in primaries:
            if peer.id in out:
                self._waiting_returns.setdefault(node_of(peer), []).append((own, handoff))
        unselected = {peer.id for peer in primaries if not self._planned.selection.has_peer(peer)}
        return ReturnTask(own, handoff, out, out | unselected)

    def take_returned(self, task: ReturnTask, result: SessionResult) -> None:
        """Enter the result of a handoff's session."""
        own, partition = task.own, task.handoff.partition
        self._report.count("skipped", len(task.out))
        whole = result.error is None and not task.out
        for peer_id in set(task.handoff.primaries) - task.absent:
            failed = peer_id in result.troubled or result.unsent[peer_id] or result.error is not None
            whole &= peer_id not in result.troubled
            self._report.count("failed" if failed else "differs" if result.pushed[peer_id] else "equal")
        if result.error is not None and not isinstance(result.error, Outdated):
            _log.info("a handoff's copy is kept", device=own.device.name, partition=partition, error=str(result.error))
        self._progress.done(own, partition, whole)
        if self._planned.selection.peers is None:
            own.standing.compared(partition, unsent=sum(result.unsent.values()), checked=whole)

    # Nodes that are back.

    def take_up(self) -> None:
        """Put what was left out because of nodes that are back at the head."""
        back = self._neighbours.take_back()
        self.task_queue.first |= back
        for node in back:
            returns = self._waiting_returns.pop(node, [])
            self.task_queue.add_returns_first(returns)
            self._progress.again(len(returns))
            for out in self._left_out.pop(node, []):
                if not self._outdated(out.own):
                    self._reopen(out)

    def _reopen(self, out: LeftOut) -> None:
        own, mode = out.own, self._terms(out.own).mode
        away = self._neighbours.away(own.ring.devices)
        still_out = {
            (other.peer.id, partition)
            for node in self._left_out.values()
            for other in node
            if other.own is own
            for partition in other.partitions
        }
        ledger = self._ledgers[id(own)]
        for partition in out.partitions:
            holders = [device.id for device in own.ring.primaries(partition)]
            if out.peer.id not in neighbours(mode, list(dict.fromkeys(holders)), own.device.id, away):
                continue
            if partition not in ledger.unproved:
                ledger.unproved.add(partition)
                for peer in own.peers(partition)[0]:
                    is_out = (peer.id, partition) in still_out
                    ledger.note(peer.id, () if is_out else (partition,), (partition,) if is_out else ())
            ledger.open(out.peer.id, (partition,), differ=False)
            if partition not in ledger.under_way:
                self._progress.again(1)
                self._advance(ledger, (partition,), gather=False)
