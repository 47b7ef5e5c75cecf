"""Rounds of databases with container servers of the version before, which know no questions of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from swiftlet.errors import NodeError
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseState, ObjectRow
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.storage.tests.database_rounds import Rounds
from swiftlet.storage.tests.listing_cluster import HASH_PATH, ListingCluster, memory_cluster
from swiftlet.storage.tests.test_listing_standing import NOW_S, fill, ring_of
from swiftlet.sync.databases.entries import POLICIES
from swiftlet.sync.questions import OLDER
from swiftlet.timestamp import Timestamp

at = Timestamp.at


class Mixed(MemoryListingTransport):
    """Some devices have servers of the version before."""

    older: frozenset[int] = frozenset()

    def _known(self, device: Device) -> None:
        if device.id in self.older:
            raise NodeError("WireError: 'session' is not a valid DatabaseKind")

    async def ask_sync(self, device: Device, message: bytes) -> bytes:
        self._known(device)
        return await super().ask_sync(device, message)

    async def held_partitions(self, device: Device, kind: DatabaseKind) -> Sequence[int]:
        self._known(device)
        return await super().held_partitions(device, kind)

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        self._known(device)
        return await super().database_state(device, id)

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> Sequence[tuple[str, bytes]]:
        self._known(device)
        return await super().page_digests(device, id, after, upto)


def mixed(cluster: ListingCluster, *older: int) -> Mixed:
    transport = Mixed(cluster.stores)
    transport.older = frozenset(older)
    return transport


def rounds(cluster: ListingCluster, transport: Mixed, index: int, ring: Ring) -> Rounds:
    return Rounds(transport, cluster.devices[index], lambda: ring, now_s=lambda: NOW_S)


async def test_equal_ones_are_proved_and_the_device_is_in_sync(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        transport, ring = mixed(cluster, 1, 2), ring_of(cluster, 1)
        for store in list(cluster.stores.values())[:3]:
            await fill(store)
        before = OLDER.labels("questions")._value.get()
        worker = rounds(cluster, transport, 0, ring)
        assert await worker.run_once() == 0
        assert worker.last.clean
        assert OLDER.labels("questions")._value.get() == before + 2, "once a round and server"
        assert worker.report(cluster.devices[0])["container"]["syncedAt"] == NOW_S


@pytest.mark.parametrize("policy", POLICIES.values())
async def test_what_differs_or_is_not_there_is_brought(tmp_path: Path, policy: int) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        transport, ring = mixed(cluster, 1, 2), ring_of(cluster, 1)
        stores = list(cluster.stores.values())
        await fill(stores[0])
        await stores[1].put_container(0, "a", "c0", at(1), {}, None, 1)
        await stores[1].update_rows(0, "a", "c0", [ObjectRow(f"more-{n:04}", at(3), 1) for n in range(1200)])
        worker = rounds(cluster, transport, 0, ring)
        for _ in range(2):
            assert await worker.run_once() == 0
        for store in stores[:3]:
            assert (await store.container_info(0, "a", "c0")).object_count == 1203
            assert (await store.container_info(1, "a", "c1")).object_count == 3
            assert (await store.account_info(1, "a")).container_count == 1
        assert (await worker.replicator.run_round([policy])).clean


async def test_what_only_an_older_server_has_counts_as_lacking_until_it_brings_it(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        transport, ring = mixed(cluster, 1), ring_of(cluster, 1)
        stores = list(cluster.stores.values())
        await fill(stores[1])
        worker = rounds(cluster, transport, 0, ring)
        await worker.run_once()
        report = worker.report(cluster.devices[0])["container"]
        assert (report["behind"], report["syncedAt"]) == (5, None)
        # Its own rounds bring it, by requests that are answered as ever.
        for number in range(5):
            id = stores[1].id_of(number % 2, await name_of(cluster, number))
            state = await stores[1].read(id, lambda database: database.state())
            await transport.exchange_state(cluster.devices[0], id, state)
        await fill(stores[0])
        await worker.run_once()
        assert worker.report(cluster.devices[0])["container"]["behind"] == 0


async def name_of(cluster: ListingCluster, number: int):  # type: ignore[no-untyped-def]
    digest = HASH_PATH("a", f"c{number}")
    id = DatabaseId(DatabaseKind.CONTAINER, number % 2, digest)
    return (await cluster.stores["device-1"].read(id, lambda database: database.state())).name


async def test_a_handoff_goes_home_to_older_servers_once_all_have_it(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, 4) as cluster:
        transport, ring = mixed(cluster, 0, 1, 2), ring_of(cluster, 1)
        stores = list(cluster.stores.values())
        await fill(stores[3])
        transport.faults["device-1"] = Fault.UNREACHABLE
        worker = rounds(cluster, transport, 3, ring)
        await worker.run_once()
        assert len(await stores[3].databases(DatabaseKind.CONTAINER, 0)) == 3
        transport.faults.clear()
        for _ in range(20):
            await worker.run_once()
            if not worker.last.skipped:
                break
        assert await stores[3].databases(DatabaseKind.CONTAINER, 0) == []
        for store in stores[:3]:
            assert (await store.container_info(0, "a", "c0")).object_count == 3
