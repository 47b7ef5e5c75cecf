"""Packed answers against values: what native code finds in two answers' bytes is what the rules for values find."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from swiftlet.model import Entry, Kind
from swiftlet.sync.session import entries
from swiftlet.sync.session.answers import decode_packed
from swiftlet.sync.session.compare import differing_suffixes, pushes
from swiftlet.sync.session.messages import (
    Listing,
    ManyEntries,
    Reply,
    Suffixes,
    SuffixHashes,
    decode_reply,
    encode,
    order_of,
)
from swiftlet.sync.session.packed import PackedEntries, PackedHashes
from swiftlet.timestamp import ZERO, Timestamp
from swiftlet.transport.wire import WireError


def suffixes(dice: random.Random) -> dict[str, bytes]:
    return {f"{n:03x}": bytes([dice.randrange(3)]) * 16 for n in dice.choices([0, 1, 127, 128, 300, 4095], k=4)}


def entry(dice: random.Random, number: int) -> Entry:
    moments = [Timestamp(dice.randrange(1, 6)) for _ in range(3)]
    if dice.random() < 0.5:
        moments[1:] = [ZERO, ZERO]
    return Entry(bytes([number]) * 16, dice.choice([Kind.DATA, Kind.TOMBSTONE]), *moments)


def listing(dice: random.Random) -> tuple[Entry, ...]:
    found = [entry(dice, number) for number in dice.sample(range(1, 9), dice.randrange(9))]
    return tuple(sorted(found, key=lambda one: order_of(one.digest)))


def hash_run(hashes: dict[str, bytes]) -> PackedHashes:
    reply = decode_packed(encode(Suffixes(0, 1, (SuffixHashes(3, True, hashes),))))
    assert isinstance(reply, Suffixes)
    assert isinstance(reply.found[0].hashes, PackedHashes)
    return reply.found[0].hashes


def entry_run(listed: tuple[Entry, ...]) -> PackedEntries:
    reply = decode_packed(encode(ManyEntries(0, 1, (Listing(3, True, listed),))))
    assert isinstance(reply, ManyEntries)
    assert isinstance(reply.found[0].entries, PackedEntries)
    return reply.found[0].entries


@pytest.mark.parametrize("seed", range(20))
def test_finds_the_same_suffixes(seed: int) -> None:
    dice = random.Random(seed)
    mine, theirs = suffixes(dice), suffixes(dice)
    for both in (False, True):
        expected = differing_suffixes(mine, theirs, both)
        assert differing_suffixes(hash_run(mine), hash_run(theirs), both) == expected
        assert differing_suffixes(mine, hash_run(theirs), both) == expected
        assert differing_suffixes(hash_run(mine), theirs, both) == expected
    assert (hash_run(mine) == hash_run(theirs)) == (mine == theirs) == (hash_run(mine) == theirs)
    assert dict(hash_run(mine)) == mine
    assert len(hash_run(mine)) == len(mine)
    assert "007" not in hash_run(mine)


@pytest.mark.parametrize("seed", range(30))
def test_finds_the_same_objects(seed: int) -> None:
    dice = random.Random(seed)
    mine, theirs = listing(dice), listing(dice)
    # As after one write among many objects that are the same.
    theirs = tuple(sorted({**{e.digest: e for e in mine[::2]}, **{e.digest: e for e in theirs}}.values(), key=_order))
    assert pushes(entry_run(mine), entry_run(theirs)) == pushes(mine, theirs)
    assert pushes(entry_run(theirs), entry_run(mine)) == pushes(theirs, mine)
    assert pushes(entry_run(mine), theirs) == pushes(mine, theirs)
    assert pushes(entry_run(mine), entry_run(mine)) == []
    assert tuple(entry_run(mine)) == mine
    assert len(entry_run(mine)) == len(mine)
    assert entry_run(mine) == mine


def _order(one: Entry) -> tuple[int, bytes]:
    return order_of(one.digest)


def test_objects_out_of_order_are_compared_by_value() -> None:
    dice = random.Random(3)
    mine = tuple(entry(dice, number) for number in (5, 2, 7))
    theirs = (replace(mine[1], timestamp=Timestamp(9)),)
    assert pushes(entry_run(mine), entry_run(theirs)) == pushes(mine, theirs) != []
    assert pushes(entry_run(theirs), entry_run(mine)) == pushes(theirs, mine) != []


@pytest.mark.parametrize("seed", range(20))
def test_a_peers_entries_are_checked_alike(seed: int) -> None:
    dice = random.Random(seed)
    listed = [entry(dice, number) for number in dice.choices(range(1, 9), k=3)]
    if seed % 2:
        listed.sort(key=_order)
    asked = tuple(sorted({entries.suffix_of(one) for one in listed[seed % 3 % 2 :]}))
    found = []
    for given in (tuple(listed), entry_run(tuple(listed))):
        try:
            entries._check(given, 3, asked, None)
            found.append("")
        except WireError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(30))
def test_broken_answers_are_refused_alike(seed: int) -> None:
    dice = random.Random(seed)
    replies: list[Reply] = [
        Suffixes(0, 1, tuple(SuffixHashes(n, n == 2, suffixes(dice)) for n in range(3))),
        ManyEntries(0, 1, tuple(Listing(n, n == 2, listing(dice)) for n in range(3))),
    ]
    for reply in replies:
        message = bytearray(encode(reply))
        message[dice.randrange(len(message))] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        if dice.random() < 0.3:
            del message[dice.randrange(len(message)) :]
        assert outcome(bytes(message), packed=True) == outcome(bytes(message), packed=False)


def outcome(message: bytes, *, packed: bool) -> object:
    try:
        reply = (decode_packed if packed else decode_reply)(message)
    except WireError as error:
        return str(error)
    if isinstance(reply, Suffixes):
        return [(one.partition, one.primary, dict(one.hashes)) for one in reply.found]
    if isinstance(reply, ManyEntries):
        return [(one.partition, one.primary, tuple(one.entries)) for one in reply.found]
    return reply


def test_hashes_out_of_order_are_values() -> None:
    message = bytearray(encode(Suffixes(0, 1, (SuffixHashes(3, True, {"001": bytes(16), "002": bytes(16)}),))))
    at = message.index(b"\x00\x01" + bytes(16))
    message[at : at + 2] = b"\x00\x03"
    reply = decode_packed(bytes(message))
    assert isinstance(reply, Suffixes)
    assert list(reply.found[0].hashes) == ["003", "002"]
