"""Questions that a native store answers by itself: the same bytes as from suffixes and entries, for any question."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from swiftlet_native import PairRoots, xxh3_128

from swiftlet.model import ObjectKey, PostRecord, PutRecord
from swiftlet.servers.objects.sync_copies import take_copies
from swiftlet.servers.shared.pairs import PairTable
from swiftlet.servers.shared.sync_answers import Placed, answer_by_values, answer_sync
from swiftlet.store import sethash
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.sync.moving.copies_wire import MAX_OBJECTS, copies_bytes, tombstone_bytes
from swiftlet.sync.session.encoding import MAX_NUMBER, UNKNOWN_RING
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Equal,
    ManyEntries,
    Request,
    Roots,
    Suffixes,
    Wanted,
    decode_reply,
    encode,
)
from swiftlet.sync.session.pair_messages import Branches, ComparePair, Pair, Step
from swiftlet.sync.session.roots import over
from swiftlet.sync.session.tests.test_pair_search import ring_of
from swiftlet.testing.store.conformance import NAME, footer_of
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp
from swiftlet.transport.wire import WireError

PARTITIONS = 12
SUFFIXES = [f"{number:03x}" for number in (0, 1, 0x7F, 0x80, 0xFFF)]


def odd(policy: int) -> Placed:
    return Placed(300 + policy, bytes([0, 1] * (PARTITIONS // 2)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStore]:
    """Objects of all kinds, many of them in the same few suffixes."""
    made = NativeStore(tmp_path_factory.mktemp("device"), volume_bytes=8 << 20)
    fill(made)
    yield made
    made.close()


def fill(store: Store) -> None:
    dice = random.Random(5)
    for number in range(120):
        digest = dice.randbytes(14) + bytes.fromhex("0" + dice.choice(SUFFIXES))
        key = ObjectKey(number % 2, dice.randrange(PARTITIONS - 1), digest)
        writer = store.create(key)
        writer.commit(PutRecord(f"{NAME}{number}", Timestamp.at(5 + number), "text/plain"), footer_of(b""))
        if number % 4 == 1:
            own_type = ("image/png", Timestamp.at(900)) if number % 8 == 1 else ()
            store.post(key, PostRecord(Timestamp.at(900), {}, *own_type))
        if number % 4 == 2:
            store.delete(key, Timestamp.at(901), "")


def questions(dice: random.Random, store: Store) -> Iterator[Request]:
    """Of every kind; some about what is not there."""
    for _ in range(60):
        policy = dice.randrange(3)
        partitions = tuple(sorted(dice.sample(range(PARTITIONS), dice.randrange(PARTITIONS))))
        if dice.random() < 0.2:
            partitions += (MAX_NUMBER,)
        yield AskSuffixes(policy, 7, partitions)
        wanted = tuple(
            Wanted(partition, tuple(sorted(dice.sample(SUFFIXES, dice.randrange(len(SUFFIXES))))))
            for partition in partitions
        )
        yield AskManyEntries(policy, 7, wanted)
        asked = Compare(policy, 7, partitions, bytes(16))
        reply = decode_reply(answer_by_values(store, encode(asked), odd))
        assert isinstance(reply, Roots)
        for hash_ in (bytes(16), over(reply.roots)):
            yield Compare(policy, 7, partitions, hash_)
            yield Compare(policy, 7, partitions[:1], hash_ if len(partitions) != 1 else bytes(16), leaves=True)
        yield AskEntries(policy, 7, dice.randrange(PARTITIONS), tuple(SUFFIXES))


def test_says_the_same_as_by_values(store: NativeStore) -> None:
    by_itself = 0
    for question in questions(random.Random(1), store):
        message = encode(question)
        here = odd(question.policy)
        found = store.sync_answer(message, here.ring_version, here.belongs)
        assert (found is None) == isinstance(question, AskEntries)
        by_values = answer_by_values(store, message, odd)
        assert answer_sync(store, message, odd) == by_values
        assert found in (None, by_values)
        by_itself += found is not None
    assert by_itself > 240


def test_roots_of_a_pair_are_those_that_the_store_has_after_any_changes(tmp_path: Path) -> None:
    """However much or little has changed, and in whatever order several pairs are read."""
    dice = random.Random(3)
    store = NativeStore(tmp_path, volume_bytes=8 << 20)
    pairs = [(policy, PairRoots(members)) for policy in (0, 1) for members in ([0, 1, 2, 5, 9], [2, 3, 9, 11])]
    for moment in range(150):
        for _ in range(dice.randrange(4)):
            key = ObjectKey(dice.randrange(2), dice.randrange(PARTITIONS), bytes([dice.randrange(3), *bytes(15)]))
            if dice.random() < 0.3:
                for entry in store.entries(key.policy, key.partition, "000"):
                    store.remove(ObjectKey(key.policy, key.partition, entry.digest), entry)
            else:
                writer = store.create(key)
                writer.commit(PutRecord(NAME, Timestamp.at(5 + moment + dice.random()), "text/plain"), footer_of(b""))
        for policy, pair in dice.sample(pairs, dice.randrange(len(pairs))):
            store.read_pair(policy, pair)
            roots = {partition: sethash.root(store.suffix_hashes(policy, partition)) for partition in pair.members}
            assert pair.hash([]) == hash_of(roots)
            assert pair.hash(pair.members[1:3]) == hash_of({p: roots[p] for p in roots if p not in pair.members[1:3]})
    store.close()
    # The same device, opened anew, has another list of changes.
    store = NativeStore(tmp_path, volume_bytes=8 << 20)
    key = ObjectKey(0, 9, bytes([7, *bytes(15)]))
    store.create(key).commit(PutRecord(NAME, Timestamp.at(900), "text/plain"), footer_of(b""))
    for policy, pair in pairs:
        store.read_pair(policy, pair)
        assert pair.hash([]) == hash_of({p: sethash.root(store.suffix_hashes(policy, p)) for p in pair.members})
    store.close()


def hash_of(roots: dict[int, bytes]) -> bytes:
    return xxh3_128(b"".join(partition.to_bytes(4, "big") + root for partition, root in sorted(roots.items())))


def test_a_pair_is_answered_alike_by_every_store(store: NativeStore) -> None:
    other = MemoryStore()
    fill(other)
    ring = ring_of(4)
    table = PairTable(ring, ring.partition_count)
    here = Placed(ring.version, bytes([1] * ring.partition_count), table)
    for shared in (Pair(0, 1), Pair(2, 1), Pair(1, 0, True, (2, 3))):
        for step in (Step(4, 2, (0,)), Step(4, 0, (0,)), Step(2, 0, (0, 2, 3))):
            told = answer_sync(store, encode(ComparePair(1, 1, shared, b"", step, (3,))), lambda _: here)
            assert told == answer_sync(other, encode(ComparePair(1, 1, shared, b"", step, (3,))), lambda _: here)
            reply = decode_reply(told)
            assert isinstance(reply, Branches)
            asked = ComparePair(1, 1, shared, reply.hash, step, (3,))
            assert decode_reply(answer_sync(store, encode(asked), lambda _: here)) == Equal(1, ring.version)
    reply = decode_reply(answer_sync(store, encode(ComparePair(1, 1, Pair(0, 1), b"", Step(4, 2, (0,)))), odd))
    assert reply == Branches(1, UNKNOWN_RING)


def test_refuses_what_is_no_question_in_the_same_words(store: NativeStore) -> None:
    dice = random.Random(2)
    refused = 0
    for question in questions(dice, store):
        message = bytearray(encode(question))
        if dice.random() < 0.5:
            message[dice.randrange(len(message))] = dice.randrange(256)
        else:
            del message[dice.randrange(len(message)) :]
        assert outcome(store, bytes(message), native=True) == outcome(store, bytes(message), native=False)
        refused += isinstance(outcome(store, bytes(message), native=True), str)
    assert refused > 50


def outcome(store: Store, message: bytes, *, native: bool) -> bytes | str:
    try:
        return (answer_sync if native else answer_by_values)(store, message, odd)
    except WireError as error:
        return str(error)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStore]:
    """A suffix for each entry: in one partition as many as there are, in the others a little more than half of them."""
    made = NativeStore(tmp_path_factory.mktemp("full"), volume_bytes=64 << 20)
    digests = [
        (partition, bytes([partition, more]) + bytes(12) + number.to_bytes(2, "big"))
        for partition, count in ((0, 2049), (1, 2049), (2, 4096))
        for number in range(count)
        for more in range(2 if partition == 2 and number == 0 else 1)
    ]
    for start in range(0, len(digests), MAX_OBJECTS):
        some = digests[start : start + MAX_OBJECTS]
        tombstones = [tombstone_bytes(partition, digest, Timestamp.at(5)) for partition, digest in some]
        take_copies(made, copies_bytes(0, tombstones))
    yield made
    made.close()


def test_answers_for_as_many_as_fit(full: NativeStore) -> None:
    everything = tuple(f"{number:03x}" for number in range(4096))
    half = everything[:2100]
    for question, found in (
        (AskManyEntries(0, 7, (Wanted(0, half), Wanted(1, half))), 1),
        (AskManyEntries(0, 7, (Wanted(0, half[:10]), Wanted(1, half))), 2),
        (AskManyEntries(0, 7, (Wanted(2, everything), Wanted(3, ("000",)))), 0),
        (AskSuffixes(0, 7, (0, 1, 2)), 2),
        (AskSuffixes(0, 7, (1, 2)), 2),
    ):
        answer = answer_sync(full, encode(question), odd)
        assert answer == answer_by_values(full, encode(question), odd)
        reply = decode_reply(answer)
        assert isinstance(reply, ManyEntries | Suffixes)
        assert len(reply.found) == found


def test_a_ring_without_the_device_is_said(tmp_path: Path) -> None:
    made = NativeStore(tmp_path, volume_bytes=8 << 20)
    try:
        assert decode_reply(answer_sync(made, encode(AskSuffixes(0, 7, (1,))))).ring_version == 0
    finally:
        made.close()
