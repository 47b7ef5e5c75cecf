"""Rows that are answered before they are synced: what power takes away, and what it can't.

Power going is simulated on a copy of the files: the log ends where the last sync of it had begun.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.errors import DeviceFailed
from swiftlet.listing import late_sync
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
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


async def test_a_container_that_goes_meanwhile_is_no_failure_of_the_device(store: ListingStore, disk: Disk) -> None:
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    await store.update_rows(*PLACE, [row("one")], later=True)
    durable = store.durable(id)
    assert durable is not None
    assert await store.remove(id, await store.fingerprint(id))
    with pytest.raises(FileNotFoundError):
        await durable
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
