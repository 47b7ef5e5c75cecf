"""Copies of many objects: the native way and the other one say the same, and each takes what the other gives."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swiftlet.errors import ChecksumMismatch, DeviceFailed, DiskFull, NotFound, SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutRecord
from swiftlet.servers.objects.sync_copies import read_copies, read_each, take_copies, take_each
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.sync.moving.copies_wire import (
    ALONE_BYTES,
    MAX_BYTES,
    MAX_OBJECTS,
    Changed,
    Wanted,
    copies_bytes,
    copies_from,
    given_from,
    outcomes_bytes,
    outcomes_from,
    tombstone_bytes,
    wanted_bytes,
)
from swiftlet.testing.store.conformance import NAME, footer_of, key_of
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp
from swiftlet.transport.wire import WireError

Read = Callable[[Store, bytes], bytes]
WAYS = [read_copies, read_each]


@pytest.fixture
def native(tmp_path: Path) -> Iterator[NativeStore]:
    store = NativeStore(tmp_path, volume_bytes=8 << 20)
    yield store
    store.close()


@pytest.fixture(params=["native", "memory"])
def store(request: pytest.FixtureRequest, native: NativeStore) -> Store:
    return native if request.param == "native" else MemoryStore()


def put(store: Store, number: int, second: float, body: bytes, **metadata: str) -> ObjectKey:
    key = key_of(number)
    writer = store.create(key)
    writer.write(body)
    record = PutRecord(f"{NAME}{number}", Timestamp.at(second), "text/plain", metadata, {"sys": "tem"})
    writer.commit(record, footer_of(body))
    return key


def wanted(*keys: ObjectKey, metadata_alone: bool = False) -> bytes:
    return wanted_bytes(0, [Wanted(key.partition, key.digest, metadata_alone) for key in keys])


def info(store: Store, key: ObjectKey) -> ObjectInfo:
    return store.stat(key)


def body(store: Store, key: ObjectKey) -> bytes:
    with store.open(key) as reader:
        return reader.read(0, reader.info.size)


def mixture(store: Store) -> list[ObjectKey]:
    """Objects of all kinds, with and without POSTs."""
    keys = [put(store, n, 5, random.Random(n).randbytes(n * 37), **{"X-Object-Meta-N": str(n)}) for n in range(20)]
    for number, key in enumerate(keys):
        if number % 3 == 1:
            store.post(key, PostRecord(Timestamp.at(7), {"posted": "é", "X-Delete-At": "99"}))
        if number % 3 == 2:
            store.post(key, PostRecord(Timestamp.at(8), {}, "image/png", Timestamp.at(8)))
    return keys


def test_both_ways_of_reading_say_the_same(native: NativeStore) -> None:
    keys = mixture(native)
    gone, large = key_of(100), put(native, 101, 5, bytes(ALONE_BYTES + 1))
    native.delete(put(native, 102, 5, b"x"), Timestamp.at(6), NAME)
    asked = wanted(*keys, gone, large, key_of(102))
    assert read_copies(native, asked) == read_each(native, asked)
    asked = wanted(*keys, gone, metadata_alone=True)
    assert read_copies(native, asked) == read_each(native, asked)


@pytest.mark.parametrize("read", WAYS)
def test_what_is_given_is_taken_whole(store: Store, read: Read) -> None:
    source = MemoryStore()
    keys = mixture(source)
    given = given_from(read(source, wanted(*keys)), len(keys))
    assert given.sizes == [n * 37 for n in range(20)]
    assert outcomes_from(take_copies(store, given.copies), len(keys)) == [None] * 20
    for key in keys:
        assert (info(store, key), body(store, key)) == (info(source, key), body(source, key))
        assert store.entries(0, key.partition, key.hex[-3:]) == source.entries(0, key.partition, key.hex[-3:])
    assert outcomes_from(take_copies(store, given.copies), len(keys)) == [None] * 20, "twice is once"


def test_what_is_taken_shares_syncs(tmp_path: Path) -> None:
    source = MemoryStore()
    keys = mixture(source)
    given = given_from(read_copies(source, wanted(*keys)), len(keys))
    # Without a thread that begins to commit what it finds, a batch is all that can be in it.
    with contextlib.closing(NativeStore(tmp_path, volume_bytes=8 << 20, threads=False)) as store:
        before = store.counters()["batches"]
        assert outcomes_from(take_copies(store, given.copies), len(keys)) == [None] * 20
        assert store.counters()["batches"] - before == 2, "puts share a sync, and so do the POSTs behind them"


@pytest.mark.parametrize("take", [take_copies, take_each])
def test_each_policys_limit_decides_where_a_copy_lies(
    native: NativeStore, tmp_path: Path, take: Callable[[Store, bytes], bytes]
) -> None:
    """Of `mixture`'s 20 objects, which have 0, 37, ... 703 bytes, 15 have more than 150."""
    native.set_aggregate_below({0: 150})
    source = MemoryStore()
    keys = mixture(source)
    given = given_from(read_copies(source, wanted(*keys)), len(keys))
    for _ in range(2):
        assert outcomes_from(take(native, given.copies), len(keys)) == [None] * 20
        assert len(list(tmp_path.glob("large/*/*"))) == 15, "the second time nothing is left of what was brought again"
    for key in keys:
        assert (info(native, key), body(native, key)) == (info(source, key), body(source, key))


def test_metadata_and_tombstones_alone(store: Store) -> None:
    source = MemoryStore()
    keys = mixture(source)
    for number in range(20):
        put(store, number, 5, random.Random(number).randbytes(number * 37))
    posted = [key for number, key in enumerate(keys) if number % 3]
    given = given_from(read_copies(source, wanted(*posted, metadata_alone=True)), len(posted))
    assert given.sizes == [0] * len(posted)
    assert outcomes_from(take_copies(store, given.copies), len(posted)) == [None] * len(posted)
    assert [info(store, key).metadata for key in posted] == [info(source, key).metadata for key in posted]
    assert [info(store, key).content_type for key in posted] == [info(source, key).content_type for key in posted]
    missing = key_of(500)
    deleted = [tombstone_bytes(key.partition, key.digest, Timestamp.at(9)) for key in (keys[0], missing)]
    assert outcomes_from(take_copies(store, copies_bytes(0, deleted)), 2) == [None, None]
    with pytest.raises(NotFound) as gone:
        store.stat(missing)
    assert gone.value.timestamp == Timestamp.at(9)


def test_what_is_newer_here_stays(store: Store) -> None:
    source = MemoryStore()
    keys = [put(source, number, 5, b"old") for number in range(4)]
    source.post(keys[3], PostRecord(Timestamp.at(6), {"a": "b"}))
    put(store, 0, 9, b"newer")
    with pytest.raises(NotFound):
        store.delete(keys[1], Timestamp.at(9), NAME)
    put(store, 3, 9, b"newer")
    copies = given_from(read_copies(source, wanted(*keys)), 4).copies + tombstone_bytes(
        keys[3].partition, keys[3].digest, Timestamp.at(7)
    )
    outcomes = outcomes_from(take_copies(store, copies), 5)
    assert [type(outcome) for outcome in outcomes] == [Changed, Changed, type(None), Changed, Changed]
    assert body(store, keys[0]) == body(store, keys[3]) == b"newer"
    assert body(store, keys[2]) == b"old"
    posted = given_from(read_copies(source, wanted(keys[3], metadata_alone=True)), 1).copies
    assert isinstance(outcomes_from(take_copies(MemoryStore(), posted), 1)[0], Changed), "nothing to post to"


def test_a_post_to_older_data_comes_to_newer_data_that_came_first(store: Store) -> None:
    source = MemoryStore()
    keys = [put(source, number, 5, b"old") for number in range(2)]
    for key, second in zip(keys, (9, 7), strict=True):
        source.post(key, PostRecord(Timestamp.at(second), {"of": "post"}))
        put(store, keys.index(key), 8, b"newer", of="put")
    outcomes = outcomes_from(take_copies(store, given_from(read_copies(source, wanted(*keys)), 2).copies), 2)
    assert [type(outcome) for outcome in outcomes] == [Changed, Changed]
    assert [info(store, key).metadata for key in keys] == [{"of": "post"}, {"of": "put"}]
    assert [body(store, key) for key in keys] == [b"newer", b"newer"]


def test_damage_on_the_way_spoils_one_object_alone(store: Store) -> None:
    source = MemoryStore()
    keys = [put(source, number, 5, b"body number %d" % number) for number in range(3)]
    copies = given_from(read_copies(source, wanted(*keys)), 3).copies.replace(b"body number 1", b"body number X")
    outcomes = outcomes_from(take_copies(store, copies), 3)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], ChecksumMismatch)
    assert outcomes[2] is None
    with pytest.raises(NotFound):
        store.stat(keys[1])


def test_what_does_not_fit_is_for_later(store: Store) -> None:
    keys = [put(store, number, 5, bytes(ALONE_BYTES)) for number in range(6)]
    answer = read_copies(store, wanted(*keys))
    given = given_from(answer, 6)
    assert len(answer) <= MAX_BYTES + 16
    assert given.sizes == [ALONE_BYTES] * 3
    assert given.later == 3
    assert len(copies_from(given.copies)) == 3


def test_a_device_that_fails_refuses_each_and_a_full_one_takes_tombstones() -> None:
    store = MemoryStore()
    source = MemoryStore()
    key = put(source, 1, 5, b"x")
    copies = given_from(read_copies(source, wanted(key)), 1).copies
    store.faults.full = True
    both = copies + tombstone_bytes(7, bytes(16), Timestamp.at(9))
    full, deleted = outcomes_from(take_copies(store, both), 2)
    assert isinstance(full, DiskFull)
    assert deleted is None
    store.faults.broken = True
    assert isinstance(outcomes_from(take_copies(store, copies), 1)[0], DeviceFailed)
    source.faults.broken = True
    assert given_from(read_copies(source, wanted(key)), 1).sizes == [None], "asked for alone it tells why"


GARBAGE = [b"", b"\x00\x07", b"\x00\x01\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff\xff\x7f"]


@pytest.mark.parametrize("message", [*GARBAGE, wanted(*map(key_of, range(MAX_OBJECTS + 1)))])
def test_a_question_that_makes_no_sense(store: Store, message: bytes) -> None:
    with pytest.raises(WireError):
        read_copies(store, message)


def runs() -> Iterator[bytes]:
    source = MemoryStore()
    good = given_from(read_copies(source, wanted(put(source, 1, 5, b"x"))), 1).copies
    yield good[:-1]
    yield good + b"\x01"
    yield good + b"\x05" + good[2:]
    yield copies_bytes(0, [tombstone_bytes(1, bytes(16), Timestamp.at(1))] * (MAX_OBJECTS + 1))
    yield from GARBAGE


@pytest.mark.parametrize("message", list(runs()))
def test_of_a_run_that_makes_no_sense_nothing_is_taken(store: Store, message: bytes) -> None:
    with pytest.raises(WireError):
        take_copies(store, message)
    assert store.partitions(0) == []


def test_any_bytes_are_a_message_or_a_wire_error(native: NativeStore) -> None:
    numbers = random.Random(1)
    source = MemoryStore()
    keys = mixture(source)
    good = [wanted(*keys), given_from(read_copies(source, wanted(*keys)), len(keys)).copies]
    for _ in range(300):
        changed = bytearray(numbers.choice(good))
        for _ in range(numbers.randint(1, 3)):
            changed[numbers.randrange(len(changed))] = numbers.randrange(256)
        data = bytes(changed[: numbers.randint(1, len(changed))])
        for ways in ((read_copies, read_each), (take_copies, take_each)):
            outcomes: list[object] = []
            stores: list[Store] = [native, MemoryStore()]
            for way, store in zip(ways, stores, strict=True):
                try:
                    outcomes.append(len(way(store, data)) > 0)
                except WireError:
                    outcomes.append(WireError)
            if ways[0] is read_copies:
                assert outcomes[0] == outcomes[1]


def test_outcomes_say_what_they_are() -> None:
    outcomes: list[SwiftletError | None] = [None, Changed("newer"), DiskFull("no room"), None]
    found = outcomes_from(outcomes_bytes(outcomes), 4)
    assert [type(outcome) for outcome in found] == [type(outcome) for outcome in outcomes]
    assert str(found[2]) == "no room"
    for bad in (b"", b"\x00", b"\x00" * 3, b"\x03\x00", b"\x00\x00\x00"):
        with pytest.raises(WireError):
            outcomes_from(bad, 2)


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\x02\x00\x00", b"\x02\x00\x02x", b"\x03\x02\x02\x02"])
def test_an_answer_about_something_else(answer: bytes) -> None:
    with pytest.raises(WireError):
        given_from(answer, 2)


def test_the_newest_of_what_is_there_is_given(store: Store) -> None:
    put(store, 1, 5, b"old")
    key = put(store, 1, 6, b"new")
    given = given_from(read_copies(store, wanted(key)), 1)
    assert copies_from(given.copies)[0].timestamp == Timestamp.at(6)
