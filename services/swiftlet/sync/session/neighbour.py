"""The side that asks: one device compares some of its partitions with one neighbour and brings both into agreement.

From the cheap to the dear: a hash over many partitions or one partition's root, roots, suffix hashes, entries, and
only then the objects that one side lacks. Pushed is only what is newer here, pulled (if the mode pulls) only what is
newer there, by `swiftlet.sync.compare`; what is still in flight is left alone.

Fault model: the neighbour may be away, slow, of another ring, or answer garbage (`WireError`): that ends the session.
Both sides may change while they are compared: objects that did are `OVERTAKEN`, and the next round looks again. A
neighbour that is no primary of the partition in its own eyes is given nothing, as it would give it away at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from swiftlet.model import Entry
from swiftlet.sync.compare import Push, differing_suffixes, is_due, pushes
from swiftlet.sync.session.effects import (
    Ask,
    Fate,
    Limits,
    Moment,
    Move,
    MoveAll,
    Proved,
    ReadEntriesOf,
    ReadRoots,
    ReadSuffixesOf,
    Session,
    Settled,
    Steps,
    Terms,
    ask,
    expect,
    move,
    read_suffixes,
)
from swiftlet.sync.session.entries import Both, ask_many, read_both
from swiftlet.sync.session.messages import (
    AskSuffixes,
    Compare,
    Equal,
    Listing,
    Roots,
    Suffixes,
    SuffixHashes,
    Wanted,
)
from swiftlet.sync.session.roots import over
from swiftlet.sync.session.topology import First
from swiftlet.transport.wire import WireError


def neighbour_session(terms: Terms, peer: int, partitions: Iterable[int]) -> Session:
    """A session with one neighbour about these partitions, in this order as far as they don't share a message."""
    moment = Moment()
    return Session(_compare(terms, moment, peer, partitions), moment)


def differing_session(terms: Terms, peer: int, partitions: Iterable[int]) -> Session:
    """As `neighbour_session` about partitions that are known to differ: it begins with their suffix hashes."""
    moment = Moment()
    return Session(_bring_together(terms, moment, peer, partitions), moment)


def _bring_together(terms: Terms, moment: Moment, peer: int, partitions: Iterable[int]) -> Steps[None]:
    for group in _batches(partitions, terms.limits.differing):
        yield from _differing(terms, moment, peer, group)


def proof_session(terms: Terms, peer: int, partitions: Iterable[int]) -> Session:
    """A session that only finds out which partitions the neighbour holds equally, and works on none of the others."""
    return Session(_prove(terms, peer, partitions), Moment())


def _prove(terms: Terms, peer: int, partitions: Iterable[int]) -> Steps[None]:
    for batch in _batches(partitions, terms.limits.partitions):
        yield from _compare_batch(terms, peer, batch)


def _compare(terms: Terms, moment: Moment, peer: int, partitions: Iterable[int]) -> Steps[None]:
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
    """Begin with the suffix hashes."""
    reply = yield from ask(peer, AskSuffixes(terms.policy, terms.ring_version, partitions), Suffixes)
    for theirs in _expected(reply, partitions):
        yield from _partition(terms, moment, peer, theirs)


def _batches(partitions: Iterable[int], size: int) -> Iterator[tuple[int, ...]]:
    """As many as share a message, ascending as the message wants them."""
    source = iter(partitions)
    while batch := tuple(sorted(islice(source, size))):
        yield batch


def _compare_batch(terms: Terms, peer: int, batch: tuple[int, ...]) -> Steps[list[int]]:
    """One hash over all; where it differs, the roots. The partitions that differ."""
    roots: list[bytes] = yield ReadRoots(batch)
    reply = yield Ask(peer, Compare(terms.policy, terms.ring_version, batch, over(roots)))
    if isinstance(reply, Equal):
        yield Proved(peer, batch)
        return []
    theirs = expect(reply, Roots).roots
    if len(theirs) != len(batch):
        raise WireError(f"{len(theirs)} roots for {len(batch)} partitions")
    same = tuple(p for p, mine, other in zip(batch, roots, theirs, strict=True) if mine == other)
    if same:
        yield Proved(peer, same)
    return [p for p, mine, other in zip(batch, roots, theirs, strict=True) if mine != other]


def _compare_root(terms: Terms, moment: Moment, peer: int, partition: int) -> Steps[None]:
    """One partition's root; where it differs, the answer has the suffix hashes."""
    roots: list[bytes] = yield ReadRoots((partition,))
    reply = yield Ask(peer, Compare(terms.policy, terms.ring_version, (partition,), over(roots), leaves=True))
    if isinstance(reply, Equal):
        yield Proved(peer, (partition,))
    else:
        (found,) = _expected(expect(reply, Suffixes), (partition,))
        yield from _partition(terms, moment, peer, found)


def _differing(terms: Terms, moment: Moment, peer: int, partitions: tuple[int, ...]) -> Steps[None]:
    """Ask for suffix hashes, of as many partitions as an answer holds, and work on each."""
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
    """Bring several partitions into agreement, with one question for as many as fit into it."""
    both = [(theirs, mine) for theirs, mine in zip(found, held, strict=False)]
    same = tuple(theirs.partition for theirs, mine in both if theirs.hashes == mine)
    if same:
        yield Proved(peer, same)
    wanted = [
        Wanted(theirs.partition, tuple(_differing_suffixes(terms, mine, theirs.hashes)))
        for theirs, mine in both
        if theirs.hashes != mine
    ]
    while wanted:
        batch = _fitting(wanted, terms.limits)
        pages = (yield ReadEntriesOf(batch, terms.limits.entries)) if batch else ()
        listings = (yield from ask_many(terms, peer, batch[: len(pages)])) if pages else ()
        if not listings:
            # Too much for a common question: page by page.
            yield from _pages(terms, moment, peer, wanted[0].partition, wanted[0].suffixes)
            wanted = wanted[1:]
            continue
        yield from _listed(terms, moment, peer, listings, pages)
        wanted = wanted[len(listings) :]


def _fitting(wanted: Sequence[Wanted], limits: Limits) -> tuple[Wanted, ...]:
    """The first ones, as many as one question is to have; none when the first one is too much."""
    left = limits.wanted
    fitting: list[Wanted] = []
    for one in wanted:
        left -= len(one.suffixes)
        if len(one.suffixes) > limits.suffixes or left < 0:
            break
        fitting.append(one)
    return tuple(fitting)


def _listed(
    terms: Terms, moment: Moment, peer: int, listings: Sequence[Listing], pages: Sequence[Sequence[Entry]]
) -> Steps[None]:
    """Push what the neighbour lacks of several partitions, then pull what is lacking here, and tell of each."""
    tallies = {theirs.partition: _Tally() for theirs in listings}
    there: dict[int, list[Push]] = {}
    here: dict[int, list[Push]] = {}
    for theirs, mine in zip(listings, pages, strict=False):
        due = _due(terms, moment, _there(terms, mine, theirs.entries))
        if theirs.primary:
            there[theirs.partition] = due
        else:
            tallies[theirs.partition] = _Tally(unsent=len(due), withheld=len(due))
        if terms.mode.pull:
            here[theirs.partition] = _due(terms, moment, _here(terms, theirs.entries, mine))
    for partition, refused in (yield from _move_all(terms, peer, there, False)).items():
        tallies[partition].unsent += refused
    for partition, refused in (yield from _move_all(terms, peer, here, True)).items():
        tallies[partition].behind += refused
    for partition, tally in tallies.items():
        yield Settled(peer, partition, tally.behind, tally.unsent, tally.withheld)


def _move_all(terms: Terms, peer: int, due: Mapping[int, Sequence[Push]], pull: bool) -> Steps[dict[int, int]]:
    """Bring the objects of several partitions; how many were refused, by partition."""
    moves = tuple(
        Move(peer, partition, tuple(objects[start : start + terms.limits.moves]), pull)
        for partition, objects in due.items()
        for start in range(0, len(objects), terms.limits.moves)
    )
    refused: dict[int, int] = {}
    if moves:
        fates: Sequence[Sequence[Fate]] = yield MoveAll(moves)
        for one, came in zip(moves, fates, strict=True):
            refused[one.partition] = refused.get(one.partition, 0) + list(came).count(Fate.REFUSED)
    return refused


def _expected(reply: Suffixes, partitions: tuple[int, ...]) -> tuple[SuffixHashes, ...]:
    """The answer, if it is about the first of these partitions; WireError otherwise."""
    numbers = tuple(found.partition for found in reply.found)
    if not numbers or numbers != partitions[: len(numbers)]:
        raise WireError(f"suffix hashes of partitions {numbers} instead of {partitions}")
    return reply.found


@dataclass(slots=True)
class _Tally:
    behind: int = 0
    unsent: int = 0
    withheld: int = 0


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
    yield Settled(peer, partition, tally.behind, tally.unsent, tally.withheld)


def _objects(terms: Terms, moment: Moment, peer: int, partition: int, both: Both, tally: _Tally) -> Steps[None]:
    """Push what the neighbour lacks, then pull what is lacking here."""
    there = _due(terms, moment, _there(terms, both.mine, both.theirs))
    if both.primary:
        fates = yield from move(peer, partition, there, False, terms.limits.moves)
        tally.unsent += fates.count(Fate.REFUSED)
    else:
        tally.unsent += len(there)
        tally.withheld += len(there)
    if terms.mode.pull:
        here = _due(terms, moment, _here(terms, both.theirs, both.mine))
        fates = yield from move(peer, partition, here, True, terms.limits.moves)
        tally.behind += fates.count(Fate.REFUSED)


def _there(terms: Terms, mine: Sequence[Entry], theirs: Sequence[Entry]) -> list[Push]:
    return pushes(mine, theirs) if terms.rules is None else terms.rules.there(mine, theirs, terms.mode.pull)


def _here(terms: Terms, theirs: Sequence[Entry], mine: Sequence[Entry]) -> list[Push]:
    return pushes(theirs, mine) if terms.rules is None else terms.rules.here(theirs, mine)


def _due(terms: Terms, moment: Moment, found: list[Push]) -> list[Push]:
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    due = is_due if terms.rules is None else terms.rules.is_due
    return [push for push in found if due(push, moment.now_s, forgotten_s)]
