"""Drives one session of a simulated node to its end: carries out its effects, over the network where necessary.

An asyncio driver would await one effect after the other; here this is done by callbacks. Fault model: a neighbour's
errors are distinguished from the local device's; each of several objects in transfer has its own outcome; after a crash
of the node nothing is received any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from swiftlet.errors import DeviceFailed, DiskFull, NodeError, NotFound, Superseded, SwiftletError
from swiftlet.ring.lookup import Ring
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
    Repaired,
    Session,
)
from swiftlet.sync.session.messages import Request, decode_reply, encode
from swiftlet.testing.sim.network import Outcome
from swiftlet.testing.sim.store import Parcel

if TYPE_CHECKING:
    from swiftlet.testing.sim.node import Node


class Drive:
    """Drives one session of a node to its end."""

    def __init__(self, node: Node, session: Session, ring: Ring, ended: Callable[[], None]) -> None:
        """Drive a session that began under `ring`; `ended` is called unless the node has crashed meanwhile."""
        self._node = node
        self._session = session
        self._ring = ring
        self._ended = ended
        self._life = node.life
        self._began_s = node.timeline.now_s
        self.pulled: set[int] = set()
        """The partitions of objects that came here."""

    def begin(self) -> None:
        """Take the first step."""
        self._go(self._session.resume(None, self._node.now_s))

    def _resume(self, observation: object) -> None:
        if self._node.life == self._life:
            self._go(self._session.resume(observation, self._node.now_s))

    def _fail(self, error: SwiftletError) -> None:
        if self._node.life == self._life:
            self._node.witness.say(f"{self._node.id}: {type(error).__name__}: {error}")
            self._go(self._session.fail(error, self._node.now_s))

    def _go(self, effect: Effect | None) -> None:
        """Carry out local effects at once, until one needs the network."""
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
        if isinstance(effect, AskHere):
            return decode_reply(node.answer(encode(effect.request)))
        if isinstance(effect, Proved | Repaired | HandoffReturned):
            if not isinstance(effect, Proved):
                node.witness.say(f"{node.id}: {effect}")
            return None
        return node.look_up(effect)

    def _drop(self, effect: Drop) -> int:
        node = self._node
        if node.ring is not self._ring:
            return 0
        node.witness.dropping(node, effect, self._began_s)
        return sum(node.store.remove(effect.partition, entry) for entry in effect.entries)

    def _ask(self, effect: Ask) -> None:
        node, peer = self._node, self._node.peers[effect.peer]
        data = encode(effect.request)

        def done(outcome: Outcome) -> None:
            if node.life != self._life:
                return
            node.heard(peer.id, outcome)
            if isinstance(outcome, bytes):
                self._answered(effect.request, outcome)
            else:
                self._fail(_as_peers(outcome))

        node.network.call(node.id, peer.id, lambda: peer.answer(data), done, len(data))

    def _answered(self, request: Request, data: bytes) -> None:
        try:
            reply = decode_reply(data)
        except SwiftletError as error:
            self._fail(error)
        else:
            self._resume(reply)

    def _move(self, effect: Move) -> None:
        node, peer = self._node, self._node.peers[effect.peer]
        outcomes: list[MoveOutcome | None] = [None] * len(effect.objects)
        waiting = [len(effect.objects)]
        errors: list[SwiftletError] = []

        def arrived(index: int, outcome: Outcome, remote: bool) -> None:
            if node.life != self._life:
                return
            try:
                outcomes[index] = _move_outcome(outcome, remote)
            except SwiftletError as error:
                errors.append(error)
            waiting[0] -= 1
            if waiting[0]:
                return
            if errors:
                self._fail(errors[0])
                return
            node.witness.moved(outcomes.count(MoveOutcome.MOVED))
            if effect.pull and MoveOutcome.MOVED in outcomes:
                self.pulled.add(effect.partition)
            for push, outcome in zip(effect.objects, outcomes, strict=True):
                if push.need is Need.DATA and outcome is MoveOutcome.MOVED:
                    node.witness.crossed(*((peer, node) if effect.pull else (node, peer)), push)
            self._resume(outcomes)

        for index, push in enumerate(effect.objects):
            if push.need is Need.ROWS:
                node.exchange(peer, effect.partition, push, partial(arrived, index))
            elif effect.pull:
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
        node.network.call(
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
            if node.life != self._life:
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

        node.network.call(node.id, peer.id, lambda: peer.parcel(partition, push), done)


def _move_outcome(outcome: Outcome, remote: bool) -> MoveOutcome:
    """Return what became of an object; raises what ends the session."""
    if isinstance(outcome, Superseded | NotFound):
        return MoveOutcome.OVERTAKEN
    if isinstance(outcome, DiskFull):
        return MoveOutcome.REFUSED
    if isinstance(outcome, SwiftletError):
        raise _as_peers(outcome) if remote else outcome
    return MoveOutcome.MOVED


def _as_peers(outcome: Outcome) -> SwiftletError:
    """Return a neighbour's error as such, distinguished from the local device's."""
    if isinstance(outcome, NodeError):
        return outcome
    if isinstance(outcome, DeviceFailed):
        return NodeError(f"the neighbour's device: {outcome}")
    return outcome if isinstance(outcome, SwiftletError) else NodeError(f"no answer: {outcome!r}")
