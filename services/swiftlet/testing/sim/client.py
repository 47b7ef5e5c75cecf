"""Simulated clients: PUT, POST and DELETE through proxies with clocks of their own, to a write quorum of devices.

Fault model: a proxy's clock may be minutes off, so that later writes carry older timestamps; each copy may be lost,
duplicated or late; primaries that do not answer are replaced by handoffs. A write is acknowledged once a quorum of
devices has it; otherwise it may stay partly written for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import PostRecord
from swiftlet.placement.write_plan import WritePlan, plan_write
from swiftlet.ring.lookup import Ring
from swiftlet.testing.sim.network import Network, Outcome, Timeline
from swiftlet.testing.sim.node import EPOCH_S, Node
from swiftlet.timestamp import Timestamp


class Verb(Enum):
    """The kinds of requests."""

    PUT = "put"
    POST = "post"
    DELETE = "delete"


@dataclass(slots=True)
class Write:
    """One write in the history; `moment_s` is its simulated time."""

    verb: Verb
    digest: bytes
    partition: int
    timestamp: Timestamp
    moment_s: float
    typed: bool = False
    acknowledged: bool = False


class Rows:
    """Handles a write's row; this class does nothing, `swiftlet.testing.sim.listings.rows` delivers it."""

    def stored(self, slot: int, node: Node, timestamp: Timestamp) -> None:
        """A device has made a record of this time durable, in this slot of the write's plan."""

    def replied(self, slot: int, device: int) -> None:
        """The proxy receives that device's answer."""

    def quorum(self) -> None:
        """The write has reached its quorum."""


class Proxy:
    """One proxy: an endpoint with a negative number and its own clock."""

    def __init__(self, number: int, timeline: Timeline, network: Network, nodes: dict[int, Node], ring: Ring) -> None:
        """Connect a proxy; `number` distinguishes its timestamps from those of others."""
        self.endpoint = -1 - number
        self.offset_s = 0.0
        self.ring = ring
        self._number = number
        self._timeline = timeline
        self._network = network
        self._nodes = nodes
        self._last = Timestamp(0)

    def timestamp(self) -> Timestamp:
        """Return the next timestamp of its clock, never the same twice."""
        found = Timestamp.at(EPOCH_S + self._timeline.now_s + self.offset_s, self._number)
        if found <= self._last:
            found = Timestamp(self._last.value + (1 << 14))
        self._last = found
        return found

    def write(self, write: Write, rows: Rows | None = None) -> None:
        """Send to the primaries, and to handoffs where one does not answer; `rows` is told of the results."""
        _Fan(self, write, plan_write(self.ring, write.partition), rows or Rows()).begin()


class _Fan:
    """One write on its way to several devices."""

    def __init__(self, proxy: Proxy, write: Write, plan: WritePlan, rows: Rows) -> None:
        self._proxy = proxy
        self._rows = rows
        self._write = write
        self._quorum = plan.quorum.count
        self._slots = [device.id for device in plan.slots]
        self._spares = [device.id for device in plan.spares] if write.verb is not Verb.POST else []
        self._stored = 0

    def begin(self) -> None:
        for slot, device in enumerate(self._slots):
            self._send(slot, device)

    def _send(self, slot: int, device: int) -> None:
        node = self._proxy._nodes[device]

        def store() -> None:
            before = node.store.held(self._write.partition, self._write.digest)
            try:
                self._store(node)
            except Superseded:
                after = node.store.held(self._write.partition, self._write.digest)
                if after is not before and after is not None and after.post is not None:
                    # A POST older than the stored one has passed its content type on.
                    self._rows.stored(slot, node, after.post.timestamp)
                raise
            self._rows.stored(slot, node, self._write.timestamp)

        self._proxy._network.call(
            self._proxy.endpoint, device, store, lambda outcome: self._answered(slot, device, outcome)
        )

    def _store(self, node: Node) -> None:
        write = self._write
        if write.verb is Verb.PUT:
            node.store.put(write.partition, write.digest, write.timestamp, "client")
        elif write.verb is Verb.DELETE:
            node.store.delete(write.partition, write.digest, write.timestamp, "client")
        else:
            typed = (f"post/{write.timestamp.value}", write.timestamp) if write.typed else (None, Timestamp(0))
            node.store.post(write.partition, write.digest, PostRecord(write.timestamp, {}, *typed), "client")

    def _answered(self, slot: int, device: int, outcome: Outcome) -> None:
        if isinstance(outcome, SwiftletError):
            if self._spares and not isinstance(outcome, Superseded | NotFound):
                self._send(slot, self._spares.pop(0))
            return
        self._stored += 1
        self._rows.replied(slot, device)
        if self._stored == self._quorum:
            self._write.acknowledged = True
            self._rows.quorum()
