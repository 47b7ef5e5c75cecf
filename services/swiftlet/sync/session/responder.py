"""The side that answers: it looks up one question on the local device, gives one answer, and remembers nothing.

Fault model: a question may come twice, late, from a sender with another ring, or about partitions that are not here. It
is answered from what is held now. What it asks for beyond a limit is left for the next question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from swiftlet_native import PairRoots

from swiftlet.sync.session.effects import (
    Effect,
    Limits,
    ReadEntriesOf,
    ReadPair,
    ReadRoots,
    Steps,
    read_entries,
    read_entries_of,
    read_suffixes,
)
from swiftlet.sync.session.encoding import MAX_ENTRIES, MAX_SUFFIX_HASHES, UNKNOWN_RING
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    Equal,
    Listing,
    ManyEntries,
    Reply,
    Request,
    Roots,
    Suffixes,
    SuffixHashes,
)
from swiftlet.sync.session.pair_messages import MAX_BRANCHES, Branches, ComparePair
from swiftlet.sync.session.roots import over


def answer_by(
    look_up: Callable[[Effect], object],
    request: Request,
    ring_version: int,
    is_primary: Callable[[int], bool],
    limits: Limits | None = None,
) -> Reply:
    """Return the answer that `answer` yields, with `look_up` called for each lookup on the local device."""
    steps = answer(request, ring_version, is_primary, limits)
    observation: object = None
    while True:
        try:
            effect = steps.send(observation)
        except StopIteration as end:
            return cast(Reply, end.value)
        observation = look_up(effect)


def answer(
    request: Request, ring_version: int, is_primary: Callable[[int], bool], limits: Limits | None = None
) -> Steps[Reply]:
    """Return the answer to a question.

    `is_primary` tells whether the local ring, which has the version `ring_version`, puts a partition on this device.
    """
    policy = request.policy
    if isinstance(request, ComparePair):
        return (yield from _compare_pair(request, ring_version, limits.branches if limits else MAX_BRANCHES))
    if isinstance(request, Compare):
        roots: list[bytes] = yield ReadRoots(request.partitions)
        if over(roots) == request.hash:
            return Equal(policy, ring_version)
        if not request.leaves:
            return Roots(policy, ring_version, tuple(roots))
    limit = min(limits.entries, MAX_ENTRIES) if limits else MAX_ENTRIES
    if isinstance(request, AskManyEntries):
        pages = yield from read_entries_of(ReadEntriesOf(request.wanted, limit))
        return ManyEntries(
            policy,
            ring_version,
            tuple(
                Listing(one.partition, is_primary(one.partition), entries)
                for one, entries in zip(request.wanted, pages, strict=False)
            ),
        )
    if isinstance(request, AskEntries):
        page = yield from read_entries(request.partition, request.suffixes, request.after, limit)
        return Entries(policy, ring_version, is_primary(request.partition), page.more, page.entries)
    return Suffixes(policy, ring_version, (yield from _suffixes(request, is_primary)))


def _suffixes(request: Compare | AskSuffixes, is_primary: Callable[[int], bool]) -> Steps[tuple[SuffixHashes, ...]]:
    """Return the suffix hashes of as many partitions as fit into one answer, at least one."""
    found: list[SuffixHashes] = []
    left = MAX_SUFFIX_HASHES
    for partition in request.partitions:
        hashes: Mapping[str, bytes] = yield from read_suffixes(partition)
        if len(hashes) > left:
            break
        left -= len(hashes)
        found.append(SuffixHashes(partition, is_primary(partition), dict(hashes)))
    return tuple(found)


def _compare_pair(request: ComparePair, ring_version: int, limit: int) -> Steps[Reply]:
    """Return whether all partitions of a pair are equal, or the branches of the nodes in question.

    Without a ring there are no branches, and the asker has to name the partitions.
    """
    policy, step = request.policy, request.step
    roots: PairRoots | None = yield ReadPair(request.pair)
    if roots is None:
        return Branches(policy, UNKNOWN_RING)
    found = roots.hash(request.without)
    if found == request.hash:
        return Equal(policy, ring_version)
    nodes = roots.branches(step.start, step.end, step.nodes, request.without, limit)
    if request.hash:
        return Branches(policy, ring_version, nodes)
    return Branches(policy, ring_version, nodes, roots.members_hash(), found)
