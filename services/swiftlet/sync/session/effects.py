"""Effects that a session requests, and the observations that answer them.

A machine is a generator: it yields one effect, is sent the observation that belongs to it, and yields the next one.
Effects and observations are plain values, so that asyncio code, a simulator and a test can drive the same machine.
`Limits` bounds the memory of a machine, whatever the number of partitions and objects.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from swiftlet.errors import SwiftletError
from swiftlet.model import Entry
from swiftlet.sync.session.compare import RECLAIM_PERIOD_S, Push, forgotten_before
from swiftlet.sync.session.far import Far
from swiftlet.sync.session.messages import Reply, Request, Wanted
from swiftlet.sync.session.pair_messages import MAX_BRANCHES, Pair
from swiftlet.sync.session.topology import BATCHED, Mode
from swiftlet.sync.session.transfer_rules import TransferRules
from swiftlet.transport.wire import WireError


class MoveOutcome(Enum):
    """The outcome of moving an object."""

    MOVED = "moved"
    OVERTAKEN = "overtaken"
    """The object changed meanwhile on one side or both; the next round compares it again."""
    REFUSED = "refused"
    """The device does not take the object, or can't give it: the copy is damaged, or there is no room."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request to the neighbour with the device id `peer`. The observation is its `Reply`."""

    peer: int
    request: Request


@dataclass(frozen=True, slots=True)
class AskHere:
    """Ask the local device as a neighbour is asked. The observation is its `Reply`."""

    request: Request


@dataclass(frozen=True, slots=True)
class ReadPair:
    """Look up the roots of the partitions of a pair on the local device, by its own ring.

    The observation is a `PairRoots` with the present roots, or None while the device has no ring.
    """

    pair: Pair


@dataclass(frozen=True, slots=True)
class ReadRoots:
    """Look up roots on the local device. The observation is a list of 16 bytes for each of the partitions, in order."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadSuffixes:
    """Look up the suffix hashes of a partition on the local device.

    The observation is a mapping from suffix to hash, empty when the device holds nothing of the partition.
    """

    partition: int


@dataclass(frozen=True, slots=True)
class ReadSuffixesOf:
    """Look up the suffix hashes of several partitions on the local device.

    The observation is a list of mappings, as of `ReadSuffixes`, for the first partitions: as many as have at most
    `limit` hashes together, and at least one. The machine asks again for the rest.
    """

    partitions: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Look up the entries of some suffixes on the local device, in the order of (suffix, digest).

    The observation is a `Page` of at most `limit` entries that follow the digest `after`, or the first ones if it is
    None.
    """

    partition: int
    suffixes: tuple[str, ...]
    after: bytes | None
    limit: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries in order; `more` tells that others follow."""

    entries: tuple[Entry, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class ReadEntriesOf:
    """Look up the entries of several partitions on the local device.

    The observation is a list with all entries of each of the first partitions, in the order of (suffix, digest): as
    many partitions as have at most `limit` entries together. It is empty when the first partition alone has more.
    """

    wanted: Sequence[Wanted]
    limit: int


@dataclass(frozen=True, slots=True)
class Move:
    """Bring objects of one partition to a neighbour, or with `pull` from it.

    The observation is a list with a `MoveOutcome` for each object, in order.
    """

    peer: int
    partition: int
    objects: tuple[Push, ...]
    pull: bool


@dataclass(frozen=True, slots=True)
class MoveMany:
    """Bring objects of several partitions to a neighbour, or with `pull` from it.

    Each object is given with its partition; those of one partition stand together. The observation is a sequence with a
    `MoveOutcome` for each object, in order. A driver that executes simple effects only brings up to `limit` objects of
    one partition at a time.
    """

    peer: int
    objects: Sequence[tuple[int, Push]]
    pull: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove handoff copies, except those that changed; nothing is removed when there is a newer ring.

    The observation is the number of removed copies.
    """

    partition: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """Report that the neighbour has shown that it holds the same in these partitions. The observation is None."""

    peer: int
    partitions: Collection[int]


@dataclass(frozen=True, slots=True)
class Repaired:
    """Report what is left to do in a partition that differed, after the work on it. The observation is None.

    `behind` counts objects that are newer at the neighbour and still lacking here, `unsent` objects that are newer here
    and still lacking there. `withheld` counts the unsent ones that the neighbour should not be given, because its own
    ring does not name it as a primary, and `to_fetch` those that it is expected to fetch by itself. `awaited` counts
    the objects lacking here that another device of the region is expected to bring.
    """

    peer: int
    partition: int
    behind: int = 0
    unsent: int = 0
    withheld: int = 0
    to_fetch: int = 0
    awaited: int = 0


@dataclass(frozen=True, slots=True)
class RepairedMany:
    """Report the work on several partitions that differed, in this order. The observation is None.

    `left` has a `Repaired` for each partition with something left to do. In the others nothing is left.
    """

    peer: int
    partitions: tuple[int, ...]
    left: Mapping[int, Repaired]


@dataclass(frozen=True, slots=True)
class HandoffReturned:
    """Report how many objects of a handoff's partition were dropped and kept here, and how many of them are left to
    primaries in other regions to fetch, by device id. The observation is None.
    """

    partition: int
    dropped: int
    kept: int
    to_fetch: Mapping[int, int] = field(default_factory=dict)


Compound: TypeAlias = ReadSuffixesOf | ReadEntriesOf | MoveMany | RepairedMany
"""Effects for many partitions at once, which can also be executed as simple effects, one after the other."""
Effect: TypeAlias = (
    Ask
    | AskHere
    | ReadPair
    | ReadRoots
    | ReadSuffixes
    | ReadEntries
    | Move
    | Drop
    | Proved
    | Repaired
    | HandoffReturned
    | Compound
)

T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Any, T]
"""A machine, or a part of one, that returns a T."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest numbers of what is said, asked and moved at a time."""

    partitions: int = 4096
    """Partitions whose roots are compared by one hash, in one message."""
    differing: int = 1024
    """Partitions whose suffix hashes are asked for at a time."""
    suffixes: int = 256
    """Suffixes of one partition whose entries are asked for at a time."""
    entries: int = 4096
    """Entries in one page."""
    moves: int = 64
    """Objects of one partition that are moved at the same time."""
    hashes: int = 8192
    """Suffix hashes that are read at a time."""
    wanted: int = 8192
    """Suffixes of all partitions whose entries are asked for at a time."""
    nodes: int = 4096
    """Nodes of the tree over a pair's partitions whose branches are asked for at a time."""
    branches: int = MAX_BRANCHES
    """Branches in one answer."""


@dataclass(slots=True)
class Moment:
    """The time of day as a value: whoever drives a session sets it, in seconds since the epoch, before each step."""

    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of a whole session.

    `reclaim_age_s` is the age at which devices forget tombstones. `transfer_rules` says what to do about entries that
    differ; None stands for the rules for objects. `far` are devices in other regions, with which data are
    exchanged by delegates; None where all are treated alike.
    """

    policy: int = 0
    ring_version: int = 0
    mode: Mode = BATCHED
    reclaim_age_s: float = float("inf")
    reclaim_period_s: float = RECLAIM_PERIOD_S
    limits: Limits = field(default_factory=Limits)
    transfer_rules: TransferRules | None = None
    far: Far | None = None

    def forgotten_before_s(self, now_s: float) -> float:
        """Return the time before which devices have forgotten tombstones, or are about to."""
        return forgotten_before(now_s, self.reclaim_age_s, self.reclaim_period_s)


class Session:
    """A machine with its clock: the driver calls `resume` with each observation, or `fail`, until there is no further
    effect.

    Fault model: any effect may fail at any time (`fail`). A neighbour's failure ends the session, or in the return of a
    handoff only that neighbour's part in it. The next round compares the partitions anew that were not reported. A
    session may be abandoned at any step: only the objects moved so far remain of it.

    A driver that can execute compound effects starts with `begin`; any other one calls `resume` and gets simple effects
    only.
    """

    def __init__(self, steps: Steps[None], moment: Moment) -> None:
        """`steps` is the machine, and `moment` the clock that it was made with."""
        self._steps = steps
        self._moment = moment
        self._begun = False
        self.error: SwiftletError | None = None
        """The error that ended the session early."""

    def begin(self, now_s: float) -> Effect | None:
        """Return the first effect, for a driver that can execute compound effects."""
        self._begun = True
        return self.resume(None, now_s)

    def resume(self, observation: object, now_s: float) -> Effect | None:
        """Return the effect that follows an observation, or None at the end. The first observation is ignored."""
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
        """Continue after the last effect failed with `error`; return the next effect, or None at the end."""
        self._moment.now_s = now_s
        try:
            return self._steps.throw(error)
        except StopIteration:
            return None
        except SwiftletError as raised:
            self.error = raised
            return None


def simply(steps: Steps[T]) -> Steps[T]:
    """Return the same machine with each compound effect replaced by simple ones."""
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
    """Execute a `MoveMany` by simple effects, one partition after the other."""
    outcomes: list[MoveOutcome] = []
    for partition, objects in groupby(effect.objects, itemgetter(0)):
        outcomes += yield from move(effect.peer, partition, [push for _, push in objects], effect.pull, effect.limit)
    return outcomes


def read_suffixes_of(effect: ReadSuffixesOf) -> Steps[list[Mapping[str, bytes]]]:
    """Execute a `ReadSuffixesOf` by simple effects, one partition after the other."""
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
    """Execute a `ReadEntriesOf` by simple effects, one partition after the other."""
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
    """Send a request and return its answer. Raises WireError when the answer is not of this kind."""
    reply: Reply = yield Ask(peer, request)
    return expect(reply, kind)


def expect(reply: Reply, kind: type[T]) -> T:
    """Return a reply of this kind. Raises WireError for any other kind."""
    if not isinstance(reply, kind):
        raise WireError(f"{type(reply).__name__} does not answer the question; {kind.__name__} is expected")
    return reply


def read_suffixes(partition: int) -> Steps[Mapping[str, bytes]]:
    """Return the local suffix hashes of a partition."""
    found: Mapping[str, bytes] = yield ReadSuffixes(partition)
    return found


def read_entries(partition: int, suffixes: tuple[str, ...], after: bytes | None, limit: int) -> Steps[Page]:
    """Return a page of local entries."""
    page: Page = yield ReadEntries(partition, suffixes, after, limit)
    return page


def move(peer: int, partition: int, objects: Sequence[Push], pull: bool, limit: int) -> Steps[list[MoveOutcome]]:
    """Bring objects of one partition, at most `limit` at a time; return the outcome for each."""
    outcomes: list[MoveOutcome] = []
    for start in range(0, len(objects), limit):
        outcomes += yield Move(peer, partition, tuple(objects[start : start + limit]), pull)
    return outcomes
