"""The faults of a world: they come at random moments, each is undone after a while, and none comes once it is calm.

Fault model, by name: `crash` and restart of a node in the middle of anything; `partition` of the network; `slow` node;
`disk_errors` and `disk_full` for a while; `wipe`, a device replaced by an empty one; `clock` steps of nodes and
proxies, up to minutes; `table`, the loss of a failure table (Redis gone); `ring`, a new ring that each node loads at
another moment. With several regions also `region`, of which all nodes are away for a while, and the link between two of
them: `link_cut` in both directions, `link_one_way` in one, `link_lossy` in both, in each to another extent. Also
counted: `skew`, a clock that is off from the beginning, and what the network does to messages by itself (`Weather`):
`message_lost`, `message_doubled`, `message_reordered`, and `message_cut`, which arrived when its endpoints were no
longer connected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from swiftlet.ring.builder import RingBuilder
from swiftlet.ring.lookup import Ring
from swiftlet.testing.sim.checker import Counts
from swiftlet.testing.sim.client import Proxy
from swiftlet.testing.sim.network import Network, Timeline
from swiftlet.testing.sim.node import Node
from swiftlet.testing.sim.shape import Shape

_LOAD_S = 60.0
"""The longest time until a node or proxy loads a new ring."""


class Log(Protocol):
    """Receives reports of a world's faults."""

    wiped_s: dict[int, float]

    @property
    def counts(self) -> Counts:
        """Return how often each fault happened."""
        ...

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        ...


class Faults:
    """The faults of one world; `lost` are the devices that were lost for good or wiped."""

    def __init__(
        self,
        shape: Shape,
        timeline: Timeline,
        network: Network,
        random: Random,
        nodes: dict[int, Node],
        proxies: list[Proxy],
        builder: RingBuilder,
        checker: Log,
        losing: Callable[[Node], None] = lambda _node: None,
    ) -> None:
        """Start without faults. `losses` devices may lose all their data: `losing` is called before."""
        self.calm = False
        self.losses = shape.losses
        self.ring = builder.ring
        self._shape = shape
        self._timeline = timeline
        self._network = network
        self._random = random
        self._nodes = nodes
        self._proxies = proxies
        self._builder = builder
        self._checker = checker
        self._losing = losing
        self._later = shape.later
        self._hour = 1

    def plan(self) -> None:
        """Schedule the world's faults over its time."""
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "crash": (4, self._crash),
            "partition": (3, self._partition),
            "slow": (1, self._slow),
            "disk_errors": (2, self._disk_errors),
            "disk_full": (1, self._disk_full),
            "wipe": (2, self._wipe),
            "clock": (2, self._clock),
            "table": (1, self._table),
            "ring": (3, self._new_rings),
        }
        if self._shape.regions > 1:
            kinds |= {
                "region": (2, self._region),
                "link_cut": (3, lambda: self._link((1.0, 1.0))),
                "link_one_way": (3, lambda: self._link((1.0, 0.0))),
                "link_lossy": (2, lambda: self._link((self._loss(), self._loss()))),
            }
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        for name in self._random.choices(names, weights, k=self._shape.faults):
            moment_s = self._random.uniform(0.0, self._shape.duration_s)
            self._timeline.after(moment_s, partial(self._happen, name, kinds[name][1]))

    def _happen(self, name: str, event: Callable[[], None]) -> None:
        if not self.calm:
            self._checker.counts.fault(name)
            event()

    def _for_a_while(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        self._timeline.after(self._random.uniform(*self._shape.away_s), end)

    def _some_node(self) -> Node:
        return self._nodes[self._random.choice(sorted(self._nodes))]

    def _unwell(self, node: Node, what: str, ailments: int = 0) -> None:
        """Change a node's number of current faults."""
        node.well_since_s = self._timeline.now_s
        node.ailments += ailments
        self._checker.say(f"{node.id}: {what}")

    def _crash(self) -> None:
        node = self._some_node()

        def begin() -> None:
            self._unwell(node, "crashes", 1)
            node.crash()
            self._network.down.add(node.id)

        def end() -> None:
            self._unwell(node, "is up", -1)
            self._network.down.discard(node.id)

        self._for_a_while(begin, end)

    def _partition(self) -> None:
        cut = {id_: self._random.randint(0, 1) for id_ in sorted(self._nodes)}

        def begin() -> None:
            self._checker.say(f"the network falls apart: {cut}")
            self._network.parts = cut
            self._all_unwell("is cut off", 1)

        def end() -> None:
            if self._network.parts is cut:
                self._network.parts = {}
            self._all_unwell("is linked", -1)

        self._for_a_while(begin, end)

    def _loss(self) -> float:
        return self._random.uniform(0.02, 0.6)

    def _link(self, losses: tuple[float, float]) -> None:
        """Let a link between two regions lose these shares of messages, there and back."""
        one, other = self._random.sample([f"r{number}" for number in range(self._shape.regions)], 2)
        lost = {(one, other): losses[0], (other, one): losses[1]}

        def begin() -> None:
            self._checker.say(f"links lose {lost}")
            self._network.links.update(lost)
            self._all_unwell("has a bad link", 1)

        def end() -> None:
            for link, loss in lost.items():
                if self._network.links.get(link) == loss:
                    del self._network.links[link]
            self._all_unwell("has a sound link", -1)

        self._for_a_while(begin, end)

    def _region(self) -> None:
        """Let all nodes of a region crash, and be away for a while."""
        region = self._random.choice(sorted(set(self._network.regions.values())))
        nodes = [node for id_, node in sorted(self._nodes.items()) if self._network.regions.get(id_) == region]

        def begin() -> None:
            for node in nodes:
                self._unwell(node, f"crashes with {region}", 1)
                node.crash()
                self._network.down.add(node.id)

        def end() -> None:
            for node in nodes:
                self._unwell(node, f"is up with {region}", -1)
                self._network.down.discard(node.id)

        self._for_a_while(begin, end)

    def _all_unwell(self, what: str, ailments: int) -> None:
        for node in self._nodes.values():
            self._unwell(node, what, ailments)

    def _slow(self) -> None:
        node = self._some_node()

        def begin() -> None:
            self._unwell(node, "is slow", 1)
            self._network.slow.add(node.id)

        def end() -> None:
            self._unwell(node, "is fast", -1)
            self._network.slow.discard(node.id)

        self._for_a_while(begin, end)

    def _disk_errors(self) -> None:
        node = self._some_node()

        def set_to(failing: bool) -> None:
            self._unwell(node, f"disk errors: {failing}", 1 if failing else -1)
            node.store.failing = failing

        self._for_a_while(lambda: set_to(True), lambda: set_to(False))

    def _disk_full(self) -> None:
        node = self._some_node()

        def set_to(full: bool) -> None:
            self._unwell(node, f"disk full: {full}", 1 if full else -1)
            node.store.full = full

        self._for_a_while(lambda: set_to(True), lambda: set_to(False))

    def _wipe(self) -> None:
        if self.losses:
            self.losses -= 1
            self.wipe(self._some_node().id)

    def wipe(self, device: int) -> None:
        """Replace a device by an empty one."""
        node = self._nodes[device]
        self._losing(node)
        self._unwell(node, "its device is replaced by an empty one")
        self._checker.wiped_s[device] = self._timeline.now_s
        node.crash()
        node.store.wipe()

    def _clock(self) -> None:
        skew_s = self._shape.skew_s
        moment_s = self._random.uniform(-skew_s, skew_s)
        if self._random.random() < 0.5:
            self._random.choice(self._proxies).offset_s = moment_s
        else:
            node = self._some_node()
            self._unwell(node, f"its clock steps to {moment_s:+.1f} s")
            node.offset_s = moment_s

    def _table(self) -> None:
        node = self._some_node()
        self._checker.say(f"{node.id}: loses its failure table")
        node.forget_failures()

    def _new_rings(self) -> None:
        """Make one new ring, or several that follow each other faster than they are loaded."""
        self._new_ring()
        while self._random.random() < 0.4:
            self._timeline.after(self._random.uniform(0.0, _LOAD_S), self._new_ring)

    def _new_ring(self) -> None:
        """Make a ring with a device more, one less, or another weight; it is loaded at different moments."""
        if self.calm:
            return
        builder = self._builder
        if self._later:
            self._later -= 1
            add_device(builder, len(builder.devices), self._shape.regions)
        else:
            present = [device for device in builder.devices if device is not None]
            weighty = [device for device in present if device.weight > 0]
            device = self._random.choice(present)
            if device.weight == 0:
                builder.set_weight(device.id, 100.0)
            elif len(weighty) > self._shape.replicas and self._random.random() < 0.5:
                builder.set_weight(device.id, 0.0)
            elif len(weighty) > self._shape.replicas and self._random.random() < 0.5:
                builder.remove_device(device.id)
            else:
                builder.set_weight(device.id, self._random.choice((50.0, 100.0, 200.0)))
        self._hour += 1
        builder.rebalance(self._hour, ignore_min_part_hours=True)
        ring = self.ring = builder.ring
        self._checker.say(f"ring version {ring.version}")
        for proxy in self._proxies:
            self._load(partial(_load_proxy, proxy, ring))
        for node in self._nodes.values():
            self._load(partial(self._load_node, node, ring))

    def _load(self, event: Callable[[], None]) -> None:
        self._timeline.after(self._random.uniform(0.0, _LOAD_S), event)

    def _load_node(self, node: Node, ring: Ring) -> None:
        self._unwell(node, f"loads ring version {ring.version}")
        node.load_ring(ring)


def _load_proxy(proxy: Proxy, ring: Ring) -> None:
    if ring.version > proxy.ring.version:
        proxy.ring = ring


def add_device(builder: RingBuilder, number: int, regions: int = 1) -> None:
    """Add a device on a node of its own; every third one is in the same zone, and in turns they are in each region."""
    region = region_of(number, regions)
    builder.add_device(host=f"n{number}", port=6200, device="d", region=region, zone=f"z{number % 3}", weight=100.0)


def region_of(number: int, regions: int) -> str:
    """Return the region of a device."""
    return "r" if regions == 1 else f"r{number % regions}"
