"""Messages: whatever can be said comes out as it went in, and everything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swiftlet_native import PairRoots

from swiftlet.model import Entry, Kind
from swiftlet.sync.session import encoding
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    Equal,
    Listing,
    ManyEntries,
    Message,
    Roots,
    Suffixes,
    SuffixHashes,
    Wanted,
    decode,
    decode_reply,
    decode_request,
    encode,
    order_of,
)
from swiftlet.sync.session.pair_messages import MAX_NODES, MAX_WITHOUT, Branches, ComparePair, Pair, Step
from swiftlet.timestamp import MAX_VALUE, Timestamp
from swiftlet.transport.wire import WireError

number = st.integers(0, 2**32 - 1)
partitions = st.sets(number, max_size=20).map(lambda found: tuple(sorted(found)))
hashes = st.binary(min_size=16, max_size=16)
suffix = st.integers(0, 4095).map(lambda n: f"{n:03x}")
suffixes = st.sets(suffix, max_size=9).map(lambda found: tuple(sorted(found)))
moment = st.integers(0, MAX_VALUE).map(Timestamp)
entry = st.builds(Entry, hashes, st.sampled_from(Kind), moment, moment, moment)
head = (number, number)
device = st.integers(0, 2**16 - 2)
devices = st.sets(device, max_size=5).map(lambda found: tuple(sorted(found)))
step = st.integers(1, 32).flatmap(
    lambda start: st.builds(
        Step,
        st.just(start),
        st.integers(max(0, start - 16), start - 1),
        st.sets(st.integers(0, (2**32 - 1) >> start), max_size=9).map(lambda found: tuple(sorted(found))),
    )
)
branches = st.builds(
    lambda members, step, limit: PairRoots(members).branches(step.start, step.end, step.nodes, (), limit),
    st.sets(number, max_size=20).map(sorted),
    step,
    st.integers(0, 20),
)
anything: st.SearchStrategy[Message] = st.one_of(
    st.builds(Compare, *head, partitions, hashes, st.booleans()),
    st.builds(AskSuffixes, *head, partitions),
    st.builds(
        ComparePair,
        *head,
        st.builds(Pair, device, device, st.booleans(), devices),
        hashes | st.just(b""),
        step,
        partitions,
    ),
    st.builds(Branches, *head, branches),
    st.builds(Branches, *head, branches, hashes, hashes),
    st.builds(AskEntries, *head, number, suffixes, st.none() | hashes),
    st.builds(
        AskManyEntries,
        *head,
        st.dictionaries(number, suffixes, max_size=5).map(
            lambda found: tuple(Wanted(partition, found[partition]) for partition in sorted(found))
        ),
    ),
    st.builds(Equal, *head),
    st.builds(Roots, *head, st.lists(hashes, max_size=9).map(tuple)),
    st.builds(
        Suffixes,
        *head,
        st.lists(
            st.builds(SuffixHashes, number, st.booleans(), st.dictionaries(suffix, hashes, max_size=9)), max_size=4
        ).map(tuple),
    ),
    st.builds(Entries, *head, st.booleans(), st.booleans(), st.lists(entry, max_size=9).map(tuple)),
    st.builds(
        ManyEntries,
        *head,
        st.lists(st.builds(Listing, number, st.booleans(), st.lists(entry, max_size=5).map(tuple)), max_size=5).map(
            tuple
        ),
    ),
)


@given(anything)
def test_what_is_said_is_heard(message: Message) -> None:
    assert decode(encode(message)) == message


@given(anything, st.data())
def test_a_message_cut_off_or_with_something_behind_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        decode(whole[:cut])
    with pytest.raises(WireError, match="after its end"):
        decode(whole + b"\0")


@given(st.binary(max_size=200))
def test_garbage_is_a_wire_error_or_a_message(data: bytes) -> None:
    try:
        message = decode(data)
    except WireError:
        return
    assert decode(encode(message)) == message


@given(anything, st.data())
def test_a_flipped_byte_never_raises_anything_else(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(damaged))
    except WireError:
        return


def test_questions_and_answers_are_told_apart() -> None:
    with pytest.raises(WireError, match="Equal is an answer"):
        decode_request(encode(Equal(0, 1)))
    with pytest.raises(WireError, match="AskSuffixes is a question"):
        decode_reply(encode(AskSuffixes(0, 1, (1,))))
    assert decode_request(encode(AskSuffixes(0, 1, (1,)))) == AskSuffixes(0, 1, (1,))
    assert decode_reply(encode(Equal(0, 1))) == Equal(0, 1)


@pytest.mark.parametrize(
    "message",
    [
        AskSuffixes(0, 0, tuple(range(encoding.MAX_PARTITIONS + 1))),
        AskSuffixes(0, 0, (2, 1)),
        ComparePair(0, 0, Pair(0, 1), b"", Step(14, 10, tuple(range(MAX_NODES + 1)))),
        ComparePair(0, 0, Pair(0, 1), b"", Step(14, 10, (0,)), tuple(range(MAX_WITHOUT + 1))),
        AskSuffixes(0, 0, (1, 1)),
        Roots(0, 0, (bytes(16),) * (encoding.MAX_PARTITIONS + 1)),
        Entries(0, 0, True, False, (Entry(bytes(16), Kind.DATA, Timestamp(1)),) * (encoding.MAX_ENTRIES + 1)),
        Suffixes(0, 0, tuple(SuffixHashes(n, True, {f"{i:03x}": bytes(16) for i in range(4096)}) for n in range(3))),
    ],
)
def test_what_is_over_a_limit_is_not_said(message: Message) -> None:
    with pytest.raises(WireError):
        encode(message)


def test_the_largest_messages_are_within_the_limit() -> None:
    entries = tuple(Entry(bytes(16), Kind.DATA, *[Timestamp(MAX_VALUE)] * 3) for _ in range(encoding.MAX_ENTRIES))
    whole = {f"{n:03x}": bytes(16) for n in range(encoding.SUFFIX_COUNT)}
    for message in (
        Entries(0, 0, True, True, entries),
        Roots(0, 0, (bytes(16),) * encoding.MAX_PARTITIONS),
        ComparePair(
            0, 0, Pair(0, 1), bytes(16), Step(8, 0, tuple(range(MAX_NODES))), tuple(range(0, MAX_WITHOUT * 128, 128))
        ),
        Branches(0, 0, PairRoots(range(0, 1 << 24, 256)).branches(24, 8, [0], [], 65536)),
        Branches(0, 0, PairRoots(range(0, 1 << 32, 1 << 16)).branches(32, 16, [0], [], 65536)),
        Suffixes(0, 0, (SuffixHashes(2**32 - 2, True, whole), SuffixHashes(2**32 - 1, True, whole))),
    ):
        assert len(encode(message)) <= encoding.MAX_MESSAGE
        assert decode(encode(message)) == message


def test_the_order_of_entries_is_by_suffix_then_digest() -> None:
    found = [bytes(14) + b"\x12\x34", b"\xff" * 14 + b"\x02\x33", b"\x01" * 14 + b"\x02\x34"]
    assert sorted(found, key=order_of) == [found[1], found[0], found[2]]


def test_a_message_of_another_version_is_refused_with_both_numbers() -> None:
    told = "a sync message has format version 2, this program understands 1: run the same release"
    with pytest.raises(WireError, match=told):
        decode(b"\x02" + encode(Equal(0, 1))[1:])
