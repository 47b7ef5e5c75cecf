"""One round: who is compared with whom about what, in which order, and what the device's standing is by it.

Where the mode compares many partitions in one message, each peer is first asked for proofs about all partitions shared
with it. What is left is worked on in sessions of many partitions with one peer each. A partition is in one session at
a time, so that nothing is fetched twice: with the first peer it may get everything, and be found equal to the others.
What came from one peer is new to the others that were compared before: those are compared once more.

What comes next is said by `swiftlet.sync.planning.task_queue`.

Fault model: a session may fail for any reason, with anything done or not done. What it has not told of is tried again
in sessions of an eighth of the size, down to single partitions, which then count as failed: one partition that is in
trouble keeps no others back, and a node that is away has failed often enough on the way to be left out. What was left
out because of a node is taken up when it is back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import structlog

from swiftlet.errors import NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.sync.asking.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import NOT_DONE, Found, PartitionLedger
from swiftlet.sync.planning.progress import Progress
from swiftlet.sync.planning.report import PROVED, RoundReport
from swiftlet.sync.planning.task_queue import TaskQueue
from swiftlet.sync.planning.tasks import EVERYTHING, LeftOut, Proofs, Selection, SessionTask
from swiftlet.sync.session.effects import Session, Terms
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.neighbour import differing_session, neighbour_session, proof_session
from swiftlet.sync.session.queue import HandoffReturn, plan, unique
from swiftlet.sync.session.session_result import Outdated, SessionResult
from swiftlet.sync.session.topology import THOROUGH, First, neighbours

MANY = 1024
"""Partitions of a session whose messages are about many at a time."""
FEW = 64
"""Partitions that are compared at the same time, where messages are about one each, in sessions of their own."""
MAX_TRIES = 10
"""How often a peer that can't be reached is asked for proofs, while it is not left out: not for a few partitions."""
_LESS = 8
"""By how much sessions get smaller after a failure."""
_LOOK_S = 0.05
"""Seconds between looks whether load lets one more session begin; for so long small pieces are gathered."""

_log = structlog.get_logger("replicator")


class Round:
    """The work of one round, for all devices and policies."""

    def __init__(
        self,
        driver: Driver,
        terms: Callable[[DevicePartitions], Terms],
        report: RoundReport,
        neighbours: Neighbours,
        pace: Pace,
        progress: Progress,
        outdated: Callable[[DevicePartitions], bool],
        selection: Selection = EVERYTHING,
    ) -> None:
        """`terms` gives the terms of a device's sessions; `outdated`: whether there is a newer ring than its own."""
        self._driver = driver
        self._terms = terms
        self._report = report
        self._neighbours = neighbours
        self._pace = pace
        self._progress = progress
        self._outdated = outdated
        self._selection = selection
        self._task_queue = TaskQueue(self._size, neighbours.take_back())
        self._ledgers: dict[int, PartitionLedger] = {}
        """The ledgers by the identity of their device's partitions."""
        self._concluded: list[tuple[DevicePartitions, frozenset[int]]] = []
        """Partitions that need no session any more: all are proved or left out."""
        self._left_out: dict[str, list[LeftOut]] = {}
        self._waiting_returns: dict[str, list[tuple[DevicePartitions, HandoffReturn]]] = {}
        self._under_way = 0
        self._news = asyncio.Event()

    # Finding out what there is to do.

    async def look_ahead(self, own: DevicePartitions, held: Sequence[int]) -> None:
        """Plan what there is to do for a device that holds something of these partitions."""
        ledger = self._ledgers[id(own)] = PartitionLedger(own)
        mode = self._terms(own).mode
        assigned = own.places.assigned
        concerned = {partition for partition in assigned.union(held) if self._selection.has(partition)}
        handoffs = self._handoff_returns(own, concerned - assigned)
        concerned.difference_update(handoff.partition for handoff in handoffs)
        away = self._away(own)
        by_peer = {
            peer: partitions & concerned
            for peer, partitions in self._neighbours_of(own, held, away).items()
            if self._selection.has_peer(own.device_of(peer))
        }
        if mode.first is not First.SUFFIXES:
            await self._read_roots(own, sorted({p for partitions in by_peer.values() for p in partitions}))
        if mode.first is First.BATCH:
            await self._prove_all(ledger, by_peer)
        else:
            for peer, partitions in by_peer.items():
                ledger.open(peer, partitions, differ=False)
            self._leave_out_failed(own, away, concerned.intersection(held))
            await self._look_for_bare(own, concerned)
        self._conclude_rest(own, concerned)
        self._task_queue.add_returns((own, handoff) for handoff in handoffs)

    def _away(self, own: DevicePartitions) -> frozenset[int]:
        return frozenset(d.id for d in own.ring.devices if d is not None and self._neighbours.skips(node_of(d)))

    def _neighbours_of(
        self, own: DevicePartitions, held: Sequence[int], away: Collection[int]
    ) -> Mapping[int, frozenset[int]]:
        """By peer, the partitions that are compared with it in this mode, before anything is selected."""
        mode = self._terms(own).mode
        if mode is THOROUGH:
            # As the plan, which would be the same in each round.
            return own.places.by_peer
        found: dict[int, set[int]] = {}
        for item in plan(own.ring, own.device.id, held, away, mode).items:
            found.setdefault(item.peer, set()).add(item.partition)
        return {peer: frozenset(partitions) for peer, partitions in found.items()}

    def _handoff_returns(self, own: DevicePartitions, foreign: Iterable[int]) -> list[HandoffReturn]:
        """Handoffs among partitions that do not belong here; those that no ring has stay."""
        found = [
            HandoffReturn(partition, unique(holder.id for holder in own.ring.primaries(partition)))
            for partition in sorted(foreign)
            if partition < own.ring.partition_count
        ]
        return [
            handoff
            for handoff in found
            if any(self._selection.has_peer(own.device_of(peer)) for peer in handoff.primaries)
        ]

    async def _read_roots(self, own: DevicePartitions, partitions: Sequence[int]) -> None:
        try:
            await self._driver.read_roots(own, partitions)
        except SwiftletError as error:
            # Sessions ask again, each for its own.
            _log.warning("the local device can't be read", device=own.device.name, error=str(error))

    async def _prove_all(self, ledger: PartitionLedger, by_peer: Mapping[int, frozenset[int]]) -> None:
        own = ledger.own
        slots = asyncio.Semaphore(self._pace.concurrency)

        async def prove(peer: Device, asked: frozenset[int]) -> Proofs:
            async with slots:
                return await self._prove(own, peer, asked)

        found = await asyncio.gather(*(prove(own.device_of(peer), asked) for peer, asked in by_peer.items()))
        random.shuffle(found)
        found.sort(key=lambda proofs: node_of(proofs.peer) not in self._task_queue.first)
        for proofs in found:
            self._count_proved(own, proofs.proved)
            unproved = proofs.asked - proofs.proved
            if proofs.out:
                self._leave_out(own, proofs.peer, unproved)
                continue
            ledger.open(proofs.peer.id, unproved, differ=proofs.whole)
        for proofs in found:
            ledger.note(proofs.peer.id, proofs.proved, proofs.asked - proofs.proved if proofs.out else ())

    async def _prove(self, own: DevicePartitions, peer: Device, asked: frozenset[int]) -> Proofs:
        """Ask a peer for proofs; one that refuses to be asked is tried until that is enough to leave it out."""
        proofs = Proofs(peer, asked)
        unreachable = False
        while not self._neighbours.skips(node_of(peer)):
            # A long question is made again only once the peer is there.
            knocking = unreachable
            partitions = sorted(asked - proofs.proved)[: 1 if knocking else None]
            result = await self._driver.drive(own, proof_session(self._terms(own), peer.id, partitions))
            proofs.proved |= result.proved
            proofs.whole = result.error is None and not knocking
            proofs.tries += 1
            unreachable = isinstance(result.error, NodeUnreachable)
            if result.error and not knocking and not isinstance(result.error, Outdated):
                _log.info("a comparison with a peer failed", peer=peer.name, reason=str(result.error))
            if proofs.tries >= min(MAX_TRIES, len(asked)) or not (unreachable or knocking):
                break
        proofs.out = self._neighbours.skips(node_of(peer))
        return proofs

    def _leave_out_failed(self, own: DevicePartitions, away: Collection[int], partitions: Iterable[int]) -> None:
        """Record the failed peers that a mode skipped for the next healthy one."""
        by_peer: dict[int, set[int]] = {}
        for partition in partitions:
            for peer in own.peers(partition)[0]:
                if peer.id in away and self._selection.has_peer(peer):
                    by_peer.setdefault(peer.id, set()).add(partition)
        for peer_id, passed in by_peer.items():
            self._leave_out(own, own.device_of(peer_id), passed)

    async def _look_for_bare(self, own: DevicePartitions, concerned: Collection[int]) -> None:
        """In push-only modes, find out whether others have data of partitions that are empty here, which are then
        lacking.
        """
        bare = own.bare.intersection(concerned)
        by_peer: dict[int, set[int]] = {}
        for partition in bare:
            for peer in own.peers(partition)[0]:
                by_peer.setdefault(peer.id, set()).add(partition)
        somewhere: set[int] = set()
        for peer_id, partitions in by_peer.items():
            device, there = own.device_of(peer_id), None
            if not self._neighbours.skips(node_of(device)):
                there = await self._driver.held_by(own, device, partitions)
            somewhere |= partitions if there is None else there
        self._concluded.append((own, frozenset(somewhere)))
        if self._selection.peers is None:
            own.standing.compared_all(somewhere, checked=False)
            own.standing.compared_all(bare - somewhere, checked=True)

    def _conclude_rest(self, own: DevicePartitions, concerned: set[int]) -> None:
        """Conclude the partitions that need no session."""
        left = {
            partition
            for node in self._left_out.values()
            for out in node
            if out.own is own
            for partition in out.partitions
        }
        rest = concerned - self._ledgers[id(own)].unproved
        if not self._terms(own).mode.pull:
            rest -= own.bare
        self._concluded.append((own, frozenset(rest)))
        if self._selection.peers is None:
            own.standing.compared_all(rest & left, checked=False)
            own.standing.compared_all(rest - left, checked=True)

    # Doing it.

    async def work(self) -> None:
        """Do everything that was planned."""
        everything: list[tuple[DevicePartitions, Collection[int]]] = list(self._concluded)
        everything += [(ledger.own, ledger.unproved) for ledger in self._ledgers.values()]
        everything += [(own, (handoff.partition,)) for own, handoff in self._task_queue.returns]
        self._progress.begin(everything)
        for own, done in self._concluded:
            self._progress.done_all(own, done)
        for ledger in self._ledgers.values():
            self._advance(ledger, ledger.unproved, gather=False)
        await asyncio.gather(*(self._worker(number) for number in range(self._pace.concurrency)))

    async def _worker(self, number: int) -> None:
        """One of those who hold sessions, which ends when there is nothing left to do and nobody is at work."""
        while True:
            if self._neighbours.somebody_is_back:
                self._take_up()
            began = False
            if number < self._pace.allowed:
                began = await self._next()
            if began:
                continue
            if not (self._under_way or self._task_queue):
                self._news.set()
                return
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._news.wait()
            except TimeoutError:
                self._task_queue.ripen()

    async def _next(self) -> bool:
        """Do the next piece of work; whether there was one."""
        work = self._task_queue.next(alone=not self._under_way)
        if work is None:
            return False
        await self._at_work(self._hold(work) if isinstance(work, SessionTask) else self._return_handoff(*work))
        return True

    async def _at_work(self, work: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await work
        finally:
            self._under_way -= 1
            self._news.set()

    def _size(self, own: DevicePartitions) -> int:
        """How many partitions go into sessions at a time."""
        return MANY if self._terms(own).mode.first is First.BATCH else FEW

    def _advance(self, ledger: PartitionLedger, partitions: Iterable[int], *, gather: bool) -> None:
        """On to each partition's next peer, or to its end."""
        ready, done = ledger.next_of(partitions)
        for peer, differs, some in ready:
            late = self._progress.were_done(ledger.own, some)
            self._task_queue.compare(ledger.own, peer, some, differ=differs, late=late, gather=gather)
        if ready:
            self._news.set()
        if done:
            self._end(ledger, done)

    def _end(self, ledger: PartitionLedger, partitions: set[int]) -> None:
        """All their peers were compared, or left out."""
        own = ledger.own
        not_whole = ledger.not_whole(partitions)
        self._progress.done_all(own, partitions - not_whole)
        for partition in not_whole:
            self._progress.done(own, partition, False)
        if self._selection.peers is not None:
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

    async def _hold(self, task: SessionTask) -> None:
        """Run one session with a peer."""
        own, peer, partitions = task.own, task.peer, set(task.partitions)
        ledger = self._ledgers[id(own)]
        if self._outdated(own):
            self._give_up(ledger, partitions)
            return
        if self._neighbours.skips(node_of(peer)):
            self._leave_out(own, peer, partitions)
            self._conclude(ledger, peer, other=dict.fromkeys(partitions, NOT_DONE))
            return
        result = await self._driver.drive(own, *self._sessions(task))
        self._take_result(ledger, peer, result, partitions)
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
                self._task_queue.retry(SessionTask(own, peer, False, waiting[start : start + size]))

    def _sessions(self, task: SessionTask) -> list[Session]:
        """One about all partitions, or, where a message is about one of them, as many as there are."""
        terms = self._terms(task.own)
        make = differing_session if task.differs else neighbour_session
        if terms.mode.first is First.BATCH:
            return [make(terms, task.peer.id, task.partitions)]
        return [make(terms, task.peer.id, (partition,)) for partition in task.partitions]

    def _give_up(self, ledger: PartitionLedger, partitions: Collection[int]) -> None:
        """There is a newer ring: its own round will look at these."""
        ledger.give_up(partitions)
        for partition in partitions:
            self._progress.done(ledger.own, partition, False)

    def _take_result(self, ledger: PartitionLedger, peer: Device, result: SessionResult, partitions: set[int]) -> None:
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

    def _count_proved(self, own: DevicePartitions, partitions: Collection[int]) -> None:
        PROVED.inc(len(partitions))
        self._report.count("equal", len(partitions) - len(own.bare.intersection(partitions)))

    # Nodes that are away.

    def _leave_out(self, own: DevicePartitions, peer: Device, partitions: Collection[int]) -> None:
        self._report.count("skipped", len(partitions))
        self._left_out.setdefault(node_of(peer), []).append(LeftOut(own, peer, frozenset(partitions)))

    def _take_up(self) -> None:
        """Put what was left out because of nodes that are back at the head."""
        back = self._neighbours.take_back()
        self._task_queue.first |= back
        for node in back:
            returns = self._waiting_returns.pop(node, [])
            self._task_queue.add_returns_first(returns)
            self._progress.again(len(returns))
            for out in self._left_out.pop(node, []):
                if not self._outdated(out.own):
                    self._reopen(out)

    def _reopen(self, out: LeftOut) -> None:
        own, mode = out.own, self._terms(out.own).mode
        away = self._away(own)
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

    # Handoffs.

    async def _return_handoff(self, own: DevicePartitions, handoff: HandoffReturn) -> None:
        if self._outdated(own):
            self._progress.done(own, handoff.partition, False)
            return
        primaries = [own.device_of(peer) for peer in handoff.primaries]
        out = {peer.id for peer in primaries if self._neighbours.skips(node_of(peer))}
        absent = out | {peer.id for peer in primaries if not self._selection.has_peer(peer)}
        for peer in primaries:
            if peer.id in out:
                self._waiting_returns.setdefault(node_of(peer), []).append((own, handoff))
        session = handoff_session(self._terms(own), handoff.partition, handoff.primaries, absent)
        result = await self._driver.drive(own, session)
        self._report.count("skipped", len(out))
        whole = result.error is None and not out
        for peer_id in set(handoff.primaries) - absent:
            failed = peer_id in result.troubled or result.unsent[peer_id] or result.error is not None
            whole &= peer_id not in result.troubled
            self._report.count("failed" if failed else "differs" if result.pushed[peer_id] else "equal")
        if result.error is not None and not isinstance(result.error, Outdated):
            _log.info(
                "a handoff's copy is kept", device=own.device.name, partition=handoff.partition, error=str(result.error)
            )
        self._progress.done(own, handoff.partition, whole)
        if self._selection.peers is None:
            unsent = sum(result.unsent.values())
            own.standing.compared(handoff.partition, unsent=unsent, checked=whole)
