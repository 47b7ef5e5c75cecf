"""Finds for many partitions at a time what differs and what has to be brought.

Native code compares bytes where both sides are packed; elsewhere values are compared. The results are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from swiftlet.model import Entry
from swiftlet.sync.session.answers import differing_packed, lacked_packed
from swiftlet.sync.session.compare import Push, differing_suffixes, is_due, pushes
from swiftlet.sync.session.effects import Limits, Moment, Terms
from swiftlet.sync.session.messages import Listing, SuffixHashes
from swiftlet.sync.session.wanted import Wanted, sizes_of

Mine = TypeVar("Mine")
Theirs = TypeVar("Theirs")


def differing_of(
    terms: Terms, mine: Sequence[Mapping[str, bytes]], theirs: Sequence[SuffixHashes]
) -> tuple[tuple[int, ...], Sequence[Wanted]]:
    """Return the partitions that are equal on both sides, and the suffixes that differ in the others.

    When one side has fewer partitions than the other, only the common ones are compared.
    """
    found = differing_packed(mine, theirs, terms.mode.pull)
    if found is not None:
        return found
    both = list(zip(mine, theirs, strict=False))
    same = tuple(there.partition for here, there in both if there.hashes == here)
    wanted = tuple(
        Wanted(there.partition, tuple(differing_suffixes(here, there.hashes, terms.mode.pull)))
        for here, there in both
        if there.hashes != here
    )
    return same, wanted


def fitting(wanted: Sequence[Wanted], limits: Limits) -> Sequence[Wanted]:
    """Return the first wanted suffixes that fit into one question; none when the first partition has too many."""
    left = limits.wanted
    count = 0
    for size in sizes_of(wanted):
        left -= size
        if size > limits.suffixes or left < 0:
            break
        count += 1
    return wanted[:count]


def due_of(
    terms: Terms, moment: Moment, mine: Sequence[Sequence[Entry]], theirs: Sequence[Listing], pull: bool
) -> Sequence[tuple[int, Push]]:
    """Return the objects to bring to the neighbour now, or with `pull` from it, each with its partition.

    When one side has fewer partitions than the other, only the common ones are compared.
    """
    if terms.transfer_rules is None:
        found = lacked_packed(*_giver_first(mine, theirs, pull), moment.now_s, terms.forgotten_before_s(moment.now_s))
        if found is not None:
            return found
    return [
        (there.partition, push)
        for here, there in zip(mine, theirs, strict=False)
        for push in due(terms, moment, lacked(terms, here, there.entries, pull))
    ]


def lacked(terms: Terms, mine: Sequence[Entry], theirs: Sequence[Entry], pull: bool) -> list[Push]:
    """Return what the neighbour lacks of one partition, or with `pull` what is lacking here."""
    rules = terms.transfer_rules
    if rules is None:
        return pushes(*_giver_first(mine, theirs, pull))
    return rules.here(theirs, mine) if pull else rules.there(mine, theirs, terms.mode.pull)


def _giver_first(mine: Mine, theirs: Theirs, pull: bool) -> tuple[Mine | Theirs, Mine | Theirs]:
    return (theirs, mine) if pull else (mine, theirs)


def due(terms: Terms, moment: Moment, found: list[Push]) -> list[Push]:
    """Return the objects that are to be sent now."""
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    is_it = is_due if terms.transfer_rules is None else terms.transfer_rules.is_due
    return [push for push in found if is_it(push, moment.now_s, forgotten_s)]
