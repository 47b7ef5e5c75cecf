"""Devices in memory and a driver without a network, for tests of the machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from swiftlet.errors import NodeTimeout, Superseded, SwiftletError
from swiftlet.model import Entry
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import (
    Ask,
    Drop,
    Effect,
    HandoffReturned,
    Move,
    MoveOutcome,
    Proved,
    ReadEntries,
    ReadRoots,
    ReadSuffixes,
    Repaired,
    Session,
)
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import Message, Reply, decode_reply, decode_request, encode
from swiftlet.sync.session.responder import answer
from swiftlet.testing.sim.store import SimStore
from swiftlet.timestamp import Timestamp

NOW_S = 10_000.0


def at(seconds: float) -> Timestamp:
    return Timestamp.at(seconds)


def digest(number: int, suffix: int = 0) -> bytes:
    return (number << 12 | suffix).to_bytes(16, "big")


@dataclass
class Peers:
    """Some devices and what was said between them; `silent` do not answer, `strangers` are no primaries."""

    stores: dict[int, SimStore] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    strangers: set[int] = field(default_factory=set)
    said: list[tuple[int, Message, int]] = field(default_factory=list)
    told: list[Effect] = field(default_factory=list)
    moves: list[tuple[int, Move]] = field(default_factory=list)
    on_move: Callable[[Move], list[MoveOutcome] | None] = lambda move: None
    most_held: int = 0
    """The most entries that one observation or answer had."""

    def device(self, id_: int) -> SimStore:
        return self.stores.setdefault(id_, SimStore(lambda: 0.0, lambda *change: None))

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
        steps = answer(decode_request(data), 7, lambda partition: effect.peer not in self.strangers)
        wanted = next(steps)
        while True:
            try:
                wanted = steps.send(self._look(effect.peer, wanted))
            except StopIteration as stop:
                reply: Reply = stop.value
                data = encode(reply)
                self.said.append((effect.peer, reply, len(data)))
                return decode_reply(data)

    def _look(self, id_: int, effect: Effect) -> object:
        store = self.device(id_)
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
