"""Replicas of listing databases become equal again."""

from __future__ import annotations

import random
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from swiftlet.errors import NotFound
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.model import ContainerRow, DatabaseId, DatabaseKind, DatabaseName, ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.servers.containers.listing_upkeep import ListingUpkeep
from swiftlet.servers.tests.database_rounds import Rounds
from swiftlet.servers.tests.listing_cluster import (
    HASH_PATH,
    ListingCluster,
    http_cluster,
    memory_cluster,
)
from swiftlet.sync.databases.patience import Limits
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.timestamp import ZERO, Timestamp

at = Timestamp.at


@pytest.fixture(params=["memory", "http"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListingCluster]:
    make = memory_cluster if request.param == "memory" else http_cluster
    async with make(tmp_path, 4) as made:
        yield made


def stores(cluster: ListingCluster) -> list[ListingStore]:
    return [cluster.stores[device.name] for device in cluster.devices]


def syncs(cluster: ListingCluster, holders: Sequence[int] = (0, 1, 2)) -> list[Rounds]:
    """One per device; all databases belong on `holders`."""
    ring = Ring(1, 1, len(holders), cluster.devices, [array("H", [holder, holder]) for holder in holders])
    return [Rounds(cluster.transport, device, lambda: ring) for device in cluster.devices]


async def converge(cluster: ListingCluster, rounds: int = 2) -> None:
    for _ in range(rounds):
        for sync in syncs(cluster):
            await sync.run_once()


def container_id() -> DatabaseId:
    return DatabaseId(DatabaseKind.CONTAINER, 0, HASH_PATH("a", "c"))


async def assert_equal(cluster: ListingCluster, id: DatabaseId) -> None:
    prints = [await store.fingerprint(id) for store in stores(cluster)[:3]]
    assert prints[0] == prints[1] == prints[2]
    for store in stores(cluster)[:3]:
        await store.verify(id)


async def test_replicas_that_heard_different_things(cluster: ListingCluster) -> None:
    randomness = random.Random(1)
    for index, store in enumerate(stores(cluster)[:3]):
        await store.put_container(0, "a", "c", at(1), {"A": "b"}, None, 1)
        rows = [
            ObjectRow(f"{n:04}", at(2 + index), n, deleted=randomness.random() < 0.2)
            for n in range(1500)
            if randomness.random() < 0.7
        ]
        await store.update_rows(0, "a", "c", rows)
        await store.post_container(0, "a", "c", at(3 + index), {f"X-{index}": "1", "A": str(index)})
    await converge(cluster)
    await assert_equal(cluster, container_id())
    info = await stores(cluster)[0].container_info(0, "a", "c")
    assert info.metadata == {"A": "2", "X-0": "1", "X-1": "1", "X-2": "1"}
    assert await syncs(cluster)[0].run_once() == 0


async def test_a_primary_that_lacks_it_gets_it(cluster: ListingCluster) -> None:
    await stores(cluster)[1].put_container(0, "a", "c", at(1), {"A": "b"}, 3, 0)
    await stores(cluster)[1].update_rows(0, "a", "c", [ObjectRow("o", at(2), 5)])
    await stores(cluster)[2].update_containers(1, "a", [ContainerRow("c", at(1), ZERO, 1, 5, 3, at(2))])
    await converge(cluster, 1)
    await assert_equal(cluster, container_id())
    for store in stores(cluster)[:3]:
        assert (await store.container_info(0, "a", "c")).policy == 3
        assert (await store.account_info(1, "a")).bytes_used == 5
    with pytest.raises(NotFound):
        await stores(cluster)[3].container_info(0, "a", "c")


async def test_a_handoff_goes_home(cluster: ListingCluster) -> None:
    await stores(cluster)[3].put_container(0, "a", "c", at(1), {"A": "b"}, None, 0)
    await stores(cluster)[3].update_rows(0, "a", "c", [ObjectRow(f"{n}", at(2), 1) for n in range(700)])
    await stores(cluster)[0].put_container(0, "a", "c", at(1.5), {}, None, 0)
    await stores(cluster)[0].update_rows(0, "a", "c", [ObjectRow("5", at(3), 2), ObjectRow("x", at(3), 2)])
    await syncs(cluster)[3].run_once()
    assert await stores(cluster)[3].databases(DatabaseKind.CONTAINER, 0) == []
    assert (await stores(cluster)[0].container_info(0, "a", "c")).object_count == 701
    await converge(cluster)
    await assert_equal(cluster, container_id())


async def test_a_deletion_spreads(cluster: ListingCluster) -> None:
    for store in stores(cluster)[:3]:
        await store.put_container(0, "a", "c", at(1), {"A": "b"}, None, 0)
    await stores(cluster)[0].delete_container(0, "a", "c", at(5))
    await converge(cluster, 1)
    for store in stores(cluster)[:3]:
        with pytest.raises(NotFound):
            await store.container_info(0, "a", "c")
    upkeep = ListingUpkeep({"d": stores(cluster)[0]}, 100.0, lambda: 10_000.0)
    await upkeep.run_once()
    assert await stores(cluster)[0].databases(DatabaseKind.CONTAINER, 0) == [container_id()], "the account is not told"


async def test_a_damaged_replica_comes_back(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        for store in stores(cluster)[:3]:
            await store.put_container(0, "a", "c", at(1), {"A": "b"}, None, 0)
            await store.update_rows(0, "a", "c", [ObjectRow(f"{n:05}", at(2), 1) for n in range(400)])
        name = cluster.devices[1].name
        broken = cluster.stores[name]
        await broken.close()
        path = database_path(broken.root, container_id())
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40960)
        cluster.stores[name] = ListingStore(broken.root, HASH_PATH)
        await converge(cluster)
        await assert_equal(cluster, container_id())


async def test_what_was_reclaimed_does_not_come_back(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        for store in stores(cluster)[:3]:
            await store.put_container(0, "a", "c", at(1), {"Gone": "", "Color": "blue"}, None, 0)
            await store.update_rows(0, "a", "c", [ObjectRow("o", at(2), deleted=True), ObjectRow("p", at(2))])
        returning = stores(cluster)[2]
        await returning.update_rows(0, "a", "c", [ObjectRow("p", at(3), deleted=True)])
        forgetful = ListingUpkeep({"d": stores(cluster)[0]}, 100.0, lambda: 10_000.0)
        assert await forgetful.run_once() == 2
        await syncs(cluster)[1].run_once()
        held = await stores(cluster)[0].read(container_id(), lambda database: (database.find("o"), database.items()))
        assert held[0] is None
        assert "Gone" not in held[1]
        await converge(cluster)
        assert (await stores(cluster)[0].container_info(0, "a", "c")).object_count == 0, "a live row has to go"
        for store in stores(cluster)[:3]:
            await ListingUpkeep({"d": store}, 100.0, lambda: 10_000.0).run_once()
        await assert_equal(cluster, container_id())


async def test_an_absent_peer_holds_nobody_up(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        assert isinstance(cluster.transport, MemoryListingTransport)
        await stores(cluster)[3].put_container(0, "a", "c", at(1), {}, None, 0)
        cluster.transport.faults["device-1"] = Fault.UNREACHABLE
        assert await syncs(cluster)[3].run_once() == 1
        assert await stores(cluster)[3].databases(DatabaseKind.CONTAINER, 0) == [container_id()]
        assert (await stores(cluster)[2].container_info(0, "a", "c")).object_count == 0
        cluster.transport.faults["device-1"] = Fault.TIMEOUT_AFTER
        assert await syncs(cluster)[3].run_once() == 1
        cluster.transport.faults.clear()
        assert await syncs(cluster)[3].run_once() == 0
        assert await stores(cluster)[3].databases(DatabaseKind.CONTAINER, 0) == []


async def test_another_hash_secret_is_refused(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        name = cluster.devices[1].name
        other = cluster.stores[name]
        await other.close()
        cluster.stores[name] = ListingStore(other.root, HashPath(b"another"))
        await stores(cluster)[0].put_container(0, "a", "c", at(1), {}, None, 0)
        assert await syncs(cluster)[0].run_once() == 1
        assert await stores(cluster)[1].databases(DatabaseKind.CONTAINER, 0) == []


async def test_what_took_long_rests(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        await stores(cluster)[0].put_container(0, "a", "c", at(1), {}, None, 0)
        ring = Ring(1, 1, 2, cluster.devices, [array("H", [holder, holder]) for holder in (0, 1)])
        now_s = [0.0]
        limits = Limits(quiet_s=0.0, effort=1e-9, rest_s=1.0)
        sync = Rounds(cluster.transport, cluster.devices[0], lambda: ring, limits=limits, clock=lambda: now_s[0])
        assert await sync.run_once() == 0
        await stores(cluster)[0].post_container(0, "a", "c", at(2), {"A": "b"})
        for _ in range(3):
            await sync.run_once()
            assert sync.last.pulled == 0
        now_s[0] = 1e9
        await sync.run_once()
        assert sync.last.pulled == 1


async def test_a_restless_container_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        for store in stores(cluster)[:3]:
            await store.put_container(0, "a", "c", at(1), {}, None, 0)
        id = stores(cluster)[0].id_of(0, DatabaseName("a", "c"))
        ring = Ring(1, 1, 3, cluster.devices, [array("H", [holder, holder]) for holder in (0, 1, 2)])
        now_s = [0.0]
        sync = Rounds(cluster.transport, cluster.devices[0], lambda: ring, limits=Limits(), clock=lambda: now_s[0])
        assert await sync.run_once() == 0
        for second in range(2, 7):
            for store in stores(cluster)[1:3]:
                await store.post_container(0, "a", "c", at(second), {"A": str(second)})
            now_s[0] += 5
            await sync.run_once()
            assert sync.last.pulled == 0, "it changes from round to round"
        now_s[0] += 5
        await sync.run_once()
        assert await stores(cluster)[1].fingerprint(id) == await stores(cluster)[0].fingerprint(id)
