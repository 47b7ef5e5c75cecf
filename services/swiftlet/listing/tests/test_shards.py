"""How names are shared out among shards, on real databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.errors import NotEmpty, NotFound
from swiftlet.listing import replica, shards
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseName, ObjectRow, RowsChange
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

at = Timestamp.at
PLACE = (0, "a", "c")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path / "d", HashPath(b"x"))
    await made.put_container(*PLACE, at(1), {}, None, 0)
    yield made
    await made.close()


def id_of(store: ListingStore) -> DatabaseId:
    return store.id_of(0, DatabaseName("a", "c"))


async def fill(store: ListingStore, names: str) -> list[ObjectRow]:
    rows = [ObjectRow(name, at(2), 1) for name in names]
    await store.update_rows(*PLACE, rows)
    return rows


async def split(store: ListingStore, *points: str, second: float = 3) -> None:
    await store.write(id_of(store), lambda db: shards.add_points(db, at(second), points, True))


async def owners(store: ListingStore, names: str) -> list[str]:
    return (await store.read(id_of(store), shards.layout)).owners(list(names))


async def cut(store: ListingStore, names: str, below: str, point: str) -> bool:
    rows = [ObjectRow(name, at(2), 1) for name in reversed(names)]
    return await store.write(id_of(store), lambda db: shards.cut(db, rows, below, point))


async def test_names_change_hands_as_rows_are_cut(store: ListingStore) -> None:
    await fill(store, "abcdefgh")
    assert await owners(store, "") == []
    await split(store, "d")
    assert await owners(store, "adeh") == ["", "", "", ""]
    assert await cut(store, "gh", "f", "d")
    assert await owners(store, "adefgh") == ["", "", "", "", "d", "d"]
    assert not await cut(store, "f", "d", "d")  # There is one more.
    assert await cut(store, "ef", "d", "d")
    found = await store.read(id_of(store), shards.layout)
    assert found.moved
    assert found.shards[1].is_final
    info = await store.container_info(*PLACE)
    assert (info.object_count, info.bytes_used) == (8, 8)
    await store.verify(id_of(store))


async def test_a_row_that_changed_is_not_cut(store: ListingStore) -> None:
    await fill(store, "abc")
    await split(store, "a")
    await store.update_rows(*PLACE, [ObjectRow("c", at(3), 5)])
    assert not await cut(store, "bc", "a", "a")
    await store.update_rows(*PLACE, [ObjectRow("c", at(4), deleted=True)])
    assert not await cut(store, "bc", "a", "a")


async def test_points_that_come_while_rows_are_moved_change_nothing_by_themselves(store: ListingStore) -> None:
    await fill(store, "abcdefgh")
    await split(store, "c")
    assert await cut(store, "gh", "f", "c")
    await split(store, "e", "b", second=4)
    assert await owners(store, "abcdefgh") == ["", "", "", "", "", "", "c", "c"]
    found = await store.read(id_of(store), shards.layout)
    root = found.shards[0]
    assert found.receiver(root, "f").point == "c"
    assert found.receiver(root, "c").point == "b"
    assert await cut(store, "def", "c", "c")
    assert await cut(store, "c", "b", "b")
    assert await owners(store, "abcdefgh") == ["", "", "b", "c", "c", "c", "c", "c"]
    found = await store.read(id_of(store), shards.layout)
    source = next(shard for shard in found.shards if not shard.moved)
    assert (source.point, source.end) == ("c", "e")
    assert found.receiver(source, "h").point == "e"


async def test_a_replica_without_rows_has_moved_everything(store: ListingStore) -> None:
    await split(store, "d")
    assert await owners(store, "aez") == ["", "d", "d"]
    assert (await store.read(id_of(store), shards.layout)).moved


async def test_points_outlive_a_deletion_and_metadata_does_not(store: ListingStore) -> None:
    await store.post_container(*PLACE, at(2), {"X-A": "1"})
    await split(store, "d")
    assert (await store.container_info(*PLACE)).metadata == {"X-A": "1"}
    await store.delete_container(*PLACE, at(9))
    with pytest.raises(NotFound):
        await split(store, "k")
    await store.put_container(*PLACE, at(10), {}, None, 0)
    assert (await store.container_info(*PLACE)).metadata == {}
    assert await owners(store, "ae") == ["", "d"]


async def test_what_is_in_a_shard_keeps_a_container_or_brings_it_back(store: ListingStore) -> None:
    await split(store, "d")
    await store.write(id_of(store), lambda db: shards.note(db, "d", RowsChange(1, 5, 1, 5)))
    with pytest.raises(NotEmpty):
        await store.delete_container(*PLACE, at(9))
    await store.write(id_of(store), lambda db: shards.note(db, "d", RowsChange(0, 0, -1, -5)))
    await store.delete_container(*PLACE, at(9))
    await store.write(id_of(store), lambda db: shards.note(db, "d", RowsChange(1, 5, 1, 5)))
    assert (await store.container_info(*PLACE)).object_count == 1


async def test_replicas_tell_each_other_points(store: ListingStore, tmp_path: Path) -> None:
    await fill(store, "abcdefgh")
    await split(store, "d")
    other = ListingStore(tmp_path / "e", HashPath(b"x"))
    state = await replica.state_of(store, id_of(store))
    await replica.merge_state(other, id_of(store), state)
    assert (await other.read(id_of(store), shards.layout)).moved
    assert (await replica.state_of(other, id_of(store))).metadata == state.metadata
    await other.close()


async def test_a_middle_is_short_and_parts_the_rows(store: ListingStore) -> None:
    rows = [ObjectRow(f"some/long/path/{n:04}/and/more", at(2), 1) for n in range(0, 1000, 100)]
    await store.update_rows(*PLACE, rows)
    middle = await store.read(id_of(store), lambda db: shards.middle_of(db, None))
    assert middle == "some/long/path/05"
    assert sum(row.name > middle for row in rows) == 5


async def test_there_is_an_end_of_points(store: ListingStore) -> None:
    await split(store, *(f"{n:05}" for n in range(shards.MAX_POINTS + 5)))
    await split(store, "x", second=5)
    assert len(await store.read(id_of(store), lambda db: db.points())) == shards.MAX_POINTS
