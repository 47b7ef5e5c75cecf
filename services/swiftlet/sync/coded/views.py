"""What the places of a partition show, and what follows from it: who lacks what, and how many have each object.

Places with equal roots show the same and are a group; what one of them shows all of it show. An object is as redundant
as places show its newest version. A place that could not be asked shows nothing. No I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swiftlet.model import Entry, Kind
from swiftlet.sync.coded.layout import Spot
from swiftlet.sync.session.compare import Push, in_flight, is_due, need_of
from swiftlet.timestamp import Timestamp

Shown = Mapping[bytes, Entry]
"""The entries that a group shows of some suffixes, by digest."""


@dataclass(frozen=True, slots=True)
class View:
    """The places of a partition that could be compared."""

    partition: int
    """The partition in the ring."""
    groups: Sequence[Sequence[Spot]]
    """Places by their roots, clockwise from the local one, which is the first of the first group."""
    is_empty: bool
    """Whether the local place has nothing of the partition."""

    @property
    def here(self) -> Spot:
        """The place of the local device."""
        return self.groups[0][0]

    @property
    def reached(self) -> int:
        """How many places could be compared, with the local one."""
        return sum(map(len, self.groups))

    @property
    def is_equal(self) -> bool:
        """Whether all of them show the same."""
        return len(self.groups) == 1

    @property
    def is_first(self) -> bool:
        """Whether the local place is the first of them, whose replicator counts the partition."""
        return all(self.here.place <= spot.place for group in self.groups for spot in group)

    def following(self, fragments: int) -> tuple[int, Spot]:
        """Return the next place clockwise after the local one, of so many, and the number of its group."""
        others = [(number, spot) for number, group in enumerate(self.groups) for spot in group if spot != self.here]
        return min(others, key=lambda other: (other[1].place - self.here.place) % fragments)


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that one place shows of an object, and another one does not."""

    partition: int
    digest: bytes
    source: Spot
    target: Spot
    shown_by: int
    """How many places show the object's newest version."""
    is_certain: bool = True
    """Whether the other one is known not to show it, rather than perhaps another generation of the same timestamp."""


@dataclass(slots=True)
class Found:
    """What the comparison of a partition has found."""

    behind: int = 0
    """Records that the local place lacks."""
    unsent: int = 0
    """Records that another place lacks."""
    objects: Counter[int] = field(default_factory=Counter)
    """Objects that not all places show, by the number of places that do."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The moment for which entries are compared, in seconds since the epoch."""

    now_s: float
    forgotten_before_s: float
    """The time before which tombstones don't count any more."""


def lacks(view: View, shown: Sequence[Shown], fragments: int, clock: Clock, found: Found) -> Iterator[Lack]:
    """Yield what the local place and the next one clockwise lack of one suffix; count it in `found`.

    `shown` are the groups' entries. The other places are repaired by those before them and by themselves.
    """
    digests: set[bytes] = set().union(*shown)
    targets = _targets(view, fragments)
    is_explained = False
    for digest in digests:
        entries = [one.get(digest) for one in shown]
        newest = max((entry for entry in entries if entry is not None), key=_order)
        is_young = in_flight(newest, clock.now_s)
        is_explained = is_explained or is_young or any(entry != newest for entry in entries)
        holders = sum(len(group) for group, entry in zip(view.groups, entries, strict=True) if _has(entry, newest))
        if newest.kind is Kind.DATA and not is_young and holders < fragments:
            found.objects[holders] += 1
        lacking = [_newer(entries, number, clock) for number in range(len(entries))]
        found.behind += lacking[0] is not None
        found.unsent += any(source is not None for source in lacking[1:])
        for number, target in targets:
            source = lacking[number]
            if source is not None:
                yield Lack(view.partition, digest, view.groups[source][0], target, holders)
    # Of two writes with one timestamp the higher generation counts, and only the devices know those.
    found.behind += bool(digests) and not is_explained
    for number, target in targets:
        for other in range(len(shown)):
            if other != number and 0 in {other, number}:
                source_spot, rank = view.groups[other][0], fragments if is_explained else len(view.groups[other])
                for digest in _equal(shown[number], shown[other].values(), clock.now_s):
                    yield Lack(view.partition, digest, source_spot, target, rank, is_certain=False)


def _targets(view: View, fragments: int) -> list[tuple[int, Spot]]:
    """Return the places that are repaired, each with the number of its group."""
    number, spot = view.following(fragments)
    return [(0, view.here)] if number == 0 else [(0, view.here), (number, spot)]


def _order(entry: Entry) -> tuple[Timestamp, bool, Timestamp, Timestamp]:
    return entry.timestamp, entry.kind is Kind.TOMBSTONE, entry.meta_timestamp, entry.content_type_timestamp


def _has(entry: Entry | None, newest: Entry) -> bool:
    return entry is not None and (entry.timestamp, entry.kind) == (newest.timestamp, newest.kind)


def _newer(entries: Sequence[Entry | None], number: int, clock: Clock) -> int | None:
    """Return the group whose entry a group lacks, the newest of them; None for none, or if it is not due."""
    mine, best = entries[number], None
    for other, entry in enumerate(entries):
        if entry is not None and (need := need_of(entry, mine)) is not None:
            push = Push(entry, need, fresh=mine is None)
            is_better = best is None or _order(entry) > _order(entries[best] or entry)
            if is_better and is_due(push, clock.now_s, clock.forgotten_before_s):
                best = other
    return best


def _equal(mine: Shown, theirs: Iterable[Entry], now_s: float) -> Iterator[bytes]:
    for entry in theirs:
        if mine.get(entry.digest) == entry and entry.kind is Kind.DATA and not in_flight(entry, now_s):
            yield entry.digest
