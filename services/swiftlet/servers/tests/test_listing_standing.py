"""How devices of databases stand in their rings, as rounds of sync find it."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import DeviceFailed, DiskFull, NotFound
from swiftlet.listing import replica
from swiftlet.listing.pool import ListingStore
from swiftlet.model import ContainerRow, DatabaseId, DatabaseKind, DatabaseState, ObjectRow
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.listing_upkeep import ListingUpkeep
from swiftlet.servers.tests.database_rounds import Rounds
from swiftlet.servers.tests.listing_cluster import ListingCluster, http_cluster, memory_cluster
from swiftlet.sync.databases.patience import GRACE_S, IMPATIENT, Limits
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.timestamp import ZERO, Timestamp

at = Timestamp.at
NOW_S = 1_000_000.0


@pytest.fixture(params=["memory", "http"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ListingCluster]:
    make = memory_cluster if request.param == "memory" else http_cluster
    async with make(tmp_path, 4) as made:
        yield made


class Server:
    """One device with its sync, under a ring that can be exchanged."""

    def __init__(self, cluster: ListingCluster, index: int, limits: Limits = IMPATIENT) -> None:
        self.device = cluster.devices[index]
        self.store: ListingStore = cluster.stores[self.device.name]
        self.ring = ring_of(cluster, 1)
        self.now_s = NOW_S
        self.clock_s = 0.0
        self.sync = Rounds(
            cluster.transport,
            self.device,
            lambda: self.ring,
            limits=limits,
            now_s=lambda: self.now_s,
            clock=lambda: self.clock_s,
        )

    async def round(self) -> dict[str, dict[str, Any]]:
        """A round; what it says of its device, without what is 0."""
        self.now_s += 1
        self.clock_s += 1
        await self.sync.run_once()
        return self.report

    @property
    def report(self) -> dict[str, dict[str, Any]]:
        rings = self.sync.report(self.device)
        return {ring: {name: value for name, value in fields.items() if value} for ring, fields in rings.items()}


def ring_of(cluster: ListingCluster, version: int, holders: Sequence[int] = (0, 1, 2)) -> Ring:
    """A ring of two partitions, both on `holders`; the others have no weight."""
    devices = [replace(d, weight=1.0 if d.id in holders else 0.0) for d in cluster.devices]
    return Ring(version, 1, len(holders), devices, [array("H", [holder, holder]) for holder in holders])


async def all_of(store: ListingStore) -> list[DatabaseId]:
    """Every database on a device."""
    return [
        id
        for kind in DatabaseKind
        for partition in await store.partitions(kind)
        for id in await store.databases(kind, partition)
    ]


async def fill(store: ListingStore, containers: int = 5, rows: int = 3) -> None:
    for number in range(containers):
        await store.put_container(number % 2, "a", f"c{number}", at(1), {"A": "b"}, None, 1)
        await store.update_rows(number % 2, "a", f"c{number}", [ObjectRow(f"o{n}", at(2), n) for n in range(rows)])
    await store.update_containers(1, "a", [ContainerRow("c0", at(1), ZERO, 1, 5, 3, at(2))])


async def test_a_device_that_was_away_says_what_it_lacks_until_it_has_it(cluster: ListingCluster) -> None:
    servers = [Server(cluster, index) for index in range(3)]
    for server in servers[:2]:
        await fill(server.store)
    away = servers[2]
    await away.store.put_container(0, "a", "c0", at(1), {}, None, 1)
    report = await away.round()
    assert report["container"] == {"held": 2, "syncedAt": NOW_S + 1, "ringVersion": 1}
    assert report["account"] == {"held": 1, "syncedAt": NOW_S + 1, "ringVersion": 1}
    assert len(await all_of(away.store)) == 6


async def test_what_can_not_be_brought_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        servers = [Server(cluster, index) for index in range(3)]
        for server in servers[:2]:
            await fill(server.store)
        away = servers[2]
        await away.store.put_container(0, "a", "c0", at(1), {}, None, 1)
        merge = cluster.transport.exchange_state

        async def full(device: Device, id: DatabaseId, state: DatabaseState) -> DatabaseState:
            if device.id == away.device.id:
                raise DiskFull("device-2 is at its reserve")
            return await merge(device, id, state)

        monkeypatch.setattr(cluster.transport, "exchange_state", full)
        report = await away.round()
        assert report["container"] == {"held": 1, "behind": 5, "ringVersion": 1}, "the one that differs as well"
        assert report["account"] == {"behind": 1, "emptySince": NOW_S + 1, "ringVersion": 1}
        monkeypatch.undo()
        report = await away.round()
        assert report["container"] == {"held": 2, "syncedAt": NOW_S + 2, "ringVersion": 1}


async def test_a_drained_device_gives_everything_home_and_ends_with_nothing(cluster: ListingCluster) -> None:
    servers = [Server(cluster, index) for index in range(4)]
    for server in servers:
        server.ring = ring_of(cluster, 1, (1, 2, 3))
    drained = servers[3]
    await fill(drained.store)
    await fill(servers[1].store, containers=2)
    await drained.store.put_container(0, "a", "gone", at(1), {}, None, 1)
    await drained.store.delete_container(0, "a", "gone", at(2))
    for server in (*servers[1:], drained):
        await server.round()
    assert drained.report["container"]["held"] == 2
    assert drained.report["container"]["syncedAt"]
    for server in servers:
        server.ring = ring_of(cluster, 2, (0, 1, 2))
    await drained.store.update_rows(0, "a", "c0", [ObjectRow("late", at(9), 1)])
    report = await drained.round()
    nothing = {"syncedAt": drained.now_s, "emptySince": drained.now_s, "ringVersion": 2}
    assert report == {"account": nothing, "container": nothing}
    assert await all_of(drained.store) == []
    for server in servers[:3]:
        assert (await server.store.container_info(0, "a", "c0")).object_count == 4
        with pytest.raises(NotFound):
            await server.store.container_info(0, "a", "gone")
        report = await server.round()
        assert report["container"] == {"held": 2, "syncedAt": server.now_s, "ringVersion": 2}
    assert (await drained.round())["container"] == {**nothing, "syncedAt": drained.now_s}


async def test_a_drained_device_waits_for_a_peer_that_is_away(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        assert isinstance(cluster.transport, MemoryListingTransport)
        drained = Server(cluster, 3)
        await fill(drained.store)
        cluster.transport.faults["device-1"] = Fault.UNREACHABLE
        report = await drained.round()
        assert report["container"] == {"held": 2, "misplaced": 2, "unchecked": 2, "ringVersion": 1}
        cluster.transport.faults.clear()
        nothing = {"syncedAt": NOW_S + 2, "emptySince": NOW_S + 2, "ringVersion": 1}
        assert (await drained.round())["container"] == nothing


async def test_a_deleted_database_that_all_have_forgotten_keeps_no_device_from_being_empty(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        for index in range(3):
            await ListingUpkeep({"d": Server(cluster, index).store}, 100.0, lambda: 10_000.0).run_once()
        drained = Server(cluster, 3)
        await drained.store.put_container(0, "a", "c", at(1), {}, None, 0)
        await drained.store.delete_container(0, "a", "c", at(2))
        nothing = {"syncedAt": NOW_S + 1, "emptySince": NOW_S + 1, "ringVersion": 1}
        assert (await drained.round())["container"] == nothing
        assert await all_of(drained.store) == []


async def test_who_can_not_be_asked_leaves_partitions_unchecked(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        assert isinstance(cluster.transport, MemoryListingTransport)
        server = Server(cluster, 0)
        cluster.transport.faults["device-1"] = Fault.BUSY
        assert (await server.round())["container"] == {"unchecked": 2, "emptySince": NOW_S + 1, "ringVersion": 1}
        cluster.transport.faults.clear()
        in_sync = {"syncedAt": NOW_S + 2, "emptySince": NOW_S + 1, "ringVersion": 1}
        assert (await server.round())["container"] == in_sync


async def test_a_container_in_use_is_not_behind_for_a_while(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        servers = [Server(cluster, index, Limits(patience_s=1e9)) for index in range(3)]
        for server in servers:
            await fill(server.store, containers=1)
        first = servers[0]
        assert (await first.round())["container"]["syncedAt"] == first.now_s
        for second in range(3, 8):
            await write(servers[1:], second)
            assert (await first.round())["container"]["syncedAt"] == first.now_s
        first.clock_s += GRACE_S
        await write(servers[1:], 9)
        assert (await first.round())["container"]["behind"] == 1
        first.clock_s += 10
        await first.round()
        assert first.report["container"] == {"held": 1, "syncedAt": first.now_s, "ringVersion": 1}
        assert (await first.store.container_info(0, "a", "c0")).object_count == 4


async def write(servers: Sequence[Server], second: int) -> None:
    """A row that only these hear of."""
    for server in servers:
        await server.store.update_rows(0, "a", "c0", [ObjectRow("o", at(second), 1)])


async def test_a_container_that_was_never_equal_is_not_left_alone(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        first, second = Server(cluster, 0, Limits()), Server(cluster, 1)
        await fill(second.store, containers=1)
        await first.store.put_container(0, "a", "c0", at(1), {}, None, 0)
        await first.round()
        assert (await first.store.container_info(0, "a", "c0")).object_count == 3


async def test_what_a_peer_holds_comes_in_pages(cluster: ListingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "PAGE_DATABASES", 2)
    servers = [Server(cluster, index) for index in range(2)]
    await fill(servers[1].store, containers=7)
    found: list[DatabaseId] = []
    more = True
    while more:
        after = found[-1] if found else None
        page, more = await cluster.transport.databases(servers[1].device, DatabaseKind.CONTAINER, after)
        assert len(page) <= 2
        found += page
    assert len(found) == 7
    assert found == sorted(set(found), key=lambda id: (id.partition, id.digest))


async def test_a_device_that_fails_is_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        server = Server(cluster, 0)
        await server.round()

        def failing() -> None:
            raise DeviceFailed("input/output error")

        monkeypatch.setattr(server.store, "require", failing)
        report = await server.round()
        assert report["container"] == {"unchecked": 2, "syncedAt": NOW_S + 1, "ringVersion": 1}
