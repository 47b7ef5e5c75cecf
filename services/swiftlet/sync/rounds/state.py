"""The state of a round during its execution: what is left to do, what waits for nodes, and the results. No I/O.

Results of sessions are entered into the ledgers. Then each partition goes on to its next peer or is finished. What is
finished is entered into the report, the progress and the standings of the devices.
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
from swiftlet.sync.planning.regions import LeftToDo
from swiftlet.sync.planning.report import PROVED, RoundReport
from swiftlet.sync.planning.task_queue import PendingReturn, TaskQueue
from swiftlet.sync.planning.tasks import ReturnTask, SessionTask
from swiftlet.sync.session.effects import Terms
from swiftlet.sync.session.queue import HandoffReturn
from swiftlet.sync.session.session_result import Outdated, SessionResult
from swiftlet.sync.session.topology import First, neighbours

MANY = 1024
"""Partitions in a session, where its messages are about many of them."""
FEW = 64
"""Partitions that are compared at the same time, in sessions of their own, where messages are about single
partitions.
"""
_LESS = 8
"""Sessions are smaller by this factor after a failure."""

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
        """`terms` returns the terms of a device's sessions, and `outdated` whether there is a newer ring than the
        device's.
        """
        self._planned = planned
        self._terms = terms
        self._report = report
        self._neighbours = neighbours
        self._progress = progress
        self._outdated = outdated
        self._ledgers = {id(device.own): device.ledger for device in planned.devices}
        """The ledger of each own device in a ring, by the `id()` of its `DevicePartitions`."""
        self._left_out: dict[str, list[LeftOut]] = {}
        self._waiting_returns: dict[str, list[PendingReturn]] = {}
        self._not_returned: dict[tuple[int, int], dict[int, int]] = {}
        """What primaries lack of handoffs that were not returned to them, by the `id()` of the own device's
        `DevicePartitions` and the primary's id: partition -> objects that it is known to lack.
        """
        for device in planned.devices:
            for out in device.left_out:
                self._left_out.setdefault(node_of(out.peer), []).append(out)
        self.task_queue = TaskQueue(self._size, planned.first)
        """The work that is left."""
        self.task_queue.add_returns((device.own, handoff) for device in planned.devices for handoff in device.returns)

    def _size(self, own: DevicePartitions) -> int:
        """Return how many partitions go into sessions at a time."""
        return MANY if self._terms(own).mode.first is First.BATCH else FEW

    def begin(self) -> None:
        """Queue everything that was planned, and count what needs no session as finished."""
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
        """Queue partitions for their next peers, and finish those that have none left."""
        ready, done = ledger.next_of(partitions)
        for peer, differs, some in ready:
            late = self._progress.were_done(ledger.own, some)
            self.task_queue.compare(ledger.own, peer, some, differ=differs, late=late, gather=gather)
        if done:
            self._end(ledger, done)

    def _end(self, ledger: PartitionLedger, partitions: set[int]) -> None:
        """Finish partitions that were compared with all their peers, or whose peers were left out."""
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
                    # Two peers mostly have the same objects, so the larger number counts, not the sum.
                    behind=max(one.behind for one in found),
                    unsent=sum(one.unsent for one in found),
                    checked=all(one.done and one.proof for one in found),
                )

    # Sessions.

    def may_hold(self, task: SessionTask) -> bool:
        """Return whether to hold this session now. If not, its partitions have been given up or left out."""
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
        """Enter the result of a session, and queue again the partitions that it did not report."""
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
            _log.info(
                "a partition could not be compared with a peer",
                peer=peer.name,
                partition=partition,
                error=str(result.error),
            )
            self._count(ledger, peer, "failed", partitions)
            behind = result.lacking[partition]
            self._conclude(ledger, peer, other={partition: Found(done=False, proof=False, behind=behind)})
        else:
            size = max(1, len(partitions) // _LESS)
            waiting = list(unfinished)
            for start in range(0, len(waiting), size):
                self.task_queue.retry(SessionTask(own, peer, False, waiting[start : start + size]))

    def _give_up(self, ledger: PartitionLedger, partitions: Collection[int]) -> None:
        """Give partitions up because there is a newer ring, whose own round will compare them."""
        ledger.give_up(partitions)
        for partition in partitions:
            self._progress.done(ledger.own, partition, False)

    def _take_told(self, ledger: PartitionLedger, peer: Device, result: SessionResult, partitions: set[int]) -> None:
        """Enter and count the results that a session has reported about these partitions."""
        repaired = result.repaired.keys() & partitions
        equal = (result.proved & partitions) - repaired
        if pulled := result.pulled.keys() & (repaired | equal):
            ledger.compare_again(peer.id, pulled)
        left = {partition: one for partition in repaired if (one := result.repaired[partition]) is not None}
        # In a mode that only pushes, nothing shows what else the peer has.
        proof = self._terms(ledger.own).mode.pull
        other = {partition: Found(True, proof, one.behind, one.unsent) for partition, one in left.items()}
        if not proof:
            other.update(dict.fromkeys(repaired - left.keys(), Found(proof=False)))
        failed = {partition for partition, one in left.items() if one.behind > one.awaited or one.unsent > one.to_fetch}
        PROVED.inc(len(equal))
        self._count(ledger, peer, "equal", equal - ledger.own.bare)
        self._count(ledger, peer, "differs", repaired - failed)
        self._count(ledger, peer, "failed", failed)
        self._conclude(ledger, peer, equal=equal, repaired=repaired - other.keys(), other=other)

    def _count(self, ledger: PartitionLedger, peer: Device, result: str, partitions: Collection[int]) -> None:
        """Count comparisons; a repeated one does not count again, unless it failed this time."""
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
        """Return the task of returning a handoff now, or None if there is a newer ring.

        The handoff is returned once more to primaries that are left out now, when their nodes are back.
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
        """Enter the result of the session that returned a handoff."""
        own, partition = task.own, task.handoff.partition
        self._report.count("skipped", len(task.out))
        whole = result.error is None and not task.out
        to_fetch = {} if result.returned is None else result.returned.to_fetch
        for peer_id in task.handoff.primaries:
            lacking = result.unsent[peer_id] + to_fetch.get(peer_id, 0)
            self._not_returned.setdefault((id(own), peer_id), {})[partition] = lacking
        for peer_id in set(task.handoff.primaries) - task.absent:
            failed = peer_id in result.troubled or result.unsent[peer_id] or result.error is not None
            whole &= peer_id not in result.troubled
            if not failed and not to_fetch.get(peer_id):
                self._not_returned.get((id(own), peer_id), {}).pop(partition, None)
            differs = result.pushed[peer_id] or to_fetch.get(peer_id)
            self._report.count("failed" if failed else "differs" if differs else "equal")
        if result.error is not None and not isinstance(result.error, Outdated):
            _log.info("a handoff's copy is kept", device=own.device.name, partition=partition, error=str(result.error))
        self._progress.done(own, partition, whole)
        if self._planned.selection.peers is None:
            unsent = sum(result.unsent.values()) + sum(to_fetch.values())
            own.standing.compared(partition, unsent=unsent, checked=whole)

    # Regions.

    def left_by_region(self, own: DevicePartitions) -> dict[str, LeftToDo]:
        """Return what the round has left to do between an own device and the devices of each other region."""
        found: dict[str, LeftToDo] = {}
        ledger = self._ledgers[id(own)]
        peers = {*own.places.by_peer, *(peer for key, peer in self._not_returned if key == id(own))}
        for peer in map(own.device_of, peers):
            if peer.region == own.device.region:
                continue
            left = found.setdefault(peer.region, LeftToDo())
            partitions, objects = ledger.left(peer.id)
            unreturned = self._not_returned.get((id(own), peer.id), {})
            left.partitions.update(partitions, unreturned)
            left.objects += objects + sum(unreturned.values())
        for out in (out for node in self._left_out.values() for out in node):
            if out.own is own and out.peer.region in found:
                found[out.peer.region].partitions.update(out.partitions)
        return found

    # Nodes that are back.

    def take_up(self) -> None:
        """Queue what was left out because of nodes that are back, before all other work."""
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
