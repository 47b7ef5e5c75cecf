"""Finds the partitions that differ among all that two devices share, without naming them.

The first question has one hash over all of them: a pair that is equal proves it with that. Where it is not the
neighbour's, a tree over the bits of the partitions' numbers is descended: both sides tell short hashes of the branches
of those nodes that differ, a few bits further down each time. What is found at the bottom is left out of the next
question, whose hash proves all others equal, or begins another search: for what has changed meanwhile, and for what the
short hashes did not show. Nothing is proved but by whole hashes, which both sides made of the same numbers and roots.

Both sides find the pair's partitions by their own rings. The local device has to have the session's own ones, which a
hash over their numbers shows; those that only the neighbour's ring puts into the pair are found as differing and left
out.

Fault model: as `swiftlet.sync.session.neighbour`. Both sides may change between two questions: a search may then find
nothing, or too much, which costs questions and proves nothing. After `SEARCHES` the partitions that are neither proved
nor found are left to be compared by name, and so are all if either side does not know the pair.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from swiftlet_native import sync_members

from swiftlet.sync.session.effects import Ask, AskHere, Proved, Steps, Terms, expect
from swiftlet.sync.session.encoding import UNKNOWN_RING
from swiftlet.sync.session.messages import Equal, Reply
from swiftlet.sync.session.pair_messages import (
    MAX_SKIPPED,
    MAX_STEP_BITS,
    MAX_WITHOUT,
    Branches,
    ComparePair,
    Pair,
    Step,
    differing_branches,
)

SEARCHES = 4
"""How often partitions that differ are searched for, among those not found before."""
_STEP_BITS = 4
"""Bits that a step goes down, but for the last two."""
_LEAVES = 8
"""Mean partitions of a node at most whose branches are single partitions."""


@dataclass(frozen=True, slots=True)
class SharedPartitions:
    """The partitions that are compared with a neighbour, and the pair that names them.

    `members` is a hash over their numbers, of which there are 2^`part_power` in the ring.
    """

    pair: Pair
    partitions: Collection[int]
    members: bytes
    part_power: int


def shared_by(pair: Pair, partitions: Collection[int], part_power: int) -> SharedPartitions | None:
    """Return these partitions as all that a pair shares; None when a message can't name the pair."""
    if len(pair.skipped) > MAX_SKIPPED:
        return None
    return SharedPartitions(pair, partitions, sync_members(sorted(partitions)), part_power)


def search_pair(terms: Terms, peer: int, shared: SharedPartitions) -> Steps[tuple[list[int], list[int]]]:
    """Report the partitions that are proved; return those that differ, and those of which neither is known."""
    differing: set[int] = set()
    for _ in range(SEARCHES):
        found = yield from _search(terms, peer, shared, sorted(differing))
        if found is None:
            break
        proved, some = found
        if proved:
            same = set(shared.partitions) - differing if differing else shared.partitions
            if same:
                yield Proved(peer, same)
            return sorted(differing.intersection(shared.partitions)), []
        differing.update(some)
        if len(differing) > MAX_WITHOUT or differing.issuperset(shared.partitions):
            break
    rest = sorted(set(shared.partitions) - differing)
    return sorted(differing.intersection(shared.partitions)), rest


def steps(part_power: int, partitions: int) -> tuple[int, ...]:
    """Return how many bits the branches of each step lack, down to single partitions, for so many partitions of a
    ring.
    """
    last = 0
    while last < part_power and partitions << (last + 1) <= _LEAVES << part_power:
        last += 1
    at, found = part_power, []
    while at - last > _STEP_BITS:
        at -= _STEP_BITS
        found.append(at)
    if at > last:
        at = last
        found.append(at)
    while at > MAX_STEP_BITS:
        at = max(at - MAX_STEP_BITS, MAX_STEP_BITS)
        found.append(at)
    return (*found, 0) if at else tuple(found)


def _search(
    terms: Terms, peer: int, shared: SharedPartitions, without: Sequence[int]
) -> Steps[tuple[bool, Sequence[int]] | None]:
    """Search among all partitions but these.

    Returns whether they are proved equal, and if not the partitions found to differ; None when a side can't tell.
    """
    start, nodes = shared.part_power, [0]
    for end in steps(shared.part_power, len(shared.partitions)):
        differing: list[int] = []
        while nodes:
            step = Step(start, end, nodes[: terms.limits.nodes])
            here: Reply = yield AskHere(_question(terms, shared.pair, b"", step, without))
            mine = expect(here, Branches)
            if mine.ring_version == UNKNOWN_RING or mine.members != shared.members:
                return None
            there: Reply = yield Ask(peer, _question(terms, shared.pair, mine.hash, step, without))
            if isinstance(there, Equal):
                return True, ()
            theirs = expect(there, Branches)
            if theirs.ring_version == UNKNOWN_RING:
                return None
            compared, some = differing_branches(mine, theirs, step)
            differing += some
            nodes = nodes[compared:]
        start, nodes = end, differing
    return False, nodes


def _question(terms: Terms, pair: Pair, hash_: bytes, step: Step, without: Sequence[int]) -> ComparePair:
    return ComparePair(terms.policy, terms.ring_version, pair, hash_, step, without)
