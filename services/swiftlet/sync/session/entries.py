"""Walks through the entries of the same suffixes on two sides, page by page, so that no number of entries is too large.

If more entries follow, a page ends where the shorter of the two sides' pages ends. What lies behind that is read again
with the next page. A neighbour's page is checked before it is used: entries out of order, of other suffixes or without
end would make rounds that never end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swiftlet.model import SUFFIX_CHARS, Entry
from swiftlet.sync.session.answers import fits
from swiftlet.sync.session.effects import Page, Steps, Terms, ask, read_entries
from swiftlet.sync.session.messages import AskEntries, AskManyEntries, Entries, Listing, ManyEntries, Wanted, order_of
from swiftlet.sync.session.packed import PackedEntries
from swiftlet.transport.wire import WireError


@dataclass(frozen=True, slots=True)
class Both:
    """The entries of both sides between two positions in the order.

    `upto` is the digest at the second position, None at the end. `primary` tells whether the neighbour is a primary.
    """

    mine: tuple[Entry, ...]
    theirs: tuple[Entry, ...]
    upto: bytes | None
    primary: bool


def suffix_of(entry: Entry) -> str:
    """Return the suffix that an entry is in."""
    return entry.digest.hex()[-SUFFIX_CHARS:]


def read_both(terms: Terms, peer: int, partition: int, suffixes: tuple[str, ...], after: bytes | None) -> Steps[Both]:
    """Return the next page of both sides, behind the digest `after`."""
    theirs = yield from ask_entries(terms, peer, partition, suffixes, after)
    mine = yield from read_entries(partition, suffixes, after, terms.limits.entries)
    ends = [page.entries[-1].digest for page in (mine, theirs) if page.more]
    if not ends:
        return Both(mine.entries, theirs.entries, None, theirs.primary)
    upto = min(ends, key=order_of)
    return Both(_until(mine.entries, upto), _until(theirs.entries, upto), upto, theirs.primary)


def ask_entries(
    terms: Terms, peer: int, partition: int, suffixes: tuple[str, ...], after: bytes | None
) -> Steps[Entries]:
    """Return a page of the neighbour's entries after checking it. Raises WireError."""
    request = AskEntries(terms.policy, terms.ring_version, partition, suffixes, after)
    reply = yield from ask(peer, request, Entries)
    _check(reply.entries, partition, suffixes, after)
    if reply.more and not reply.entries:
        raise WireError(f"the answer has no entries of partition {partition}, but announces more of them")
    return reply


def ask_many(terms: Terms, peer: int, wanted: Sequence[Wanted]) -> Steps[Sequence[Listing]]:
    """Return the neighbour's entries for the first of the wanted suffixes after checking them. Raises WireError.

    It is for the neighbour to decide how many partitions it answers about; there may be none.
    """
    reply = yield from ask(peer, AskManyEntries(terms.policy, terms.ring_version, wanted), ManyEntries)
    if len(reply.found) > len(wanted):
        raise WireError(f"the answer has entries of {len(reply.found)} partitions instead of {len(wanted)}")
    if fits(reply.found, wanted):
        return reply.found
    for one, found in zip(wanted, reply.found, strict=False):
        if found.partition != one.partition:
            raise WireError(f"the answer has entries of partition {found.partition} instead of {one.partition}")
        _check(found.entries, one.partition, one.suffixes, None)
    return reply.found


def _check(entries: Sequence[Entry], partition: int, suffixes: tuple[str, ...], after: bytes | None) -> None:
    """Raise WireError when a neighbour's entries are out of order, or of suffixes that were not asked for."""
    if after is None and isinstance(entries, PackedEntries) and entries.in_order(suffixes):
        return
    last = (-1, b"") if after is None else order_of(after)
    asked = frozenset(suffixes)
    for entry in entries:
        place = order_of(entry.digest)
        if place <= last:
            raise WireError(f"the entries of partition {partition} are out of order")
        if suffix_of(entry) not in asked:
            raise WireError(f"an entry of suffix {suffix_of(entry)} was not requested")
        last = place


def ask_for(
    terms: Terms, peer: int, partition: int, suffixes: tuple[str, ...], page: Page
) -> Steps[dict[bytes, Entry]]:
    """Return a neighbour's entries for the objects on a local page, by digest.

    They are read page by page, and only these are kept.
    """
    wanted = {entry.digest for entry in page.entries}
    last = page.entries[-1].digest
    after: bytes | None = None
    found: dict[bytes, Entry] = {}
    while True:
        there = yield from ask_entries(terms, peer, partition, suffixes, after)
        found.update((entry.digest, entry) for entry in there.entries if entry.digest in wanted)
        if not there.more or order_of(there.entries[-1].digest) >= order_of(last):
            return found
        after = there.entries[-1].digest


def slice_page(entries: Sequence[Entry], after: bytes | None, limit: int) -> Page:
    """Return the page that a `ReadEntries` asks for, of a device's entries.

    `entries` are all those of some suffixes, in any order.
    """
    ordered = sorted(entries, key=lambda entry: order_of(entry.digest))
    if after is not None:
        place = order_of(after)
        ordered = [entry for entry in ordered if order_of(entry.digest) > place]
    return Page(tuple(ordered[:limit]), len(ordered) > limit)


def _until(entries: Sequence[Entry], upto: bytes) -> tuple[Entry, ...]:
    place = order_of(upto)
    return tuple(entry for entry in entries if order_of(entry.digest) <= place)
