"""The side that asks: one device compares some of its partitions with one neighbour and brings both into agreement.

A session goes from cheap questions to dear ones: one hash over all partitions that both share, and a search for those
that differ (`swiftlet.sync.session.pair_search`), or a hash over named partitions (or one partition's root) and roots;
then suffix hashes, entries, and only then the objects that one side lacks. It pushes only what is newer here and pulls
(if the mode pulls) only what is newer there, by `swiftlet.sync.session.compare`. It leaves alone what is still in
flight.

Fault model: the neighbour may be away, slow, have another ring, or answer garbage (`WireError`): that ends the session.
Both sides may change while they are compared: objects that did are `OVERTAKEN`, and the next round looks at them again.
A neighbour whose own ring does not name it as a primary of the partition is given nothing, as it would give it away at
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import ne, not_

from swiftlet.model import Entry
from swiftlet.sync.session.answers import all_primary, partitions_in
from swiftlet.sync.session.compare import Push, differing_suffixes
from swiftlet.sync.session.effects import (
    Ask,
    Moment,
    MoveMany,
    MoveOutcome,
    Proved,
    ReadEntriesOf,
    ReadRoots,
    ReadSuffixesOf,
    Repaired,
    RepairedMany,
    Session,
    Steps,
    Terms,
    ask,
    expect,
    move,
    read_suffixes,
)
from swiftlet.sync.session.entries import Both, ask_many, read_both
from swiftlet.sync.session.far import ToFetch
from swiftlet.sync.session.many_partitions import differing_of, due, due_of, fitting, lacked
from swiftlet.sync.session.messages import (
    AskSuffixes,
    Compare,
    Equal,
    Listing,
    Roots,
    Suffixes,
    SuffixHashes,
)
from swiftlet.sync.session.pair_search import SharedPartitions, search_pair
from swiftlet.sync.session.roots import over
from swiftlet.sync.session.topology import First
from swiftlet.transport.wire import WireError


def neighbour_session(
    terms: Terms, peer: int, partitions: Iterable[int], shared: SharedPartitions | None = None
) -> Session:
    """Return a session that compares these partitions with one neighbour and brings them into agreement.

    They are compared in the order given; those that share a message go in ascending order. `shared` tells that they are
    all that a pair shares, which need not be named.
    """
    moment = Moment()
    return Session(_compare(terms, moment, peer, partitions, shared), moment)


def differing_session(terms: Terms, peer: int, partitions: Iterable[int]) -> Session:
    """Return a session like `neighbour_session` for partitions known to differ; it begins with suffix hashes."""
    moment = Moment()
    return Session(_bring_together(terms, moment, peer, partitions), moment)


def _bring_together(terms: Terms, moment: Moment, peer: int, partitions: Iterable[int]) -> Steps[None]:
    for group in _batches(partitions, terms.limits.differing):
        yield from _differing(terms, moment, peer, group)


def proof_session(
    terms: Terms, peer: int, partitions: Iterable[int], shared: SharedPartitions | None = None
) -> Session:
    """Return a session that only finds out which partitions the neighbour holds equally, and moves nothing.

    `shared` tells that they are all that a pair shares, which need not be named.
    """
    return Session(_prove(terms, peer, partitions, shared), Moment())


def _prove(terms: Terms, peer: int, partitions: Iterable[int], shared: SharedPartitions | None) -> Steps[None]:
    if shared is not None:
        _, partitions = yield from search_pair(terms, peer, shared)
    for batch in _batches(partitions, terms.limits.partitions):
        yield from _compare_batch(terms, peer, batch)


def _compare(
    terms: Terms, moment: Moment, peer: int, partitions: Iterable[int], shared: SharedPartitions | None
) -> Steps[None]:
    if shared is not None:
        found, partitions = yield from search_pair(terms, peer, shared)
        yield from _bring_together(terms, moment, peer, found)
    size = terms.limits.partitions if terms.mode.first is First.BATCH else 1
    for batch in _batches(partitions, size):
        if terms.mode.first is First.BATCH:
            differing = yield from _compare_batch(terms, peer, batch)
            for group in _batches(differing, terms.limits.differing):
                yield from _differing(terms, moment, peer, group)
        elif terms.mode.first is First.ROOT:
            yield from _compare_root(terms, moment, peer, batch[0])
        else:
            yield from _all_suffixes(terms, moment, peer, batch)


def _all_suffixes(terms: Terms, moment: Moment, peer: int, partitions: tuple[int, ...]) -> Steps[None]:
    """Compare partitions without a look at roots: ask for all suffix hashes at once."""
    reply = yield from ask(peer, AskSuffixes(terms.policy, terms.ring_version, partitions), Suffixes)
    for theirs in _expected(reply, partitions):
        yield from _partition(terms, moment, peer, theirs)


def _batches(partitions: Iterable[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions in groups of at most `size`, each sorted."""
    source = iter(partitions)
    while batch := tuple(sorted(islice(source, size))):
        yield batch


def _compare_batch(terms: Terms, peer: int, batch: tuple[int, ...]) -> Steps[list[int]]:
    """Return the partitions that differ: compare one hash over all, and where it differs, roots."""
    roots: list[bytes] = yield ReadRoots(batch)
    reply = yield Ask(peer, Compare(terms.policy, terms.ring_version, batch, over(roots)))
    if isinstance(reply, Equal):
        yield Proved(peer, batch)
        return []
    theirs = expect(reply, Roots).roots
    if len(theirs) != len(batch):
        raise WireError(f"the answer has {len(theirs)} roots for {len(batch)} partitions")
    differs = list(map(ne, roots, theirs))
    same = tuple(compress(batch, map(not_, differs)))
    if same:
        yield Proved(peer, same)
    return list(compress(batch, differs))


def _compare_root(terms: Terms, moment: Moment, peer: int, partition: int) -> Steps[None]:
    """Compare the root of one partition; where it differs, the answer has the suffix hashes."""
    roots: list[bytes] = yield ReadRoots((partition,))
    reply = yield Ask(peer, Compare(terms.policy, terms.ring_version, (partition,), over(roots), leaves=True))
    if isinstance(reply, Equal):
        yield Proved(peer, (partition,))
    else:
        (found,) = _expected(expect(reply, Suffixes), (partition,))
        yield from _partition(terms, moment, peer, found)


def _differing(terms: Terms, moment: Moment, peer: int, partitions: tuple[int, ...]) -> Steps[None]:
    """Bring partitions that differ into agreement: ask for suffix hashes, as many as one answer holds."""
    while partitions:
        held: Sequence[Mapping[str, bytes]] = yield ReadSuffixesOf(partitions, terms.limits.hashes)
        request = AskSuffixes(terms.policy, terms.ring_version, partitions[: len(held)])
        found = _expected((yield from ask(peer, request, Suffixes)), request.partitions)
        yield from _several(terms, moment, peer, found, held)
        partitions = partitions[len(found) :]


def _several(
    terms: Terms,
    moment: Moment,
    peer: int,
    found: Sequence[SuffixHashes],
    held: Sequence[Mapping[str, bytes]],
) -> Steps[None]:
    """Bring several partitions into agreement, with one question about as many as fit into it."""
    same, wanted = differing_of(terms, held, found)
    if same:
        yield Proved(peer, same)
    while wanted:
        batch = fitting(wanted, terms.limits)
        pages = (yield ReadEntriesOf(batch, terms.limits.entries)) if batch else ()
        listings = (yield from ask_many(terms, peer, batch[: len(pages)])) if pages else ()
        if not listings:
            # The first partition is too large for a common question, so its entries are read page by page.
            yield from _pages(terms, moment, peer, wanted[0].partition, wanted[0].suffixes)
            wanted = wanted[1:]
            continue
        yield from _listed(terms, moment, peer, listings, pages)
        wanted = wanted[len(listings) :]


def _listed(
    terms: Terms, moment: Moment, peer: int, listings: Sequence[Listing], pages: Sequence[Sequence[Entry]]
) -> Steps[None]:
    """Push what the neighbour lacks of several partitions, pull what is lacking here, and report on all of them."""
    there = due_of(terms, moment, pages, listings, pull=False)
    here = due_of(terms, moment, pages, listings, pull=True) if terms.mode.pull else ()
    withheld: Counter[int] = Counter()
    if not all_primary(listings):
        foreign = {theirs.partition for theirs in listings if not theirs.primary}
        withheld.update(partition for partition, _ in there if partition in foreign)
        there = [one for one in there if one[0] not in foreign]
    there, fetched = _without_left(terms, moment, peer, there, False)
    here, awaited = _without_left(terms, moment, peer, here, True)
    unsent = withheld + fetched + (yield from _move_many(terms, peer, there, False))
    behind = awaited + (yield from _move_many(terms, peer, here, True))
    left = {
        partition: Repaired(
            peer,
            partition,
            behind[partition],
            unsent[partition],
            withheld[partition],
            fetched[partition],
            awaited[partition],
        )
        for partition in unsent | behind
    }
    yield RepairedMany(peer, partitions_in(listings), left)


def _without_left(
    terms: Terms, moment: Moment, peer: int, objects: Sequence[tuple[int, Push]], pull: bool
) -> tuple[Sequence[tuple[int, Push]], Counter[int]]:
    """Return the objects to bring now, and how many are left to other devices, by partition."""
    if terms.far is None:
        return objects, Counter()
    now, left = terms.far.split(peer, objects, pull=pull)
    terms.far.lacks(peer, left, moment.now_s, pull=pull)
    return now, Counter({partition: what.count for partition, what in left.items()})


def _move_many(terms: Terms, peer: int, objects: Sequence[tuple[int, Push]], pull: bool) -> Steps[Counter[int]]:
    """Bring objects of several partitions; return how many were refused, by partition."""
    if not objects:
        return Counter()
    outcomes: Sequence[MoveOutcome] = yield MoveMany(peer, objects, pull, terms.limits.moves)
    if MoveOutcome.REFUSED not in outcomes:
        return Counter()
    return Counter(one[0] for one, outcome in zip(objects, outcomes, strict=True) if outcome is MoveOutcome.REFUSED)


def _expected(reply: Suffixes, partitions: tuple[int, ...]) -> Sequence[SuffixHashes]:
    """Return the suffix hashes in an answer about the first of these partitions. Raises WireError otherwise."""
    numbers = partitions_in(reply.found)
    if not numbers or numbers != partitions[: len(numbers)]:
        raise WireError(f"the answer has suffix hashes of partitions {numbers} instead of {partitions}")
    return reply.found


@dataclass(slots=True)
class _Tally:
    behind: int = 0
    unsent: int = 0
    withheld: int = 0
    to_fetch: ToFetch = field(default_factory=ToFetch)
    awaited: ToFetch = field(default_factory=ToFetch)


def _partition(terms: Terms, moment: Moment, peer: int, theirs: SuffixHashes) -> Steps[None]:
    """Bring one partition into agreement."""
    partition = theirs.partition
    mine = yield from read_suffixes(partition)
    if mine == theirs.hashes:
        yield Proved(peer, (partition,))
        return
    yield from _pages(terms, moment, peer, partition, _differing_suffixes(terms, mine, theirs.hashes))


def _differing_suffixes(terms: Terms, mine: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> list[str]:
    return differing_suffixes(mine, theirs, both=terms.mode.pull)


def _pages(terms: Terms, moment: Moment, peer: int, partition: int, suffixes: Sequence[str]) -> Steps[None]:
    """Bring these suffixes of a partition into agreement, page by page."""
    tally = _Tally()
    for start in range(0, len(suffixes), terms.limits.suffixes):
        group = tuple(suffixes[start : start + terms.limits.suffixes])
        after: bytes | None = None
        while True:
            both = yield from read_both(terms, peer, partition, group, after)
            yield from _objects(terms, moment, peer, partition, both, tally)
            after = both.upto
            if after is None:
                break
    for left, pull in ((tally.to_fetch, False), (tally.awaited, True)):
        if terms.far is not None and left.count:
            terms.far.lacks(peer, {partition: left}, moment.now_s, pull=pull)
    to_fetch, awaited = tally.to_fetch.count, tally.awaited.count
    yield Repaired(peer, partition, tally.behind + awaited, tally.unsent + to_fetch, tally.withheld, to_fetch, awaited)


def _objects(terms: Terms, moment: Moment, peer: int, partition: int, both: Both, tally: _Tally) -> Steps[None]:
    """Push what the neighbour lacks, then pull what is lacking here."""
    there = due(terms, moment, lacked(terms, both.mine, both.theirs, pull=False))
    if both.primary:
        there = _without(terms, peer, partition, there, tally.to_fetch, False)
        outcomes = yield from move(peer, partition, there, False, terms.limits.moves)
        tally.unsent += outcomes.count(MoveOutcome.REFUSED)
    else:
        tally.unsent += len(there)
        tally.withheld += len(there)
    if terms.mode.pull:
        here = due(terms, moment, lacked(terms, both.mine, both.theirs, pull=True))
        here = _without(terms, peer, partition, here, tally.awaited, True)
        outcomes = yield from move(peer, partition, here, True, terms.limits.moves)
        tally.behind += outcomes.count(MoveOutcome.REFUSED)


def _without(terms: Terms, peer: int, partition: int, objects: list[Push], left: ToFetch, pull: bool) -> list[Push]:
    """Return the objects of a page to bring now; those that are left to other devices are counted."""
    if terms.far is None:
        return objects
    now, to_fetch = terms.far.split(peer, [(partition, push) for push in objects], pull=pull)
    for what in to_fetch.values():
        left.join(what)
    return [push for _, push in now]
