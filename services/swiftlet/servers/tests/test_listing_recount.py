"""Totals and set hashes that are not those of their rows: found, put right, and left alone while rows change."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.listing.writer import AnyDb
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ListingQuery, ObjectRow
from swiftlet.servers.containers import listing_recount
from swiftlet.servers.containers.listing_recount import WRONG, Recount
from swiftlet.servers.tests.listing_cluster import ListingCluster, memory_cluster
from swiftlet.timestamp import Timestamp

NAME = DatabaseName("a", "c")
DAMAGES = [
    "DELETE FROM live WHERE name = 'o3'",
    "UPDATE live SET size = size + 1 WHERE name = 'o4'",
    "UPDATE live SET etag = 'other' WHERE name = 'o5'",
    "DELETE FROM marker",
    "UPDATE info SET bytes_used = bytes_used + 7",
    "UPDATE info SET rows_digest = zeroblob(16)",
]


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[ListingCluster]:
    async with memory_cluster(tmp_path, 1) as made:
        [device] = made.devices
        await made.transport.put_container(device, 0, *names(), Timestamp.at(1), {}, 0, 0)
        rows = [ObjectRow(f"o{number}", Timestamp.at(2), number, "e", "t") for number in range(9)]
        gone = ObjectRow("x", Timestamp.at(3), deleted=True)
        await made.transport.update_rows(device, 0, *names(), [*rows, gone])
        yield made


def names() -> tuple[str, str]:
    return NAME.account, NAME.container or ""


def id_in(cluster: ListingCluster) -> DatabaseId:
    return cluster.stores[cluster.devices[0].name].id_of(0, NAME)


def recount(cluster: ListingCluster) -> Recount:
    return Recount(cluster.stores, 3600.0, no_pause)


def damage(cluster: ListingCluster, statement: str) -> None:
    """Change the file as no server does."""
    store = cluster.stores[cluster.devices[0].name]
    [path] = [one for one in store.root.glob(f"{DatabaseKind.CONTAINER.value}/**/*.db") if one.is_file()]
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


async def verify(cluster: ListingCluster) -> None:
    def check(database: AnyDb) -> None:
        database.verify()

    await cluster.stores[cluster.devices[0].name].read(id_in(cluster), check)


@pytest.mark.parametrize("page_rows", [2, 3, 1000])
async def test_what_is_right_is_left_as_it_is(
    cluster: ListingCluster, monkeypatch: pytest.MonkeyPatch, page_rows: int
) -> None:
    monkeypatch.setattr(listing_recount, "PAGE_ROWS", page_rows)
    assert await recount(cluster).run_once() == 0
    await verify(cluster)


@pytest.mark.parametrize("statement", DAMAGES)
async def test_what_was_changed_behind_the_servers_back_is_counted_anew(
    cluster: ListingCluster, statement: str
) -> None:
    damage(cluster, statement)
    before = WRONG._value.get()
    assert await recount(cluster).run_once() == 1
    assert WRONG._value.get() == before + 1
    await verify(cluster)
    assert await recount(cluster).run_once() == 0
    [device] = cluster.devices
    info = await cluster.transport.container_info(device, 0, *names())
    _, page = await cluster.transport.list_objects(device, 0, *names(), ListingQuery())
    rows = [one for one in page if isinstance(one, ObjectRow)]
    assert (info.object_count, info.bytes_used) == (len(rows), sum(one.size for one in rows))


async def test_rows_that_change_meanwhile_are_no_damage(
    cluster: ListingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_recount, "PAGE_ROWS", 2)
    [device], second = cluster.devices, iter(range(10, 1000))

    async def write(_seconds: float) -> None:
        moment = next(second)
        row = ObjectRow(f"o{moment % 9}", Timestamp.at(moment), moment, "e", "t")
        await cluster.transport.update_rows(device, 0, *names(), [row])

    assert await Recount(cluster.stores, 3600.0, write).run_once() == 0
    await verify(cluster)
