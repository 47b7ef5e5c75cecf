"""Rows in transfer to container replicas: from the proxy of a write, and from devices where they are pending.

The rules are the real ones: who keeps what (`placement.rows.share`), when a row is acknowledged to a device
(`through`), and what an object's row is (`ObjectRow.of`). A proxy sends a row once its write has a quorum; a device
sends what has been pending for ten seconds itself, as the object is then.

Fault model: a proxy may die between any two steps of this; messages are lost, duplicated and late; container devices
refuse, fail, and lose rows that they have accepted and not synced; rings differ between sender and receiver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from random import Random

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import DatabaseId, DatabaseKind, ObjectRow, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.owed import share
from swiftlet.placement.rows.row_delivery import Answer, container_missing, through
from swiftlet.ring.lookup import Ring
from swiftlet.store.merge import info_of
from swiftlet.testing.sim.client import Proxy, Rows, Verb, Write
from swiftlet.testing.sim.listings.node import ListingNode
from swiftlet.testing.sim.listings.store import SYNC_S
from swiftlet.testing.sim.network import Network, Outcome, Timeline, Weather
from swiftlet.testing.sim.node import Node
from swiftlet.testing.sim.pending import PendingUpdate
from swiftlet.testing.sim.store import Held
from swiftlet.timestamp import Timestamp

CONTAINERS = 1000
"""Endpoints with this number or a higher one are container nodes."""
PENDING_FOR_S = 10.0
"""How many seconds a row is left to its proxy."""
LOOK_S = 5.0
"""How often a device looks for rows to deliver, in seconds."""
_DEATHS = 0.15
"""The share of writes whose proxy dies within a second of the quorum."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content that a PUT stores: its size, ETag and type."""

    size: int
    etag: str
    content_type: str


@dataclass(slots=True)
class View:
    """The ring of containers that an endpoint has loaded. `offset_s` exists for clock faults and is never read."""

    ring: Ring
    offset_s: float = 0.0


class RowsNetwork(Network):
    """The network between proxies (negative numbers), object nodes, and container nodes (from `CONTAINERS` on)."""

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        weather: Weather,
        unheard: float,
        objects: Network,
        containers: Network,
    ) -> None:
        """Create the network; nodes that are down in the other two networks can't be reached in this one."""
        super().__init__(timeline, random, weather, unheard)
        self._objects = objects
        self._containers = containers

    def linked(self, one: int, other: int) -> bool:
        """Return whether both are up."""
        return not any(
            end - CONTAINERS in self._containers.down if end >= CONTAINERS else end in self._objects.down
            for end in (one, other)
        )


@dataclass(slots=True)
class Places:
    """The locations of everything: objects' containers and names, contents of PUTs, and both kinds of nodes."""

    timeline: Timeline
    network: RowsNetwork
    random: Random
    objects: Mapping[int, Node]
    containers: Mapping[int, ListingNode]
    views: dict[int, View]
    """Views by the endpoint of a proxy or an object node."""
    paths: Mapping[bytes, Path]
    """The path of each object's digest."""
    databases: Mapping[str, bytes]
    """The digest of each container's name."""
    reclaim_age_s: float
    contents: dict[Timestamp, Content] = field(default_factory=dict)
    unlisted: Callable[[bytes], None] = lambda _digest: None
    """Called with an object whose row is given up, as its container seems not to exist."""

    def row_of(self, digest: bytes, held: Held | None) -> ObjectRow | None:
        """Return the row of what a device holds; None when it holds nothing."""
        name = self.paths[digest].obj or ""
        if held is None or held.entry is None:
            return None
        if not held.state.exists or held.state.data is None:
            return ObjectRow(name, held.entry.timestamp, deleted=True)
        content = self.contents[held.state.data]
        record = PutRecord(str(self.paths[digest]), held.state.data, content.content_type, {}, {})
        return ObjectRow.of(name, info_of(record, PutFooter(content.size, content.etag, 0), held.post))

    def database(self, ring: Ring, digest: bytes) -> DatabaseId:
        """Return the database that lists an object."""
        container = self.databases[self.paths[digest].container or ""]
        return DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(container), container)

    def send(
        self, source: int, digest: bytes, replica: int, row: ObjectRow, later: bool, done: Callable[[Outcome], None]
    ) -> ListingNode:
        """Send a row to a replica, and return the target; `done` gets the number of the target's life, or an error."""
        ring = self.views[source].ring
        id = self.database(ring, digest)
        node = self.containers[ring.primaries(id.partition)[replica].id]

        def serve() -> int:
            node.databases.merge(id, [row], "row", later)
            return node.life

        self.network.call(source, CONTAINERS + node.id, serve, done)
        return node


class WriteRows(Rows):
    """The row of one write, at its proxy."""

    def __init__(self, places: Places, proxy: Proxy, write: Write, slots: int) -> None:
        """Start with nothing stored."""
        self._places = places
        self._proxy = proxy
        self._write = write
        self._slots = slots
        self._answers: dict[int, Answer] = {}
        self._asked: set[int] = set()
        self._pending: list[tuple[int, int]] = []
        self._replicas = len(places.views[proxy.endpoint].ring.primaries(0))
        self._dies_s = math.inf

    def _share(self, slot: int) -> tuple[int, ...]:
        return share(self._places.paths[self._write.digest], self._replicas, slot, self._slots).replicas

    @property
    def _dead(self) -> bool:
        return self._places.timeline.now_s >= self._dies_s

    def stored(self, slot: int, node: Node, timestamp: Timestamp) -> None:
        """A device has made the write durable: the row is pending there."""
        node.store.pending.add(self._write.digest, timestamp, self._share(slot), self._write.verb is Verb.POST)

    def replied(self, slot: int, device: int) -> None:
        """The proxy receives that device's answer."""
        self._pending.append((slot, device))
        self._acknowledge()

    def quorum(self) -> None:
        """The quorum is reached: send the row."""
        places, write = self._places, self._write
        if places.random.random() < _DEATHS:
            self._dies_s = places.timeline.now_s + places.random.random() - 0.2
        if self._dead:
            return
        name = places.paths[write.digest].obj or ""
        if write.verb is Verb.POST:
            self._read()
        elif write.verb is Verb.DELETE:
            self._send(ObjectRow(name, write.timestamp, deleted=True))
        else:
            content = places.contents[write.timestamp]
            self._send(ObjectRow(name, write.timestamp, content.size, content.etag, content.content_type))

    def _read(self) -> None:
        """Ask the devices where a POST's row is pending what they hold, and send the newest of it."""
        places, write = self._places, self._write
        asked = [places.objects[device] for _, device in self._pending]
        rows: list[ObjectRow | None] = []

        def answered(outcome: Outcome) -> None:
            rows.append(outcome if isinstance(outcome, ObjectRow) and not outcome.deleted else None)
            found = [row for row in rows if row is not None]
            if len(rows) == len(asked) and found and not self._dead:
                self._send(reduce(ObjectRow.merged, found))

        for node in asked:
            places.network.call(
                self._proxy.endpoint,
                node.id,
                lambda node=node: places.row_of(write.digest, node.store.held(write.partition, write.digest)),  # type: ignore[misc]
                answered,
            )

    def _send(self, row: ObjectRow) -> None:
        pending = {replica for slot, _ in self._pending for replica in self._share(slot)}
        for replica in range(self._replicas):
            if replica in self._asked:
                continue
            self._asked.add(replica)
            self._send_to(replica, row, replica in pending)

    def _send_to(self, replica: int, row: ObjectRow, later: bool) -> None:
        places = self._places

        def answered(outcome: Outcome) -> None:
            if self._dead:
                return
            if isinstance(outcome, NotFound):
                self._learn(replica, Answer.REFUSED)
            elif isinstance(outcome, SwiftletError):
                self._learn(replica, Answer.SILENT)
            elif not later:
                self._learn(replica, Answer.LISTED)
            else:
                self._learn(replica, Answer.TAKEN)
                places.timeline.after(2 * SYNC_S, lambda: self._ask_durable(node, replica, row, outcome))

        node = places.send(self._proxy.endpoint, self._write.digest, replica, row, later, answered)

    def _ask_durable(self, node: ListingNode, replica: int, row: ObjectRow, life: Outcome) -> None:
        """Ask a replica to tell when the row is durable, unless it has crashed in between."""
        places = self._places
        id = places.database(places.views[self._proxy.endpoint].ring, self._write.digest)

        def serve() -> bool:
            return node.life == life and node.databases.is_durable(id, row.name)

        def answered(outcome: Outcome) -> None:
            if outcome is True and not self._dead:
                self._learn(replica, Answer.LISTED)

        places.network.call(self._proxy.endpoint, CONTAINERS + node.id, serve, answered)

    def _learn(self, replica: int, answer: Answer) -> None:
        known = self._answers.get(replica, Answer.SILENT)
        if known is Answer.SILENT or (known is Answer.TAKEN and answer is not Answer.SILENT):
            self._answers[replica] = answer
            if container_missing(self._answers, self._replicas):
                self._places.unlisted(self._write.digest)
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the row to devices that need not keep it any longer."""
        if self._dead:
            return
        places, write = self._places, self._write
        for slot, device in tuple(self._pending):
            if through(self._share(slot), self._answers, self._replicas):
                self._pending.remove((slot, device))
                store = places.objects[device].store
                places.network.call(
                    self._proxy.endpoint,
                    device,
                    lambda store=store: store.pending.acknowledge(write.digest, write.timestamp),  # type: ignore[misc]
                    lambda _: None,
                )


@dataclass(slots=True)
class _Attempt:
    """The progress of one row; kept while some of its replicas can't accept it."""

    timestamp: Timestamp
    done: dict[int, Answer] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)


class DeviceRows:
    """Delivers the rows that an object device has pending."""

    def __init__(self, places: Places, node: Node) -> None:
        """Plan the first look within `LOOK_S`."""
        self._places = places
        self._node = node
        self._life = node.life
        self._attempts: dict[bytes, _Attempt] = {}
        places.timeline.after(places.random.random() * LOOK_S, self._look)

    def _look(self) -> None:
        node, places = self._node, self._places
        places.timeline.after(LOOK_S, self._look)
        if self._life != node.life:
            self._life, self._attempts = node.life, {}
        if node.id in places.objects[node.id].network.down or node.store.failing:
            return
        due = node.store.pending.due(PENDING_FOR_S)
        self._attempts = {digest: self._attempts[digest] for digest, _ in due if digest in self._attempts}
        for digest, update in due:
            self._bring(digest, update)

    def _bring(self, digest: bytes, update: PendingUpdate) -> None:
        node, places = self._node, self._places
        tried = self._attempts.get(digest)
        if tried is None or tried.timestamp != update.timestamp:
            tried = self._attempts[digest] = _Attempt(update.timestamp)
        row = places.row_of(digest, node.store.held(node.ring.partition_of(digest), digest))
        if row is None:
            node.store.pending.acknowledge(digest, update.timestamp)
            return
        for replica in sorted(update.replicas):
            if tried.done.get(replica) is not Answer.LISTED and replica not in tried.asked:
                tried.asked.add(replica)
                self._send(digest, update, tried, replica, row)

    def _send(self, digest: bytes, update: PendingUpdate, tried: _Attempt, replica: int, row: ObjectRow) -> None:
        node, life = self._node, self._node.life

        def answered(outcome: Outcome) -> None:
            tried.asked.discard(replica)
            if node.life != life:
                return
            if isinstance(outcome, NotFound):
                tried.done[replica] = Answer.REFUSED
            elif not isinstance(outcome, SwiftletError):
                tried.done[replica] = Answer.LISTED
            if self._is_through(digest, update, tried):
                node.store.pending.acknowledge(digest, update.timestamp)

        self._places.send(node.id, digest, replica, row, False, answered)

    def _is_through(self, digest: bytes, update: PendingUpdate, tried: _Attempt) -> bool:
        """Return whether the update is delivered, by the rule of `storage.pending_delivery`."""
        if any(replica not in tried.done for replica in update.replicas):
            return False
        if Answer.LISTED in tried.done.values():
            return True
        if self._node.now_s - update.timestamp.seconds < self._places.reclaim_age_s:
            return False
        self._places.unlisted(digest)
        return True
