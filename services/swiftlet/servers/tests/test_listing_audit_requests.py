"""The two requests to container servers that the audit adds, in process and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.errors import NotFound
from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseName, ObjectRow
from swiftlet.servers.tests.listing_cluster import ListingCluster, http_cluster, memory_cluster
from swiftlet.timestamp import Timestamp

NAME = DatabaseName("a", "c")


@pytest.fixture(params=[memory_cluster, http_cluster])
async def cluster(tmp_path: Directory, request: Any) -> AsyncIterator[ListingCluster]:
    """One device, in process or behind a server."""
    async with request.param(tmp_path, 1) as made:
        yield made


def row(name: str, second: float, size: int = 3) -> ObjectRow:
    """A row."""
    return ObjectRow(name, Timestamp.at(second), size, "e" * 32, "text/plain")


async def test_rows_are_found_and_replaced_where_they_are_as_expected(cluster: ListingCluster) -> None:
    [device], transport = cluster.devices, cluster.transport
    id = cluster.stores[device.name].id_of(0, NAME)
    with pytest.raises(NotFound):
        await transport.find_rows(device, id, ["x"])
    with pytest.raises(NotFound):
        await transport.replace_rows(device, id, [(row("x", 1), row("x", 2))])
    await transport.put_container(device, 0, "a", "c", Timestamp.at(1), {}, 0, 0)
    gone = ObjectRow("y", Timestamp.at(2), deleted=True)
    await transport.update_rows(device, 0, "a", "c", [row("x", 2), gone, row("z", 2)])
    found, point = await transport.find_rows(device, id, ["x", "y", "missing"])
    assert (sorted(found, key=lambda one: one.name), point) == ([row("x", 2), gone], "")
    posted = replace(row("x", 1, 9), meta_timestamp=Timestamp.at(5))
    changes = [(row("x", 2), posted), (gone, row("y", 1, 4)), (row("z", 3), row("z", 1))]
    assert await transport.replace_rows(device, id, changes) == 2
    found, _ = await transport.find_rows(device, id, ["x", "y", "z"])
    assert sorted(found, key=lambda one: one.name) == [posted, row("y", 1, 4), row("z", 2)]
    info = await transport.container_info(device, 0, "a", "c")
    assert (info.object_count, info.bytes_used) == (3, 16)
    await cluster.stores[device.name].read(id, lambda database: database.verify())


async def test_rows_and_markers_of_a_shard_are_found(cluster: ListingCluster) -> None:
    """A shard's database was never PUT: it has to be there, and no more."""
    [device], transport = cluster.devices, cluster.transport
    shard = shard_name(NAME, "m")
    id = cluster.stores[device.name].id_of(0, shard)
    with pytest.raises(NotFound):
        await transport.find_rows(device, id, ["x"])
    gone = ObjectRow("y", Timestamp.at(2), deleted=True)
    await transport.merge_rows(device, id, shard, [row("x", 2), gone])
    found, point = await transport.find_rows(device, id, ["x", "y", "missing"])
    assert (sorted(found, key=lambda one: one.name), point) == ([row("x", 2), gone], "")
