"""Whole answers against values: what native code finds in many partitions at once is what the rules for values find."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from swiftlet.model import Entry, Kind
from swiftlet.sync.moving.copy_batches import _asked_for
from swiftlet.sync.session.answers import (
    PackedListings,
    PackedPushes,
    PackedSuffixes,
    decode_packed,
    fits,
    needs_of,
    partitions_of,
)
from swiftlet.sync.session.compare import Need, Push
from swiftlet.sync.session.effects import Limits, Moment, Terms
from swiftlet.sync.session.many_partitions import differing_of, due_of, fitting
from swiftlet.sync.session.messages import (
    AskManyEntries,
    Listing,
    ManyEntries,
    Suffixes,
    SuffixHashes,
    Wanted,
    decode_request,
    encode,
    order_of,
)
from swiftlet.sync.session.topology import LIGHTSYNC, THOROUGH, Mode
from swiftlet.sync.session.wanted import PackedWanted
from swiftlet.timestamp import ZERO, Timestamp

NOW_S = 1000.0
TERMS = Terms(mode=THOROUGH, reclaim_age_s=500.0, reclaim_period_s=1.0)


def hashes(dice: random.Random) -> dict[str, bytes]:
    return {f"{n:03x}": bytes([dice.randrange(2)]) * 16 for n in dice.sample([0, 1, 127, 128, 300, 4095], k=3)}


def listing(dice: random.Random) -> tuple[Entry, ...]:
    found = []
    for number in dice.sample(range(1, 9), dice.randrange(9)):
        moments = [Timestamp.at(dice.choice([100, 499, 501, 900, 989, 991, 1059, 1061])) for _ in range(3)]
        if dice.random() < 0.5:
            moments[1:] = [ZERO, ZERO]
        found.append(Entry(bytes([number]) * 16, dice.choice([Kind.DATA, Kind.TOMBSTONE]), *moments))
    return tuple(sorted(found, key=lambda one: order_of(one.digest)))


def suffixes(dice: random.Random, partitions: Sequence[int], primary: bool = True) -> tuple[SuffixHashes, ...]:
    return tuple(SuffixHashes(partition, primary, hashes(dice)) for partition in partitions)


def run_of(found: tuple[SuffixHashes, ...]) -> PackedSuffixes:
    reply = decode_packed(encode(Suffixes(0, 1, found)))
    assert isinstance(reply, Suffixes)
    assert isinstance(reply.found, PackedSuffixes)
    return reply.found


def listings(found: Sequence[Listing]) -> PackedListings:
    reply = decode_packed(encode(ManyEntries(0, 1, found)))
    assert isinstance(reply, ManyEntries)
    assert isinstance(reply.found, PackedListings)
    return reply.found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mode", [THOROUGH, LIGHTSYNC])
def test_the_same_suffixes_differ(seed: int, mode: Mode) -> None:
    dice = random.Random(seed)
    terms = Terms(mode=mode)
    mine, theirs = suffixes(dice, range(3, 300, 7)), list(suffixes(dice, range(3, 200, 7)))
    for index in range(0, len(theirs), 3):
        theirs[index] = mine[index]
    by_value = differing_of(terms, [one.hashes for one in mine], theirs)
    same, wanted = differing_of(terms, run_of(mine).hashes, run_of(tuple(theirs)))
    assert isinstance(wanted, PackedWanted)
    assert (same, tuple(wanted)) == by_value
    assert same
    for part in (wanted, wanted[4:], wanted[:4], wanted[2:9][3:]):
        question = encode(AskManyEntries(0, 1, part))
        assert question == encode(AskManyEntries(0, 1, tuple(part)))
        assert decode_request(question) == AskManyEntries(0, 1, tuple(part))
    for limits in (Limits(wanted=7), Limits(suffixes=2), Limits(suffixes=0), Limits()):
        assert fitting(wanted, limits) == fitting(tuple(wanted), limits)


@pytest.mark.parametrize("seed", range(40))
def test_the_same_objects_are_brought(seed: int) -> None:
    dice = random.Random(seed)
    mine = [Listing(partition, True, listing(dice)) for partition in (1, 200, 70_000)]
    theirs = [Listing(one.partition, True, listing(dice)) for one in mine[: 2 + seed % 2]]
    pages = [one.entries for one in mine]
    moment = Moment(NOW_S)
    for pull in (False, True):
        by_value = due_of(TERMS, moment, pages, theirs, pull)
        found = due_of(TERMS, moment, listings(mine).entries, listings(theirs), pull)
        assert isinstance(found, PackedPushes)
        assert list(found) == by_value
        assert found[1:] == by_value[1:]
        assert isinstance(found[1:], PackedPushes)
        assert partitions_of(found) == partitions_of(by_value)
        assert needs_of(found) == needs_of(by_value)
        spots = [index for index, need in enumerate(needs_of(found)) if need is not Need.TOMBSTONE]
        dead = [index for index, need in enumerate(needs_of(found)) if need is Need.TOMBSTONE]
        assert _asked_for(5, found, dead, spots) == _asked_for(5, by_value, dead, spots)


def test_objects_out_of_order_are_brought_by_value() -> None:
    disordered = (Entry(bytes([5]) * 16, Kind.DATA, Timestamp(1)), Entry(bytes([2]) * 16, Kind.DATA, Timestamp(1)))
    mine, theirs = listings([Listing(3, True, disordered)]).entries, listings([Listing(3, True, ())])
    found = due_of(TERMS, Moment(NOW_S), mine, theirs, pull=False)
    assert not isinstance(found, PackedPushes)
    assert found == [(3, Push(entry, Need.DATA, True)) for entry in disordered]


def test_answers_about_other_partitions_are_not_compared() -> None:
    mine, theirs = listings([Listing(3, True, ())]), listings([Listing(4, True, ())])
    assert not isinstance(due_of(TERMS, Moment(NOW_S), mine.entries, theirs, pull=False), PackedPushes)
    dice = random.Random(1)
    wanted = differing_of(TERMS, run_of(suffixes(dice, [3])).hashes, run_of(suffixes(dice, [4])))[1]
    assert not isinstance(wanted, PackedWanted)


def test_what_was_not_asked_for_does_not_fit() -> None:
    entry = Entry(bytes([2]) * 16, Kind.DATA, Timestamp(1))
    wanted = differing_of(
        TERMS, run_of((SuffixHashes(3, True, {"202": bytes(16)}),)).hashes, run_of((SuffixHashes(3, True, {}),))
    )[1]
    assert tuple(wanted) == (Wanted(3, ("202",)),)
    assert fits(listings([Listing(3, True, (entry,))]), wanted)
    assert fits(listings([]), wanted)
    assert not fits(listings([Listing(4, True, (entry,))]), wanted)
    assert not fits(listings([Listing(3, True, (Entry(bytes([3]) * 16, Kind.DATA, Timestamp(1)),))]), wanted)
    assert not fits(listings([Listing(3, True, (entry,)), Listing(4, True, ())]), wanted)


@pytest.mark.parametrize("primary", [True, False])
def test_an_answer_says_whether_it_is_a_primarys(primary: bool) -> None:
    found = run_of((SuffixHashes(3, True, {}), SuffixHashes(4, primary, {"001": bytes(16)})))
    assert (found.primary, list(found.empty), found.partitions) == (primary, [3], (3, 4))
    assert found == (SuffixHashes(3, True, {}), SuffixHashes(4, primary, {"001": bytes(16)}))
