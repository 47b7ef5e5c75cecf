"""Devices in memory and a driver without a network, for tests of the machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from swiftlet.errors import NodeTimeout, Superseded, SwiftletError
from swiftlet.model import Entry
from swiftlet.ring.lookup import Ring
from swiftlet.servers.shared.pairs import PairTable
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import (
    Ask,
    AskHere,
    Drop,
    Effect,
    HandoffReturned,
    Move,
    MoveOutcome,
    Proved,
    ReadEntries,
    ReadPair,
    ReadRoots,
    ReadSuffixes,
    Repaired,
    Session,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import Message, Reply, decode_reply, decode_request, encode
from swiftlet.sync.session.responder import answer_by
from swiftlet.testing.sim.store import SimStore
from swiftlet.timestamp import Timestamp

NOW_S = 10_000.0


def at(seconds: float) -> Timestamp:
    return Timestamp.at(seconds)


def digest(number: int, suffix: int = 0) -> bytes:
    return (number << 12 | suffix).to_bytes(16, "big")


@dataclass
class Peers:
    """Some devices and what was said between them; `silent` do not answer, `strangers` are no primaries.

    `tables` has what devices share by their own rings; those without one have no ring.
    """

    tables: dict[int, PairTable] = field(default_factory=dict)
    stores: dict[int, SimStore] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    said: list[tuple[int, Message, int]] = field(default_factory=list)
    told: list[Effect] = field(default_factory=list)
    moves: list[tuple[int, Move]] = field(default_factory=list)
    on_move: Callable[[Move], list[MoveOutcome] | None] = lambda move: None
    on_answer: Callable[[int], None] = lambda device: None
    """Called before a device answers a question, with its id."""
    most_held: int = 0
    """The most entries that one observation or answer had."""

    def device(self, id_: int) -> SimStore:
        return self.stores.setdefault(id_, SimStore(lambda: 0.0, lambda *change: None))

    def give_ring(self, ring: Ring, devices: Iterable[int] | None = None) -> None:
        """Let devices, or all of a ring, have this ring."""
        for id_ in [device.id for device in ring.devices if device] if devices is None else devices:
            self.tables[id_] = PairTable(ring, ring.partition_count)

    def put(self, devices: Iterable[int], number: int, seconds: float, partition: int = 0, suffix: int = 0) -> None:
        for id_ in devices:
            self.device(id_).put(partition, digest(number, suffix), at(seconds), "test")

    def delete(self, devices: Iterable[int], number: int, seconds: float, partition: int = 0) -> None:
        for id_ in devices:
            self.device(id_).delete(partition, digest(number), at(seconds), "test")

    def entries(self, id_: int, partition: int = 0) -> list[Entry]:
        return sorted(held.entry for p, held in self.device(id_).all() if held.entry and p == partition)

    def drive(self, local: int, session: Session, now_s: float = NOW_S) -> None:
        """Do what a session wants until it ends; every message goes through its bytes."""
        effect = session.resume(None, now_s)
        while effect is not None:
            try:
                observation = self._do(local, effect)
            except SwiftletError as error:
                effect = session.fail(error, now_s)
            else:
                effect = session.resume(observation, now_s)

    def _do(self, local: int, effect: Effect) -> object:
        if isinstance(effect, Ask):
            return self._ask(effect)
        if isinstance(effect, AskHere):
            return self._answer(local, encode(effect.request))
        if isinstance(effect, Move):
            return self._move(local, effect)
        if isinstance(effect, Drop):
            return sum(self.device(local).remove(effect.partition, entry) for entry in effect.entries)
        if isinstance(effect, Proved | Repaired | HandoffReturned):
            self.told.append(effect)
            return None
        return self._look(local, effect)

    def _ask(self, effect: Ask) -> Reply:
        if effect.peer in self.silent:
            raise NodeTimeout("silent")
        data = encode(effect.request)
        self.said.append((effect.peer, effect.request, len(data)))
        reply = self._answer(effect.peer, data)
        self.said.append((effect.peer, reply, len(encode(reply))))
        return reply

    def _answer(self, id_: int, data: bytes) -> Reply:
        self.on_answer(id_)
        reply = answer_by(
            lambda wanted: self._look(id_, wanted), decode_request(data), 7, lambda partition: id_ not in self.strangers
        )
        return decode_reply(encode(reply))

    def _look(self, id_: int, effect: Effect) -> object:
        store = self.device(id_)
        if isinstance(effect, ReadPair):
            if id_ not in self.tables:
                return None
            pair = self.tables[id_].of(effect.pair)
            for partition in pair.members:
                pair.put(partition, store.root(partition))
            return pair
        if isinstance(effect, ReadRoots):
            return [store.root(partition) for partition in effect.partitions]
        if isinstance(effect, ReadSuffixes):
            return store.suffix_hashes(effect.partition)
        assert isinstance(effect, ReadEntries)
        page = slice_page(store.entries(effect.partition, effect.suffixes), effect.after, effect.limit)
        self.most_held = max(self.most_held, len(page.entries))
        return page

    def _move(self, local: int, effect: Move) -> list[MoveOutcome]:
        self.moves.append((local, effect))
        outcomes = self.on_move(effect)
        if outcomes is not None:
            return outcomes
        source, target = (effect.peer, local) if effect.pull else (local, effect.peer)
        return [self._bring(self.device(source), self.device(target), effect.partition, p) for p in effect.objects]

    def _bring(self, source: SimStore, target: SimStore, partition: int, push: Push) -> MoveOutcome:
        parcel = source.parcel(partition, push.entry.digest)
        if push.need is Need.META:
            parcel = replace(parcel, data=None)
        try:
            target.receive(partition, parcel, "move")
        except Superseded:
            return MoveOutcome.OVERTAKEN
        return MoveOutcome.MOVED
