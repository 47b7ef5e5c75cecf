"""Containers' totals reach their accounts: at once, later, and after a restart."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from swiftlet.errors import NodeBusy, NotFound
from swiftlet.model import AccountInfo, ContainerRow, DatabaseId, DatabaseName, ObjectRow
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.account_reports import AccountReporter, ReportSettings, paired
from swiftlet.servers.tests.listing_cluster import HASH_PATH, ListingCluster, device, memory_cluster
from swiftlet.testing.storage.memory_listing import Fault, MemoryListingTransport
from swiftlet.timestamp import Timestamp, TimestampClock

FAST = ReportSettings(interval_s=0.01, wait_s=10.0, max_pause_s=0.02, scan_pause_s=0.0)


def ring(devices: list[Device], holders: list[int]) -> Ring:
    """Two partitions, both on the same holders."""
    return Ring(1, 1, len(holders), devices, [array("H", [holder, holder]) for holder in holders])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListingCluster]:
    async with memory_cluster(tmp_path, 3) as made:
        yield made


class Setup:
    """Container on devices 0 and 1, account on 1 and 2; a reporter on device 0."""

    def __init__(self, cluster: ListingCluster, settings: ReportSettings = FAST) -> None:
        self.cluster = cluster
        self.store = cluster.stores["device-0"]
        self.accounts, self.containers = ring(cluster.devices, [1, 2]), ring(cluster.devices, [0, 1])
        self.partition = self.containers.partition_of(HASH_PATH("a", "c"))
        self.account_partition = self.accounts.partition_of(HASH_PATH("a"))
        self.id: DatabaseId = self.store.id_of(self.partition, DatabaseName("a", "c"))
        self.reporter = AccountReporter(
            {"d0": self.store},
            lambda: self.accounts,
            lambda: self.containers,
            cluster.transport,
            HASH_PATH,
            lambda device: device.id == 0,
            TimestampClock(),
            settings,
        )

    async def put(self) -> None:
        await self.store.put_container(self.partition, "a", "c", Timestamp.at(1), {}, None, 0)

    async def write(self, name: str, size: int) -> None:
        await self.store.update_rows(self.partition, "a", "c", [ObjectRow(name, Timestamp.at(2), size)])

    async def account(self, device: str = "device-1") -> AccountInfo:
        return await self.cluster.stores[device].account_info(self.account_partition, "a")

    async def until(self, condition: Callable[[AccountInfo], bool]) -> None:
        async with asyncio.timeout(10):
            while True:
                try:
                    if condition(await self.account()):
                        return
                except NotFound:
                    pass
                await asyncio.sleep(0.005)

    @property
    def faults(self) -> dict[str, Fault]:
        assert isinstance(self.cluster.transport, MemoryListingTransport)
        return self.cluster.transport.faults  # type: ignore[return-value]


async def test_at_once_to_the_paired_replica_only(cluster: ListingCluster) -> None:
    setup = Setup(cluster)
    await setup.put()
    await setup.reporter.report_now("d0", setup.id)
    assert (await setup.account()).container_count == 1
    with pytest.raises(NotFound):
        await setup.account("device-2")
    await setup.reporter.stop()


async def test_changes_follow_and_deletions_too(cluster: ListingCluster) -> None:
    setup = Setup(cluster)
    setup.reporter.start()
    await setup.put()
    await setup.write("o", 7)
    await setup.until(lambda info: (info.object_count, info.bytes_used) == (1, 7))
    await setup.store.update_rows(setup.partition, "a", "c", [ObjectRow("o", Timestamp.at(3), deleted=True)])
    await setup.store.delete_container(setup.partition, "a", "c", Timestamp.at(4))
    await setup.until(lambda info: info.container_count == 0)
    await setup.reporter.stop()


async def test_a_dead_account_node_is_told_later(cluster: ListingCluster) -> None:
    setup = Setup(cluster)
    setup.faults["device-1"] = Fault.UNREACHABLE
    setup.reporter.start()
    await setup.put()
    await setup.reporter.report_now("d0", setup.id)
    await setup.write("o", 7)
    await asyncio.sleep(0.05)
    setup.faults.clear()
    await setup.until(lambda info: info.bytes_used == 7)
    await setup.reporter.stop()


async def test_a_pending_report_survives_a_restart(cluster: ListingCluster) -> None:
    setup = Setup(cluster)
    await setup.put()
    await setup.write("o", 7)
    again = Setup(cluster)
    again.reporter.start()
    await again.until(lambda info: info.bytes_used == 7)
    await again.reporter.stop()
    assert await again.reporter.run_once() == 0


async def test_a_handoff_reports_to_all(cluster: ListingCluster) -> None:
    setup = Setup(cluster)
    setup.containers = ring(cluster.devices, [1, 2])
    await setup.put()
    assert await setup.reporter.run_once() == 0
    assert (await setup.account("device-1")).container_count == 1
    assert (await setup.account("device-2")).container_count == 1


@pytest.mark.parametrize(("containers", "accounts"), [(3, 3), (3, 2), (2, 5), (1, 3), (4, 1)])
def test_pairs_cover_all_accounts(containers: int, accounts: int) -> None:
    devices = [device(id) for id in range(accounts)]
    told = [paired(devices, index, containers) for index in range(containers)]
    assert all(told)
    assert {d.id for devices in told for d in devices} == set(range(accounts))


async def test_reports_of_many_containers_go_together(cluster: ListingCluster) -> None:
    """While one is under way the others wait, and each is told of its own end."""
    setup = Setup(cluster)
    transport = cluster.transport
    names = [f"c{number}" for number in range(30)]
    ids = []
    for name in names:
        partition = setup.containers.partition_of(HASH_PATH("a", name))
        await setup.store.put_container(partition, "a", name, Timestamp.at(1), {}, None, 0)
        ids.append(setup.store.id_of(partition, DatabaseName("a", name)))
    sent, update = list[int](), transport.update_containers

    async def counted(device: Device, partition: int, account: str, rows: Sequence[ContainerRow]) -> None:
        sent.append(len(rows))
        if len(sent) == 2:
            raise NodeBusy("not now")
        await update(device, partition, account, rows)

    transport.update_containers = counted  # type: ignore[method-assign]
    assert await asyncio.gather(*(setup.reporter._report("d0", id) for id in ids[:10])) == [True] * 10
    assert await asyncio.gather(*(setup.reporter._report("d0", id) for id in ids[10:])) == [False] * 20
    assert sent == [10, 20]
    assert await asyncio.gather(*(setup.reporter._report("d0", id) for id in ids)) == [True] * 30
    assert sent == [10, 20, 20], "what was delivered is not sent again"
    assert (await setup.account()).container_count == 30
    await setup.reporter.stop()


async def test_all_containers_report_at_the_same_moments(cluster: ListingCluster) -> None:
    """Whatever changed since the last moment is told at the next one; what failed waits longer, each for itself."""
    reporter = Setup(cluster, ReportSettings(interval_s=2.0, max_pause_s=60.0)).reporter
    reporter._offset_s = 0.5
    changes = [1000.0 + 0.014 * number for number in range(1000)]
    moments = {round(now_s + reporter._pause_s(0, now_s), 6) for now_s in changes}
    assert len(moments) == 8, "in 14 s, a moment every 2 s"
    assert all(0 < reporter._pause_s(0, now_s) <= 2.0 for now_s in changes)
    assert [round(high - low, 3) for low, high in pairwise(sorted(moments))] == [2.0] * 7
    waits = [[reporter._pause_s(failures, 1000.0) for _ in range(50)] for failures in (1, 3, 30)]
    for pause_s, some in zip((4, 16, 60), waits, strict=True):
        assert all(0.75 * pause_s <= wait_s <= 1.25 * pause_s for wait_s in some)
    assert len(set(waits[0])) > 1, "by chance"
    servers = [Setup(cluster, ReportSettings(interval_s=2.0)).reporter for _ in range(5)]
    assert len({one._pause_s(0, 1000.0) for one in servers}) > 1, "each server has its own"
    for one in [reporter, *servers]:
        await one.stop()
