"""A simulated node: one device, its clock, the ring that it has loaded, and its rounds, driving the real sessions.

Fault model: a crash (`crash`) ends everything in progress and clears the failure table; stored data stay. A restarted
node starts with what it has. A node that gets a new ring ends its round and drops nothing more in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from swiftlet.errors import NodeTimeout, NotFound, SwiftletError
from swiftlet.ring.lookup import Ring
from swiftlet.servers.shared.pairs import PairTable
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import (
    Drop,
    Effect,
    Limits,
    ReadEntries,
    ReadPair,
    ReadRoots,
    ReadSuffixes,
    Session,
    Terms,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.far import Far, Fetching
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.messages import decode_request, encode
from swiftlet.sync.session.neighbour import differing_session, neighbour_session
from swiftlet.sync.session.pair_messages import Pair
from swiftlet.sync.session.pair_search import shared_by
from swiftlet.sync.session.queue import ordered, plan, session_plans
from swiftlet.sync.session.responder import answer_by
from swiftlet.sync.session.topology import THOROUGH, First, Mode
from swiftlet.testing.sim.drive import Drive
from swiftlet.testing.sim.network import Network, Outcome, Timeline
from swiftlet.testing.sim.store import Parcel, SimStore
from swiftlet.timestamp import Timestamp

EPOCH_S = 1_700_000_000.0
"""The time on a correct clock when a simulation begins."""
ERROR_LIMIT = 3
"""Failures in a row after which a neighbour counts as failed."""
ERROR_INTERVAL_S = 60.0
"""Seconds for which a failed neighbour is skipped."""
_LANES = 2
"""How many sessions of one round run at a time."""


@dataclass(frozen=True, slots=True)
class WorldTerms:
    """Terms that are the same for all nodes of a world."""

    mode: Mode
    limits: Limits
    reclaim_age_s: float
    reclaim_period_s: float
    by_name: bool = False
    """Whether no device knows pairs."""

    def terms(self, ring: Ring) -> Terms:
        """Return the terms of a session."""
        return Terms(0, ring.version, self.mode, self.reclaim_age_s, self.reclaim_period_s, self.limits)


@dataclass(frozen=True, slots=True)
class _Job:
    """A session that a round is going to hold, with what it compares; `again` tells that it is a repetition."""

    begin: Callable[[], Session]
    peer: int | None = None
    partitions: Sequence[int] = ()
    again: bool = False


class Witness:
    """The events that a node reports to the checker."""

    def say(self, text: str) -> None:
        """Add a line to the trace."""

    def offered(self, node: Node, partition: int, parcel: Parcel, began_s: float) -> None:
        """A parcel of a session that began at `began_s` arrives at a node."""

    def dropping(self, node: Node, effect: Drop, began_s: float) -> None:
        """A node is about to drop handoff copies."""

    def moved(self, count: int) -> None:
        """Objects were moved from one device to another."""

    def crossed(self, source: Node, target: Node, push: Push) -> None:
        """Data of an object were moved from one device to another."""


class Node:
    """One device with its replicator. `offset_s`: how far its clock is ahead of the correct one."""

    def __init__(
        self,
        id_: int,
        timeline: Timeline,
        network: Network,
        random: Random,
        world_terms: WorldTerms,
        store: SimStore,
        ring: Ring,
        witness: Witness,
    ) -> None:
        """Start healthy, with an empty failure table."""
        self.id = id_
        self.store = store
        self.ring = ring
        self.offset_s = 0.0
        self.peers: dict[int, Node] = {}
        self.well_since_s = 0.0
        """When a fault last began or ended."""
        self.ailments = 0
        """How many faults it has now."""
        self.ring_since_s = -1.0
        """Since when it uses its ring."""
        self.timeline = timeline
        self.network = network
        self._random = random
        self._world_terms = world_terms
        self.witness = witness
        self.life = 0
        """How often it has crashed; what an earlier life began is void."""
        self._busy = False
        self._fetching = Fetching()
        self._table: tuple[Ring, PairTable] | None = None
        self._failures: dict[int, tuple[int, float]] = {}
        self._rejoining: set[int] = set()

    @property
    def now_s(self) -> float:
        """Return the time on its clock."""
        return EPOCH_S + self.timeline.now_s + self.offset_s

    @property
    def busy(self) -> bool:
        """Return whether a round is in progress."""
        return self._busy

    # -- faults ----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Stop in the middle of everything."""
        self.life += 1
        self._busy = False
        self._fetching = Fetching()
        self.forget_failures()

    def forget_failures(self) -> None:
        """Lose the failure table."""
        self._failures.clear()
        self._rejoining.clear()

    def load_ring(self, ring: Ring) -> None:
        """Use another ring from now on."""
        if ring.version > self.ring.version:
            self.ring = ring
            self.ring_since_s = self.timeline.now_s

    # -- the failure table -----------------------------------------------------------------------------------

    def failed(self) -> frozenset[int]:
        """Return the peers to skip; those whose time is over are tried again."""
        now_s = self.timeline.now_s
        for peer, (number, last_s) in list(self._failures.items()):
            if number >= ERROR_LIMIT and now_s - last_s > ERROR_INTERVAL_S:
                del self._failures[peer]
                self._rejoining.add(peer)
        return frozenset(peer for peer, (number, _) in self._failures.items() if number >= ERROR_LIMIT)

    def mark_failed(self, peer: int) -> None:
        """Record that a peer is away."""
        self._failures[peer] = (ERROR_LIMIT, self.timeline.now_s)

    def heard(self, peer: int, outcome: Outcome) -> None:
        """Record whether a peer answered."""
        if isinstance(outcome, NodeTimeout):
            self._failures[peer] = (self._failures.get(peer, (0, 0.0))[0] + 1, self.timeline.now_s)
        else:
            self._failures.pop(peer, None)

    # -- rounds ----------------------------------------------------------------------------------------------

    def terms(self, ring: Ring) -> Terms:
        """Return the terms of a session."""
        terms = self._world_terms.terms(ring)
        regions = {device.id: device.region for device in ring.devices if device is not None}
        # A device that the ring has lost stays where it is.
        regions |= {id_: region for id_, region in self.network.regions.items() if id_ == self.id}
        if len(set(regions.values())) == 1 or not terms.mode.pull:
            return terms
        failed = self.failed()
        far = Far(self.id, terms.policy, regions, ring.primaries, lambda device: device.id in failed, self._fetching)
        return replace(terms, far=far)

    def round(self) -> None:
        """Begin a round, unless one is in progress."""
        if self._busy or self.id in self.network.down:
            return
        ring, failed, mode = self.ring, self.failed(), self._world_terms.mode
        terms = self.terms(ring)
        try:
            work = plan(ring, self.id, self.store.partitions(), failed, mode)
        except SwiftletError as error:
            self.witness.say(f"{self.id}: no round: {error}")
            return
        jobs: deque[_Job] = deque()
        whole = mode.first is First.BATCH
        skipped = tuple(sorted(failed))
        size = ring.partition_count if whole else 1024
        plans = list(session_plans(ordered(work.items, self._rejoining, self._random), mode, size))
        if terms.far is not None:
            plans.sort(key=lambda planned: terms.far is not None and terms.far.is_far(planned.peer))
        for planned in plans:
            pair = Pair(self.id, planned.peer) if mode is THOROUGH else Pair(self.id, planned.peer, True, skipped)
            shared = shared_by(pair, planned.partitions, ring.part_power) if whole else None
            begin = partial(neighbour_session, terms, planned.peer, planned.partitions, shared)
            jobs.append(_Job(begin, planned.peer, planned.partitions))
        for handoff in work.handoffs:
            jobs.append(_Job(partial(handoff_session, terms, handoff.partition, handoff.primaries, failed)))
        self._rejoining.clear()
        self._busy = True
        self._fetching.begin()
        self.witness.say(f"{self.id}: round, {len(work.items)} comparisons, {len(work.handoffs)} handoffs to return")
        # As in a replicator, a partition is compared with one peer after the other, so that it fetches nothing twice.
        at_a_time = 1 if mode is THOROUGH else _LANES
        lanes = [at_a_time]
        compared: list[_Job] = []

        def lane(ended: Drive | None = None, job: _Job | None = None) -> None:
            if ended is not None and job is not None and mode is THOROUGH:
                jobs.extend(self._compare_again(terms, compared, job, ended.pulled))
                compared.append(job)
            if self.ring is not ring:
                jobs.clear()
            if jobs:
                new = jobs.popleft()
                drive = Drive(self, new.begin(), ring, lambda: lane(drive, new))
                drive.begin()
                return
            lanes[0] -= 1
            if not lanes[0]:
                self._busy = False

        for _ in range(at_a_time):
            lane()

    def _compare_again(self, terms: Terms, compared: Sequence[_Job], ended: _Job, pulled: Set[int]) -> Iterator[_Job]:
        """Yield sessions with peers that were compared before a session pulled something, which they may lack."""
        if ended.again:
            return
        for job in compared:
            partitions = sorted(pulled & set(job.partitions))
            if partitions and job.peer is not None and job.peer != ended.peer and not job.again:
                yield _Job(partial(differing_session, terms, job.peer, partitions), job.peer, partitions, True)

    # -- answering -------------------------------------------------------------------------------------------

    def answer(self, data: bytes) -> bytes:
        """Answer a sync message."""
        request = decode_request(data)
        return encode(answer_by(self.look_up, request, self.ring.version, self.is_primary, self._world_terms.limits))

    def is_primary(self, partition: int) -> bool:
        """Return whether its own ring places a partition on it."""
        ring = self.ring
        return partition < ring.partition_count and any(d.id == self.id for d in ring.primaries(partition))

    def look_up(self, effect: Effect) -> object:
        """Return the local device's answer."""
        store = self.store
        if isinstance(effect, ReadPair):
            if self._world_terms.by_name:
                return None
            pair = self._pairs().of(effect.pair)
            for partition in pair.members:
                pair.put(partition, store.root(partition))
            return pair
        if isinstance(effect, ReadRoots):
            return [store.root(partition) for partition in effect.partitions]
        if isinstance(effect, ReadSuffixes):
            return store.suffix_hashes(effect.partition)
        assert isinstance(effect, ReadEntries)
        return slice_page(store.entries(effect.partition, effect.suffixes), effect.after, effect.limit)

    def _pairs(self) -> PairTable:
        """Return what the device shares with others by its ring."""
        if self._table is None or self._table[0] is not self.ring:
            self._table = self.ring, PairTable(self.ring, self.ring.partition_count)
        return self._table[1]

    def reclaim(self) -> None:
        """Forget tombstones older than the reclaim age, as the real device does."""
        terms = self.terms(self.ring)
        before_s = terms.forgotten_before_s(self.now_s)
        if before_s and not self.store.failing:
            self.store.reclaim(Timestamp.at(before_s))

    def receive(self, partition: int, parcel: Parcel, why: str, began_s: float) -> None:
        """Store what a session brings."""
        self.witness.offered(self, partition, parcel, began_s)
        self.store.receive(partition, parcel, why)

    def parcel(self, partition: int, push: Push) -> Parcel:
        """Return what a session sends. Raises NotFound when it has changed since the comparison, or is older."""
        parcel = self.store.parcel(partition, push.entry.digest)
        moment = parcel.data or parcel.tombstone
        if moment is not None and moment < push.entry.timestamp:
            raise NotFound(f"{parcel.digest.hex()} is older than what was compared")
        if push.need is Need.META:
            if parcel.post is None:
                raise NotFound(f"{parcel.digest.hex()} has no newer metadata any more")
            return Parcel(parcel.digest, None, None, parcel.post)
        return parcel

    def exchange(self, peer: Node, partition: int, push: Push, done: Callable[[Outcome, bool], None]) -> None:
        """Bring a database together with a peer's; `done` gets the outcome, and whether the peer caused it."""
        raise AssertionError(f"device {self.id} has no databases")
