"""The containers of one world: their devices and faults, writes' rows, audits, and the final checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import cast

from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ObjectRow
from swiftlet.names import Path
from swiftlet.ring.builder import RingBuilder
from swiftlet.sync.audit.verdict import Merge, NoRepair, Replace, Wrong, judge, newest
from swiftlet.sync.session.topology import MODES
from swiftlet.testing.sim.checker import Checker
from swiftlet.testing.sim.client import Proxy, Rows, Verb, Write
from swiftlet.testing.sim.faults import Faults, add_device
from swiftlet.testing.sim.listings.checker import ListingChecker
from swiftlet.testing.sim.listings.node import ListingNode
from swiftlet.testing.sim.listings.rows import (
    LOOK_S,
    PENDING_FOR_S,
    Content,
    DeviceRows,
    Places,
    RowsNetwork,
    View,
    WriteRows,
)
from swiftlet.testing.sim.listings.store import ListingStore
from swiftlet.testing.sim.network import Network, Timeline, Weather
from swiftlet.testing.sim.node import Node
from swiftlet.testing.sim.shape import Shape
from swiftlet.testing.sim.store import SimStore

_COPIES = 0.2
"""The share of PUTs that are copies of another object."""
_AUDITS = 3
"""The largest number of audits while faults happen; one more follows at the end."""
AUDIT_HORIZON_S = 60.0
"""Rows and objects younger than this are ignored by audits."""
_DELIVERY_S = PENDING_FOR_S + 3 * LOOK_S
"""Seconds after which a healthy device has delivered what was pending."""


class Listings:
    """The containers of one world; they exist beside its objects, with random numbers and networks of their own."""

    def __init__(
        self,
        seed: int,
        shape: Shape,
        timeline: Timeline,
        objects: Mapping[int, Node],
        network: Network,
        proxies: Iterable[Proxy],
        checker: Checker,
        digests: Iterable[bytes],
    ) -> None:
        """Create all containers on all their primaries, empty."""
        random = self._random = Random(f"listings {seed}")  # noqa: S311 - a simulation's chance
        nodes = random.randint(4, 6)
        self.shape = replace(
            shape,
            nodes=nodes,
            later=random.choice((0, 0, 1)),
            replicas=random.choice((2, 3, 3, 3)),
            mode=MODES[shape.mode.name],
            regions=1,
            part_power=2,
            faults=min(shape.faults, random.choice((0, 2, 4, 8))),
        )
        self._timeline = timeline
        self.network = Network(timeline, random, shape.weather, 0.0)
        self._rows_network = RowsNetwork(
            timeline, random, shape.weather, min(shape.unheard, 0.1), network, self.network
        )
        self._proxies = list(proxies)
        self._world = checker
        self._away: frozenset[int] = frozenset()
        self.checker = ListingChecker(checker)
        builder = RingBuilder(2, self.shape.replicas, 1, seed=seed)
        for number in range(nodes):
            add_device(builder, number)
        builder.rebalance(1)
        self.nodes: dict[int, ListingNode] = {}
        for id_ in range(nodes + self.shape.later):
            store = ListingStore(timeline.after, self.checker.watch(id_))
            node = ListingNode(
                id_,
                timeline,
                self.network,
                random,
                self.shape.world_terms,
                cast("SimStore", store),
                builder.ring,
                self.checker,
            )
            node.databases = store
            node.peers = cast("dict[int, Node]", self.nodes)
            self.nodes[id_] = node
        views = {end: View(builder.ring) for end in (*(proxy.endpoint for proxy in self._proxies), *objects)}
        containers = random.randint(1, 3)
        self.places = self.checker.places = Places(
            timeline,
            self._rows_network,
            random,
            objects,
            self.nodes,
            views,
            {
                digest: Path("a", f"c{number % containers}", f"o{number:03}")
                for number, digest in enumerate(dict.fromkeys(digests))
            },
            {f"c{number}": random.randbytes(16) for number in range(containers)},
            shape.reclaim_age_s,
            unlisted=self.checker.give_up,
        )
        self.faults = Faults(
            self.shape,
            timeline,
            self.network,
            random,
            cast("dict[int, Node]", self.nodes),
            cast("list[Proxy]", list(views.values())),
            builder,
            self.checker,
            losing=lambda node: self.checker.losing_rows(cast("ListingNode", node)),
        )
        self._make_containers()
        for node_ in objects.values():
            DeviceRows(self.places, node_)

    def _make_containers(self) -> None:
        ring = self.faults.ring
        for name, digest in self.places.databases.items():
            id = DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(digest), digest)
            for device in ring.primaries(id.partition):
                self.nodes[device.id].databases.create(id, DatabaseName("a", name))

    # -- the time of faults ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Plan rounds, faults and audits."""
        shape, random, after = self.shape, self._random, self._timeline.after
        for node in self.nodes.values():
            after(random.uniform(0.0, shape.period_s), partial(self._tick, node))
        self.faults.plan()
        for _ in range(random.randrange(_AUDITS + 1)):
            after(random.uniform(0.0, shape.duration_s), self._audit_in_time)

    def _tick(self, node: ListingNode) -> None:
        if not self.faults.calm:
            node.round()
            if node.id not in self.network.down:
                node.reclaim()
            self._timeline.after(self.shape.period_s * self._random.uniform(0.9, 1.1), partial(self._tick, node))

    def rows(self, proxy: Proxy, write: Write) -> Rows:
        """Return the handler of the row of a write that is about to begin."""
        if write.verb is Verb.PUT:
            self.places.contents[write.timestamp] = self._content(write)
        return WriteRows(self.places, proxy, write, len(proxy.ring.primaries(write.partition)))

    def _content(self, write: Write) -> Content:
        """Return new content, or that of another object as one of its devices has it."""
        if self._random.random() < _COPIES:
            source = self._random.choice(list(self.places.paths))
            row = self.checker.truth(source, self._up())
            if row is not None and not row.deleted:
                return Content(row.size, row.etag, row.content_type)
        number = write.timestamp.value
        return Content(number % 1000, f"{number:x}", f"put/{number}")

    def _up(self) -> list[Node]:
        nodes = [node for node in self.places.objects.values() if self._is_up(node)]
        return self._random.sample(nodes, 1) if nodes else []

    def _is_up(self, node: Node) -> bool:
        away = self._away if node.id in self.places.objects and node is self.places.objects[node.id] else ()
        return node.id not in node.network.down and node.id not in away and not node.store.failing

    # -- audits ----------------------------------------------------------------------------------------------

    def _audit_in_time(self) -> None:
        if not self.faults.calm:
            self.audit(AUDIT_HORIZON_S)

    def audit(self, horizon_s: float) -> int:
        """Check all rows of all replicas against what the reachable object devices hold; return how many were wrong."""
        found = [self._audit_name(digest, horizon_s) for digest in self.places.paths]
        return sum(found)

    def _audit_name(self, digest: bytes, horizon_s: float) -> int:
        """Check one name on all reachable replicas."""
        nodes = self._devices_of(digest)
        complete = all(map(self._is_up, nodes))
        truth = self.checker.truth(digest, [node for node in nodes if self._is_up(node)])
        wrong = 0
        for node, id in self.checker.primaries(digest):
            database = node.databases.peek(id)
            if database is None or not self._is_up(node):
                continue
            row = database.rows.get(self.places.paths[digest].obj or "")
            if row is None and truth is None:
                continue
            verdict = judge(row, truth, complete)
            if isinstance(verdict, NoRepair) or not self._old_enough(horizon_s, row, truth):
                continue
            wrong += 1
            if _takes_back(verdict, truth):
                all_hold = self.checker.truth(digest, nodes)
                self._world.must(truth == all_hold, f"an audit takes back {row} by {truth}, devices hold {all_hold}")
            self.checker.say(f"{node.id}: audit of {self.places.paths[digest]}: {verdict}")
            self._mend(digest, verdict, truth)
        return wrong

    def _devices_of(self, digest: bytes) -> list[Node]:
        """Return the primaries of an object, and as many handoffs, under the newest ring."""
        ring = max((node.ring for node in self.places.objects.values()), key=lambda ring: ring.version)
        partition = ring.partition_of(digest)
        primaries = [device.id for device in ring.primaries(partition)]
        handoffs = [device.id for _, device in zip(primaries, ring.handoffs(partition), strict=False)]
        return [self.places.objects[device] for device in (*primaries, *handoffs)]

    def _old_enough(self, horizon_s: float, row: ObjectRow | None, truth: ObjectRow | None) -> bool:
        now_s = next(iter(self.places.objects.values())).now_s
        return newest(row, truth).seconds <= now_s - horizon_s

    def _mend(self, digest: bytes, verdict: Merge | Replace, truth: ObjectRow | None) -> None:
        if _takes_back(verdict, truth):
            # A handoff that was not returned yet under a new ring was not asked: the next audit finds its row missing.
            self.checker.give_up(digest)
        for node, id in self.checker.primaries(digest):
            if self._is_up(node) and not node.databases.full and node.databases.peek(id) is not None:
                if isinstance(verdict, Merge):
                    node.databases.merge(id, [verdict.row], "audit")
                else:
                    node.databases.replace(id, verdict.seen, verdict.row)

    # -- afterwards ------------------------------------------------------------------------------------------

    def heal(self, away: Collection[int]) -> None:
        """Undo all faults; some devices may finally be lost, and those object devices stay `away`."""
        self._away = frozenset(away)
        self.faults.calm = True
        for network in (self.network, self._rows_network):
            network.weather = Weather()
            network.unheard = 0.0
        self.network.parts = {}
        self.network.slow.clear()
        self.network.down.clear()
        while self.faults.losses and self._random.random() < 0.3:
            self.faults.losses -= 1
            self.faults.wipe(self._random.choice(sorted(self.nodes)))
        for node in self.nodes.values():
            node.store.failing = node.store.full = False
            node.load_ring(self.faults.ring)
        for view in self.places.views.values():
            view.ring = self.faults.ring

    def settle(self, rounds: int, round_: Callable[[Iterable[Node]], None], live: list[Node]) -> None:
        """Deliver what is pending; where a container's replica lacks the database, a round creates it first."""
        for _ in range(rounds):
            round_(self.nodes.values())
        self._timeline.run_until(self._timeline.now_s + _DELIVERY_S, 1 << 62)
        self.checker.nothing_pending(live)

    def end(self, rounds: int, round_: Callable[[Iterable[Node]], None], live: list[Node]) -> None:
        """Run rounds in step, check the invariants, run an audit, and check them for every name."""
        for _ in range(rounds):
            round_(self.nodes.values())
        self.checker.equal(rounds)
        self.checker.counted()
        self.checker.as_objects(live)
        for digest in self.places.paths:
            needs_one = self.checker.needs_audit(digest)
            wrong = self._audit_name(digest, 0.0)
            self._world.counts.audited += wrong
            text = f"{wrong} rows of {self.places.paths[digest]} are wrong at last, and nothing explains it"
            self._world.must(needs_one or not wrong, text)
        self.checker.counted()
        for digest in self.places.paths:
            if all(map(self._is_up, self._devices_of(digest))):
                self.checker.audited(digest, live)


def _takes_back(verdict: Merge | Replace, truth: ObjectRow | None) -> bool:
    """Return whether a verdict depends on what devices do not hold, rather than on what one of them does."""
    return isinstance(verdict, Replace) or (verdict.wrong is Wrong.GHOST and verdict.row != truth)
