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
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from swiftlet.errors import (
    DeviceFailed,
    NodeBusy,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotFound,
    Superseded,
    SwiftletError,
    Unavailable,
)
from swiftlet.model import Entry, ObjectKey
from swiftlet.peers import ObjectTransport
from swiftlet.ring.model import Device
from swiftlet.sync.compare import Push
from swiftlet.sync.copies import bring
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.questions import Questions
from swiftlet.sync.report import PULLED, PULLED_BYTES, PUSHED, PUSHED_BYTES, REMOVED, SESSIONS, RoundReport
from swiftlet.sync.session.effects import (
    Ask,
    Drop,
    Effect,
    Fate,
    Move,
    MoveAll,
    Page,
    Proved,
    ReadEntries,
    ReadEntriesOf,
    ReadRoots,
    ReadSuffixes,
    ReadSuffixesOf,
    Session,
    Settled,
    WentHome,
    expect,
)
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    ManyEntries,
    Reply,
    Request,
    Roots,
    Suffixes,
)
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.sync.share import Share
from swiftlet.transport.wire import WireError

T = TypeVar("T")

MOVES_PER_SLOT = 4
"""Objects on their way at a time for each session that may be under way. Small ones are in memory as a whole."""
MAX_REFUSED = 16
"""Objects of a session that may fail on a device's side, without a reason that is theirs, before the session ends."""
_NOT_A_HASH = b"\xff" * 16
"""Compared with this, a device answers with its roots."""
_log = structlog.get_logger("replicator")


class Outdated(Unavailable):
    """There is a newer ring than the one that a session began under."""


@dataclass(slots=True)
class Course:
    """What came of a session."""

    proved: set[int] = field(default_factory=set)
    settled: dict[int, Settled] = field(default_factory=dict)
    home: WentHome | None = None
    pulled: Counter[int] = field(default_factory=Counter)
    """Objects that came here, by partition."""
    lacking: Counter[int] = field(default_factory=Counter)
    """Objects known to be lacking here still, by partition."""
    pushed: Counter[int] = field(default_factory=Counter)
    """Objects that went, by peer."""
    unsent: Counter[int] = field(default_factory=Counter)
    """Objects that a peer would not have."""
    troubled: set[int] = field(default_factory=set)
    """Peers that failed on the way, or are no primaries in their own eyes."""
    error: SwiftletError | None = None
    """What ended it early."""


class Driver:
    """Drives the sessions of one round."""

    def __init__(
        self,
        transport: ObjectTransport,
        report: RoundReport,
        now_s: Callable[[], float],
        neighbours: Neighbours,
        pace: Pace,
        outdated: Callable[[Share], bool],
    ) -> None:
        """What is moved is counted in `report`; `now_s`: the wall clock; `outdated`: whether there is a newer ring."""
        self._transport = transport
        self._questions = Questions(transport)
        self._report = report
        self._now_s = now_s
        self._neighbours = neighbours
        self._pace = pace
        self._outdated = outdated
        self._moving = asyncio.Semaphore(MOVES_PER_SLOT * pace.concurrency)

    async def drive(self, share: Share, session: Session) -> Course:
        """Do what the session wants until it ends."""
        course = Course()
        session.compound = True
        effect = session.resume(None, self._now_s())
        while effect is not None:
            try:
                observation = await self._do(share, course, effect)
            except SwiftletError as error:
                effect = session.fail(error, self._now_s())
            else:
                effect = session.resume(observation, self._now_s())
        course.error = session.error
        SESSIONS.labels("failed" if session.error else "ok").inc()
        return course

    async def _do(self, share: Share, course: Course, effect: Effect) -> object:
        match effect:
            case Ask(peer, request):
                return await self._ask(share, course, peer, request)
            case Move():
                (fates,) = await self._move_all(share, course, (effect,))
                return fates
            case MoveAll(moves):
                return await self._move_all(share, course, moves)
            case Drop(partition, entries):
                return await self._drop(share, partition, entries)
            case Proved(_, partitions):
                course.proved.update(partitions)
            case Settled():
                course.settled[effect.partition] = effect
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
            raise _as_node_error(error) from error
        self._pace.answered(time.monotonic() - began)
        self._neighbours.succeeded(node_of(device))
        if isinstance(reply, Suffixes | ManyEntries) and not all(one.primary for one in reply.found):
            course.troubled.add(peer)
        return reply

    async def partitions_of(self, share: Share, peer: Device) -> frozenset[int] | None:
        """Which partitions a peer has anything of, None if it does not say."""
        try:
            return frozenset(await self._transport.partitions(peer, share.policy))
        except SwiftletError as error:
            if isinstance(error, NodeUnreachable | NodeTimeout):
                self._neighbours.failed(node_of(peer))
            _log.info("peer does not say what it holds", peer=peer.name, error=str(error))
        return None

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
                return [found.entries for found in many.found]
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
            share.empty.update(
                p for p, root in zip(part, reply.roots, strict=True) if root == EMPTY_ROOT and p not in share.bare
            )

    async def _roots(self, share: Share, partitions: tuple[int, ...]) -> list[bytes]:
        await self.read_roots(share, [partition for partition in partitions if partition not in share.roots])
        return [share.roots[partition] for partition in partitions]

    async def _suffixes(self, share: Share, partitions: tuple[int, ...]) -> list[dict[str, bytes]]:
        reply = await self._own(share, AskSuffixes(share.policy, share.ring.version, partitions), Suffixes)
        numbers = tuple(found.partition for found in reply.found)
        if not numbers or numbers != partitions[: len(numbers)]:
            raise WireError(f"suffix hashes of partitions {numbers} instead of {partitions}")
        share.empty.update(p.partition for p in reply.found if not p.hashes and p.partition not in share.bare)
        return [found.hashes for found in reply.found]

    async def _own(self, share: Share, request: Request, kind: type[T]) -> T:
        return expect(await self._questions.ask(share.device, request), kind)

    # Moving.

    async def _move_all(self, share: Share, course: Course, moves: Sequence[Move]) -> list[list[Fate]]:
        """All objects, some at a time; what ends the session ends it once those under way are through."""
        fates: list[list[Fate]] = [[Fate.OVERTAKEN] * len(one.objects) for one in moves]
        for one in moves:
            if one.pull:
                course.lacking[one.partition] += len(one.objects)
                share.standing.lacks(one.partition, course.lacking[one.partition])
        waiting = ((number, index) for number, one in enumerate(moves) for index in range(len(one.objects)))
        count = min(sum(len(one.objects) for one in moves), MOVES_PER_SLOT * self._pace.allowed)
        ended: list[SwiftletError] = []
        await asyncio.gather(*(self._carry(share, course, moves, waiting, fates, ended) for _ in range(count)))
        for one in moves:
            share.roots.pop(one.partition, None)
        if ended:
            raise ended[0]
        return fates

    async def _carry(
        self,
        share: Share,
        course: Course,
        moves: Sequence[Move],
        waiting: Iterator[tuple[int, int]],
        fates: list[list[Fate]],
        ended: list[SwiftletError],
    ) -> None:
        """One of those who carry objects, one after the other, until none waits or something ends it."""
        for number, index in waiting:
            move = moves[number]
            try:
                async with self._moving:
                    if ended:
                        return
                    fates[number][index] = await self._bring(share, course, move, move.objects[index])
            except SwiftletError as error:
                course.troubled.add(move.peer)
                ended.append(error)
                return

    async def _bring(self, share: Share, course: Course, move: Move, push: Push) -> Fate:
        if self._outdated(share):
            raise Outdated(f"there is a newer ring of policy {share.policy}")
        peer = share.device_of(move.peer)
        source, target = (peer, share.device) if move.pull else (share.device, peer)
        key = ObjectKey(share.policy, move.partition, push.entry.digest)
        try:
            moved_bytes = await bring(self._transport, source, target, key, push, self._pace.moved)
        except (Superseded, NotFound) as error:
            _log.debug("overtaken", source=source.name, target=target.name, key=key.hex, reason=str(error))
            fate = Fate.OVERTAKEN
        except (NodeUnreachable, NodeTimeout):
            # It may be this side's own device that is away.
            self._neighbours.suspect(node_of(peer))
            raise
        except NodeBusy:
            raise
        except SwiftletError as error:
            _log.warning("object refused", source=source.name, target=target.name, key=key.hex, error=str(error))
            course.unsent[move.peer] += 1
            if isinstance(error, NodeError | DeviceFailed) and course.unsent[move.peer] > MAX_REFUSED:
                raise _as_node_error(error) from error
            return Fate.REFUSED
        else:
            fate = Fate.MOVED
            self._moved(course, move, push, moved_bytes)
        if move.pull:
            course.lacking[move.partition] -= 1
            share.standing.lacks(move.partition, course.lacking[move.partition])
        return fate

    def _moved(self, course: Course, move: Move, push: Push, moved_bytes: int) -> None:
        if move.pull:
            course.pulled[move.partition] += 1
            self._report.pulled += 1
            PULLED.labels(push.need.value).inc()
            PULLED_BYTES.inc(moved_bytes)
        else:
            course.pushed[move.peer] += 1
            self._report.pushed += 1
            PUSHED.labels(push.need.value).inc()
            PUSHED_BYTES.inc(moved_bytes)

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


def _as_node_error(error: SwiftletError) -> SwiftletError:
    """A peer's trouble, whatever ails it, told from the own device's."""
    return error if isinstance(error, NodeError | WireError) else NodeError(str(error))
