"""Rows that are answered before they are synced: what power takes away, and what it can't.

Power going is simulated on a copy of the files: the log ends where the last sync of it had begun.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from swiftlet.errors import DeviceFailed
from swiftlet.listing import late_sync
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.thread_pool import Done
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

PLACE = (0, "a", "c")
HASH_PATH = HashPath(b"x")


class Disk:
    """Notes how much of each file the syncs have covered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[str, int] = {}
        self.error: OSError | None = None
        self.gate: asyncio.Event | None = None
        self._datasync = late_sync._datasync
        monkeypatch.setattr(late_sync, "_datasync", self._sync)
        monkeypatch.setattr(late_sync, "SYNC_AFTER_S", 0.001)

    def _sync(self, path: Path) -> None:
        if self.error is not None:
            raise self.error
        covered = path.stat().st_size
        self._datasync(path)
        self.synced[path.name] = covered


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
async def store(tmp_path: Path, disk: Disk) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path / "d0", HASH_PATH)
    await made.put_container(*PLACE, Timestamp(1), {}, None, 0)
    yield made
    await made.close()


def row(name: str) -> ObjectRow:
    return ObjectRow(name, Timestamp(2), 1, "e", "t")


async def names(store: ListingStore) -> list[str]:
    return [entry.name for entry in (await store.list_objects(*PLACE, ListingQuery()))[1]]


async def after_power_loss(store: ListingStore, disk: Disk, to: Path) -> list[str]:
    """What a start would find if power had gone now: nothing of the log that no sync has covered."""
    shutil.copytree(store.root, to, ignore=shutil.ignore_patterns("*.lock", "*-shm"))
    path = database_path(to, store.id_of(0, DatabaseName(*PLACE[1:])))
    log = path.with_name(path.name + "-wal")
    os.truncate(log, disk.synced.get(log.name, 0))
    again = ListingStore(to, HASH_PATH)
    try:
        await again.verify(again.id_of(0, DatabaseName(*PLACE[1:])))
        return await names(again)
    finally:
        await again.close()


async def test_what_is_durable_survives_power_and_what_is_only_taken_may_not(
    store: ListingStore, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    assert await names(store) == ["one"], "it is listed at once"
    await durable
    assert store.durable(id) is None
    assert await after_power_loss(store, disk, tmp_path / "first") == ["one"]
    monkeypatch.setattr(late_sync, "SYNC_AFTER_S", 0.2)
    await store.update_rows(*PLACE, [row("two")], later=True)
    assert await names(store) == ["one", "two"]
    lost = store.durable(id)
    assert lost is not None
    assert await after_power_loss(store, disk, tmp_path / "second") == ["one"]
    await lost
    assert await after_power_loss(store, disk, tmp_path / "third") == ["one", "two"]


async def test_a_write_that_must_be_durable_is_so_on_return_whoever_shares_its_transaction(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    id = store.id_of(0, DatabaseName(*PLACE[1:]))

    def mode(database: object) -> None:
        modes.append(database.connection.execute("PRAGMA synchronous").fetchone()[0])  # type: ignore[attr-defined]

    await store.write(id, mode, later=True)
    await store.write(id, mode)
    await asyncio.gather(store.write(id, mode, later=True), store.write(id, mode, later=True), store.write(id, mode))
    await store.write(id, mode, later=True)
    full, normal = 2, 1
    assert modes == [normal, full, full, full, full, normal], "those at once share a transaction"


async def test_a_sync_that_fails_takes_the_device_out_and_makes_nothing_durable(
    store: ListingStore, disk: Disk
) -> None:
    disk.error = OSError(errno.EIO, "input/output error")
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    with pytest.raises(OSError, match="input/output error"):
        await durable
    assert store.durable(id) is durable, "and it never will be"
    with pytest.raises(DeviceFailed):
        await store.update_rows(*PLACE, [row("two")], later=True)


async def test_a_container_that_goes_meanwhile_is_no_failure_of_the_device(
    store: ListingStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sync, "SYNC_AFTER_S", 1.0)
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    assert await store.remove(id, await store.fingerprint(id))
    with pytest.raises(FileNotFoundError):
        await durable
    monkeypatch.setattr(late_sync, "SYNC_AFTER_S", 0.001)
    await store.put_container(*PLACE, Timestamp(3), {}, None, 0)
    await store.update_rows(*PLACE, [row("two")], later=True)
    await (store.durable(id) or asyncio.sleep(0))
    assert await names(store) == ["two"]


async def test_closing_waits_until_all_is_durable(tmp_path: Path, disk: Disk) -> None:
    store = ListingStore(tmp_path / "d1", HASH_PATH)
    await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(store.id_of(0, DatabaseName(*PLACE[1:])))
    assert durable is not None
    await store.close()
    assert durable.done()


async def test_databases_of_a_device_are_synced_in_rounds(
    store: ListingStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sync, "SYNC_AFTER_S", 0.3)
    places = [(0, "a", f"c{number}") for number in range(10)]
    for place in places:
        await store.put_container(*place, Timestamp(1), {}, None, 0)
    jobs: list[object] = []
    do = store._syncers.do

    def counted(job: Callable[[], object], done: Done) -> None:
        jobs.append(job)
        do(job, done)

    monkeypatch.setattr(store._syncers, "do", counted)
    await asyncio.gather(*(store.update_rows(*place, [row("one")], later=True) for place in places))
    waiting = [store.durable(store.id_of(0, DatabaseName(*place[1:]))) for place in places]
    await asyncio.gather(*(durable for durable in waiting if durable is not None))
    assert len([durable for durable in waiting if durable is not None]) == 10
    assert len(jobs) == store.limits.threads, "shared out among the threads"
    assert all(store.durable(store.id_of(0, DatabaseName(*place[1:]))) is None for place in places)


async def test_what_is_committed_while_a_sync_is_under_way_is_in_the_next_one(
    store: ListingStore, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sync = late_sync._datasync

    def slow(path: Path) -> None:
        sync(path)
        begun.set()
        assert go_on.wait(30)

    monkeypatch.setattr(late_sync, "_datasync", slow)
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    first = store.durable(id)
    assert await asyncio.to_thread(begun.wait, 30)
    await store.update_rows(*PLACE, [row("two")], later=True)
    second = store.durable(id)
    assert first is not None
    assert second is not None
    assert second is not first
    assert await after_power_loss(store, disk, tmp_path / "first") == ["one"]
    go_on.set()
    await first
    await second
    assert await after_power_loss(store, disk, tmp_path / "second") == ["one", "two"]


async def test_who_goes_away_while_it_waits_takes_no_sync_from_the_others(store: ListingStore, disk: Disk) -> None:
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    durable.cancel()
    async with asyncio.timeout(30):
        await store._handles[id].wait_idle()
        await store.update_rows(*PLACE, [row("two")], later=True)
        await (store.durable(id) or asyncio.sleep(0))
    assert store.durable(id) is None


async def test_a_failed_sync_that_can_t_be_dealt_with_is_told_all_the_same(
    store: ListingStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["exception"])))

    async def fails(_handle: object, _error: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(store, "fault", fails)
    disk.error = OSError(errno.EIO, "input/output error")
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="input/output error"):
            await durable
        await store._handles[id].wait_idle()
    assert len(messages) == 1
    assert "read-only" in messages[0]
