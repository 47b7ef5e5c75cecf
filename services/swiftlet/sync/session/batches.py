"""Many partitions at a time: what they differ in and what has to be brought, in bytes where both sides are runs of
native code's, by value elsewhere. Both come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swiftlet.model import Entry
from swiftlet.sync.answers import differing_runs, lacked_runs
from swiftlet.sync.compare import Push, differing_suffixes, is_due, pushes
from swiftlet.sync.session.effects import Limits, Moment, Terms
from swiftlet.sync.session.messages import Listing, SuffixHashes
from swiftlet.sync.session.wanted import Wanted, sizes_of


def differing_of(
    terms: Terms, mine: Sequence[Mapping[str, bytes]], theirs: Sequence[SuffixHashes]
) -> tuple[tuple[int, ...], Sequence[Wanted]]:
    """Partitions that are the same on both sides, and the suffixes that differ in the others; as far as both go."""
    found = differing_runs(mine, theirs, terms.mode.pull)
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
    """The first ones, as many as one question is to have; none when the first one is too much."""
    left = limits.wanted
    count = 0
    for size in sizes_of(wanted):
        left -= size
        if size > limits.suffixes or left < 0:
            break
        count += 1
    return wanted[:count]


def due_there(
    terms: Terms, moment: Moment, mine: Sequence[Sequence[Entry]], theirs: Sequence[Listing]
) -> Sequence[tuple[int, Push]]:
    """What to bring to the neighbour now, with the partition of each; as far as both go."""
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    found = lacked_runs(mine, theirs, moment.now_s, forgotten_s) if terms.rules is None else None
    if found is not None:
        return found
    return [
        (there.partition, push)
        for here, there in zip(mine, theirs, strict=False)
        for push in due(terms, moment, pushes_there(terms, here, there.entries))
    ]


def due_here(
    terms: Terms, moment: Moment, mine: Sequence[Sequence[Entry]], theirs: Sequence[Listing]
) -> Sequence[tuple[int, Push]]:
    """What to bring from the neighbour now; as `due_there`."""
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    found = lacked_runs(theirs, mine, moment.now_s, forgotten_s) if terms.rules is None else None
    if found is not None:
        return found
    return [
        (there.partition, push)
        for here, there in zip(mine, theirs, strict=False)
        for push in due(terms, moment, pushes_here(terms, there.entries, here))
    ]


def pushes_there(terms: Terms, mine: Sequence[Entry], theirs: Sequence[Entry]) -> list[Push]:
    """What the neighbour lacks of one partition."""
    return pushes(mine, theirs) if terms.rules is None else terms.rules.there(mine, theirs, terms.mode.pull)


def pushes_here(terms: Terms, theirs: Sequence[Entry], mine: Sequence[Entry]) -> list[Push]:
    """What is lacking here of one partition."""
    return pushes(theirs, mine) if terms.rules is None else terms.rules.here(theirs, mine)


def due(terms: Terms, moment: Moment, found: list[Push]) -> list[Push]:
    """Those of them that are to go now."""
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    is_it = is_due if terms.rules is None else terms.rules.is_due
    return [push for push in found if is_it(push, moment.now_s, forgotten_s)]
