"""A simulated container node: the rounds of `swiftlet.testing.sim.node` about databases, with the real exchange.

An exchange is a coroutine that awaits only its transport. Here each of its calls is a value that the node carries out,
on its own device at once and over the network on another one.

Fault model: a crash (`crash`) ends what is in progress; every second crash is a power loss as well, with which the rows
that were not synced are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from swiftlet.errors import SwiftletError
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, Entry, ObjectRow, RowPage
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.databases.exchange import Exchange
from swiftlet.sync.databases.transfer_rules import DatabaseTransferRules
from swiftlet.sync.session.compare import Push
from swiftlet.sync.session.effects import Terms
from swiftlet.testing.sim.listings.store import ListingStore
from swiftlet.testing.sim.network import Outcome
from swiftlet.testing.sim.node import Node

_RULES = DatabaseTransferRules()
Serve = Callable[["ListingStore"], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call to a device, which an exchange awaits."""

    device: int
    serve: Serve

    def __await__(self) -> Generator[Call, Any, Any]:
        """Pass the call to whoever drives the coroutine."""
        return (yield self)


class ExchangeTransport:
    """The part of `ListingSyncTransport` that an exchange uses."""

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        """Behaves as `ListingSyncTransport` requires."""
        return cast("DatabaseState", await Call(device.id, lambda store: store.state(id)))

    async def exchange_state(self, device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
        """Behaves as `ListingSyncTransport` requires."""
        return cast("DatabaseState", await Call(device.id, lambda store: store.merge_state(id, state)))

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> list[tuple[str, bytes]]:
        """Behaves as `ListingSyncTransport` requires."""
        found = await Call(device.id, lambda store: store.page_digests(id, after, upto))
        return cast("list[tuple[str, bytes]]", found)

    async def compare_rows(
        self, device: Device, id: DatabaseId, after: str, upto: str, digest: bytes
    ) -> RowPage | None:
        """Behaves as `ListingSyncTransport` requires."""
        return cast("RowPage | None", await Call(device.id, lambda store: store.compare(id, after, upto, digest)))

    async def merge_rows(self, device: Device, id: DatabaseId, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
        """Behaves as `ListingSyncTransport` requires."""

        def serve(store: ListingStore) -> None:
            store.create(id, name)
            store.merge(id, rows, "sync")

        await Call(device.id, serve)


class ListingNode(Node):
    """One container device with its replicator."""

    databases: ListingStore

    _terms: Terms | None = None
    """Of the ring that was gone by last."""

    def terms(self, ring: Ring) -> Terms:
        """Return the terms of a session about databases."""
        if self._terms is None or self._terms.ring_version != ring.version:
            self._terms = replace(super().terms(ring), transfer_rules=_RULES)
        return self._terms

    def crash(self) -> None:
        """Stop in the middle of everything; every second time lose power, too."""
        super().crash()
        if self.life % 2:
            self.databases.lose_power()

    def exchange(self, peer: Node, partition: int, push: Push, done: Callable[[Outcome, bool], None]) -> None:
        """Bring a database together with a peer's; `done` gets the outcome, and whether the peer caused it."""
        id = database_at(partition, push.entry)
        devices = self.ring.devices
        near, far = devices[self.id], devices[peer.id]
        if near is None or far is None:
            # This device or the peer has left the ring: only names and addresses are missing then.
            near = far = next(device for device in devices if device is not None)
        one_way = not self.is_primary(partition)
        transport = cast("Any", ExchangeTransport())
        exchange = Exchange(transport, replace(near, id=self.id), replace(far, id=peer.id), id, one_way)
        _Driven(self, peer, exchange.run(), done).step(None)


@dataclass(slots=True)
class _Driven:
    """An exchange in progress."""

    node: ListingNode
    peer: Node
    steps: Coroutine[Any, Any, Any]
    done: Callable[[Outcome, bool], None]
    remote: bool = False
    """Whether the last outcome came from the peer."""

    def step(self, outcome: Outcome) -> None:
        """Continue with the outcome of the last call."""
        try:
            if isinstance(outcome, SwiftletError):
                call: Call = self.steps.throw(outcome)
            else:
                call = self.steps.send(outcome)
        except StopIteration:
            self.done(None, False)
        except SwiftletError as error:
            self.done(error, self.remote)
        else:
            self._call(call)

    def _call(self, call: Call) -> None:
        node, peer = self.node, self.peer
        self.remote = call.device == peer.id
        if not self.remote:
            try:
                outcome: Outcome = call.serve(node.databases)
            except SwiftletError as error:
                outcome = error
            self.step(outcome)
            return
        life = node.life

        def answered(outcome: Outcome) -> None:
            if node.life == life:
                self.step(outcome)
            else:
                self.steps.close()

        there = cast("ListingNode", peer).databases
        node.network.call(node.id, peer.id, lambda: call.serve(there), answered)


def database_at(partition: int, entry: Entry) -> DatabaseId:
    """Return the container's database that an entry represents."""
    return DatabaseId(DatabaseKind.CONTAINER, partition, entry.digest)
