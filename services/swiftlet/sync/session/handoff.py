"""The return of a handoff: its copies go to all primaries of the partition, and are dropped once all of them hold them.

An entry is proved to be at a primary when two things hold. The primary has shown an entry that lacks nothing of it, or
the set hash of exactly the entries that were read here; and it takes itself for a primary under its own ring. Without
the second one, two devices with different rings could each drop a copy for the sake of the other's. Proofs are taken
after the entries were read and hold for these entries alone: what changes meanwhile is kept. The driver must not drop
anything for a session that began under an older ring.

A handoff may have to stay, because a primary is away or because the driver keeps what still has a pending container
update. Then it takes the tombstones that are newer than its data. Otherwise its data would outlive them: after
`reclaim_age` the primaries forget that the object was deleted, and would be given it again.

Fault model: a primary may be away, which is known beforehand (`absent`) or shows on the way. The others are still given
what they lack, and nothing is dropped. A primary that answers garbage counts as away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from swiftlet.errors import NodeError
from swiftlet.model import Entry
from swiftlet.store import sethash
from swiftlet.sync.session.compare import Need, Push, is_due, is_returned, pushes
from swiftlet.sync.session.effects import (
    Drop,
    HandoffReturned,
    Moment,
    MoveOutcome,
    Page,
    Session,
    Steps,
    Terms,
    ask,
    move,
    read_entries,
    read_suffixes,
)
from swiftlet.sync.session.entries import ask_for, suffix_of
from swiftlet.sync.session.far import ToFetch
from swiftlet.sync.session.messages import AskSuffixes, Suffixes, SuffixHashes
from swiftlet.transport.wire import WireError


def handoff_session(terms: Terms, partition: int, primaries: Sequence[int], absent: Collection[int] = ()) -> Session:
    """Return a session that brings a partition from here to its `primaries`, of which those in `absent` are away."""
    moment = Moment()
    return Session(_return_handoff(terms, moment, partition, primaries, absent), moment)


@dataclass(slots=True)
class _Primaries:
    """The primaries that still answer, by device id with their last suffix hashes.

    `whole` tells that every primary of the partition is among them and takes itself for one.
    """

    whole: bool
    shown: dict[int, SuffixHashes] = field(default_factory=dict)
    to_fetch: dict[int, ToFetch] = field(default_factory=dict)
    """What is left to primaries in other regions."""

    def lost(self, peer: int) -> None:
        self.whole = False
        self.shown.pop(peer, None)


def _return_handoff(
    terms: Terms, moment: Moment, partition: int, primaries: Sequence[int], absent: Collection[int]
) -> Steps[None]:
    mine = yield from read_suffixes(partition)
    there = _Primaries(bool(primaries) and not any(peer in absent for peer in primaries))
    for peer in primaries:
        if peer in absent:
            continue
        try:
            shown = yield from _ask_suffixes(terms, partition, peer)
        except (NodeError, WireError):
            there.lost(peer)
        else:
            there.shown[peer] = shown
            there.whole &= shown.primary
    dropped = kept = 0
    suffixes = sorted(mine)
    for start in range(0, len(suffixes), terms.limits.suffixes):
        group = tuple(suffixes[start : start + terms.limits.suffixes])
        after: bytes | None = None
        while True:
            page = yield from read_entries(partition, group, after, terms.limits.entries)
            held_by_all, deleted = yield from _return_page(terms, moment, partition, page, there)
            went: int = (yield Drop(partition, held_by_all)) if held_by_all else 0
            gone = {entry.digest for entry in held_by_all} if went == len(held_by_all) else set()
            yield from _take_tombstones(terms, partition, _without(deleted, gone), there)
            dropped, kept = dropped + went, kept + len(page.entries) - went
            if not page.more:
                break
            after = page.entries[-1].digest
    if terms.far is not None:
        for peer, what in there.to_fetch.items():
            terms.far.lacks(peer, {partition: what}, moment.now_s)
    yield HandoffReturned(partition, dropped, kept, {peer: what.count for peer, what in there.to_fetch.items()})


def _ask_suffixes(terms: Terms, partition: int, peer: int) -> Steps[SuffixHashes]:
    request = AskSuffixes(terms.policy, terms.ring_version, (partition,))
    reply = yield from ask(peer, request, Suffixes)
    if [found.partition for found in reply.found] != [partition]:
        raise WireError(f"the answer has no suffix hashes of partition {partition}")
    return reply.found[0]


def _return_page(
    terms: Terms, moment: Moment, partition: int, page: Page, there: _Primaries
) -> Steps[tuple[tuple[Entry, ...], Mapping[int, Sequence[Push]]]]:
    """Give every primary what it lacks of a page.

    Returns the entries that all of them were then seen to hold, and for each primary the tombstones that are newer
    there.
    """
    held_by_all = set(page.entries)
    deleted: dict[int, list[Push]] = {}
    for peer in tuple(there.shown):
        unproved = _unproved(page, there.shown[peer])
        if not unproved:
            continue
        unproved_page = Page(tuple(unproved))
        touched = tuple(sorted({suffix_of(entry) for entry in unproved}))
        try:
            held = yield from ask_for(terms, peer, partition, touched, unproved_page)
            due = _without_fetched(terms, partition, peer, _due(terms, moment, unproved, held), there)
            moved: set[Entry] = set()
            if due and there.shown[peer].primary:
                outcomes = yield from move(peer, partition, due, False, terms.limits.moves)
                moved = {
                    push.entry for push, outcome in zip(due, outcomes, strict=True) if outcome is MoveOutcome.MOVED
                }
                held = yield from ask_for(terms, peer, partition, touched, unproved_page)
        except (NodeError, WireError):
            there.lost(peer)
        else:
            forgotten_s = terms.forgotten_before_s(moment.now_s)
            if terms.transfer_rules is None:
                held_by_all.difference_update(
                    e for e in unproved if not is_returned(e, held.get(e.digest), forgotten_s)
                )
                deleted[peer] = [push for push in pushes(held.values(), unproved) if push.need is Need.TOMBSTONE]
            else:
                is_there = terms.transfer_rules.is_returned
                held_by_all.difference_update(
                    e for e in unproved if not is_there(e, held.get(e.digest), e in moved, forgotten_s)
                )
    home = tuple(entry for entry in page.entries if entry in held_by_all) if there.whole else ()
    return home, deleted


def _without(deleted: Mapping[int, Sequence[Push]], gone: Collection[bytes]) -> dict[int, list[Push]]:
    """Return the tombstones without those of dropped copies, which have no data left that could outlive them."""
    kept = {peer: [push for push in found if push.entry.digest not in gone] for peer, found in deleted.items()}
    return {peer: found for peer, found in kept.items() if found}


def _take_tombstones(
    terms: Terms, partition: int, deleted: Mapping[int, Sequence[Push]], there: _Primaries
) -> Steps[None]:
    for peer, tombstones in deleted.items():
        try:
            yield from move(peer, partition, tombstones, True, terms.limits.moves)
        except (NodeError, WireError):
            there.lost(peer)


def _due(terms: Terms, moment: Moment, mine: Sequence[Entry], held: Mapping[bytes, Entry]) -> list[Push]:
    """Return what a primary that holds `held` is to be given now."""
    forgotten_s = terms.forgotten_before_s(moment.now_s)
    if terms.transfer_rules is None:
        return [push for push in pushes(mine, held.values()) if is_due(push, moment.now_s, forgotten_s)]
    found = terms.transfer_rules.there(mine, held.values(), False)
    return [push for push in found if terms.transfer_rules.is_due(push, moment.now_s, forgotten_s)]


def _without_fetched(terms: Terms, partition: int, peer: int, due: list[Push], there: _Primaries) -> list[Push]:
    """Return what a primary is given without what it is expected to fetch.

    Primaries in other regions fetch from one of this region, if one answers, as that has it or is given it. If none
    does, one primary of each other region is given the copy, and the others there get it from that one.
    """
    far = terms.far
    if far is None:
        return due
    takes = [one for one, shown in there.shown.items() if shown.primary]
    if all(map(far.is_far, takes)):
        region = far.regions.get(peer)
        if peer == next((one for one in takes if far.regions.get(one) == region), peer):
            return due
    sent, to_fetch = far.split(peer, [(partition, push) for push in due])
    for what in to_fetch.values():
        there.to_fetch.setdefault(peer, ToFetch()).join(what)
    return [push for _, push in sent]


def _unproved(page: Page, shown: SuffixHashes) -> list[Entry]:
    """Return the entries of a page that a primary's suffix hashes do not prove it to hold."""
    by_suffix: dict[str, list[Entry]] = {}
    for entry in page.entries:
        by_suffix.setdefault(suffix_of(entry), []).append(entry)
    return [
        entry
        for suffix, entries in by_suffix.items()
        if shown.hashes.get(suffix) != sethash.to_bytes(sethash.of_entries(entries))
        for entry in entries
    ]
