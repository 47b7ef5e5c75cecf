"""Merges in any order end in the same rows, totals and set hash."""

from __future__ import annotations

import functools
import random
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftlet.errors import NotFound, Superseded
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.container_db import ContainerDb, merge_packed, packed
from swiftlet.listing.schema import create_database, loaded, open_database, stored
from swiftlet.model import (
    ContainerRow,
    DatabaseKind,
    DatabaseName,
    ListingQuery,
    ObjectKey,
    ObjectRow,
    PostRecord,
    PutRecord,
)
from swiftlet.testing.store.conformance import footer_of
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import MAX_VALUE, NONCE_BITS, ZERO, Timestamp

NAMES = st.sampled_from(["a", "b", "\u00e9", "d/e"])
STAMPS = st.integers(0, 5).map(Timestamp)
OBJECT_ROWS = st.builds(
    ObjectRow,
    NAMES,
    STAMPS,
    st.integers(0, 9),
    st.sampled_from(["", "e"]),
    st.sampled_from("tu"),
    st.booleans(),
    STAMPS,
    STAMPS,
).map(lambda row: row.plain)
CONTAINER_ROWS = st.builds(
    ContainerRow, NAMES, STAMPS, STAMPS, st.integers(0, 3), st.integers(0, 9), st.integers(0, 1), STAMPS
)
KEY = ObjectKey(0, 0, b"d" * 16)
_template: dict[DatabaseKind, bytes] = {}


def fresh(root: Path, kind: DatabaseKind) -> sqlite3.Connection:
    """An empty database in memory."""
    if kind not in _template:
        path = root / f"{kind.value}.db"
        create_database(path, kind, DatabaseName("a", None if kind is DatabaseKind.ACCOUNT else "c"), root)
        source = open_database(path, kind)
        source.execute("PRAGMA journal_mode=DELETE")
        _template[kind] = source.serialize()
        source.close()
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(_template[kind])
    return connection


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("templates")


def merged(database: ContainerDb | AccountDb, batches: list[list[ObjectRow]] | list[list[ContainerRow]]) -> object:
    for batch in batches:
        database.begin()
        database.merge(batch)  # type: ignore[arg-type]
        database.commit()
    result = (database.read_head().totals, database.read_head().rows_digest, database.rows("", "", 100))
    assert database.recount() == result[:2]
    database.connection.close()
    return result


@given(st.lists(OBJECT_ROWS, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_object_rows_commute(root: Path, rows: list[ObjectRow], randomness: random.Random) -> None:
    once = merged(ContainerDb(fresh(root, DatabaseKind.CONTAINER)), [rows])
    shuffled = rows + rows[:3]
    randomness.shuffle(shuffled)
    assert merged(ContainerDb(fresh(root, DatabaseKind.CONTAINER)), [[row] for row in shuffled]) == once


@given(st.lists(CONTAINER_ROWS, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_container_rows_commute(root: Path, rows: list[ContainerRow], randomness: random.Random) -> None:
    once = merged(AccountDb(fresh(root, DatabaseKind.ACCOUNT)), [rows])
    shuffled = rows + rows[:3]
    randomness.shuffle(shuffled)
    assert merged(AccountDb(fresh(root, DatabaseKind.ACCOUNT)), [[row] for row in shuffled]) == once


def test_reclaim_forgets_old_markers_only(root: Path) -> None:
    database = ContainerDb(fresh(root, DatabaseKind.CONTAINER))
    kept = [ObjectRow("live", Timestamp(1), 5), ObjectRow("new", Timestamp(9), deleted=True)]
    database.begin()
    database.merge([*kept, ObjectRow("old", Timestamp(2), deleted=True)])
    assert database.reclaim(Timestamp(9)) == 1
    database.commit()
    database.verify()
    assert database.rows("", "", 9) == kept
    database.connection.close()


def test_a_deletion_that_raced_with_a_row_is_undone(root: Path) -> None:
    deleted, written = (ContainerDb(fresh(root, DatabaseKind.CONTAINER)) for _ in range(2))
    for database in (deleted, written):
        database.begin()
        database.put(Timestamp(1), {"A": "b"}, None, 0)
    deleted.delete(Timestamp(5))
    written.update([packed(ObjectRow("o", Timestamp(4), 7))])
    deleted.merge_state(written.state())
    deleted.merge(written.rows("", "", 9))
    written.merge_state(deleted.state())
    assert written.state() == deleted.state()
    assert written.info().object_count == 1
    assert not written.head.deleted
    for database in (deleted, written):
        database.commit()
        database.connection.close()


def test_the_older_of_two_containers_created_apart_wins(root: Path) -> None:
    one, other = (ContainerDb(fresh(root, DatabaseKind.CONTAINER)) for _ in range(2))
    one.begin()
    other.begin()
    one.put(Timestamp(3), {}, 1, 0)
    other.put(Timestamp(4), {"X": "y"}, 2, 0)
    one.merge_state(other.state())
    other.merge_state(one.state())
    assert one.state() == other.state()
    assert (one.info().policy, one.info().created, one.info().metadata) == (1, Timestamp(3), {"X": "y"})
    one.delete(Timestamp(6))
    one.put(Timestamp(8), {}, 2, 0)
    other.merge_state(one.state())
    assert (other.info().policy, other.info().created, other.info().metadata) == (2, Timestamp(8), {})
    for database in (one, other):
        database.commit()
        database.connection.close()


@given(st.integers(0, MAX_VALUE), st.integers(0, MAX_VALUE))
def test_columns_order_like_timestamps(one: int, other: int) -> None:
    assert (stored(Timestamp(one)) < stored(Timestamp(other))) == (one < other)
    assert loaded(stored(Timestamp(one))) == Timestamp(one)


def test_listing_skips_prefixes_by_seeks(root: Path) -> None:
    database = ContainerDb(fresh(root, DatabaseKind.CONTAINER))
    database.begin()
    database.put(Timestamp(1), {}, None, 0)
    database.merge([ObjectRow(f"{d:02}/{n:03}", Timestamp(2)) for d in range(20) for n in range(200)])
    database.commit()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    database.connection.set_progress_handler(count, 10)
    assert len(database.list_page(ListingQuery(delimiter="/"))) == 20
    assert steps < 200
    database.connection.close()


def one_name(row: ObjectRow) -> ObjectRow:
    return replace(row, name="o")


@given(OBJECT_ROWS.map(one_name), OBJECT_ROWS.map(one_name), OBJECT_ROWS.map(one_name))
@settings(max_examples=500, deadline=None)
def test_rows_merge_in_any_order(first: ObjectRow, second: ObjectRow, third: ObjectRow) -> None:
    assert first.merged(first) == first
    assert first.merged(second) == second.merged(first)
    assert first.merged(second).merged(third) == first.merged(second.merged(third))
    assert merge_packed(packed(first), packed(second)) == packed(first.merged(second))


@dataclass(frozen=True)
class Write:
    """A write at a time of its own: without `data` a deletion, or a POST, which may leave the content type."""

    at: int
    put: bool
    data: str | None = None
    content_type: str | None = None


WRITES = st.lists(
    st.one_of(
        st.builds(lambda data: (True, data, "t" if data else None), st.sampled_from(["x", "yy", None])),
        st.builds(lambda kind: (False, None, kind), st.sampled_from(["p", "q", None])),
    ),
    min_size=1,
    max_size=6,
).map(lambda kinds: [Write(at, *kind) for at, kind in enumerate(kinds, 1)])


class Replica:
    """One replica of an object; `rows` are what its listing row would be after each write that it took."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.rows: list[ObjectRow] = []

    def take(self, write: Write) -> None:
        at = Timestamp(write.at << NONCE_BITS)
        if write.put and write.data is None:
            with suppress(NotFound, Superseded):
                self.store.delete(KEY, at, "/a/c/o")
            self.rows.append(ObjectRow("o", at, deleted=True))
            return
        with suppress(NotFound, Superseded):
            if write.data is not None:
                self._put(write.data, at, write.content_type or "")
            else:
                self.store.post(KEY, PostRecord(at, {}, write.content_type, at if write.content_type else ZERO))
            self.rows.append(ObjectRow.of("o", self.store.stat(KEY)))

    def _put(self, data: str, at: Timestamp, content_type: str) -> None:
        writer = self.store.create(KEY, None)
        writer.write(data.encode())
        writer.commit(PutRecord("/a/c/o", at, content_type), footer_of(data.encode()))


@given(WRITES, st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_rows_of_replicas_that_missed_writes_end_as_the_object_does(writes: list[Write], chance: random.Random) -> None:
    """A POST on a replica that missed a deletion or an overwrite brings nothing of the older data back."""
    whole, replicas = Replica(), [Replica() for _ in range(3)]
    for write in writes:
        whole.take(write)
        # A write has its quorum: at most one replica misses it.
        missing = chance.choice([None, 0, 1, 2])
        for number, replica in enumerate(replicas):
            if number != missing:
                replica.take(write)
    rows = [row for replica in replicas for row in replica.rows]
    chance.shuffle(rows)
    listed = functools.reduce(ObjectRow.merged, rows) if rows else None
    try:
        expected = ObjectRow.of("o", whole.store.stat(KEY))
    except NotFound:
        assert listed is None or listed.deleted
    else:
        assert listed == expected
