"""Pure comparison of two replicas: which suffixes differ, and what one of them should send the other.

An entry carries up to three timestamps that merge independently: that of the data (or tombstone), of the newest POST
and of the content type. One replica may be newer in one of them and older in another, so each is compared alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from swiftlet.model import Entry, Kind
from swiftlet.sync.session.packed import PackedEntries, PackedHashes, entry_of
from swiftlet.timestamp import NONCE_BITS, TICKS_PER_SECOND, Timestamp


class Need(Enum):
    """The parts of an object that a replica lacks."""

    DATA = "data"
    """The whole object, and its newest POST if it has one."""
    META = "meta"
    """Only metadata or the content type: the data are the same."""
    TOMBSTONE = "tombstone"
    """The replica lacks the deletion of the object."""
    ROWS = "rows"
    """Not an object but a database: afterwards both sides have to know all rows that either knows."""


@dataclass(frozen=True, slots=True)
class Push:
    """One object to send; `fresh` tells that the other side has nothing of the object."""

    entry: Entry
    need: Need
    fresh: bool = False


IN_FLIGHT_S = 10.0
"""Records younger than this may still be on their way from the proxy to all replicas."""
AHEAD_S = 60.0
"""Records further in the future than this do not count as young: the clock of their writer is wrong."""
RECLAIM_PERIOD_S = 3600.0
"""Devices forget tombstones in step, by whole periods of this many seconds."""


def forgotten_before(now_s: float, reclaim_age_s: float, period_s: float = RECLAIM_PERIOD_S) -> float:
    """Return the time before which tombstones no longer count: devices have forgotten them, or are about to.

    The result is in seconds since the epoch, and 0 for an infinite `reclaim_age_s`.
    """
    if math.isinf(reclaim_age_s):
        return 0.0
    return (now_s - reclaim_age_s) // period_s * period_s


NEEDS = {1: Need.DATA, 2: Need.TOMBSTONE, 3: Need.META}
"""The things that a replica may lack, with the numbers that native code uses for them."""


def differing_suffixes(mine: Mapping[str, bytes], theirs: Mapping[str, bytes], both: bool = False) -> list[str]:
    """Return, in order, the suffixes that I hold and that the other side lacks or has another set hash for.

    With `both` the result includes the suffixes that only the other side holds.
    """
    if isinstance(mine, PackedHashes) and isinstance(theirs, PackedHashes):
        return mine.differing(theirs, both)
    suffixes = [suffix for suffix, value in mine.items() if theirs.get(suffix) != value]
    return sorted([*suffixes, *(theirs.keys() - mine.keys())] if both else suffixes)


def in_flight(entry: Entry, now_s: float) -> bool:
    """Return whether the newest part of an entry is so young that its writer may still be sending it to replicas."""
    newest = max(entry.timestamp.value, entry.meta_timestamp.value, entry.content_type_timestamp.value)
    return now_s - IN_FLIGHT_S < (newest >> NONCE_BITS) / TICKS_PER_SECOND < now_s + AHEAD_S


def need_of(mine: Entry, theirs: Entry | None) -> Need | None:
    """Return what a replica whose entry is `theirs` lacks of `mine`; None when it lacks nothing.

    `theirs` is None for a replica without the object. A deletion counts where data have the same timestamp: who moves a
    version to another policy deletes it with its own.
    """
    if theirs is None or _rank(theirs) < _rank(mine):
        return Need.TOMBSTONE if mine.kind is Kind.TOMBSTONE else Need.DATA
    if mine.kind is Kind.TOMBSTONE or theirs.kind is Kind.TOMBSTONE:
        return None
    # A POST also applies to newer data, if it is newer than those.
    newer_meta = mine.meta_timestamp > max(theirs.meta_timestamp, theirs.timestamp)
    newer_type = mine.content_type_timestamp > max(theirs.content_type_timestamp, theirs.timestamp)
    return Need.META if newer_meta or newer_type else None


def _rank(entry: Entry) -> tuple[Timestamp, bool]:
    return entry.timestamp, entry.kind is Kind.TOMBSTONE


def pushes(mine: Iterable[Entry], theirs: Iterable[Entry]) -> list[Push]:
    """Return what to send so that the other side lacks nothing of mine; it never has something newer already.

    With the arguments swapped, `pushes(theirs, mine)` is what to pull.
    """
    if isinstance(mine, PackedEntries) and isinstance(theirs, PackedEntries):
        newer = mine.newer_than(theirs)
        if newer is not None:
            return [Push(entry_of(parts), NEEDS[need], fresh) for parts, need, fresh in newer]
    there = {entry.digest: entry for entry in theirs}
    found = ((entry, need_of(entry, there.get(entry.digest))) for entry in mine)
    return [Push(entry, need, entry.digest not in there) for entry, need in found if need is not None]


def is_due(push: Push, now_s: float, forgotten_before_s: float) -> bool:
    """Return whether to send an object now: it is not in flight, and no tombstone that all devices may have forgotten.

    Devices forget tombstones older than `forgotten_before_s` at different minutes. One that already did must not get
    them back, or they would go round for ever. Where there is older data, the tombstone still has to go.
    """
    forgotten = push.fresh and _is_forgotten(push.entry, forgotten_before_s)
    return not forgotten and not in_flight(push.entry, now_s)


def is_returned(mine: Entry, theirs: Entry | None, forgotten_before_s: float) -> bool:
    """Return whether a primary no longer needs a handoff's copy: it has all of it, or may have forgotten it again.

    Only a tombstone can have been forgotten.
    """
    return need_of(mine, theirs) is None or (theirs is None and _is_forgotten(mine, forgotten_before_s))


def _is_forgotten(entry: Entry, before_s: float) -> bool:
    return entry.kind is Kind.TOMBSTONE and entry.timestamp.seconds < before_s
