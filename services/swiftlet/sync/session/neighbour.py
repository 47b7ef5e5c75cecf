"""The side that asks: one device compares some of its partitions with one neighbour and brings both into agreement.

From the cheap to the dear: a hash over many partitions or one partition's root, roots, suffix hashes, entries, and
only then the objects that one side lacks. Pushed is only what is newer here, pulled (if the mode pulls) only what is
newer there, by `swiftlet.sync.compare`; what is still in flight is left alone.

Fault model: the neighbour may be away, slow, of another ring, or answer garbage (`WireError`): that ends the session.
Both sides may change while they are compared: objects that did are `OVERTAKEN`, and the next round looks again. A
neighbour that is no primary of the partition in its own eyes is given nothing, as it would give it away at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from swiftlet.sync.compare import Push, differing_suffixes, is_due, pushes
from swiftlet.sync.session.effects import (
    Ask,
    Fate,
    Moment,
    Proved,
    ReadRoots,
    Session,
    Settled,
    Steps,
    Terms,
    ask,
    expect,
    move,
    read_suffixes,
)
from swiftlet.sync.session.entries import Both, read_both
from swiftlet.sync.session.messages import AskSuffixes, Compare, Equal, Roots, Suffixes, SuffixHashes
from swiftlet.sync.session.roots import over
from swiftlet.sync.session.topology import First
from swiftlet.transport.wire import WireError


def neighbour_session(terms: Terms, peer: int, partitions: Iterable[int]) -> Session:
    """A session with one neighbour about these partitions, in this order as far as they don't share a message."""
    moment = Moment()
    return Session(_compare(terms, moment, peer, partitions), moment)


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
            yield from _differing(terms, moment, peer, batch)


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
        request = AskSuffixes(terms.policy, terms.ring_version, partitions)
        reply = yield from ask(peer, request, Suffixes)
        found = _expected(reply, partitions)
        for one in found:
            yield from _partition(terms, moment, peer, one)
        partitions = partitions[len(found) :]


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
    suffixes = differing_suffixes(mine, theirs.hashes)
    if terms.mode.pull:
        suffixes = sorted([*suffixes, *(theirs.hashes.keys() - mine.keys())])
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
    there = _due(terms, moment, pushes(both.mine, both.theirs))
    if both.primary:
        fates = yield from move(peer, partition, there, False, terms.limits.moves)
        tally.unsent += fates.count(Fate.REFUSED)
    else:
        tally.unsent += len(there)
        tally.withheld += len(there)
    if terms.mode.pull:
        here = _due(terms, moment, pushes(both.theirs, both.mine))
        fates = yield from move(peer, partition, here, True, terms.limits.moves)
        tally.behind += fates.count(Fate.REFUSED)


def _due(terms: Terms, moment: Moment, found: list[Push]) -> list[Push]:
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    return [push for push in found if is_due(push, moment.now_s, forgotten_s)]
