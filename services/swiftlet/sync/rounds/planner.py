"""Finds what there is to do in a round: it asks peers for proofs about what is shared with them, and moves nothing.

Partitions that are known to be equal, or that can't be compared because a node is away, need no session: they are
counted at once and entered into the device's standing.

Fault model: the own device may fail to tell its roots; then the sessions ask again. A peer may be away or break off: it
is asked until it counts as left out, or is compared in sessions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from swiftlet.errors import NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.sync.asking.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import PartitionLedger
from swiftlet.sync.planning.planned_round import DevicePlan, LeftOut, PlannedRound
from swiftlet.sync.planning.report import PROVED, RoundReport
from swiftlet.sync.planning.tasks import EVERYTHING, Selection
from swiftlet.sync.session.effects import Terms
from swiftlet.sync.session.neighbour import proof_session
from swiftlet.sync.session.queue import HandoffReturn, plan, unique
from swiftlet.sync.session.session_result import Outdated
from swiftlet.sync.session.topology import THOROUGH, First

MAX_TRIES = 10
"""How often an unreachable peer is asked for proofs at most, and at most once per partition that it is asked about."""

_log = structlog.get_logger("replicator")


@dataclass(slots=True)
class _Proofs:
    """The partitions that one peer has proved.

    `whole` tells that all others are known to differ, and `out` that the peer is left out.
    """

    peer: Device
    asked: frozenset[int]
    proved: set[int] = field(default_factory=set)
    whole: bool = False
    out: bool = False
    tries: int = 0


class Planner:
    """Plans one round, one device after the other."""

    def __init__(
        self,
        driver: Driver,
        terms: Callable[[DevicePartitions], Terms],
        report: RoundReport,
        neighbours: Neighbours,
        concurrency: int,
        selection: Selection = EVERYTHING,
    ) -> None:
        """`terms` returns the terms of a device's sessions; `concurrency` peers are asked for proofs at a time."""
        self._driver = driver
        self._terms = terms
        self._report = report
        self._neighbours = neighbours
        self._concurrency = concurrency
        self._selection = selection
        self._first: frozenset[str] = frozenset()

    async def plan(self, begun: Iterable[tuple[DevicePartitions, Sequence[int]]]) -> PlannedRound:
        """Return the plan for these own devices, each given with the partitions that it holds."""
        self._first = self._neighbours.take_back()
        devices = [await self._plan_device(own, held) for own, held in begun]
        return PlannedRound(self._selection, self._first, tuple(devices))

    async def _plan_device(self, own: DevicePartitions, held: Sequence[int]) -> DevicePlan:
        ledger = PartitionLedger(own)
        mode = self._terms(own).mode
        assigned = own.places.assigned
        concerned = self._selection.of(assigned.union(held))
        handoffs = self._handoff_returns(own, concerned - assigned)
        concerned.difference_update(handoff.partition for handoff in handoffs)
        away = self._neighbours.away(own.ring.devices)
        by_peer = {
            peer: partitions if partitions <= concerned else partitions & concerned
            for peer, partitions in self._neighbours_of(own, held, away).items()
            if self._selection.has_peer(own.device_of(peer))
        }
        if mode.first is First.ROOT:
            await self._read_roots(own, sorted({p for partitions in by_peer.values() for p in partitions}))
        lacking: set[int] = set()
        if mode.first is First.BATCH:
            left_out = await self._prove_all(ledger, by_peer)
        else:
            for peer, partitions in by_peer.items():
                ledger.open(peer, partitions, differ=False)
            left_out = self._failed_peers(own, away, concerned.intersection(held))
            lacking = await self._look_for_bare(own, concerned)
        concluded = lacking | self._conclude_rest(ledger, concerned, left_out)
        return DevicePlan(ledger, frozenset(concluded), tuple(left_out), tuple(handoffs))

    def _neighbours_of(
        self, own: DevicePartitions, held: Sequence[int], away: Collection[int]
    ) -> Mapping[int, frozenset[int]]:
        """Return by peer the partitions that the mode compares with it, before the selection is applied."""
        mode = self._terms(own).mode
        if mode is THOROUGH:
            # `plan` would find the same in each round.
            return own.places.by_peer
        found: dict[int, set[int]] = {}
        for item in plan(own.ring, own.device.id, held, away, mode).items:
            found.setdefault(item.peer, set()).add(item.partition)
        return {peer: frozenset(partitions) for peer, partitions in found.items()}

    def _handoff_returns(self, own: DevicePartitions, foreign: Iterable[int]) -> list[HandoffReturn]:
        """Return the handoffs among partitions that do not belong here; those above the ring's numbers stay."""
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
            # The sessions ask again for their own partitions.
            _log.warning("the local device can't be read", device=own.device.name, error=str(error))

    # Proofs.

    async def _prove_all(self, ledger: PartitionLedger, by_peer: Mapping[int, frozenset[int]]) -> list[LeftOut]:
        """Enter into the ledger what peers have proved, and what has to be compared; return what is left out."""
        own = ledger.own
        slots = asyncio.Semaphore(self._concurrency)

        async def prove(peer: Device, asked: frozenset[int]) -> _Proofs:
            async with slots:
                return await self._prove(own, peer, asked)

        found = await asyncio.gather(*(prove(own.device_of(peer), asked) for peer, asked in by_peer.items()))
        random.shuffle(found)
        # What is lacking here may be in the region, so that it need not come from another one.
        found.sort(
            key=lambda proofs: (proofs.peer.region != own.device.region, node_of(proofs.peer) not in self._first)
        )
        left_out: list[LeftOut] = []
        for proofs in found:
            self._count_proved(own, proofs.proved)
            unproved = proofs.asked - proofs.proved
            if proofs.out:
                left_out.append(self._leave_out(own, proofs.peer, unproved))
                continue
            ledger.open(proofs.peer.id, unproved, differ=proofs.whole)
        for proofs in found:
            ledger.note(proofs.peer.id, proofs.proved, proofs.asked - proofs.proved if proofs.out else ())
        return left_out

    async def _prove(self, own: DevicePartitions, peer: Device, asked: frozenset[int]) -> _Proofs:
        """Ask a peer for proofs; an unreachable one is asked again, at most `MAX_TRIES` times, until it is left out."""
        proofs = _Proofs(peer, asked)
        unreachable = False
        while not self._neighbours.skips(node_of(peer)):
            # A long question to an unreachable peer is repeated only after a short one was answered.
            knocking = unreachable
            partitions = sorted(asked - proofs.proved)[:1] if knocking else asked
            shared = None
            if not knocking and len(asked) == len(own.places.by_peer.get(peer.id, ())):
                shared = own.places.shared_with(peer.id)
            session = proof_session(self._terms(own), peer.id, partitions, shared)
            result = await self._driver.drive(own, session)
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

    def _count_proved(self, own: DevicePartitions, partitions: Collection[int]) -> None:
        PROVED.inc(len(partitions))
        self._report.count("equal", len(partitions) - len(own.bare.intersection(partitions)))

    # What is left out, and what needs no session.

    def _leave_out(self, own: DevicePartitions, peer: Device, partitions: Collection[int]) -> LeftOut:
        self._report.count("skipped", len(partitions))
        return LeftOut(own, peer, frozenset(partitions))

    def _failed_peers(self, own: DevicePartitions, away: Collection[int], partitions: Iterable[int]) -> list[LeftOut]:
        """Leave out the failed peers that a mode skipped for the next healthy one."""
        by_peer: dict[int, set[int]] = {}
        for partition in partitions:
            for peer in own.peers(partition)[0]:
                if peer.id in away and self._selection.has_peer(peer):
                    by_peer.setdefault(peer.id, set()).add(partition)
        return [self._leave_out(own, own.device_of(peer_id), passed) for peer_id, passed in by_peer.items()]

    async def _look_for_bare(self, own: DevicePartitions, concerned: Collection[int]) -> set[int]:
        """Return the partitions that are empty here, in modes that only push, and that other devices hold."""
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
        if self._selection.peers is None:
            own.standing.compared_all(somewhere, checked=False)
            own.standing.compared_all(bare - somewhere, checked=True)
        return somewhere

    def _conclude_rest(self, ledger: PartitionLedger, concerned: set[int], left_out: Sequence[LeftOut]) -> set[int]:
        """Return the partitions that need no session, and enter them into the device's standing."""
        own = ledger.own
        rest = concerned - ledger.unproved
        if not self._terms(own).mode.pull:
            rest -= own.bare
        if self._selection.peers is None:
            left = {partition for out in left_out for partition in out.partitions}
            own.standing.compared_all(rest & left, checked=False)
            own.standing.compared_all(rest - left, checked=True)
        return rest
