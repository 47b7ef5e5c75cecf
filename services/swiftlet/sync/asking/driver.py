"""Drives sessions over the object transport: carries out what a machine wants, one effect after the other.

The own device is asked the same way as peers are: hashes are made where the objects are. Objects travel several at a
time, and as fast as the budget lets them.

Fault model: a peer may be away, break off or answer garbage. That ends its session and is reported to `Neighbours`, as
a node that is unreachable or may be. An object that a device can't give, or does not take, does not stop the others; if
that happens often the device is in trouble, and the session ends. The own device may fail like any other; its errors
are told from a peer's. Once there is a newer ring nothing more is asked, moved or dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import structlog

from swiftlet.errors import (
    DeviceFailed,
    NodeTimeout,
    NodeUnreachable,
    SwiftletError,
)
from swiftlet.model import Entry, ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.asking.questions import Questions
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.moving.mover import MOVES_PER_SLOT, Mover
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.moving.replica_kind import ReplicaKind
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.report import REMOVED, SESSIONS, RoundReport
from swiftlet.sync.session.answers import all_primary, entries_in, hashes_in, partitions_in, without_hashes
from swiftlet.sync.session.effects import (
    Ask,
    AskHere,
    Drop,
    Effect,
    HandoffReturned,
    Move,
    MoveMany,
    Page,
    Proved,
    ReadEntries,
    ReadEntriesOf,
    ReadRoots,
    ReadSuffixes,
    ReadSuffixesOf,
    Repaired,
    RepairedMany,
    Session,
    expect,
)
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    Equal,
    ManyEntries,
    Reply,
    Request,
    Roots,
    Suffixes,
)
from swiftlet.sync.session.roots import EMPTY_ROOT, over
from swiftlet.sync.session.session_result import Outdated, SessionResult, as_node_error
from swiftlet.transport.wire import WireError

T = TypeVar("T")

_BARE = 256
"""Partitions in one question where all are expected to be empty; if one is not, the answer has the roots of all."""
_NOT_A_HASH = b"\xff" * 16
"""A hash that no partitions have: a device that finds it different from its own answers with its roots."""
_log = structlog.get_logger("replicator")


class Driver:
    """Drives the sessions of one round."""

    def __init__(
        self,
        replica_kind: ReplicaKind,
        report: RoundReport,
        now_s: Callable[[], float],
        neighbours: Neighbours,
        pace: Pace,
        outdated: Callable[[DevicePartitions], bool],
    ) -> None:
        """`report` counts what is moved, `now_s` returns seconds since the epoch, and `outdated` whether there is a
        newer ring.
        """
        self._transport = replica_kind.transport
        self._questions = Questions(replica_kind.transport)
        self._report = report
        self._now_s = now_s
        self._neighbours = neighbours
        self._pace = pace
        self._outdated = outdated
        self._mover = Mover(replica_kind, report, neighbours, pace, outdated)

    async def drive(self, own: DevicePartitions, *sessions: Session) -> SessionResult:
        """Drive the sessions until they end, all at the same time, so that their messages travel together.

        Sessions about differences take turns, so that the entries of only one at a time are in memory.
        """
        result = SessionResult()
        turn = asyncio.Semaphore(1)
        await asyncio.gather(*(self._drive(own, result, session, turn) for session in sessions))
        SESSIONS.labels("failed" if result.error else "ok").inc()
        return result

    async def _drive(
        self, own: DevicePartitions, result: SessionResult, session: Session, turn: asyncio.Semaphore
    ) -> None:
        async with AsyncExitStack() as turns:
            has_turn = False
            effect = session.begin(self._now_s())
            while effect is not None:
                if not has_turn and _is_about_entries(effect):
                    await turns.enter_async_context(turn)
                    has_turn = True
                try:
                    observation = await self._do(own, result, effect)
                except SwiftletError as error:
                    effect = session.fail(error, self._now_s())
                else:
                    effect = session.resume(observation, self._now_s())
        result.error = result.error or session.error

    async def _do(self, own: DevicePartitions, result: SessionResult, effect: Effect) -> object:
        match effect:
            case Ask(peer, request):
                return await self._ask(own, result, peer, request)
            case Move():
                objects = [(effect.partition, push) for push in effect.objects]
                return await self._mover.move_many(own, result, effect.peer, objects, effect.pull)
            case MoveMany(peer, several, pull):
                return await self._mover.move_many(own, result, peer, several, pull)
            case Drop(partition, entries):
                return await self._drop(own, partition, entries)
            case Proved(_, partitions):
                result.proved.update(partitions)
            case Repaired(_, partition):
                result.repaired[partition] = effect
            case RepairedMany(_, partitions, left):
                result.repaired.update(dict.fromkeys(partitions))
                result.repaired.update(left)
            case HandoffReturned():
                result.returned = effect
            case _:
                return await self._look(own, effect)
        return None

    # Asking.

    async def _ask(self, own: DevicePartitions, result: SessionResult, peer: int, request: Request) -> Reply:
        if self._outdated(own):
            raise Outdated(f"there is a newer ring of policy {own.policy}")
        device = own.device_of(peer)
        began = time.monotonic()
        try:
            reply = await self._questions.ask(device, request)
        except (NodeUnreachable, NodeTimeout):
            result.troubled.add(peer)
            self._neighbours.failed(node_of(device))
            raise
        except SwiftletError as error:
            result.troubled.add(peer)
            self._neighbours.succeeded(node_of(device))
            raise as_node_error(error) from error
        self._pace.answered(time.monotonic() - began)
        self._neighbours.succeeded(node_of(device))
        if isinstance(reply, Suffixes | ManyEntries) and not all_primary(reply.found):
            result.troubled.add(peer)
        return reply

    async def held_by(self, own: DevicePartitions, peer: Device, partitions: Iterable[int]) -> set[int] | None:
        """Return which of these partitions are not empty at a peer; None if the peer does not tell."""
        waiting = sorted(partitions)
        found: set[int] = set()
        try:
            for start in range(0, len(waiting), _BARE):
                part = tuple(waiting[start : start + _BARE])
                nothing = over([EMPTY_ROOT] * len(part))
                reply = await self._questions.ask(peer, Compare(own.policy, own.ring.version, part, nothing))
                if not isinstance(reply, Equal):
                    roots = zip(part, expect(reply, Roots).roots, strict=True)
                    found.update(partition for partition, root in roots if root != EMPTY_ROOT)
        except (SwiftletError, ValueError) as error:
            if isinstance(error, NodeUnreachable | NodeTimeout):
                self._neighbours.failed(node_of(peer))
            _log.info("a peer could not be asked which partitions it holds", peer=peer.name, error=str(error))
            return None
        return found

    # The own device.

    async def _look(self, own: DevicePartitions, effect: Effect) -> object:
        try:
            return await self._look_up(own, effect)
        except SwiftletError as error:
            _log.warning("a local device can't be read", device=own.device.name, error=str(error))
            raise DeviceFailed(f"the local device {own.device.name} has failed: {error}") from error

    async def _look_up(self, own: DevicePartitions, effect: Effect) -> object:
        policy, version = own.policy, own.ring.version
        match effect:
            case AskHere(request):
                return await self._questions.ask(own.device, request)
            case ReadRoots(partitions):
                return await self._roots(own, partitions)
            case ReadSuffixes(partition):
                return (await self._suffixes(own, (partition,)))[0]
            case ReadSuffixesOf(partitions):
                return await self._suffixes(own, partitions)
            case ReadEntries(partition, suffixes, after):
                page = await self._own(own, AskEntries(policy, version, partition, suffixes, after), Entries)
                return Page(page.entries, page.more)
            case ReadEntriesOf(wanted):
                many = await self._own(own, AskManyEntries(policy, version, wanted), ManyEntries)
                return entries_in(many.found)
        raise TypeError(f"a device can't be asked for {type(effect).__name__}")

    async def read_roots(self, own: DevicePartitions, partitions: Sequence[int]) -> None:
        """Look up roots of the own device for all sessions that will ask for them. Raises SwiftletError.

        A root that is a little older than the peer's answer may show a difference that exists no more, or prove that
        the peer holds what was held here when the round began. Both are harmless.
        """
        size = 4096
        for start in range(0, len(partitions), size):
            part = tuple(partitions[start : start + size])
            reply = await self._own(own, Compare(own.policy, own.ring.version, part, _NOT_A_HASH), Roots)
            if len(reply.roots) != len(part):
                raise WireError(f"the answer has {len(reply.roots)} roots for {len(part)} partitions")
            own.roots.update(zip(part, reply.roots, strict=True))
            if EMPTY_ROOT in reply.roots:
                own.empty.update(
                    p for p, root in zip(part, reply.roots, strict=True) if root == EMPTY_ROOT and p not in own.bare
                )

    async def _roots(self, own: DevicePartitions, partitions: tuple[int, ...]) -> list[bytes]:
        await self.read_roots(own, sorted(set(partitions).difference(own.roots)))
        return list(map(own.roots.__getitem__, partitions))

    async def _suffixes(self, own: DevicePartitions, partitions: tuple[int, ...]) -> Sequence[Mapping[str, bytes]]:
        reply = await self._own(own, AskSuffixes(own.policy, own.ring.version, partitions), Suffixes)
        numbers = partitions_in(reply.found)
        if not numbers or numbers != partitions[: len(numbers)]:
            raise WireError(f"the answer has suffix hashes of partitions {numbers} instead of {partitions}")
        own.empty.update(partition for partition in without_hashes(reply.found) if partition not in own.bare)
        return hashes_in(reply.found)

    async def _own(self, own: DevicePartitions, request: Request, kind: type[T]) -> T:
        return expect(await self._questions.ask(own.device, request), kind)

    # Dropping.

    async def _drop(self, own: DevicePartitions, partition: int, entries: Sequence[Entry]) -> int:
        """Remove these handoff copies, and return the number of those that were removed."""
        own.roots.pop(partition, None)
        dropped = 0
        for start in range(0, len(entries), MOVES_PER_SLOT):
            if self._outdated(own):
                break
            some = entries[start : start + MOVES_PER_SLOT]
            went = await asyncio.gather(*(self._forget(own, partition, entry) for entry in some))
            dropped += sum(went)
        self._report.removed += dropped
        REMOVED.inc(dropped)
        return dropped

    async def _forget(self, own: DevicePartitions, partition: int, entry: Entry) -> bool:
        key = ObjectKey(own.policy, partition, entry.digest)
        return await self._as_own(own, self._transport.remove(own.device, key, entry))

    async def _as_own(self, own: DevicePartitions, work: Awaitable[T]) -> T:
        try:
            return await work
        except SwiftletError as error:
            raise DeviceFailed(f"the local device {own.device.name} has failed: {error}") from error


def _is_about_entries(effect: Effect) -> bool:
    request = effect.request if isinstance(effect, Ask) else effect
    return isinstance(request, ReadEntries | ReadEntriesOf | AskEntries | AskManyEntries | Move | MoveMany)
