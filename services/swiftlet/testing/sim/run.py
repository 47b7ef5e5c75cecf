"""The history of one seed: a world is created, runs through its faults, is calmed, and its invariants are checked.

Once it is calm the rounds of all nodes run in step, so that they can be counted: each mode promises within how many
rounds replicas are equal (`rounds_needed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from swiftlet.model import Entry
from swiftlet.placement.quorums import write_quorum
from swiftlet.ring.builder import RingBuilder
from swiftlet.sync.session.compare import IN_FLIGHT_S, need_of
from swiftlet.sync.session.topology import BATCHED
from swiftlet.testing.sim.checker import Broken, Checker, Counts
from swiftlet.testing.sim.client import Proxy, Verb, Write
from swiftlet.testing.sim.faults import Faults, add_device, region_of
from swiftlet.testing.sim.listings.world import Listings
from swiftlet.testing.sim.network import Network, Timeline, Weather
from swiftlet.testing.sim.node import ERROR_INTERVAL_S, Node
from swiftlet.testing.sim.shape import Shape, shape_of
from swiftlet.testing.sim.store import SimStore

_PROXIES = 3
_SUFFIXES = (0x000, 0x001, 0xABC, 0xFFF)
_LATE = 0.3
"""The share of writes that come last, too late for rounds to bring them everywhere."""
_LATE_S = 12.0
_MOST_EVENTS = 4_000_000
"""More events than this count as a livelock."""
_ROUND_S = 600.0
"""Simulated seconds in which a round of a calm world ends at the latest."""
_STEP_S = 10.0
"""How often the end of rounds in step is checked, in seconds: tombstones age much more slowly."""
_QUIET_S = IN_FLIGHT_S + 60.0 + ERROR_INTERVAL_S + 10.0
"""Seconds after the last fault in which everything in progress has ended and no node counts as failed."""


@dataclass(slots=True)
class Report:
    """The outcome of a seed; `broken` names the violation, if any."""

    seed: int
    shape: Shape
    broken: str | None = None
    counts: Counts = field(default_factory=Counts)
    trace: list[str] = field(default_factory=list)


def run(seed: int, mode: str | None = None, large: bool = False, tracing: bool = False) -> Report:
    """Run one seed's history."""
    shape = shape_of(seed, mode, large)
    world = World(seed, shape, tracing)
    report = Report(seed, shape, counts=world.checker.counts)
    try:
        world.live_through()
        world.calm_down()
    except Broken as broken:
        report.broken = str(broken)
    report.trace = world.checker.trace or []
    world.count_messages(report.counts)
    return report


def rounds_needed(shape: Shape, at_quorum: bool) -> int:
    """Return after how many rounds in step an object's replicas are equal; `at_quorum`: a write quorum had it before.

    `lightsync` goes one hop clockwise per round, so r - 1, and ceil(r/2) from a quorum; `batched` one hop both ways.
    Where all devices are compared, as `batched` does with several regions, what a round has fetched is passed on in it;
    a handoff may take a round to bring it to a device of its region, and delegates fetch it from there.
    """
    replicas = shape.replicas
    if shape.is_thorough:
        return 2
    if shape.mode.name == BATCHED.name:
        return min(2, max(1, replicas // 2))
    if shape.mode.name == "all_to_all":
        return 1
    if shape.mode.name == "star":
        return 2
    return (replicas + 1) // 2 if at_quorum else replicas - 1


class World:
    """Nodes, proxies and their faults."""

    def __init__(self, seed: int, shape: Shape, tracing: bool) -> None:
        """Start empty and healthy."""
        self.shape = shape
        self.timeline = Timeline()
        self._random = Random(f"world {seed}")  # noqa: S311 - a simulation's chance
        self.network = Network(self.timeline, self._random, shape.weather, shape.unheard)
        world_terms = shape.world_terms
        self.checker = Checker(self.timeline, world_terms, shape.skew_s, shape.well_s, tracing)
        self.checker.say(repr(shape))
        builder = RingBuilder(shape.part_power, shape.replicas, 1, seed=seed)
        for number in range(shape.nodes):
            add_device(builder, number, shape.regions)
        builder.rebalance(1)
        self.nodes = self.checker.nodes
        for id_ in range(shape.nodes + shape.later):
            store = SimStore(lambda: self.timeline.now_s, self.checker.watch(id_))
            self.nodes[id_] = Node(
                id_, self.timeline, self.network, self._random, world_terms, store, builder.ring, self.checker
            )
        for id_, node in self.nodes.items():
            self.network.regions[id_] = self.checker.regions[id_] = region_of(id_, shape.regions)
            node.peers = self.nodes
            node.offset_s = self._skew()
        self.proxies = [Proxy(n, self.timeline, self.network, self.nodes, builder.ring) for n in range(_PROXIES)]
        for proxy in self.proxies:
            proxy.offset_s = self._skew()
        self.faults = Faults(
            shape,
            self.timeline,
            self.network,
            self._random,
            self.nodes,
            self.proxies,
            builder,
            self.checker,
            losing=lambda node: self.listings.checker.losing_objects(node),
        )
        self._digests = [self._digest() for _ in range(shape.objects)]
        self.listings = Listings(
            seed, shape, self.timeline, self.nodes, self.network, self.proxies, self.checker, self._digests
        )

    def count_messages(self, counts: Counts) -> None:
        """Add the fates of messages to the counts."""
        network = self.network
        counts.messages = network.messages
        befell = {
            "message_lost": network.lost,
            "message_doubled": network.doubled,
            "message_reordered": network.overtaken,
            "message_cut": network.cut,
        }
        counts.faults.update({name: number for name, number in befell.items() if number})

    def _skew(self) -> float:
        """Return how far a clock is off from the beginning."""
        if self.shape.skew_s:
            self.checker.counts.fault("skew")
        return self._random.uniform(-self.shape.skew_s, self.shape.skew_s)

    def _digest(self) -> bytes:
        number = self._random.getrandbits(128) & ~0xFFF | self._random.choice(_SUFFIXES)
        return number.to_bytes(16, "big")

    # -- the time of faults ----------------------------------------------------------------------------------

    def live_through(self) -> None:
        """Writes, rounds, reclaims and faults."""
        shape, random, after = self.shape, self._random, self.timeline.after
        for _ in range(shape.writes):
            late = random.random() < _LATE
            after(shape.duration_s - random.uniform(0.0, _LATE_S) if late else self._sometime(), self._write)
        for node in self.nodes.values():
            after(random.uniform(0.0, shape.period_s), partial(self._tick, node))
        self.faults.plan()
        self.listings.begin()
        self._run(shape.duration_s)

    def _sometime(self) -> float:
        return self._random.uniform(0.0, self.shape.duration_s)

    def _run(self, seconds: float) -> None:
        in_time = self.timeline.run_until(self.timeline.now_s + seconds, _MOST_EVENTS)
        self.checker.must(in_time, f"livelock: {self.timeline.ran} events")

    def _tick(self, node: Node) -> None:
        if not self.faults.calm:
            node.round()
            if node.id not in self.network.down:
                node.reclaim()
            self.timeline.after(self.shape.period_s * self._random.uniform(0.9, 1.1), lambda: self._tick(node))

    def _write(self) -> None:
        random = self._random
        proxy, digest = random.choice(self.proxies), random.choice(self._digests)
        verb = random.choices((Verb.PUT, Verb.DELETE, Verb.POST), (5, 3, 2))[0]
        partition = proxy.ring.partition_of(digest)
        write = Write(verb, digest, partition, proxy.timestamp(), self.timeline.now_s, random.random() < 0.5)
        self.checker.wrote(write)
        proxy.write(write, self.listings.rows(proxy, write))

    # -- afterwards ------------------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Undo all faults except for a node that may stay away; count rounds until all is equal, and check
        everything.
        """
        live = self._heal()
        for id_ in sorted(live):
            # Nodes do so at every tick: one that was away for long may hold a tombstone that all others have forgotten,
            # which hides data from its neighbour and which it tells nobody of.
            self.nodes[id_].reclaim()
        self._run(_QUIET_S + 2 * self.shape.skew_s)
        for node in self.nodes.values():
            self.checker.must(not node.busy, f"a round of device {node.id} does not end")
        listing_rounds = rounds_needed(self.listings.shape, False)
        self.listings.settle(listing_rounds, self._step, [self.nodes[id_] for id_ in sorted(live)])
        checker = self.checker
        newest = checker.newest(self.nodes[id_] for id_ in sorted(live))
        needed = {digest: self._rounds_for(digest, entry, live) for digest, entry in newest.items()}
        for number in range(1, max(needed.values(), default=1) + 1):
            self._round(live)
            for digest, entry in newest.items():
                if needed[digest] <= number and not checker.equal(digest, entry, live):
                    checker.must(False, f"not equal after {number} rounds: {checker.replicas(digest, live)}")
        self._round(live)
        checker.history(live)
        self._quiet_round(live)
        self.listings.end(listing_rounds, self._step, [self.nodes[id_] for id_ in sorted(live)])

    def _heal(self) -> frozenset[int]:
        self.faults.calm = True
        self.network.weather = Weather()
        self.network.parts = {}
        self.network.links.clear()
        self.network.slow.clear()
        self.network.down.clear()
        away: set[int] = set()
        while self.faults.losses and self._random.random() < 0.5:
            self.faults.losses -= 1
            if self._random.random() < 0.5:
                self.faults.wipe(self._random.choice(sorted(self.nodes)))
            else:
                away.add(self._random.choice(sorted(self.nodes)))
        self.checker.say(f"calm; {sorted(away)} stay away")
        for node in self.nodes.values():
            node.store.failing = node.store.full = False
            node.load_ring(self.faults.ring)
        self.listings.heal(away)
        for number, id_ in enumerate(sorted(away)):
            self.listings.checker.losing_objects(self.nodes[id_], sorted(away)[:number])
            self.nodes[id_].crash()
            self.network.down.add(id_)
        return frozenset(self.nodes.keys() - away)

    def _rounds_for(self, digest: bytes, newest: Entry, live: frozenset[int]) -> int:
        """Return twice as many rounds where metadata was hidden by a tombstone, or the tombstone is about to be
        forgotten.

        In `batched`, whose bound of one round may leave no time for it, also where a POST and the data that it applies
        to are on different devices: it is not sent with older data that is refused, and follows with the next round.
        """
        found = self.checker.replicas(digest, live)
        posted = self._posted(newest, live)
        at_quorum = found.count(newest) >= write_quorum(self.shape.replicas) and not posted
        needed = rounds_needed(self.shape, at_quorum and len(live) == len(self.nodes))
        verbs = {write.verb for write in self.checker.writes[digest]}
        hidden = {Verb.POST, Verb.DELETE} <= verbs
        forgotten = newest.timestamp.seconds < self.checker.forgotten_s(self.shape.skew_s)
        rounds = needed * 2 if hidden or forgotten else needed
        return max(rounds, 2) if posted and self.shape.mode.name == BATCHED.name else rounds

    def _posted(self, newest: Entry, live: frozenset[int]) -> bool:
        """Return whether a device with older data has a POST that applies to the newest."""
        partition = self.checker.writes[newest.digest][0].partition
        held = [self.nodes[id_].store.held(partition, newest.digest) for id_ in live]
        return any(h and h.entry and need_of(h.entry, newest) is not None for h in held)

    def _round(self, live: frozenset[int]) -> None:
        """Run one round of every node, each beginning at its own moment."""
        self.checker.counts.rounds += 1
        self.checker.say(f"round in step {self.checker.counts.rounds}")
        for id_ in sorted(live):
            node = self.nodes[id_]
            for other in self.nodes.keys() - live:
                node.mark_failed(other)
        self._step(self.nodes[id_] for id_ in sorted(live))

    def _step(self, nodes: Iterable[Node]) -> None:
        """Begin a round of each of these, and wait for their end."""
        nodes = list(nodes)
        for node in nodes:
            self.timeline.after(self._random.random(), node.round)
        end_s = self.timeline.now_s + _ROUND_S
        self._run(_STEP_S)
        while any(node.busy for node in nodes) and self.timeline.now_s < end_s:
            self._run(_STEP_S)
        for node in nodes:
            self.checker.must(not node.busy, f"a round of device {node.id} does not end")

    def _quiet_round(self, live: frozenset[int]) -> None:
        """Check another round: nothing is moved, nothing is misplaced, and only the necessary messages are sent."""
        checker, moved, messages = self.checker, self.checker.counts.moved, self.network.messages
        self._round(live)
        checker.must(checker.counts.moved == moved, f"{checker.counts.moved - moved} objects moved between equals")
        misplaced = self._misplaced(live)
        if len(live) == len(self.nodes):
            checker.must(not misplaced, f"handoff copies did not go home: {misplaced[:3]}")
        if not misplaced and not self._forgotten_left(live):
            ring = self.faults.ring
            comparisons = sum(len(ring.primaries(p)) for p in range(ring.partition_count))
            all_others = self.shape.mode.name != BATCHED.name or self.shape.is_thorough
            most = 2 * comparisons * (self.shape.replicas - 1 if all_others else 1)
            said = self.network.messages - messages
            checker.must(said <= most, f"{said} messages between equals, {most} are enough")

    def _misplaced(self, live: frozenset[int]) -> list[tuple[int, Entry | None]]:
        ring, before_s = self.faults.ring, self.checker.forgotten_s(self.shape.skew_s)
        return [
            (id_, held.entry)
            for id_ in sorted(live)
            for partition, held in self.nodes[id_].store.all()
            if held.entry is not None
            and held.entry.timestamp.seconds >= before_s
            and all(device.id != id_ for device in ring.primaries(partition))
        ]

    def _forgotten_left(self, live: frozenset[int]) -> bool:
        before_s = self.checker.forgotten_s(self.shape.skew_s)
        return any(
            held.entry is not None and held.entry.timestamp.seconds < before_s
            for id_ in live
            for _, held in self.nodes[id_].store.all()
        )
