"""Rounds that gather the cold small objects of coded policies into packs, write packs anew of which little is live, and
delete packs in which nothing is left.

Partitions are looked at by the replicator of their first place, each every now and then: a quarter of the time after
which an object counts as cold, but every six hours at least. What a packer does in one is native code
(`native/crates/node/src/coded/packs`); here is decided when it works and where, and what it passes by. All places of a
partition have to prove a pack, so nothing is begun while one of them is away, or goes by another ring.

Fault model: any device may be away, slow, or replaced by an empty one; rings change at any moment. Each step is safe
whoever does it and however often, so a replicator may be killed anywhere, and two may take themselves for the first
one. A pack that not all places can adopt is passed by for a time that doubles, and so is a partition in which something
failed; both are forgotten by a new process. A pack is deleted only if all places have said that nobody refers to it,
and all go by the ring of these places afterwards: no device that is a place under a newer ring can have got a
reference.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

import structlog
from prometheus_client import Counter, Gauge

from swiftlet.boundaries.coded import CodedPacker, CodedPlaces, Pack, Packed, PackTerms, PassedBy
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.asking.questions import Questions
from swiftlet.sync.coded.layout import CodedRing
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.moving.pacing import Pace
from swiftlet.timestamp import Timestamp

_LONGEST_S = 6 * 3600.0
"""Seconds between two looks at a partition, at most, and the longest pause after failures."""
_FIRST_PAUSE_S = 60.0
"""Seconds for which a partition is left alone after a failure, at most; further pauses double."""
_MOST_LOOKS = 1024
"""Partitions that one round looks at."""
_MOST_FAILURES = 16
"""Partitions in which something failed after which a round ends."""
MAX_PASSED_BY = 65_536
"""Copies that a replicator remembers as left out of packs, and packs that it passes by. What it has to forget is read
again. Copies are forgotten when a packer does not find them any more.
"""

_PACKED = Counter("swiftlet_replicator_packed_objects_total", "Small objects that were put into packs.")
_PACKED_BYTES = Counter("swiftlet_replicator_packed_bytes_total", "Bytes of packs that were made.")
_REREAD_BYTES = Counter(
    "swiftlet_replicator_pack_reread_bytes_total", "Bytes of packs that were read since little of them was live."
)
_PACKS = Counter(
    "swiftlet_replicator_packs_total",
    "Packs that were made, finished in the place of a packer that had ended, rewritten since little of them was live, "
    "retired since nobody refers to them, or deleted.",
    ["what"],
)
_LEFT_OUT = Gauge(
    "swiftlet_replicator_pack_left_out",
    "Cold small objects known to stay out of packs, since devices have them with different bytes.",
)
_UNFINISHED = Gauge(
    "swiftlet_replicator_packs_unfinished",
    "Packs that not all devices could adopt as a whole, and that are tried later.",
)
_SEEN_BYTES = Gauge(
    "swiftlet_replicator_pack_bytes",
    "Bytes of the packs that the last round has looked at: all of them, and those that objects refer to.",
    ["which"],
)
_BELOW = Gauge(
    "swiftlet_replicator_packs_below_live_share",
    "Packs that the last round has looked at with less than pack_live_share, and has left for a later one.",
)
_FAILED = Counter("swiftlet_replicator_pack_failures_total", "Partitions in which packing failed, and is tried later.")

T = TypeVar("T", bound=Hashable)
_log = structlog.get_logger("replicator")


@dataclass(frozen=True, slots=True)
class PackLimits:
    """When objects are packed, and how much at a time."""

    after_s: float
    """Seconds since its last write after which an object is cold; 0 turns packing off."""
    least_bytes: int
    """Bytes of cold objects of a partition with fewer of which no pack is made."""
    most_bytes: int
    """Bytes that a pack has at most."""
    round_bytes: int
    """Bytes of packs after which a round makes no other one."""
    live_share: float = 0.0
    """A pack of which less than this share is referred to is written anew; 0 for none."""

    @property
    def every_s(self) -> float:
        """Return the seconds between two looks at a partition."""
        return min(self.after_s / 4, _LONGEST_S)


@dataclass(slots=True)
class PackReport:
    """The numbers of one round."""

    looked: int = 0
    """Partitions that were looked at."""
    waiting: int = 0
    """Partitions that were due, and of which a place is away or goes by another ring."""
    made: int = 0
    """Packs that were made."""
    members: int = 0
    """Objects in the packs that were made."""
    size: int = 0
    """Their bytes, with names and metadata."""
    finished: int = 0
    """Packs that another packer had left, and that are adopted now."""
    retired: int = 0
    """Packs to which nobody refers any more, and nobody will."""
    deleted: int = 0
    failed: int = 0
    """Partitions in which something failed."""
    paused: int = 0
    """Partitions that are left alone for a while, as something failed in them before."""
    unfinished: int = 0
    """Packs that not all places could adopt as a whole, and that are tried later."""
    left_out: int = 0
    """Cold copies known to stay out of packs, as places have them with other bytes, when they were looked at last."""
    rewritten: int = 0
    """Packs below the live share of which what counts is in a new pack."""
    reread: int = 0
    """Bytes that these packs had, dead ones too."""
    packs: int = 0
    """Packs that were in the partitions, and that objects refer to."""
    pack_bytes: int = 0
    """Bytes of these packs, dead ones too."""
    live_bytes: int = 0
    """Bytes of their members that objects refer to."""
    below: int = 0
    """Packs below the live share that are left for a later round."""
    seconds: float = 0.0

    def add(self, done: Packed) -> None:
        """Count what was done in a partition."""
        self.looked += 1
        self.made += done.members > 0
        self.members += done.members
        self.size += done.size
        self.finished += done.finished
        self.retired += done.retired
        self.failed += done.stopped is not None
        self.rewritten += done.rewritten
        self.reread += done.reread
        self.packs += done.packs
        self.pack_bytes += done.pack_bytes
        self.live_bytes += done.live_bytes
        self.below += done.below
        _REREAD_BYTES.inc(done.reread)
        _PACKS.labels("rewritten").inc(done.rewritten)
        _PACKED.inc(done.members)
        _PACKED_BYTES.inc(done.size)
        _PACKS.labels("made").inc(done.members > 0)
        _PACKS.labels("finished").inc(done.finished)
        _PACKS.labels("retired").inc(done.retired)
        _FAILED.inc(done.stopped is not None)


class _Pauses(Generic[T]):
    """What failed, and until when it is left alone."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._until: dict[T, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def failed(self, what: T, now_s: float) -> None:
        """Leave something alone, twice as long as the last time."""
        _, last_s = self._until.pop(what, (0.0, 0.0))
        pause_s = min(max(self._first_s, 2 * last_s), _LONGEST_S)
        while len(self._until) >= MAX_PASSED_BY:
            del self._until[next(iter(self._until))]
        self._until[what] = now_s + pause_s, pause_s

    def succeeded(self, what: T) -> None:
        """Forget that something failed."""
        self._until.pop(what, None)

    def forget(self, is_over: Callable[[T], bool]) -> None:
        """Forget everything about which `is_over` says so."""
        for what in [what for what in self._until if is_over(what)]:
            del self._until[what]

    def over(self, what: T, now_s: float) -> bool:
        """Return whether something may be tried."""
        return now_s >= self._until.get(what, (0.0, 0.0))[0]

    def going_on(self, now_s: float) -> frozenset[T]:
        """Return what is left alone now."""
        return frozenset(what for what, (until_s, _) in self._until.items() if until_s > now_s)


_Spot = tuple[int, int]
"""A policy, and a partition of its ring."""
_PackAt = tuple[_Spot, bytes]
"""Where a pack is, and its digest."""


class PackRounds:
    """The packers of the partitions of which some local devices are the first place."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        codings: Callable[[int], Coding | None],
        pack_below: Callable[[int], int],
        transport: ObjectTransport,
        packer: CodedPacker,
        neighbours: Neighbours,
        limits: PackLimits,
        pace: Pace | None = None,
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`local` selects the devices of a ring that are packed for; `rings`, `codings` and `pack_below` return those
        of a policy. `pace` limits how fast bytes are packed; `now_s` returns seconds since the epoch, `clock` any.
        """
        self._local = local
        self._rings = rings
        self._codings = codings
        self._pack_below = pack_below
        self._questions = Questions(transport)
        self._packer = packer
        self._neighbours = neighbours
        self._limits = limits
        self._pace = pace or Pace()
        self._now_s = now_s
        self._clock = clock
        self._next: dict[_Spot, float] = {}
        first_s = min(_FIRST_PAUSE_S, 2 * limits.every_s)
        self._partitions: _Pauses[_Spot] = _Pauses(first_s)
        self._packs: _Pauses[_PackAt] = _Pauses(first_s)
        self._left_out: dict[_Spot, frozenset[tuple[bytes, int]]] = {}
        self._last: dict[str, object] | None = None
        self._running: tuple[float, PackReport] | None = None
        """When the round that goes on began, by the clock, and its numbers so far."""
        self._partition_since: float | None = None
        """When a packer began to work in a partition, by the clock; None while none does."""

    def status(self) -> dict[str, object] | None:
        """Return the last round for the status report; None before the first."""
        return self._last

    def running(self) -> dict[str, object] | None:
        """Return the round that goes on for the status report; None between two rounds."""
        if self._running is None:
            return None
        (began, report), now = self._running, self._clock()
        since = self._partition_since
        return {
            "runningForS": now - began,
            "partitionForS": None if since is None else now - since,
            "looked": report.looked,
            "made": report.made,
            "rewritten": report.rewritten,
        }

    async def run_round(self, policies: Sequence[int]) -> PackReport:
        """Look at the partitions of these policies that are due, until the round's bounds are reached."""
        began, report = self._clock(), PackReport()
        self._running = began, report
        try:
            for policy in policies:
                if self._limits.after_s and self._pack_below(policy):
                    await self._round_of(policy, report)
        finally:
            self._running = None
        report.seconds = self._clock() - began
        report.unfinished, report.left_out = len(self._packs), self._count_left_out()
        report.paused = len(self._partitions.going_on(self._clock()))
        _UNFINISHED.set(report.unfinished)
        _LEFT_OUT.set(report.left_out)
        _SEEN_BYTES.labels("all").set(report.pack_bytes)
        _SEEN_BYTES.labels("live").set(report.live_bytes)
        _BELOW.set(report.below)
        self._last = {"endedAt": self._now_s(), **asdict(report)}
        return report

    async def _round_of(self, policy: int, report: PackReport) -> None:
        try:
            ring, coding = self._rings(policy), self._codings(policy)
        except Unavailable as error:
            _log.info("a policy is not packed", policy=policy, reason=str(error))
            return
        if coding is None or ring.replica_count != coding.fragments:
            return
        coded = CodedRing(policy, ring, coding)
        self._neighbours.know(policy, ring.devices)
        peers = self._peers(coded)
        for partition in self._due(coded):
            if report.size + report.reread >= self._limits.round_bytes or report.looked >= _MOST_LOOKS:
                return
            if report.failed >= _MOST_FAILURES or not self._is_current(coded):
                return
            if not await self._all_there(coded, peers, partition):
                report.waiting += 1
                continue
            await self._look_at(coded, partition, report)

    def _due(self, coded: CodedRing) -> Iterator[int]:
        """Yield the partitions that are to be looked at, in any order, so that none is always the last one."""
        policy, now = coded.policy, self._clock()
        first = {
            partition
            for device in self._local(coded.ring)
            for partition, place in coded.ring.partitions_of(device.id)
            if place == 0
        }

        def is_elsewhere(spot: _Spot) -> bool:
            return spot[0] == policy and spot[1] not in first

        self._next = {spot: at for spot, at in self._next.items() if not is_elsewhere(spot)}
        self._partitions.forget(is_elsewhere)
        self._packs.forget(lambda pack: is_elsewhere(pack[0]))
        self._left_out = {spot: copies for spot, copies in self._left_out.items() if not is_elsewhere(spot)}
        due = [one for one in first if self._next.get((policy, one), -math.inf) <= now]
        random.shuffle(due)
        for partition in due:
            if self._partitions.over((policy, partition), self._clock()):
                yield partition

    def _peers(self, coded: CodedRing) -> Peers:
        return Peers(self._questions, self._neighbours, coded)

    async def _all_there(self, coded: CodedRing, peers: Peers, partition: int) -> bool:
        """Return whether all places answer, and go by the ring."""
        for device in coded.ring.primaries(partition):
            if not await peers.is_ours(device, partition):
                return False
        return True

    async def _look_at(self, coded: CodedRing, partition: int, report: PackReport) -> None:
        """Have a packer do a round in a partition; note when the next one is due."""
        spot, places = (coded.policy, partition), coded.places(partition, bytes(16))
        now_s, now = self._now_s(), self._clock()
        terms = PackTerms(
            Timestamp.at(max(0.0, now_s - self._limits.after_s)),
            self._limits.least_bytes,
            self._limits.most_bytes,
            self._limits.live_share,
        )
        passed_by = PassedBy(
            frozenset(digest for at, digest in self._packs.going_on(now) if at == spot),
            self._left_out.get(spot, frozenset()),
        )
        self._partition_since = now
        try:
            done = await self._packer.pack(places, terms, Timestamp.at(now_s), passed_by)
        except SwiftletError as error:
            done = Packed(stopped=str(error))
        finally:
            self._partition_since = None
        report.add(done)
        self._note_unfinished(spot, passed_by, done, now)
        self._note_left_out(spot, done)
        if done.stopped is not None:
            _log.info("a partition is not packed yet", policy=coded.policy, partition=partition, reason=done.stopped)
            self._partitions.failed(spot, now)
        else:
            self._partitions.succeeded(spot)
        await self._delete(coded, places, done.unused, report)
        # What is cold beyond one pack goes into the next one at once.
        self._next[spot] = now if done.members else now + self._limits.every_s
        # Each byte is read at each place with copies, written at all, and read back there; packs that are written anew
        # are read as a whole.
        await self._pace.moved(done.size + done.reread)

    def _note_unfinished(self, spot: _Spot, passed_by: PassedBy, done: Packed, now: float) -> None:
        """Note which packs of a partition are unfinished, and which are not any more."""
        if done.looked_at_all:
            waiting = passed_by.packs.union(done.unfinished)
            self._packs.forget(lambda pack: pack[0] == spot and pack[1] not in waiting)
        for digest in done.unfinished:
            _log.info("a pack is not finished yet", policy=spot[0], partition=spot[1], pack=digest.hex())
            self._packs.failed((spot, digest), now)

    def _note_left_out(self, spot: _Spot, done: Packed) -> None:
        """Remember the copies of a partition that stay out of packs; also those that were known before, if it was not
        looked at to its end.
        """
        before = self._left_out.pop(spot, frozenset())
        found = frozenset(done.left_out)
        if done.stopped is not None:
            found |= before
        room = MAX_PASSED_BY - self._count_left_out()
        if found:
            self._left_out[spot] = frozenset(itertools.islice(found, room))

    def _count_left_out(self) -> int:
        return sum(len(copies) for copies in self._left_out.values())

    async def _delete(self, coded: CodedRing, places: CodedPlaces, packs: Sequence[Pack], report: PackReport) -> None:
        if not packs or not self._is_current(coded):
            return
        # Asked anew: who goes by this ring now has done so while the places said that nobody refers to the pack.
        if not await self._all_there(coded, self._peers(coded), places.key.partition):
            return
        for pack in packs:
            try:
                await self._packer.delete(places, pack, Timestamp.at(self._now_s()))
            except SwiftletError as error:
                _log.info("a pack is not deleted yet", pack=pack.digest.hex(), reason=str(error))
                self._partitions.failed((coded.policy, places.key.partition), self._clock())
            else:
                report.deleted += 1
                _PACKS.labels("deleted").inc()
                self._packs.succeeded(((coded.policy, places.key.partition), pack.digest))

    def _is_current(self, coded: CodedRing) -> bool:
        try:
            return self._rings(coded.policy) is coded.ring
        except Unavailable:
            return False
