"""Fingerprints that are read from databases that nobody uses, without opening them for use."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from swiftlet.listing import pool
from swiftlet.listing.at_rest import fingerprints_at_rest
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.replica import merge_state, state_of
from swiftlet.model import ContainerRow, DatabaseId, DatabaseName, MetadataItem, ObjectRow
from swiftlet.names import HashPath
from swiftlet.testing.storage.memory_updates import MemoryUpdates
from swiftlet.testing.storage.updates_conformance import packed_row
from swiftlet.timestamp import ZERO, Timestamp

HASH_PATH = HashPath(b"x")


def container(store: ListingStore, name: str) -> DatabaseId:
    return store.id_of(0, DatabaseName("a", name))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    """A device after a restart, so that nothing is known of its databases."""
    made = ListingStore(tmp_path / "d", HASH_PATH)
    for name in ("empty", "rows", "deleted", "split"):
        await made.put_container(0, "a", name, Timestamp(1), {"X-Container-Meta-Colour": "grün"}, None, 0)
    await made.update_rows(0, "a", "rows", [ObjectRow(f"o{number}", Timestamp(2), number) for number in range(50)])
    await made.delete_container(0, "a", "deleted", Timestamp(3))
    id = container(made, "split")
    state = await state_of(made, id)
    point = MetadataItem(":split:m", Timestamp(4), "1")
    await merge_state(made, id, replace(state, metadata=(*state.metadata, point)))
    row = ContainerRow("rows", Timestamp(1), ZERO, 50, 1225, 0, Timestamp(2))
    await made.update_containers(0, "a", [row])
    await made.close()
    again = ListingStore(tmp_path / "d", HASH_PATH)
    yield again
    await again.close()


def ids_of(store: ListingStore) -> list[DatabaseId]:
    return [
        *(container(store, name) for name in ("empty", "rows", "deleted", "split")),
        store.id_of(0, DatabaseName("a")),
    ]


class Reading:
    """Has what `learn` read come back only when `go_on` is set; `begun` is set once something was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(pool, "fingerprints_at_rest", self._read)

    def _read(self, root: Path, ids: Iterable[DatabaseId]) -> dict[DatabaseId, bytes]:
        found = fingerprints_at_rest(root, ids)
        self.begun.set()
        assert self.go_on.wait(60)
        return found


async def test_it_is_the_fingerprint_that_an_opened_database_has(store: ListingStore) -> None:
    ids = ids_of(store)
    await store.learn(ids)
    learned = [store.fingerprints.get(id) for id in ids]
    for id in ids:
        store.fingerprints.drop(id)
    assert learned == [await store.fingerprint(id) for id in ids]
    assert len(set(learned)) == len(ids)


async def test_nothing_is_left_beside_a_file_that_was_read(store: ListingStore) -> None:
    ids = ids_of(store)
    await store.learn(ids)
    for id in ids:
        path = database_path(store.root, id)
        assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_one_with_a_log_is_left_to_those_who_open_it(store: ListingStore, tmp_path: Path) -> None:
    """What a process that was killed leaves: the last rows are in the log only."""
    id = container(store, "rows")
    await store.update_rows(0, "a", "rows", [ObjectRow("in-the-log", Timestamp(5), 1)])
    killed = tmp_path / "killed"
    shutil.copytree(store.root, killed, ignore=shutil.ignore_patterns("listing.lock", "*-shm"))
    assert database_path(killed, id).with_name(f"{id.digest.hex()}.db-wal").stat().st_size
    assert fingerprints_at_rest(killed, [id]) == {}
    again = ListingStore(killed, HASH_PATH)
    await again.learn([id])
    assert again.fingerprints.get(id) is None
    assert await again.fingerprint(id) == await store.fingerprint(id)
    await again.close()


async def test_those_that_cannot_be_read_are_left_out(store: ListingStore) -> None:
    damaged, foreign, gone, *others = ids_of(store)
    database_path(store.root, damaged).write_bytes(b"\xff" * 8192)
    connection = sqlite3.connect(database_path(store.root, foreign))
    connection.execute("PRAGMA user_version=77")
    connection.close()
    shutil.rmtree(database_path(store.root, gone).parent)
    account = others[-1]
    taken_for_it = DatabaseId(damaged.kind, 0, account.digest)
    path = database_path(store.root, taken_for_it)
    path.parent.mkdir(parents=True)
    shutil.copy(database_path(store.root, account), path)
    found = fingerprints_at_rest(store.root, [damaged, foreign, gone, taken_for_it, *others])
    assert found.keys() == set(others)


async def test_those_in_use_are_not_learned(store: ListingStore) -> None:
    used = container(store, "rows")
    await store.container_info(0, "a", "rows")
    await store.learn(ids_of(store))
    assert {id for id in ids_of(store) if store.fingerprints.get(id) is None} == {used}


async def test_rows_that_native_code_has_taken_keep_their_database_from_being_learned(tmp_path: Path) -> None:
    table = MemoryUpdates()
    store = ListingStore(tmp_path / "d", HASH_PATH, make_table=lambda _: table)
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    await store.update_rows(0, "a", "c", [ObjectRow("o", Timestamp(2), 1)])
    id = container(store, "c")
    assert table.take(0, "a", "c", [packed_row("p")])
    store._close_soon(store._handles.pop(id))
    await asyncio.wait(store._closing)
    store.fingerprints.drop(id)
    await store.learn([id])
    assert store.fingerprints.get(id) is None
    await store.fingerprint(id)
    assert store.fingerprints.get(id) is not None
    await store.close()


async def test_what_somebody_begins_to_use_meanwhile_is_not_learned(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, read, untouched, *_ = ids_of(store)
    reading = Reading(monkeypatch)
    learning = [asyncio.create_task(store.learn(ids)) for ids in ([written, read, untouched], [untouched])]
    await asyncio.to_thread(reading.begun.wait, 60)
    await store.update_rows(0, "a", "empty", [ObjectRow("new", Timestamp(5), 1)])
    committed = store.fingerprints.get(written)
    await store.container_info(0, "a", "rows")
    reading.go_on.set()
    await asyncio.gather(*learning)
    assert store.fingerprints.get(written) == committed
    assert store.fingerprints.get(read) is None
    assert store.fingerprints.get(untouched) is not None
    assert store._unused == []
    store.fingerprints.drop(written)
    assert await store.fingerprint(written) == committed


async def test_one_that_was_removed_meanwhile_is_not_brought_back(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = container(store, "rows")
    reading = Reading(monkeypatch)
    learning = asyncio.create_task(store.learn([id]))
    await asyncio.to_thread(reading.begun.wait, 60)
    assert await store.remove(id, await store.fingerprint(id))
    reading.go_on.set()
    await learning
    assert store.fingerprints.get(id) is None
