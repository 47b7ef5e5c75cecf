"""A simulated node: one device, its clock, the ring that it has loaded, and its rounds, driving the real sessions.

Fault model: a crash (`crash`) ends everything that is under way and forgets the failure table; what was stored stays.
A restarted node begins where it is. A node that is told of a new ring ends its round and drops nothing more for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from swiftlet.errors import DeviceFailed, DiskFull, NodeError, NodeTimeout, NotFound, Superseded, SwiftletError
from swiftlet.ring.lookup import Ring
from swiftlet.sync.compare import Need, Push
from swiftlet.sync.session.effects import (
    Ask,
    Drop,
    Effect,
    Fate,
    Limits,
    Move,
    Proved,
    ReadEntries,
    ReadRoots,
    ReadSuffixes,
    Session,
    Settled,
    Terms,
    WentHome,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.messages import Request, decode_reply, decode_request, encode
from swiftlet.sync.session.neighbour import neighbour_session
from swiftlet.sync.session.queue import errands, ordered, plan
from swiftlet.sync.session.responder import answer
from swiftlet.sync.session.topology import Mode
from swiftlet.sync.sim.network import Network, Outcome, Timeline
from swiftlet.sync.sim.store import Parcel, SimStore
from swiftlet.timestamp import Timestamp

EPOCH_S = 1_700_000_000.0
"""What a right clock shows when a simulation begins."""
ERROR_LIMIT = 3
"""Failures in a row after which a neighbour counts as failed."""
ERROR_INTERVAL_S = 60.0
"""Seconds for which a failed neighbour is skipped."""
_LANES = 2
"""Sessions of one round at a time."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for all nodes of a world."""

    mode: Mode
    limits: Limits
    reclaim_age_s: float
    reclaim_period_s: float

    def terms(self, ring: Ring) -> Terms:
        """What a session goes by."""
        return Terms(0, ring.version, self.mode, self.reclaim_age_s, self.reclaim_period_s, self.limits)


class Witness:
    """What a node tells about itself; the checker listens."""

    def say(self, text: str) -> None:
        """A line of the trace."""

    def offered(self, node: Node, partition: int, parcel: Parcel, began_s: float) -> None:
        """A parcel of a session that began then arrives at a node."""

    def dropping(self, node: Node, effect: Drop, began_s: float) -> None:
        """A node is about to drop handoff copies."""

    def moved(self, count: int) -> None:
        """Objects went from one device to another."""


class Node:
    """One device with its replicator. `offset_s`: how far its clock is ahead of the right one."""

    def __init__(
        self,
        id_: int,
        timeline: Timeline,
        network: Network,
        random: Random,
        rules: Rules,
        store: SimStore,
        ring: Ring,
        witness: Witness,
    ) -> None:
        """Up, with an empty failure table."""
        self.id = id_
        self.store = store
        self.ring = ring
        self.offset_s = 0.0
        self.peers: dict[int, Node] = {}
        self.well_since_s = 0.0
        """When something last befell it or ended."""
        self.ailments = 0
        """How many faults it has now."""
        self.ring_since_s = -1.0
        """Since when it goes by its ring."""
        self._timeline = timeline
        self._network = network
        self._random = random
        self._rules = rules
        self._witness = witness
        self._life = 0
        self._busy = False
        self._failures: dict[int, tuple[int, float]] = {}
        self._rejoining: set[int] = set()

    @property
    def now_s(self) -> float:
        """What its clock shows."""
        return EPOCH_S + self._timeline.now_s + self.offset_s

    @property
    def busy(self) -> bool:
        """Whether a round is under way."""
        return self._busy

    # -- what befalls it -------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Stop in the middle of everything."""
        self._life += 1
        self._busy = False
        self.forget_failures()

    def forget_failures(self) -> None:
        """Lose the failure table."""
        self._failures.clear()
        self._rejoining.clear()

    def load_ring(self, ring: Ring) -> None:
        """Go by another ring from now on."""
        if ring.version > self.ring.version:
            self.ring = ring
            self.ring_since_s = self._timeline.now_s

    # -- the failure table -----------------------------------------------------------------------------------

    def failed(self) -> frozenset[int]:
        """Peers to skip; those whose time is over are tried again."""
        now_s = self._timeline.now_s
        for peer, (number, last_s) in list(self._failures.items()):
            if number >= ERROR_LIMIT and now_s - last_s > ERROR_INTERVAL_S:
                del self._failures[peer]
                self._rejoining.add(peer)
        return frozenset(peer for peer, (number, _) in self._failures.items() if number >= ERROR_LIMIT)

    def mark_failed(self, peer: int) -> None:
        """Be told that a peer is away."""
        self._failures[peer] = (ERROR_LIMIT, self._timeline.now_s)

    def _heard(self, peer: int, outcome: Outcome) -> None:
        if isinstance(outcome, NodeTimeout):
            self._failures[peer] = (self._failures.get(peer, (0, 0.0))[0] + 1, self._timeline.now_s)
        else:
            self._failures.pop(peer, None)

    # -- rounds ----------------------------------------------------------------------------------------------

    def round(self) -> None:
        """Begin a round, unless one is under way."""
        if self._busy or self.id in self._network.down:
            return
        ring, failed, mode = self.ring, self.failed(), self._rules.mode
        terms = self._rules.terms(ring)
        try:
            work = plan(ring, self.id, self.store.partitions(), failed, mode)
        except SwiftletError as error:
            self._witness.say(f"{self.id}: no round: {error}")
            return
        jobs: deque[Callable[[], Session]] = deque()
        for errand in errands(ordered(work.items, self._rejoining, self._random), mode, 1024):
            jobs.append(partial(neighbour_session, terms, errand.peer, errand.partitions))
        for home in work.homeward:
            jobs.append(partial(handoff_session, terms, home.partition, home.primaries, failed))
        self._rejoining.clear()
        self._busy = True
        self._witness.say(f"{self.id}: round, {len(work.items)} comparisons, {len(work.homeward)} to go home")
        lanes = [_LANES]

        def lane() -> None:
            if self.ring is not ring:
                jobs.clear()
            if jobs:
                _Drive(self, jobs.popleft()(), ring, lane).begin()
                return
            lanes[0] -= 1
            if not lanes[0]:
                self._busy = False

        for _ in range(_LANES):
            lane()

    # -- answering -------------------------------------------------------------------------------------------

    def answer(self, data: bytes) -> bytes:
        """Answer a sync message."""
        steps = answer(decode_request(data), self.ring.version, self.is_primary, self._rules.limits)
        effect = next(steps)
        while True:
            try:
                effect = steps.send(self.look_up(effect))
            except StopIteration as stop:
                return encode(stop.value)

    def is_primary(self, partition: int) -> bool:
        """Whether its own ring puts a partition on it."""
        ring = self.ring
        return partition < ring.partition_count and any(d.id == self.id for d in ring.primaries(partition))

    def look_up(self, effect: Effect) -> object:
        """What the local device says."""
        store = self.store
        if isinstance(effect, ReadRoots):
            return [store.root(partition) for partition in effect.partitions]
        if isinstance(effect, ReadSuffixes):
            return store.suffix_hashes(effect.partition)
        assert isinstance(effect, ReadEntries)
        return slice_page(store.entries(effect.partition, effect.suffixes), effect.after, effect.limit)

    def reclaim(self) -> None:
        """Forget old tombstones."""
        terms = self._rules.terms(self.ring)
        before_s = terms.forgotten_before_s(self.now_s)
        if before_s and not self.store.failing:
            self.store.reclaim(Timestamp.at(before_s))

    def receive(self, partition: int, parcel: Parcel, why: str, began_s: float) -> None:
        """Store what a session brings."""
        self._witness.offered(self, partition, parcel, began_s)
        self.store.receive(partition, parcel, why)

    def parcel(self, partition: int, push: Push) -> Parcel:
        """What a session takes away; NotFound when it is no longer what was compared."""
        parcel = self.store.parcel(partition, push.entry.digest)
        if push.need is Need.META:
            if parcel.post is None:
                raise NotFound(f"{parcel.digest.hex()} has no newer metadata any more")
            return Parcel(parcel.digest, None, None, parcel.post)
        return parcel


class _Drive:
    """Drives one session of a node to its end."""

    def __init__(self, node: Node, session: Session, ring: Ring, ended: Callable[[], None]) -> None:
        self._node = node
        self._session = session
        self._ring = ring
        self._ended = ended
        self._life = node._life
        self._began_s = node._timeline.now_s

    def begin(self) -> None:
        self._go(self._session.resume(None, self._node.now_s))

    def _resume(self, observation: object) -> None:
        if self._node._life == self._life:
            self._go(self._session.resume(observation, self._node.now_s))

    def _fail(self, error: SwiftletError) -> None:
        if self._node._life == self._life:
            self._node._witness.say(f"{self._node.id}: {type(error).__name__}: {error}")
            self._go(self._session.fail(error, self._node.now_s))

    def _go(self, effect: Effect | None) -> None:
        """Do what is local at once, until something has to travel."""
        node = self._node
        while effect is not None:
            if isinstance(effect, Ask):
                self._ask(effect)
                return
            if isinstance(effect, Move):
                self._move(effect)
                return
            try:
                observation = self._local(effect)
            except SwiftletError as error:
                effect = self._session.fail(error, node.now_s)
            else:
                effect = self._session.resume(observation, node.now_s)
        self._ended()

    def _local(self, effect: Effect) -> object:
        node = self._node
        if isinstance(effect, Drop):
            return self._drop(effect)
        if isinstance(effect, Proved | Settled | WentHome):
            if not isinstance(effect, Proved):
                node._witness.say(f"{node.id}: {effect}")
            return None
        return node.look_up(effect)

    def _drop(self, effect: Drop) -> int:
        node = self._node
        if node.ring is not self._ring:
            return 0
        node._witness.dropping(node, effect, self._began_s)
        return sum(node.store.remove(effect.partition, entry) for entry in effect.entries)

    def _ask(self, effect: Ask) -> None:
        node, peer = self._node, self._node.peers[effect.peer]
        data = encode(effect.request)

        def done(outcome: Outcome) -> None:
            if node._life != self._life:
                return
            node._heard(peer.id, outcome)
            if isinstance(outcome, bytes):
                self._answered(effect.request, outcome)
            else:
                self._fail(_as_peers(outcome))

        node._network.call(node.id, peer.id, lambda: peer.answer(data), done, len(data))

    def _answered(self, request: Request, data: bytes) -> None:
        try:
            reply = decode_reply(data)
        except SwiftletError as error:
            self._fail(error)
        else:
            self._resume(reply)

    def _move(self, effect: Move) -> None:
        node, peer = self._node, self._node.peers[effect.peer]
        fates: list[Fate | None] = [None] * len(effect.objects)
        waiting = [len(effect.objects)]
        errors: list[SwiftletError] = []

        def arrived(index: int, outcome: Outcome, remote: bool) -> None:
            if node._life != self._life:
                return
            try:
                fates[index] = _fate(outcome, remote)
            except SwiftletError as error:
                errors.append(error)
            waiting[0] -= 1
            if waiting[0]:
                return
            if errors:
                self._fail(errors[0])
                return
            node._witness.moved(fates.count(Fate.MOVED))
            self._resume(fates)

        for index, push in enumerate(effect.objects):
            if effect.pull:
                self._pull(peer, effect.partition, push, index, arrived)
            else:
                self._push(peer, effect.partition, push, index, arrived)

    def _push(
        self, peer: Node, partition: int, push: Push, index: int, arrived: Callable[[int, Outcome, bool], None]
    ) -> None:
        node = self._node
        try:
            parcel = node.parcel(partition, push)
        except SwiftletError as error:
            arrived(index, error, False)
            return
        why = f"push from {node.id}"
        node._network.call(
            node.id,
            peer.id,
            lambda: peer.receive(partition, parcel, why, self._began_s),
            lambda outcome: arrived(index, outcome, True),
        )

    def _pull(
        self, peer: Node, partition: int, push: Push, index: int, arrived: Callable[[int, Outcome, bool], None]
    ) -> None:
        node = self._node

        def done(outcome: Outcome) -> None:
            if node._life != self._life:
                return
            if not isinstance(outcome, Parcel):
                arrived(index, outcome, True)
                return
            try:
                node.receive(partition, outcome, f"pull from {peer.id}", self._began_s)
            except SwiftletError as error:
                arrived(index, error, False)
            else:
                arrived(index, None, False)

        node._network.call(node.id, peer.id, lambda: peer.parcel(partition, push), done)


def _fate(outcome: Outcome, remote: bool) -> Fate:
    """What became of an object; raises what ends the session."""
    if isinstance(outcome, Superseded | NotFound):
        return Fate.OVERTAKEN
    if isinstance(outcome, DiskFull):
        return Fate.REFUSED
    if isinstance(outcome, SwiftletError):
        raise _as_peers(outcome) if remote else outcome
    return Fate.MOVED


def _as_peers(outcome: Outcome) -> SwiftletError:
    """A neighbour's trouble, whatever ails it, told from the local device's."""
    if isinstance(outcome, NodeError):
        return outcome
    if isinstance(outcome, DeviceFailed):
        return NodeError(f"the neighbour's device: {outcome}")
    return outcome if isinstance(outcome, SwiftletError) else NodeError(f"no answer: {outcome!r}")
