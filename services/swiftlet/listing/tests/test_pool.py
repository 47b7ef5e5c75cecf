"""A device's databases: ownership, group commit, eviction, damage, crashes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from swiftlet.errors import DeviceFailed, DeviceLocked, DiskFull, NotFound, StoreFormatError
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.handle import Limits
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.row_tables import Change, Packed
from swiftlet.listing.tests import crash_writer
from swiftlet.listing.writer import Write
from swiftlet.model import ContainerRow, DatabaseId, DatabaseKind, DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import ZERO, Timestamp

HASH_PATH = HashPath(b"x")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path / "device", HASH_PATH, Limits(open_databases=3, threads=2))
    yield made
    await made.close()


async def put(store: ListingStore, container: str = "c", rows: int = 0) -> DatabaseId:
    await store.put_container(0, "a", container, Timestamp(1), {"K": "v"}, None, 0)
    await store.update_rows(0, "a", container, [ObjectRow(f"{i:05}", Timestamp(2), i) for i in range(rows)])
    return store.id_of(0, DatabaseName("a", container))


async def test_one_process_owns_a_device(store: ListingStore) -> None:
    with pytest.raises(DeviceLocked):
        ListingStore(store.root, HASH_PATH)


async def test_it_is_all_there_after_reopening(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    id = await put(store, rows=10)
    fingerprint = await store.fingerprint(id)
    await store.close()
    store = ListingStore(tmp_path, HASH_PATH)
    assert await store.fingerprint(id) == fingerprint
    assert await store.partitions(DatabaseKind.CONTAINER) == [0]
    assert await store.databases(DatabaseKind.CONTAINER, 0) == [id]
    assert await store.databases(DatabaseKind.ACCOUNT, 0) == []
    assert (await store.container_info(0, "a", "c")).bytes_used == 45
    await store.close()


async def test_writes_that_wait_share_a_transaction(store: ListingStore) -> None:
    id = await put(store)
    commits: list[DatabaseId] = []
    store.follow(lambda id, _: commits.append(id))
    await asyncio.gather(
        *(store.update_rows(0, "a", "c", [ObjectRow(f"{i}", Timestamp(2), 1)]) for i in range(100)),
    )
    assert 1 <= len(commits) <= 10
    assert set(commits) == {id}
    assert (await store.container_info(0, "a", "c")).object_count == 100


async def test_a_refused_write_leaves_its_neighbours(store: ListingStore) -> None:
    await put(store, rows=1)
    results = await asyncio.gather(
        store.update_rows(0, "a", "c", [ObjectRow("x", Timestamp(3), 2)]),
        store.delete_container(0, "a", "c", Timestamp(9)),
        store.put_container(0, "a", "c", Timestamp(4), {"L": "w"}, 5, 0),
        store.post_container(0, "a", "c", Timestamp(4), {"M": "z"}),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["NoneType", "NotEmpty", "PolicyConflict", "NoneType"]
    info = await store.container_info(0, "a", "c")
    assert (info.object_count, info.metadata) == (2, {"K": "v", "M": "z"})


async def test_updates_of_a_container_are_merged_as_one_and_refused_as_one(store: ListingStore) -> None:
    id, sizes = await put(store, rows=1), list[int]()
    merge = ContainerDb.merge_rows

    def counted(database: ContainerDb, rows: Iterable[Packed], forgotten: Timestamp = ZERO) -> Change:
        sizes.append(len(found := list(rows)))
        return merge(database, found, forgotten)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContainerDb, "merge_rows", counted)
        updates = [[ObjectRow(f"x{i % 7}", Timestamp(3 + i), i, deleted=i == 9)] for i in range(10)]
        await asyncio.gather(*(store.update_rows(0, "a", "c", rows, i % 2 == 0) for i, rows in enumerate(updates)))
    assert sizes == [10]
    rows: list[ObjectRow] = await store.read(id, lambda database: database.rows("x", "", 100))
    assert {row.name: row.timestamp.value for row in rows} == {f"x{n}": 3 + max(n, (n + 7) * (n < 3)) for n in range(7)}
    await store.verify(id)
    missing = await asyncio.gather(
        *(store.update_rows(0, "a", "missing", [ObjectRow("x", Timestamp(3))]) for _ in range(3)),
        return_exceptions=True,
    )
    assert [type(error) for error in missing] == [NotFound] * 3


async def test_more_databases_than_may_be_open(store: ListingStore) -> None:
    names = [f"c{i}" for i in range(12)]
    await asyncio.gather(*(put(store, name, 3) for name in names))
    for name in names:
        assert (await store.container_info(0, "a", name)).object_count == 3


async def test_a_full_device_refuses_growth_only(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    await put(store, rows=1)
    await store.close()
    store = ListingStore(tmp_path, HASH_PATH, Limits(reserve_bytes=1 << 62))
    with pytest.raises(DiskFull):
        await store.update_rows(0, "a", "c", [ObjectRow("x", Timestamp(3))])
    with pytest.raises(DiskFull):
        await store.put_container(0, "a", "new", Timestamp(3), {}, None, 0)
    await store.update_rows(0, "a", "c", [ObjectRow("00000", Timestamp(3), deleted=True)])
    await store.delete_container(0, "a", "c", Timestamp(4))
    await store.close()


async def test_reclaim_takes_a_reported_deleted_container_away(store: ListingStore) -> None:
    id = await put(store, rows=2)
    await store.update_rows(0, "a", "c", [ObjectRow(f"{i:05}", Timestamp(3), deleted=True) for i in range(2)])
    await store.delete_container(0, "a", "c", Timestamp(4))
    assert await store.reclaim(id, Timestamp(5)) == 2
    assert await store.databases(DatabaseKind.CONTAINER, 0) == [id]
    row: ContainerRow = await store.read(id, lambda database: database.account_row(Timestamp(5)))
    await store.write(id, lambda database: database.mark_reported(row))
    await store.reclaim(id, Timestamp(4))
    assert await store.databases(DatabaseKind.CONTAINER, 0) == [id]
    await store.reclaim(id, Timestamp(5))
    assert await store.databases(DatabaseKind.CONTAINER, 0) == []
    assert await store.put_container(0, "a", "c", Timestamp(6), {}, None, 0)


async def test_remove_only_what_did_not_change(store: ListingStore) -> None:
    id = await put(store, rows=2)
    before = await store.fingerprint(id)
    await store.update_rows(0, "a", "c", [ObjectRow("x", Timestamp(3))])
    assert not await store.remove(id, before)
    assert await store.remove(id, await store.fingerprint(id))
    with pytest.raises(NotFound):
        await store.container_info(0, "a", "c")


async def damage(store: ListingStore, id: DatabaseId, how: str) -> None:
    """Close the database and damage its file."""
    await store.close()
    path = database_path(store.root, id)
    whole = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(whole[: 4096 * 3 + 100])
        case "garbage":
            path.write_bytes(bytes(range(256)) * (len(whole) // 256))
        case "pages":
            path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
        case "flipped":
            path.write_bytes(whole.replace(b"00123", b"00923"))


@pytest.mark.parametrize("how", ["empty", "truncated", "garbage", "pages", "flipped"])
async def test_a_damaged_database_goes_to_quarantine(tmp_path: Path, how: str) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    id = await put(store, rows=500)
    await damage(store, id, how)
    store = ListingStore(tmp_path, HASH_PATH)
    with pytest.raises(DamagedDatabase):
        await store.verify(id)
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    with pytest.raises(NotFound):
        await store.container_info(0, "a", "c")
    await put(store, rows=1)
    await store.close()


async def test_damage_met_by_a_write(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    id = await put(store, rows=500)
    await damage(store, id, "pages")
    store = ListingStore(tmp_path, HASH_PATH)
    with pytest.raises(DamagedDatabase):
        await store.update_rows(0, "a", "c", [ObjectRow("x", Timestamp(3))])
    assert await store.put_container(0, "a", "c", Timestamp(6), {}, None, 0)
    await store.close()


@pytest.mark.parametrize("version", [0, 2, 99])
async def test_another_format_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    id = await put(store)
    await store.close()
    connection = sqlite3.connect(database_path(tmp_path, id))
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    store = ListingStore(tmp_path, HASH_PATH)
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=f"version {version}, this program understands 1: run a release"):
            await store.container_info(0, "a", "c")
    assert not (tmp_path / "quarantine").exists()
    await store.close()


async def test_an_io_error_takes_the_device_out(store: ListingStore) -> None:
    id = await put(store)

    def fail(_database: object) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(DeviceFailed):
        await store.write(id, fail)
    with pytest.raises(DeviceFailed):
        await store.container_info(0, "a", "c")


def heard_from_killed_writer(root: Path, first: int, batches: int, pause_s: float) -> list[int]:
    """Let a child write, kill it a moment after that many acknowledged batches; all that it acknowledged."""
    command = [sys.executable, crash_writer.__file__, str(root), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        heard = [int(child.stdout.readline()) for _ in range(batches)]
        time.sleep(pause_s)
        child.kill()
        return heard + [int(line) for line in child.stdout.read().split("\n")[:-1]]


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, seed: int) -> None:
    randomness, acknowledged, first = random.Random(seed), set[int](), 0
    for _ in range(3):
        heard = heard_from_killed_writer(tmp_path, first, randomness.randrange(1, 60), randomness.random() * 0.01)
        acknowledged.update(heard)
        first = max(acknowledged) + 12 - max(acknowledged) % 6
    store = ListingStore(tmp_path, HASH_PATH)
    id = store.id_of(0, DatabaseName("a", "c"))
    rows: list[ObjectRow] = await store.read(id, lambda database: database.rows("", "", 1_000_000))
    held = {row.name: row for row in rows}
    for number in acknowledged:
        for row in crash_writer.rows_of(number):
            assert held[row.name].timestamp >= row.timestamp
    await store.verify(id)
    info, page = await store.list_objects(0, "a", "c", ListingQuery())
    assert info.object_count == sum(not row.deleted for row in rows)
    assert len(page) == min(info.object_count, 10_000)
    await store.close()


async def test_an_account_of_a_reported_container(store: ListingStore) -> None:
    await store.update_containers(0, "a", [ContainerRow("c", Timestamp(1), ZERO, 5, 50, 0, Timestamp(2))])
    await store.update_containers(0, "a", [ContainerRow("c", Timestamp(1), ZERO, 4, 40, 0, Timestamp(3))])
    info = await store.account_info(0, "a")
    assert (info.object_count, info.bytes_used) == (4, 40)


async def test_a_fault_that_can_t_be_dealt_with_an_observer_and_a_listener_that_raise_leave_nobody_waiting(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["exception"])))
    id = await put(store)

    def observer(*_: object) -> None:
        raise ValueError("the observer")

    def listener(*_: object) -> None:
        raise ValueError("the listener")

    store.follow(observer)
    async with asyncio.timeout(30):
        store.submit(id, Write(lambda _: None, listener))
        await asyncio.gather(*(store.update_rows(0, "a", "c", [ObjectRow(f"{i}", Timestamp(2), 1)]) for i in range(9)))
        assert messages.count("the listener") == 1
        assert "the observer" in messages
        store.unfollow(observer)

        def breaks(_: ContainerDb) -> None:
            raise DamagedDatabase("broken")

        def no_ward(_: object) -> None:
            raise PermissionError("no quarantine")

        monkeypatch.setattr(store, "_quarantine", no_ward)
        told = await asyncio.gather(*(store.write(id, breaks) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in told] == [DamagedDatabase] * 3
        assert "no quarantine" in messages
        assert (await store.container_info(0, "a", "c")).object_count == 9, "the next one finds what is there"


async def test_counters_of_damage_are_there_before_the_first(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HASH_PATH, device="calm")
    assert REGISTRY.get_sample_value("swiftlet_listing_quarantined_total", {"device": "calm"}) == 0
    assert REGISTRY.get_sample_value("swiftlet_listing_device_failed", {"device": "calm"}) == 0
    await store.close()
