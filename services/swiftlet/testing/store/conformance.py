"""A conformance suite for every `Store`.

A test module subclasses `StoreConformance`, says how to create, reopen and damage its store, and pytest runs the rest.
It needs pytest and hypothesis; nothing in production imports it.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swiftlet_native import Hasher

from swiftlet.errors import ChecksumMismatch, NotFound, SizeMismatch, Superseded
from swiftlet.model import Entry, Kind, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.store.protocol import Store
from swiftlet.timestamp import Timestamp

NAME = "/account/container/object"


def at(moment: float) -> Timestamp:
    """Return a timestamp of a test's small clock."""
    return Timestamp.at(1_700_000_000 + moment)


def key_of(number: int, policy: int = 0, partition: int = 7) -> ObjectKey:
    """Return one of many keys; numbers that differ by 256 share a suffix."""
    low = number % 256
    return ObjectKey(policy, partition, number.to_bytes(4, "big") + bytes(10) + bytes((0, low)))


def some_bytes(size: int) -> bytes:
    """Return bytes without a pattern, the same for the same size."""
    return random.Random(size).randbytes(size)  # noqa: S311 - test data


def footer_of(data: bytes) -> PutFooter:
    """Return the true footer of these bytes."""
    hasher = Hasher()
    hasher.update(data)
    return PutFooter(len(data), hasher.md5_hexdigest(), hasher.xxh3_64())


def put(store: Store, key: ObjectKey, moment: float, data: bytes = b"", name: str = NAME, **metadata: str) -> None:
    """Store a whole object."""
    writer = store.create(key, len(data))
    try:
        for start in range(0, len(data), 300_000):
            writer.write(memoryview(data)[start : start + 300_000])
        writer.commit(PutRecord(name, at(moment), f"type/{moment:g}", metadata, {"sys": "1"}), footer_of(data))
    finally:
        writer.abort()


def post(store: Store, key: ObjectKey, moment: float, type_moment: float | None = None, **metadata: str) -> None:
    """Replace metadata, with the content type of `type_moment` if given."""
    content_type = None if type_moment is None else f"type/{type_moment:g}"
    store.post(key, PostRecord(at(moment), metadata, content_type, at(type_moment or 0)))


def content(store: Store, key: ObjectKey) -> bytes:
    """Return all bytes of an object."""
    with store.open(key) as reader:
        return reader.read(0, reader.info.size)


@dataclass(frozen=True)
class Op:
    """One record of a history: its kind (put, post, delete), its time, and the time of its content type."""

    kind: str
    moment: int
    type_moment: int | None = None

    def apply(self, store: Store, key: ObjectKey) -> bool:
        """Apply it; return False when it was a POST without its object and has to be repeated."""
        try:
            with suppress(Superseded):
                if self.kind == "put":
                    put(store, key, self.moment, b"x" * self.moment)
                elif self.kind == "delete":
                    with suppress(NotFound):
                        store.delete(key, at(self.moment), NAME)
                else:
                    post(store, key, self.moment, self.type_moment, m=str(self.moment))
        except NotFound:
            return False
        return True


def apply_all(store: Store, key: ObjectKey, ops: Sequence[Op]) -> None:
    """Apply a history; POSTs that came too early are repeated at the end."""
    early = [op for op in ops if not op.apply(store, key)]
    for op in early:
        op.apply(store, key)


def outcome(store: Store, key: ObjectKey) -> tuple[ObjectInfo | None, list[Entry], dict[str, bytes]]:
    """Return everything that can be seen of an object."""
    try:
        info: ObjectInfo | None = store.stat(key)
    except NotFound:
        info = None
    entries = store.entries(key.policy, key.partition, key.suffix)
    return info, entries, dict(store.suffix_hashes(key.policy, key.partition))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Op], list[Op]]:
    """Draw some records of one object, each at its own time, in two orders."""
    kinds = draw(st.lists(st.sampled_from(["put", "put", "post", "post", "post", "delete"]), min_size=1, max_size=7))
    moments = draw(st.permutations(range(1, len(kinds) + 1)))
    ops = []
    for kind, moment in zip(kinds, moments, strict=True):
        typed = draw(st.none() | st.integers(1, moment)) if kind == "post" else None
        ops.append(Op(kind, moment, typed))
    return ops, draw(st.permutations(ops))


class StoreConformance(ABC):
    """The checks that every `Store` passes."""

    @abstractmethod
    def fresh(self) -> AbstractContextManager[Store]:
        """Return an empty store, which is removed afterwards."""

    @abstractmethod
    def flip_data(self, store: Store, key: ObjectKey) -> None:
        """Flip a bit in an object's data."""

    @abstractmethod
    def flip_metadata(self, store: Store, key: ObjectKey) -> None:
        """Flip a bit in an object's metadata."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Yield an empty store."""
        with self.fresh() as store:
            yield store

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 65_537, 3 * 1024 * 1024 + 17])
    def test_round_trip(self, store: Store, size: int) -> None:
        """Bytes and description come back as they went in."""
        data = some_bytes(size)
        put(store, key_of(1), 1, data, color="blue", Ünï="çødé")
        info = store.stat(key_of(1))
        assert content(store, key_of(1)) == data
        footer = footer_of(data)
        assert (info.size, info.etag, info.xxh3) == (footer.size, footer.etag, footer.xxh3)
        assert (info.name, info.content_type, info.timestamp) == (NAME, "type/1", at(1))
        assert info.metadata == {"color": "blue", "Ünï": "çødé"}
        assert info.sysmeta == {"sys": "1"}
        assert info.meta_timestamp == info.content_type_timestamp == at(1)

    def test_ranges(self, store: Store) -> None:
        """Any range, also beyond the end."""
        put(store, key_of(1), 1, bytes(range(200)))
        with store.open(key_of(1)) as reader:
            assert reader.read(10, 5) == bytes(range(10, 15))
            assert reader.read(195, 50) == bytes(range(195, 200))
            assert reader.read(200, 5) == reader.read(900, 5) == reader.read(5, 0) == b""

    def test_nothing_there(self, store: Store) -> None:
        """An empty store says so everywhere."""
        for ask in (store.open, store.stat, store.verify):
            with pytest.raises(NotFound) as caught:
                ask(key_of(1))
            assert caught.value.timestamp is None
        assert (store.policies(), store.partitions(0), store.entries(0, 7, "001")) == ([], [], [])
        assert store.suffix_hashes(0, 7) == {}
        assert list(store.keys(0, 7)) == []

    def test_overwrite(self, store: Store) -> None:
        """The newer version replaces the older."""
        put(store, key_of(1), 1, b"old", color="blue")
        put(store, key_of(1), 2, b"newer")
        assert content(store, key_of(1)) == b"newer"
        assert store.stat(key_of(1)).metadata == {}

    def test_older_write_loses(self, store: Store) -> None:
        """The older version is refused with the newer one's time."""
        put(store, key_of(1), 2, b"newer")
        with pytest.raises(Superseded) as caught:
            put(store, key_of(1), 1, b"old")
        assert caught.value.timestamp == at(2)
        assert content(store, key_of(1)) == b"newer"

    def test_same_write_twice(self, store: Store) -> None:
        """The same timestamp is the same write: good, and nothing changes."""
        put(store, key_of(1), 1, b"first")
        put(store, key_of(1), 1, b"again")
        assert content(store, key_of(1)) == b"first"

    @pytest.mark.parametrize(
        ("footer", "error"),
        [(PutFooter(4, "e", footer_of(b"data").xxh3 ^ 1), ChecksumMismatch), (PutFooter(5, "e", 0), SizeMismatch)],
    )
    def test_false_footer(self, store: Store, footer: PutFooter, error: type[Exception]) -> None:
        """What does not match its footer is not kept."""
        writer = store.create(key_of(1), 4)
        writer.write(b"data")
        with pytest.raises(error):
            writer.commit(PutRecord(NAME, at(1), "t"), footer)
        writer.abort()
        assert outcome(store, key_of(1)) == (None, [], {})

    def test_abort(self, store: Store) -> None:
        """What was given up leaves nothing."""
        writer = store.create(key_of(1))
        writer.write(b"data")
        writer.abort()
        writer.abort()
        assert outcome(store, key_of(1)) == (None, [], {})

    def test_post(self, store: Store) -> None:
        """A POST replaces metadata, keeps data, system metadata and, unless told otherwise, the type."""
        put(store, key_of(1), 1, b"data", color="blue")
        post(store, key_of(1), 2, shape="round")
        info = store.stat(key_of(1))
        assert (info.metadata, info.content_type, info.sysmeta) == ({"shape": "round"}, "type/1", {"sys": "1"})
        assert (info.timestamp, info.meta_timestamp, info.content_type_timestamp) == (at(1), at(2), at(1))
        post(store, key_of(1), 3, 3)
        info = store.stat(key_of(1))
        assert (info.metadata, info.content_type, info.content_type_timestamp) == ({}, "type/3", at(3))
        assert content(store, key_of(1)) == b"data"

    def test_post_refusals(self, store: Store) -> None:
        """A POST needs an object older than it and no newer POST; the same one again is fine."""
        with pytest.raises(NotFound):
            post(store, key_of(1), 1)
        put(store, key_of(1), 5)
        with pytest.raises(Superseded):
            post(store, key_of(1), 5, a="b")
        post(store, key_of(1), 7, a="7")
        post(store, key_of(1), 7, a="7")
        with pytest.raises(Superseded) as caught:
            post(store, key_of(1), 6, a="6")
        assert caught.value.timestamp == at(7)
        assert store.stat(key_of(1)).metadata == {"a": "7"}

    def test_late_post_hands_on_its_type(self, store: Store) -> None:
        """A POST behind a newer one loses, but its content type counts."""
        put(store, key_of(1), 1)
        post(store, key_of(1), 3, a="3")
        with pytest.raises(Superseded):
            post(store, key_of(1), 2, 2, a="2")
        info = store.stat(key_of(1))
        assert (info.metadata, info.content_type, info.content_type_timestamp) == ({"a": "3"}, "type/2", at(2))

    def test_post_outlives_older_data(self, store: Store) -> None:
        """Data between an object and its POST keeps the POST."""
        put(store, key_of(1), 1, b"one")
        post(store, key_of(1), 3, a="3")
        put(store, key_of(1), 2, b"two", a="2")
        assert store.stat(key_of(1)).metadata == {"a": "3"}
        assert content(store, key_of(1)) == b"two"

    def test_delete(self, store: Store) -> None:
        """A deleted object is gone, and its deletion is remembered."""
        put(store, key_of(1), 1, b"data")
        post(store, key_of(1), 2, a="b")
        store.delete(key_of(1), at(3), NAME)
        with pytest.raises(NotFound) as caught:
            store.open(key_of(1))
        assert caught.value.timestamp == at(3)
        assert store.entries(0, 7, key_of(1).suffix) == [Entry(key_of(1).digest, Kind.TOMBSTONE, at(3))]
        store.verify(key_of(1))

    def test_delete_of_nothing(self, store: Store) -> None:
        """The tombstone is kept, so that an older copy does not come back; the caller hears that nothing was here."""
        with pytest.raises(NotFound):
            store.delete(key_of(1), at(3), NAME)
        with pytest.raises(Superseded) as caught:
            put(store, key_of(1), 2, b"late")
        assert caught.value.timestamp == at(3)
        put(store, key_of(1), 4, b"new")
        assert content(store, key_of(1)) == b"new"

    def test_older_delete_loses(self, store: Store) -> None:
        """A deletion older than the data is refused."""
        put(store, key_of(1), 2, b"data")
        with pytest.raises(Superseded) as caught:
            store.delete(key_of(1), at(1), NAME)
        assert caught.value.timestamp == at(2)
        assert content(store, key_of(1)) == b"data"

    def test_reader_outlives_its_version(self, store: Store) -> None:
        """Who reads goes on reading what was opened."""
        data = some_bytes(1_000_000)
        put(store, key_of(1), 1, data)
        with store.open(key_of(1)) as first:
            put(store, key_of(1), 2, b"other")
            with store.open(key_of(1)) as second:
                store.delete(key_of(1), at(3), NAME)
                assert second.read(0, 9) == b"other"
            assert first.read(0, len(data)) == data
            assert first.info.timestamp == at(1)

    def test_names_are_only_names(self, store: Store) -> None:
        """No name leads anywhere but into the metadata."""
        names = ["/a/c/..", "/a/c/../../../../etc/passwd", "/a/c//", "/a/c/\n\x7f", "/a/c/" + "ü" * 512, "/a/c/😀"]
        for number, name in enumerate(names):
            put(store, key_of(number), 1, name.encode(), name=name)
        for number, name in enumerate(names):
            assert store.stat(key_of(number)).name == name
            assert content(store, key_of(number)) == name.encode()

    def test_places(self, store: Store) -> None:
        """Policies, partitions and keys show where something is."""
        put(store, key_of(1, 0, 7), 1)
        put(store, key_of(2, 0, 3), 1)
        put(store, key_of(3, 5, 9), 1)
        with pytest.raises(NotFound):
            store.delete(key_of(4, 0, 3), at(1), NAME)
        assert store.policies() == [0, 5]
        assert store.partitions(0) == [3, 7]
        assert {key.digest for key in store.keys(0, 3)} == {key_of(2).digest, key_of(4).digest}

    # One test method, run once for each implementation; hypothesis sees one test that different objects run.
    @settings(suppress_health_check=[HealthCheck.differing_executors], deadline=None)
    @given(history=histories())
    def test_order_leaves_no_trace(self, history: tuple[list[Op], list[Op]]) -> None:
        """The same records in any order end in the same state with the same hashes."""
        ops, shuffled = history
        with self.fresh() as one, self.fresh() as other:
            apply_all(one, key_of(1), sorted(ops, key=lambda op: op.moment))
            other.suffix_hashes(0, 7)  # From here on each write updates these hashes.
            apply_all(other, key_of(1), shuffled)
            expected = outcome(one, key_of(1))
            assert outcome(other, key_of(1)) == expected
            apply_all(other, key_of(1), ops)
            assert outcome(other, key_of(1)) == expected

    def test_hashes_are_of_sets(self) -> None:
        """Equal entries, equal hashes; any difference, different hashes."""
        with self.fresh() as one, self.fresh() as other:
            for number in (1, 257, 513):
                put(one, key_of(number), number)
            one.suffix_hashes(0, 7)
            for number in (513, 1, 257):
                put(other, key_of(number), number)
            assert one.suffix_hashes(0, 7) == other.suffix_hashes(0, 7)
            assert set(one.suffix_hashes(0, 7)) == {"001"}
            before = dict(one.suffix_hashes(0, 7))
            post(one, key_of(1), 600, a="b")
            assert one.suffix_hashes(0, 7) != before
            post(other, key_of(1), 600, a="b")
            assert one.suffix_hashes(0, 7) == other.suffix_hashes(0, 7)
            one.delete(key_of(1), at(700), NAME)
            assert one.suffix_hashes(0, 7) != other.suffix_hashes(0, 7)
            other.delete(key_of(1), at(700), NAME)
            assert one.suffix_hashes(0, 7) == other.suffix_hashes(0, 7)

    def test_remove(self, store: Store) -> None:
        """A handoff copy goes without a trace, unless it changed."""
        store.suffix_hashes(0, 7)
        put(store, key_of(1), 1, b"data")
        (entry,) = store.entries(0, 7, "001")
        post(store, key_of(1), 2, a="b")
        assert not store.remove(key_of(1), entry)
        (entry,) = store.entries(0, 7, "001")
        assert store.remove(key_of(1), entry)
        assert not store.remove(key_of(1), entry)
        assert outcome(store, key_of(1)) == (None, [], {})
        assert store.partitions(0) == []
        put(store, key_of(1), 1, b"back")
        assert content(store, key_of(1)) == b"back"

    def test_reclaim(self, store: Store) -> None:
        """Old tombstones go, young ones and objects stay."""
        for number in (1, 2, 3):
            put(store, key_of(number), 1, b"data")
        store.delete(key_of(1), at(10), NAME)
        store.delete(key_of(2), at(20), NAME)
        assert store.reclaim(at(15)) == 1
        assert {key.digest for key in store.keys(0, 7)} == {key_of(2).digest, key_of(3).digest}
        assert set(store.suffix_hashes(0, 7)) == {key_of(2).suffix, key_of(3).suffix}
        assert store.reclaim(at(15)) == 0

    @pytest.mark.parametrize("part", ["data", "metadata"])
    def test_damage_is_found(self, store: Store, part: str) -> None:
        """A flipped bit is found, its version taken out of service, and a new one accepted."""
        put(store, key_of(1), 2, b"some data", color="blue")
        put(store, key_of(2), 2, b"untouched")
        store.verify(key_of(1))
        (self.flip_data if part == "data" else self.flip_metadata)(store, key_of(1))
        with pytest.raises(ChecksumMismatch):
            store.verify(key_of(1))
        with pytest.raises(NotFound):
            store.open(key_of(1))
        assert set(store.suffix_hashes(0, 7)) == {key_of(2).suffix}
        put(store, key_of(1), 2, b"repaired")
        store.verify(key_of(1))
        assert content(store, key_of(1)) == b"repaired"

    def test_damaged_metadata_is_not_served(self, store: Store) -> None:
        """Reading finds it too."""
        put(store, key_of(1), 2, b"some data")
        self.flip_metadata(store, key_of(1))
        with pytest.raises(NotFound):
            store.stat(key_of(1))
        assert store.entries(0, 7, key_of(1).suffix) == []

    def test_many_threads_one_key(self, store: Store) -> None:
        """Writers, deleters and readers at once: readers see whole versions, the newest wins in the end."""
        failures: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    failures.append(error)

            return run

        def write(start: int) -> Callable[[], None]:
            def work() -> None:
                for moment in range(start, 60, 3):
                    with suppress(Superseded, NotFound):
                        if moment % 10 == 5:
                            store.delete(key_of(1), at(moment), NAME)
                        else:
                            put(store, key_of(1), moment, bytes((moment,)) * 5000)
                        post(store, key_of(1), moment + 0.5, a=str(moment))

            return work

        def read() -> None:
            for _ in range(150):
                with suppress(NotFound), store.open(key_of(1)) as reader:
                    data = reader.read(0, 5000)
                    assert len(data) == 5000
                    assert len(set(data)) == 1
                    assert reader.info.timestamp == at(data[0])
                store.suffix_hashes(0, 7)
                assert len(store.entries(0, 7, "001")) <= 1

        put(store, key_of(1), 0, bytes(5000))
        threads = [threading.Thread(target=guarded(work)) for work in (write(1), write(2), write(3), read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.stat(key_of(1)).timestamp == at(59)
        with self.fresh() as other:
            (entry,) = store.entries(0, 7, "001")
            put(other, key_of(1), 59)
            if entry.meta_timestamp.value:
                post(other, key_of(1), entry.meta_timestamp.seconds - at(0).seconds)
            assert other.suffix_hashes(0, 7) == store.suffix_hashes(0, 7)

    def test_readers_stay_valid_after_close(self) -> None:
        """Closing the store does not close its readers."""
        with self.fresh() as store:
            put(store, key_of(1), 1, b"data")
            reader = store.open(key_of(1))
            store.close()
            with closing(reader):
                assert reader.read(0, 4) == b"data"

    def test_usage(self, store: Store) -> None:
        """Free is not more than all."""
        usage = store.usage()
        assert 0 < usage.free_bytes <= usage.total_bytes
