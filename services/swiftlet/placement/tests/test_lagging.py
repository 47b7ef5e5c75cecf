"""Who wrote sees it at once, although a replica of the database was slow or away meanwhile."""

from __future__ import annotations

from itertools import permutations

import pytest

from swiftlet.model import ListingQuery
from swiftlet.placement.rows import lagging
from swiftlet.placement.rows.lagging import Lagging
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, reading_order
from swiftlet.testing.storage.memory_listing import Fault


@pytest.mark.parametrize("away", range(3))
async def test_an_object_is_listed_once_it_is_written(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    with cluster.databases_down(cluster.container_devices()[away], fault=Fault.TIMEOUT_BEFORE):
        await cluster.put(2)
    for order in permutations(cluster.container_devices()):
        reading_order(monkeypatch, *order)
        _, rows = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
        assert [row.name for row in rows] == ["o"]
        assert (await cluster.listings.container_info(ACCOUNT, CONTAINER)).object_count == 1


async def test_metadata_is_seen_once_it_is_written(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = cluster.container_devices()
    with cluster.databases_down(first):
        await cluster.listings.post_container(ACCOUNT, CONTAINER, at(5), {"A": "5"})
    reading_order(monkeypatch, first, second, third)
    assert (await cluster.listings.container_info(ACCOUNT, CONTAINER)).metadata == {"A": "5"}
    # It has its own to say when nobody else answers.
    with cluster.databases_down(second, third):
        assert (await cluster.listings.container_info(ACCOUNT, CONTAINER)).metadata == {}


def test_what_lagged_is_forgotten_after_a_while_and_in_time(
    monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster
) -> None:
    now = [100.0]
    known = Lagging(60.0, lambda: now[0])
    first, second, _ = cluster.container_devices()
    known.missed("/a/c", [first])
    now[0] += 40
    known.missed("/a/c", [second])
    known.missed("/a/d", [])
    assert set(known.behind("/a/c")) == {first.id, second.id}
    assert set(known.behind("/a/d")) == set()
    now[0] += 40
    assert set(known.behind("/a/c")) == {second.id}
    now[0] += 40
    assert set(known.behind("/a/c")) == set()
    monkeypatch.setattr(lagging, "MAX_PATHS", 3)
    for number in range(10):
        known.missed(f"/a/{number}", [first])
    assert [number for number in range(10) if known.behind(f"/a/{number}")] == [7, 8, 9]
