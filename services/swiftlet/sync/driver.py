"""Drives sessions over the object transport: does what a machine wants, one effect after the other.

The own device is asked the same way as peers are: hashes are made where the objects are. Objects travel several at a
time, and as fast as the budget lets them.

Fault model: a peer may be away, break off or answer garbage, which ends its session; the node is known by it to be out
of reach, or suspected to be. One object that can't be had from a device, or will not be taken, keeps no other from
going; if that happens often the device is in trouble, and the session ends. The own device may fail like any other:
that is told from a peer's trouble. Under a newer ring nothing more is asked, moved or dropped.
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
from swiftlet.sync.course import Course, Outdated, as_node_error
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.mover import MOVES_PER_SLOT, Mover
from swiftlet.sync.pacing import Pace
from swiftlet.sync.questions import Questions
from swiftlet.sync.report import REMOVED, SESSIONS, RoundReport
from swiftlet.sync.session.answers import all_primary, entries_in, hashes_in, partitions_in, without_hashes
from swiftlet.sync.session.effects import (
    Ask,
    Drop,
    Effect,
    Move,
    MoveMany,
    Page,
    Proved,
    ReadEntries,
    ReadEntriesOf,
    ReadRoots,
    ReadSuffixes,
    ReadSuffixesOf,
    Session,
    Settled,
    SettledMany,
    WentHome,
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
from swiftlet.sync.share import Share
from swiftlet.sync.wares import Wares
from swiftlet.transport.wire import WireError

T = TypeVar("T")

_BARE = 256
"""Partitions that share a hash where they are expected to be empty: where one is not, the roots of all of them come."""
_NOT_A_HASH = b"\xff" * 16
"""Compared with this, a device answers with its roots."""
_log = structlog.get_logger("replicator")


class Driver:
    """Drives the sessions of one round."""

    def __init__(
        self,
        wares: Wares,
        report: RoundReport,
        now_s: Callable[[], float],
        neighbours: Neighbours,
        pace: Pace,
        outdated: Callable[[Share], bool],
    ) -> None:
        """What is moved is counted in `report`; `now_s`: the wall clock; `outdated`: whether there is a newer ring."""
        self._transport = wares.transport
        self._questions = Questions(wares.transport)
        self._report = report
        self._now_s = now_s
        self._neighbours = neighbours
        self._pace = pace
        self._outdated = outdated
        self._mover = Mover(wares, report, neighbours, pace, outdated)

    async def drive(self, share: Share, *sessions: Session) -> Course:
        """Do what the sessions want until they end, all at the same time, so that their messages travel together.

        Those that are about what differs take turns: entries of one at a time are in memory.
        """
        course = Course()
        turn = asyncio.Semaphore(1)
        await asyncio.gather(*(self._drive(share, course, session, turn) for session in sessions))
        SESSIONS.labels("failed" if course.error else "ok").inc()
        return course

    async def _drive(self, share: Share, course: Course, session: Session, turn: asyncio.Semaphore) -> None:
        session.compound = True
        async with AsyncExitStack() as turns:
            has_turn = False
            effect = session.resume(None, self._now_s())
            while effect is not None:
                if not has_turn and _is_about_entries(effect):
                    await turns.enter_async_context(turn)
                    has_turn = True
                try:
                    observation = await self._do(share, course, effect)
                except SwiftletError as error:
                    effect = session.fail(error, self._now_s())
                else:
                    effect = session.resume(observation, self._now_s())
        course.error = course.error or session.error

    async def _do(self, share: Share, course: Course, effect: Effect) -> object:
        match effect:
            case Ask(peer, request):
                return await self._ask(share, course, peer, request)
            case Move():
                objects = [(effect.partition, push) for push in effect.objects]
                return await self._mover.move_many(share, course, effect.peer, objects, effect.pull)
            case MoveMany(peer, several, pull):
                return await self._mover.move_many(share, course, peer, several, pull)
            case Drop(partition, entries):
                return await self._drop(share, partition, entries)
            case Proved(_, partitions):
                course.proved.update(partitions)
            case Settled(_, partition):
                course.settled[partition] = effect
            case SettledMany(_, partitions, left):
                course.settled.update(dict.fromkeys(partitions))
                course.settled.update(left)
            case WentHome():
                course.home = effect
            case _:
                return await self._look(share, effect)
        return None

    # Asking.

    async def _ask(self, share: Share, course: Course, peer: int, request: Request) -> Reply:
        if self._outdated(share):
            raise Outdated(f"there is a newer ring of policy {share.policy}")
        device = share.device_of(peer)
        began = time.monotonic()
        try:
            reply = await self._questions.ask(device, request)
        except (NodeUnreachable, NodeTimeout):
            course.troubled.add(peer)
            self._neighbours.failed(node_of(device))
            raise
        except SwiftletError as error:
            course.troubled.add(peer)
            self._neighbours.succeeded(node_of(device))
            raise as_node_error(error) from error
        self._pace.answered(time.monotonic() - began)
        self._neighbours.succeeded(node_of(device))
        if isinstance(reply, Suffixes | ManyEntries) and not all_primary(reply.found):
            course.troubled.add(peer)
        return reply

    async def held_by(self, share: Share, peer: Device, partitions: Iterable[int]) -> set[int] | None:
        """Of which of these partitions a peer has anything, None if it does not say."""
        waiting = sorted(partitions)
        found: set[int] = set()
        try:
            for start in range(0, len(waiting), _BARE):
                part = tuple(waiting[start : start + _BARE])
                nothing = over([EMPTY_ROOT] * len(part))
                reply = await self._questions.ask(peer, Compare(share.policy, share.ring.version, part, nothing))
                if not isinstance(reply, Equal):
                    roots = zip(part, expect(reply, Roots).roots, strict=True)
                    found.update(partition for partition, root in roots if root != EMPTY_ROOT)
        except (SwiftletError, ValueError) as error:
            if isinstance(error, NodeUnreachable | NodeTimeout):
                self._neighbours.failed(node_of(peer))
            _log.info("peer does not say what it holds", peer=peer.name, error=str(error))
            return None
        return found

    # The own device.

    async def _look(self, share: Share, effect: Effect) -> object:
        try:
            return await self._look_up(share, effect)
        except SwiftletError as error:
            _log.warning("local device not readable", device=share.device.name, error=str(error))
            raise DeviceFailed(f"the own device {share.device.name}: {error}") from error

    async def _look_up(self, share: Share, effect: Effect) -> object:
        policy, version = share.policy, share.ring.version
        match effect:
            case ReadRoots(partitions):
                return await self._roots(share, partitions)
            case ReadSuffixes(partition):
                return (await self._suffixes(share, (partition,)))[0]
            case ReadSuffixesOf(partitions):
                return await self._suffixes(share, partitions)
            case ReadEntries(partition, suffixes, after):
                page = await self._own(share, AskEntries(policy, version, partition, suffixes, after), Entries)
                return Page(page.entries, page.more)
            case ReadEntriesOf(wanted):
                many = await self._own(share, AskManyEntries(policy, version, wanted), ManyEntries)
                return entries_in(many.found)
        raise TypeError(f"{type(effect).__name__} is nothing that a device can be asked for")

    async def read_roots(self, share: Share, partitions: Sequence[int]) -> None:
        """Look up the own device's roots, for all sessions that will ask for them; SwiftletError.

        A root that is a little older than the peer's answer finds a difference that is none any more, or proves that
        the peer holds what was held here when the round began.
        """
        size = 4096
        for start in range(0, len(partitions), size):
            part = tuple(partitions[start : start + size])
            reply = await self._own(share, Compare(share.policy, share.ring.version, part, _NOT_A_HASH), Roots)
            if len(reply.roots) != len(part):
                raise WireError(f"{len(reply.roots)} roots for {len(part)} partitions")
            share.roots.update(zip(part, reply.roots, strict=True))
            if EMPTY_ROOT in reply.roots:
                share.empty.update(
                    p for p, root in zip(part, reply.roots, strict=True) if root == EMPTY_ROOT and p not in share.bare
                )

    async def _roots(self, share: Share, partitions: tuple[int, ...]) -> list[bytes]:
        await self.read_roots(share, sorted(set(partitions).difference(share.roots)))
        return list(map(share.roots.__getitem__, partitions))

    async def _suffixes(self, share: Share, partitions: tuple[int, ...]) -> Sequence[Mapping[str, bytes]]:
        reply = await self._own(share, AskSuffixes(share.policy, share.ring.version, partitions), Suffixes)
        numbers = partitions_in(reply.found)
        if not numbers or numbers != partitions[: len(numbers)]:
            raise WireError(f"suffix hashes of partitions {numbers} instead of {partitions}")
        share.empty.update(partition for partition in without_hashes(reply.found) if partition not in share.bare)
        return hashes_in(reply.found)

    async def _own(self, share: Share, request: Request, kind: type[T]) -> T:
        return expect(await self._questions.ask(share.device, request), kind)

    # Dropping.

    async def _drop(self, share: Share, partition: int, entries: Sequence[Entry]) -> int:
        """Forget handoff copies."""
        share.roots.pop(partition, None)
        dropped = 0
        for start in range(0, len(entries), MOVES_PER_SLOT):
            if self._outdated(share):
                break
            some = entries[start : start + MOVES_PER_SLOT]
            went = await asyncio.gather(*(self._forget(share, partition, entry) for entry in some))
            dropped += sum(went)
        self._report.removed += dropped
        REMOVED.inc(dropped)
        return dropped

    async def _forget(self, share: Share, partition: int, entry: Entry) -> bool:
        key = ObjectKey(share.policy, partition, entry.digest)
        return await self._as_own(share, self._transport.remove(share.device, key, entry))

    async def _as_own(self, share: Share, work: Awaitable[T]) -> T:
        try:
            return await work
        except SwiftletError as error:
            raise DeviceFailed(f"the own device {share.device.name}: {error}") from error


def _is_about_entries(effect: Effect) -> bool:
    request = effect.request if isinstance(effect, Ask) else effect
    return isinstance(request, ReadEntries | ReadEntriesOf | AskEntries | AskManyEntries | Move | MoveMany)
