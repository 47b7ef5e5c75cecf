"""Effects that a session requests, and the observations that answer them.

A machine is a generator: it yields one effect, is sent the observation that belongs to it, and yields the next one.
Effects and observations are plain values, so that asyncio code, a simulator and a test can drive the same machine.
The memory of one is bounded by `Limits`, whatever the number of partitions and objects.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from swiftlet.errors import SwiftletError
from swiftlet.model import Entry
from swiftlet.sync.session.compare import RECLAIM_PERIOD_S, Push, forgotten_before
from swiftlet.sync.session.messages import Reply, Request, Wanted
from swiftlet.sync.session.topology import BATCHED, Mode
from swiftlet.sync.session.transfer_rules import TransferRules
from swiftlet.transport.wire import WireError


class MoveOutcome(Enum):
    """The outcome of moving an object."""

    MOVED = "moved"
    OVERTAKEN = "overtaken"
    """The object changed meanwhile, on either side; the next round compares it again."""
    REFUSED = "refused"
    """The device will not have it, or can't give it: damaged, or no room."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request to a neighbour (its device id) and wait for the answer. Observed: the `Reply`."""

    peer: int
    request: Request


@dataclass(frozen=True, slots=True)
class ReadRoots:
    """Look up roots on the local device. Observed: 16 bytes for each of the partitions, in order."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadSuffixes:
    """Look up a partition's suffix hashes on the local device. Observed: a mapping, empty when nothing is there."""

    partition: int


@dataclass(frozen=True, slots=True)
class ReadSuffixesOf:
    """Reads suffix hashes as `ReadSuffixes` does, for several partitions. Observed: mappings of the first ones, at
    least of one.

    As many as have `limit` hashes together; the rest is asked for again.
    """

    partitions: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Look up entries of some suffixes on the local device, by (suffix, digest). Observed: a `Page`.

    It begins behind the digest `after` (None: at the beginning) and has at most `limit` entries.
    """

    partition: int
    suffixes: tuple[str, ...]
    after: bytes | None
    limit: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries in order; `more` when others follow."""

    entries: tuple[Entry, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class ReadEntriesOf:
    """Look up entries of several partitions. Observed: all entries of each of the first ones, by (suffix, digest).

    As many as have `limit` entries together; none when the first one alone has more.
    """

    wanted: Sequence[Wanted]
    limit: int


@dataclass(frozen=True, slots=True)
class Move:
    """Bring objects to a neighbour, or from it (`pull`). Observed: a `MoveOutcome` for each, in order."""

    peer: int
    partition: int
    objects: tuple[Push, ...]
    pull: bool


@dataclass(frozen=True, slots=True)
class MoveMany:
    """Bring objects of several partitions, each given with its own, those of one together.

    Observed: a `MoveOutcome` for each. Who does simple effects alone brings up to `limit` of one partition at a time.
    """

    peer: int
    objects: Sequence[tuple[int, Push]]
    pull: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget handoff copies, each unless it changed, and none under a newer ring. Observed: how many went."""

    partition: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """The neighbour has shown that it holds the same in these partitions. Observed: nothing."""

    peer: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A partition that differed was worked on; what counts is what is left to do. Observed: nothing.

    `behind`: newer there and still not here; `unsent`: newer here and still not there; `withheld`: those of the unsent
    that the neighbour should not be given, as it is no primary in its own eyes.
    """

    peer: int
    partition: int
    behind: int = 0
    unsent: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class RepairedMany:
    """Partitions that differed were worked on, in this order: `Repaired` of those where something is left to do.

    Of the others there is nothing to say but that. Observed: nothing.
    """

    peer: int
    partitions: tuple[int, ...]
    left: Mapping[int, Repaired]


@dataclass(frozen=True, slots=True)
class HandoffReturned:
    """A handoff's partition was worked on: objects dropped and kept here. Observed: nothing."""

    partition: int
    dropped: int
    kept: int


Compound: TypeAlias = ReadSuffixesOf | ReadEntriesOf | MoveMany | RepairedMany
"""Effects for many partitions at once, which can also be executed as simple effects, one after the other."""
Effect: TypeAlias = (
    Ask | ReadRoots | ReadSuffixes | ReadEntries | Move | Drop | Proved | Repaired | HandoffReturned | Compound
)

T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Any, T]
"""A machine, or a part of one, that comes to a T."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is said, asked and moved at a time."""

    partitions: int = 4096
    """Partitions under one hash, in one message."""
    differing: int = 1024
    """Partitions whose suffix hashes are asked for at a time."""
    suffixes: int = 256
    """Suffixes of one partition whose entries are asked for at a time."""
    entries: int = 4096
    """Entries in one page."""
    moves: int = 64
    """Objects of one partition on their way at a time."""
    hashes: int = 8192
    """Suffix hashes that are read at a time."""
    wanted: int = 8192
    """Suffixes of all partitions whose entries are asked for at a time."""


@dataclass(slots=True)
class Moment:
    """The wall clock as a value: whoever drives a session sets it before each step."""

    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of a whole session.

    `reclaim_age_s`: the age at which devices forget tombstones. `rules`: what to do about differences, None for
    objects.
    """

    policy: int = 0
    ring_version: int = 0
    mode: Mode = BATCHED
    reclaim_age_s: float = float("inf")
    reclaim_period_s: float = RECLAIM_PERIOD_S
    limits: Limits = field(default_factory=Limits)
    transfer_rules: TransferRules | None = None

    def forgotten_before_s(self, now_s: float) -> float:
        """Devices have forgotten tombstones older than this, or are about to."""
        return forgotten_before(now_s, self.reclaim_age_s, self.reclaim_period_s)


class Session:
    """A machine with its clock: `resume` with what was observed, or `fail`, until neither has a further effect.

    Fault model: any effect may fail at any time (`fail`). A neighbour's failure ends the session, or the neighbour's
    part in a handoff's; the partitions that it did not report are compared anew in the next round. A session that is
    not driven on is simply forgotten: nothing but the objects moved so far remains of it.

    Drivers that can do compound effects begin it with `begin`; others see simple ones alone.
    """

    def __init__(self, steps: Steps[None], moment: Moment) -> None:
        """`moment` is the one that the machine was made with."""
        self._steps = steps
        self._moment = moment
        self._begun = False
        self.error: SwiftletError | None = None
        """The error that ended the session early."""

    def begin(self, now_s: float) -> Effect | None:
        """The first effect, for a driver that can do compound ones."""
        self._begun = True
        return self.resume(None, now_s)

    def resume(self, observation: object, now_s: float) -> Effect | None:
        """Go on to the next effect, None at the end. The first observation is not looked at."""
        self._moment.now_s = now_s
        if not self._begun:
            self._begun, self._steps = True, simply(self._steps)
        try:
            return self._steps.send(observation)
        except StopIteration:
            return None
        except SwiftletError as error:
            self.error = error
            return None

    def fail(self, error: SwiftletError, now_s: float) -> Effect | None:
        """Continue after the effect failed, and return the next effect."""
        self._moment.now_s = now_s
        try:
            return self._steps.throw(error)
        except StopIteration:
            return None
        except SwiftletError as raised:
            self.error = raised
            return None


def simply(steps: Steps[T]) -> Steps[T]:
    """The same machine with simple effects alone."""
    try:
        effect = next(steps)
        while True:
            try:
                observation = yield from _one_by_one(effect)
            except SwiftletError as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(observation)
    except StopIteration as end:
        result: T = end.value
        return result


def _one_by_one(effect: Effect) -> Steps[object]:
    if isinstance(effect, MoveMany):
        return (yield from move_each(effect))
    if isinstance(effect, RepairedMany):
        for partition in effect.partitions:
            yield effect.left.get(partition) or Repaired(effect.peer, partition)
        return None
    if isinstance(effect, ReadSuffixesOf):
        return (yield from read_suffixes_of(effect))
    if isinstance(effect, ReadEntriesOf):
        return (yield from read_entries_of(effect))
    return (yield effect)


def move_each(effect: MoveMany) -> Steps[list[MoveOutcome]]:
    """One partition after the other."""
    outcomes: list[MoveOutcome] = []
    for partition, objects in groupby(effect.objects, itemgetter(0)):
        outcomes += yield from move(effect.peer, partition, [push for _, push in objects], effect.pull, effect.limit)
    return outcomes


def read_suffixes_of(effect: ReadSuffixesOf) -> Steps[list[Mapping[str, bytes]]]:
    """One partition after the other."""
    found: list[Mapping[str, bytes]] = []
    left = effect.limit
    for partition in effect.partitions:
        hashes = yield from read_suffixes(partition)
        if found and len(hashes) > left:
            break
        left -= len(hashes)
        found.append(hashes)
    return found


def read_entries_of(effect: ReadEntriesOf) -> Steps[list[tuple[Entry, ...]]]:
    """One partition after the other."""
    found: list[tuple[Entry, ...]] = []
    left = effect.limit
    for one in effect.wanted:
        page = yield from read_entries(one.partition, one.suffixes, None, left)
        if page.more:
            break
        left -= len(page.entries)
        found.append(page.entries)
    return found


def ask(peer: int, request: Request, kind: type[T]) -> Steps[T]:
    """Ask, and insist on an answer of the kind that belongs to the question; WireError otherwise."""
    reply: Reply = yield Ask(peer, request)
    return expect(reply, kind)


def expect(reply: Reply, kind: type[T]) -> T:
    """The reply if it is of this kind; WireError otherwise."""
    if not isinstance(reply, kind):
        raise WireError(f"{type(reply).__name__} does not answer the question; {kind.__name__} is expected")
    return reply


def read_suffixes(partition: int) -> Steps[Mapping[str, bytes]]:
    """The local suffix hashes of a partition."""
    found: Mapping[str, bytes] = yield ReadSuffixes(partition)
    return found


def read_entries(partition: int, suffixes: tuple[str, ...], after: bytes | None, limit: int) -> Steps[Page]:
    """A page of local entries."""
    page: Page = yield ReadEntries(partition, suffixes, after, limit)
    return page


def move(peer: int, partition: int, objects: Sequence[Push], pull: bool, limit: int) -> Steps[list[MoveOutcome]]:
    """Bring objects, a bounded number at a time."""
    outcomes: list[MoveOutcome] = []
    for start in range(0, len(objects), limit):
        outcomes += yield Move(peer, partition, tuple(objects[start : start + limit]), pull)
    return outcomes
