"""What questions of sessions are answered from: kept with every commit, and looked up once."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from swiftlet_native import PairRoots

from swiftlet.errors import Unavailable
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.schema import SCHEMA_VERSION
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ObjectRow
from swiftlet.servers.containers import listing_index
from swiftlet.servers.containers.listing_index import RELIST_S, ListingIndex
from swiftlet.servers.containers.root_changes import MOST, RootChanges
from swiftlet.servers.tests.listing_cluster import HASH_PATH
from swiftlet.store import sethash
from swiftlet.sync.databases.entries import fingerprint_of
from swiftlet.sync.session.entries import suffix_of
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.testing.storage.memory_updates import MemoryUpdates
from swiftlet.testing.storage.updates_conformance import packed_row
from swiftlet.timestamp import Timestamp

at = Timestamp.at
KIND = DatabaseKind.CONTAINER


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path / "d", HASH_PATH)
    for number in range(6):
        await made.put_container(number % 3, "a", f"c{number}", at(1), {}, None, 0)
    await made.close()
    # After a restart nothing is known.
    again = ListingStore(tmp_path / "d", HASH_PATH)
    yield again
    await again.close()


async def test_it_is_what_the_databases_are(store: ListingStore) -> None:
    index = ListingIndex(store)
    await index.ready(KIND)
    assert index.partitions(KIND) == [0, 1, 2]
    for partition in range(3):
        entries = index.entries(KIND, partition)
        assert {(e.digest, fingerprint_of(e)) for e in entries} == {
            (id.digest, await store.fingerprint(id)) for id in await store.databases(KIND, partition)
        }
        hashes = index.suffix_hashes(KIND, partition)
        assert set(hashes) == {suffix_of(entry) for entry in entries}
        assert index.root(KIND, partition) == sethash.root(hashes)
    assert index.root(KIND, 7) == EMPTY_ROOT
    assert index.partitions(DatabaseKind.ACCOUNT) == []


async def test_questions_open_no_file_after_the_first(store: ListingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    index = ListingIndex(store)
    await index.ready(KIND)
    root = index.root(KIND, 1)

    def opened(*_: Any) -> None:
        raise AssertionError("a database was opened, or a directory read")

    monkeypatch.setattr(store, "read", opened)
    monkeypatch.setattr(store, "_look", opened)
    await index.ready(KIND)
    assert index.root(KIND, 1) == root
    monkeypatch.undo()
    await store.update_rows(1, "a", "c1", [ObjectRow("o", at(2), 1)])
    assert index.root(KIND, 1) != root
    await store.put_container(9, "a", "new", at(1), {}, None, 0)
    assert index.partitions(KIND) == [0, 1, 2, 9]
    id = DatabaseId(KIND, 9, HASH_PATH("a", "new"))
    assert await store.remove(id, await store.fingerprint(id))
    assert index.partitions(KIND) == [0, 1, 2]


async def test_what_was_taken_away_behind_its_back_is_noticed(store: ListingStore) -> None:
    now_s = [0.0]
    index = ListingIndex(store, lambda: now_s[0])
    await index.ready(KIND)
    shutil.rmtree(store.root / KIND.value / "2")
    now_s[0] = RELIST_S
    await index.ready(KIND)
    await asyncio.wait([index._looks[KIND]])
    assert index.partitions(KIND) == [0, 1]


async def test_one_of_another_program_never_counts_as_equal(store: ListingStore) -> None:
    for id in await store.databases(KIND, 1):
        connection = sqlite3.connect(database_path(store.root, id))
        connection.execute("PRAGMA user_version=2")
        connection.close()
    indexes = [ListingIndex(store) for _ in range(2)]
    for index in indexes:
        await index.ready(KIND)
        assert index.partitions(KIND) == [0, 1, 2]
        assert len(index.entries(KIND, 1)) == 2
    roots = [[index.root(KIND, partition) for partition in range(3)] for index in indexes]
    assert [one == other for one, other in zip(*roots, strict=True)] == [True, False, True]


async def test_the_first_look_opens_no_database_that_nobody_has_open(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_index, "_LOOKED_AT", 3)
    await store.container_info(0, "a", "c0")
    opened = []
    read = store.read

    async def watched(id: DatabaseId, *arguments: Any) -> Any:
        opened.append(id)
        return await read(id, *arguments)

    monkeypatch.setattr(store, "read", watched)
    index = ListingIndex(store)
    await index.ready(KIND)
    assert opened == [store.id_of(0, DatabaseName("a", "c0"))]
    assert [len(index.entries(KIND, partition)) for partition in range(3)] == [2, 2, 2]


async def test_one_that_can_be_read_again_counts_again(store: ListingStore) -> None:
    id = (await store.databases(KIND, 1))[0]
    path = database_path(store.root, id)

    def set_version(version: int) -> None:
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version={version}")
        connection.close()

    now_s = [0.0]
    index = ListingIndex(store, lambda: now_s[0])

    async def look_again() -> None:
        now_s[0] += RELIST_S
        await index.ready(KIND)
        if KIND in index._looks:
            await asyncio.wait([index._looks[KIND]])

    set_version(2)
    await index.ready(KIND)
    unreadable = index.root(KIND, 1)
    set_version(SCHEMA_VERSION)
    await look_again()
    assert index.root(KIND, 1) != unreadable
    assert not index._unreadable[KIND]
    shutil.rmtree(path.parent)
    await look_again()
    assert len(index.entries(KIND, 1)) == 1


async def test_roots_of_a_pair_follow_what_changes(store: ListingStore) -> None:
    index = ListingIndex(store)
    await index.ready(KIND)
    pairs = [PairRoots([0, 1, 2, 7]), PairRoots([1, 2])]

    async def check(pair: PairRoots) -> bytes:
        await index.read_pair(KIND, pair)
        found = pair.hash([])
        fresh = PairRoots(pair.members)
        for partition in pair.members:
            fresh.put(partition, index.root(KIND, partition))
        assert found == fresh.hash([])
        return found

    before = [await check(pair) for pair in pairs]
    assert [await check(pair) for pair in pairs] == before
    store.fingerprints.drop((await store.databases(KIND, 1))[0])
    assert await check(pairs[0]) != before[0]
    store.fingerprints.put(DatabaseId(KIND, 7, bytes(16)), bytes(16))
    after = [await check(pair) for pair in pairs]
    assert after[1] != before[1]


def test_changes_are_known_since_a_position_and_not_for_ever() -> None:
    changes, others = RootChanges(), RootChanges()
    begin, nothing = changes.since(None)
    assert nothing is None
    changes.add(5)
    changes.add(7)
    assert changes.since(begin) == (begin + 2, {5, 7})
    assert changes.since(begin + 1) == (begin + 2, {7})
    assert changes.since(begin + 2) == (begin + 2, set())
    assert changes.since(begin + 3)[1] is None
    assert others.since(begin)[1] is None
    for _ in range(MOST - 1):
        changes.add(9)
    assert changes.since(begin)[1] is None
    assert changes.since(begin + 1)[1] == {7, 9}


async def test_a_damaged_one_is_in_quarantine_and_the_others_are_there(store: ListingStore) -> None:
    id = (await store.databases(KIND, 0))[0]
    database_path(store.root, id).write_bytes(b"\xff" * 8192)
    index = ListingIndex(store)
    await index.ready(KIND)
    assert id.digest not in {entry.digest for entry in index.entries(KIND, 0)}
    assert len(index.entries(KIND, 0)) == 1


async def test_the_first_look_keeps_nobody_waiting_for_long(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_index, "WAIT_S", 0.01)
    gate = asyncio.Event()
    databases = store.databases

    async def slow(kind: DatabaseKind, partition: int) -> list[DatabaseId]:
        await gate.wait()
        return await databases(kind, partition)

    monkeypatch.setattr(store, "databases", slow)
    index = ListingIndex(store)
    with pytest.raises(Unavailable, match="for the first time"):
        await index.ready(KIND)
    gate.set()
    monkeypatch.setattr(listing_index, "WAIT_S", 10.0)
    await index.ready(KIND)
    assert len(index.entries(KIND, 0)) == 2
    await index.close()


async def test_what_native_code_has_taken_counts_once_it_is_merged(tmp_path: Path) -> None:
    """A question merges nothing, for replicas are asked one after the other, and merged at the same moment."""
    table = MemoryUpdates()
    store = ListingStore(tmp_path / "d", HASH_PATH, make_table=lambda _: table)
    await store.put_container(0, "a", "c", at(1), {}, None, 0)
    await store.update_rows(0, "a", "c", [ObjectRow("o", at(2), 1)])
    index = ListingIndex(store)
    await index.ready(KIND)
    before = index.root(KIND, 0)
    assert table.take(0, "a", "c", [packed_row("p")])
    await index.ready(KIND)
    assert table.has(0, "a", "c")
    assert index.root(KIND, 0) == before
    assert (await store.container_info(0, "a", "c")).object_count == 2
    assert not table.has(0, "a", "c")
    assert index.root(KIND, 0) != before
    await store.close()
