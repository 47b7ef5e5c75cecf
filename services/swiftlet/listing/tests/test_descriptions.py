"""Descriptions in memory: they are those of the last commit, whatever was opened, closed or removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.errors import DeviceFailed, NotFound
from swiftlet.listing import writer
from swiftlet.listing.container_db import ContainerDb, account_row
from swiftlet.listing.descriptions import Descriptions
from swiftlet.listing.handle import Limits
from swiftlet.listing.pool import ListingStore
from swiftlet.model import ContainerInfo, DatabaseId, DatabaseName, ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

HASH_PATH = HashPath(b"x")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path, HASH_PATH, Limits(open_databases=2, threads=2))
    yield made
    await made.close()


def id_of(store: ListingStore, container: str) -> DatabaseId:
    return store.id_of(0, DatabaseName("a", container))


async def on_disk(store: ListingStore, container: str) -> ContainerInfo:
    return await store.read(id_of(store, container), ContainerDb.info)


async def test_many_containers_are_described_without_opening_their_files(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{number}" for number in range(20)]
    for name in names:
        await store.put_container(0, "a", name, Timestamp(1), {"K": name}, None, 0)
    opened: list[DatabaseId] = []
    monkeypatch.setattr(writer, "_connection", lambda id, *_: opened.append(id))
    assert [(await store.container_info(0, "a", name)).metadata for name in names] == [{"K": name} for name in names]
    assert all([(await store.container_head(id_of(store, name))).exists for name in names])
    assert not opened


async def test_they_are_read_once_after_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    await store.put_container(0, "a", "c", Timestamp(1), {}, 3, 0)
    await store.close()
    with pytest.raises(DeviceFailed):
        await store.container_info(0, "a", "c")
    store = ListingStore(tmp_path, HASH_PATH)
    read: list[DatabaseId] = []
    before = store.read

    async def counted(id: DatabaseId, operation: object) -> object:
        read.append(id)
        return await before(id, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read", counted)
    for _ in range(3):
        assert (await store.container_info(0, "a", "c")).policy == 3
    assert len(read) == 1
    await store.close()


async def test_what_is_read_while_something_is_committed_is_not_kept(store: ListingStore) -> None:
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    store.descriptions.drop(id_of(store, "c"))
    before = store.read

    async def late(id: DatabaseId, operation: object) -> object:
        found: object = await before(id, operation)  # type: ignore[arg-type]
        await store.post_container(0, "a", "c", Timestamp(2), {"K": "new"})
        return found

    store.read = late  # type: ignore[method-assign, assignment]
    assert (await store.container_info(0, "a", "c")).metadata == {}, "the answer may be that of before"
    store.read = before  # type: ignore[method-assign]
    assert (await store.container_info(0, "a", "c")).metadata == {"K": "new"}


async def test_a_deleted_container_and_a_removed_database_are_not_described(store: ListingStore) -> None:
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    await store.delete_container(0, "a", "c", Timestamp(2))
    with pytest.raises(NotFound):
        await store.container_info(0, "a", "c")
    head = await store.container_head(id_of(store, "c"))
    assert (head.exists, head.unreported) == (False, True)
    await store.note_reported(id_of(store, "c"), account_row(head, Timestamp(3)))
    assert not (await store.container_head(id_of(store, "c"))).unreported
    await store.reclaim(id_of(store, "c"), Timestamp(9))
    for gone in (store.container_info(0, "a", "c"), store.container_head(id_of(store, "c"))):
        with pytest.raises(NotFound):
            await gone
    await store.put_container(0, "a", "c", Timestamp(10), {"K": "v"}, None, 0)
    assert (await store.container_info(0, "a", "c")).metadata == {"K": "v"}


@pytest.mark.parametrize("seed", range(4))
async def test_they_are_what_the_databases_have_after_any_history(store: ListingStore, seed: int) -> None:
    """Several writers and readers of more containers than may be open."""
    chance = random.Random(seed)
    store.descriptions = Descriptions(4)
    names = [f"c{number}" for number in range(6)]
    clock = iter(range(1, 100_000))

    async def write(name: str) -> None:
        at = Timestamp(next(clock))
        match chance.randrange(6):
            case 0:
                await store.put_container(0, "a", name, at, {"K": str(at.value)}, None, 0)
            case 1:
                await store.post_container(0, "a", name, at, {"L": str(at.value)})
            case 2:
                await store.update_rows(0, "a", name, [ObjectRow(str(chance.randrange(5)), at, 1, deleted=True)])
                await store.delete_container(0, "a", name, at)
            case 3:
                head = await store.container_head(id_of(store, name))
                await store.note_reported(id_of(store, name), account_row(head, at))
            case _:
                await store.update_rows(0, "a", name, [ObjectRow(str(chance.randrange(5)), at, chance.randrange(9))])

    async def work() -> None:
        for _ in range(60):
            name = chance.choice(names)
            for step in (write(name), store.container_info(0, "a", name)):
                await asyncio.gather(step, return_exceptions=True)

    await asyncio.gather(*(work() for _ in range(4)))
    for name in names:
        found = await asyncio.gather(store.container_info(0, "a", name), on_disk(store, name), return_exceptions=True)
        assert found[0] == found[1] or [type(one) for one in found] == [NotFound, NotFound]


async def test_a_report_is_noted_when_a_database_is_closed(tmp_path: Path) -> None:
    store = ListingStore(tmp_path, HASH_PATH)
    id = id_of(store, "c")
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    commits: list[DatabaseId] = []
    store.follow(lambda id, _: commits.append(id))
    await store.note_reported(id, account_row(await store.container_head(id), Timestamp(2)))
    assert not (await store.container_head(id)).unreported
    assert not commits, "nothing was written for it"
    await store.close()
    store = ListingStore(tmp_path, HASH_PATH)
    assert not (await store.container_head(id)).unreported
    await store.update_rows(0, "a", "c", [ObjectRow("o", Timestamp(3), 5)])
    assert (await store.container_head(id)).unreported
    await store.close()


async def test_a_report_is_noted_with_the_next_change(store: ListingStore) -> None:
    id = id_of(store, "c")
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    await store.note_reported(id, account_row(await store.container_head(id), Timestamp(2)))
    await store.post_container(0, "a", "c", Timestamp(3), {"K": "v"})
    assert await store.read(id, lambda database: (database.head.unreported, database.metadata())) == (False, {"K": "v"})
