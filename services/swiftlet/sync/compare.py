"""Pure comparison of two replicas: which suffixes differ, and what one of them should send the other.

An entry carries up to three timestamps that merge independently: the data's (or tombstone's), the newest POST's and
the content type's. One replica may be newer in one of them and older in another, so each is compared alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from swiftlet.model import Entry, Kind


class Need(Enum):
    """What the other replica lacks of an object."""

    DATA = "data"
    """The whole object, and its newest POST if it has one."""
    META = "meta"
    """Only metadata or the content type: the data are the same."""
    TOMBSTONE = "tombstone"
    """That the object was deleted."""


@dataclass(frozen=True, slots=True)
class Push:
    """One object to send."""

    entry: Entry
    need: Need


def differing_suffixes(mine: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> list[str]:
    """Suffixes that I hold and whose set hash is another one there, or which are not there at all."""
    return sorted(suffix for suffix, value in mine.items() if theirs.get(suffix) != value)


def need_of(mine: Entry, theirs: Entry | None) -> Need | None:
    """What a replica holding `theirs` (None: nothing) lacks of `mine`; None when it lacks nothing."""
    if theirs is None or theirs.timestamp < mine.timestamp:
        return Need.TOMBSTONE if mine.kind is Kind.TOMBSTONE else Need.DATA
    if theirs.timestamp > mine.timestamp or mine.kind is Kind.TOMBSTONE or theirs.kind is Kind.TOMBSTONE:
        return None
    newer_meta = mine.meta_timestamp > theirs.meta_timestamp
    newer_type = mine.content_type_timestamp > theirs.content_type_timestamp
    return Need.META if newer_meta or newer_type else None


def pushes(mine: Iterable[Entry], theirs: Iterable[Entry]) -> list[Push]:
    """What to send so that the other side lacks nothing of mine; never anything older than it has."""
    there = {entry.digest: entry for entry in theirs}
    found = ((entry, need_of(entry, there.get(entry.digest))) for entry in mine)
    return [Push(entry, need) for entry, need in found if need is not None]
