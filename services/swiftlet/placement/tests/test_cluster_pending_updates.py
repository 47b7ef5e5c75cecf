"""Updates pending at object servers, over a whole cluster: each hole that the design note names, and what closes it.

`docs/design/2026-11-21-rows.md`. The devices' own deliveries run on a clock of the test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NodeUnreachable, NotFound, Unavailable
from swiftlet.model import ListingQuery, ObjectRow, PostRecord
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.tests.cluster import (
    ACCOUNT,
    CONTAINER,
    PATH,
    MemoryCluster,
    at,
    footer_of,
    memory_cluster,
    record_of,
)
from swiftlet.ring.model import Device
from swiftlet.servers.objects.pending_delivery import PENDING_FOR_S
from swiftlet.testing.storage.memory_listing import Fault
from swiftlet.timestamp import Timestamp


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - conditions of other parties set no event
            await asyncio.sleep(0.002)


async def everything_is_acknowledged(cluster: MemoryCluster) -> None:
    await until(lambda: not cluster.hosts_with_pending())


async def acknowledgements_are_told(cluster: MemoryCluster) -> None:
    await until(lambda: not cluster.router._queues._late and not cluster.acknowledgements.waiting)


async def told(cluster: MemoryCluster) -> list[list[str]]:
    """What each container replica lists."""
    return [await cluster.listed(device) for device in cluster.container_devices()]


@contextmanager
def held_databases(cluster: MemoryCluster, *devices: Device) -> Iterator[asyncio.Event]:
    """Container servers that don't answer rows before the event is set."""
    released, bring_rows = asyncio.Event(), cluster.listing_transport.bring_rows

    async def held(
        device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        if device in devices:
            await released.wait()
        return await bring_rows(device, partition, account, container, rows, later)

    cluster.listing_transport.bring_rows = held  # type: ignore[method-assign]
    yield released
    cluster.listing_transport.bring_rows = bring_rows  # type: ignore[method-assign]


async def test_the_proxy_brings_the_row_and_acknowledges_all(cluster: MemoryCluster) -> None:
    assert not (await cluster.put(2)).container_missing
    assert await told(cluster) == [["o"]] * 3
    await everything_is_acknowledged(cluster)
    await cluster.objects.delete(PATH, 0, at(3))
    assert await told(cluster) == [[]] * 3
    await everything_is_acknowledged(cluster)


async def test_many_writes_cost_container_servers_few_requests(cluster: MemoryCluster) -> None:
    requests: list[int] = []
    bring_rows = cluster.listing_transport.bring_rows

    async def counted(
        device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        requests.append(len(rows))
        return await bring_rows(device, partition, account, container, rows, later)

    cluster.listing_transport.bring_rows = counted  # type: ignore[method-assign]
    paths = [type(PATH)(ACCOUNT, CONTAINER, f"o{number}") for number in range(100)]
    await asyncio.gather(*(cluster.put(2, path=path) for path in paths))
    assert sum(requests) == 300
    assert len(requests) < 60
    await everything_is_acknowledged(cluster)


async def test_no_row_before_the_quorum(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    for device in (second, third):
        cluster.transport.link(device).delay_s = 0.1
    writing = asyncio.create_task(cluster.put(2))
    await until(lambda: bool(cluster.pending_count(first)))
    await asyncio.sleep(0.02)
    assert await told(cluster) == [[]] * 3
    await writing
    assert await told(cluster) == [["o"]] * 3


async def test_the_row_does_not_wait_for_the_slow_third_replica_which_is_acknowledged_later(
    cluster: MemoryCluster,
) -> None:
    third = cluster.primaries()[2]
    cluster.transport.link(third).delay_s = 0.2
    cluster.objects._post_quorum_wait_s = 0.0
    await cluster.put(2)
    assert cluster.info(third) is None
    assert await told(cluster) == [["o"]] * 3
    await drain_background(10)
    assert cluster.info(third) is not None
    await everything_is_acknowledged(cluster)


async def test_the_proxy_dies_between_quorum_and_row(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr("swiftlet.placement.rows.row_queues.RowQueues.submit_all", die)
        with pytest.raises(asyncio.CancelledError):
            await cluster.put(2)
    assert len(cluster.hosts_with_pending()) == 3
    await cluster.deliver_pending(PENDING_FOR_S - 1)
    assert await told(cluster) == [[]] * 3
    await cluster.deliver_pending(1.1)
    assert await told(cluster) == [["o"]] * 3
    assert not cluster.hosts_with_pending()


async def test_a_write_without_quorum_is_pending_and_listed_later(tmp_path: Directory) -> None:
    async with memory_cluster(tmp_path, devices=3) as cluster:
        await cluster.make_container()
        with cluster.down(*cluster.primaries()[1:]), pytest.raises(Unavailable):
            await cluster.put(2)
        assert await told(cluster) == [[]] * 3
        assert cluster.hosts_with_pending() == {cluster.primaries()[0].host}
        await cluster.deliver_pending(PENDING_FOR_S + 1)
        assert (await told(cluster))[0] == ["o"]
        assert not cluster.hosts_with_pending()


async def test_only_the_device_of_the_replica_that_is_down_keeps_it_pending(cluster: MemoryCluster) -> None:
    away = cluster.container_devices()[1]
    with cluster.databases_down(away):
        await cluster.put(2)
        await acknowledgements_are_told(cluster)
        assert cluster.hosts_with_pending() == {cluster.primaries()[1].host}
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    assert await told(cluster) == [["o"]] * 3
    assert not cluster.hosts_with_pending()


async def test_acknowledging_an_older_write_leaves_the_newer_one_pending(cluster: MemoryCluster) -> None:
    cluster.router._acknowledgements = slow = Acknowledgements(cluster.transport, interval_s=3600.0)
    await cluster.put(2, b"old")
    await until(lambda: slow.waiting == 3)
    with cluster.databases_down(*cluster.container_devices()):
        await cluster.put(3, b"newer")
    await slow.drain(10)
    assert len(cluster.hosts_with_pending()) == 3
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    for device in cluster.container_devices():
        partition = cluster.container_partition()
        listing = await cluster.databases[device.name].list_objects(partition, ACCOUNT, CONTAINER, ListingQuery())
        (row,) = listing[1]
        assert isinstance(row, ObjectRow)
        assert (row.timestamp, row.size) == (at(3), 5)


@pytest.mark.parametrize(
    ("without", "down", "pending_slots"), [(1, 0, []), (1, 1, [1]), (1, 2, [0, 1, 2]), (0, 3, [0, 1, 2])]
)
async def test_replicas_that_refuse_and_replicas_that_are_silent(
    cluster: MemoryCluster, without: int, down: int, pending_slots: list[int]
) -> None:
    devices = cluster.container_devices()
    for device in devices[:without]:
        await cluster.databases[device.name].delete_container(cluster.container_partition(), ACCOUNT, CONTAINER, at(2))
    with cluster.databases_down(*devices[without : without + down]):
        assert not (await cluster.put(3)).container_missing
        await acknowledgements_are_told(cluster)
    assert cluster.hosts_with_pending() == {cluster.primaries()[slot].host for slot in pending_slots}


@pytest.mark.parametrize(("without", "down"), [(3, 0), (2, 1), (2, 0)])
async def test_a_container_that_most_refuse_is_missing_and_nothing_is_listed_when_it_is_made_later(
    cluster: MemoryCluster, without: int, down: int
) -> None:
    devices = cluster.container_devices()
    for device in devices[:without]:
        await cluster.databases[device.name].delete_container(cluster.container_partition(), ACCOUNT, CONTAINER, at(2))
    with cluster.databases_down(*devices[without : without + down]):
        assert (await cluster.put(3)).container_missing
        await everything_is_acknowledged(cluster)
        assert (await cluster.objects.delete(PATH, 0, at(4))).container_missing
    await everything_is_acknowledged(cluster)
    for device in devices[:without]:
        database, partition = cluster.databases[device.name], cluster.container_partition()
        await database.put_container(partition, ACCOUNT, CONTAINER, at(5), {}, 0, 0)
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    assert await told(cluster) == [[]] * 3


async def test_devices_that_owe_too_much_send_writes_to_others(cluster: MemoryCluster) -> None:
    full = cluster.primaries()[0]
    cluster.pending[full.address]._limit = 0
    await cluster.put(2)
    assert cluster.holders() == {device.host for device in (*cluster.primaries()[1:], cluster.handoffs()[0])}
    assert await told(cluster) == [["o"]] * 3
    await everything_is_acknowledged(cluster)
    for pending in cluster.pending.values():
        pending._limit = 0
    with pytest.raises(Unavailable, match="has too many pending updates of listings"):
        await cluster.put(3)


async def test_what_is_acknowledged_by_a_message_that_got_lost_is_delivered_twice(cluster: MemoryCluster) -> None:
    for device in cluster.devices:
        cluster.transport.link(device).loses_acknowledgements = True
    await cluster.put(2)
    await acknowledgements_are_told(cluster)
    assert len(cluster.hosts_with_pending()) == 3
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    assert await told(cluster) == [["o"]] * 3
    assert (await cluster.listings.container_info(ACCOUNT, CONTAINER)).object_count == 1
    assert not cluster.hosts_with_pending()


async def test_the_same_write_again_is_pending_again_and_acknowledged_again(cluster: MemoryCluster) -> None:
    await cluster.put(2)
    await everything_is_acknowledged(cluster)
    with cluster.databases_down(*cluster.container_devices()):
        await cluster.put(2)
    assert len(cluster.hosts_with_pending()) == 3
    await cluster.put(2)
    await everything_is_acknowledged(cluster)


async def test_the_wait_for_silent_containers_is_bounded_and_late_answers_are_acknowledged(
    cluster: MemoryCluster,
) -> None:
    cluster.router._waits = RowWaits(row_wait_s=0.05, straggler_wait_s=0.05)
    with held_databases(cluster, *cluster.container_devices()) as released:
        assert not (await cluster.put(2)).container_missing
        assert len(cluster.hosts_with_pending()) == 3
        released.set()
        await everything_is_acknowledged(cluster)
    assert await told(cluster) == [["o"]] * 3


async def test_once_most_have_answered_the_last_container_replica_is_waited_for_a_little(
    cluster: MemoryCluster,
) -> None:
    cluster.router._waits = RowWaits(row_wait_s=3600.0, straggler_wait_s=0.05)
    with held_databases(cluster, cluster.container_devices()[2]) as released:
        await cluster.put(2)
        await acknowledgements_are_told(cluster)
        assert cluster.hosts_with_pending() == {cluster.primaries()[2].host}
        released.set()
        await everything_is_acknowledged(cluster)


async def test_a_client_that_goes_away_does_not_stop_the_acknowledgements(cluster: MemoryCluster) -> None:
    with held_databases(cluster, *cluster.container_devices()) as released:
        writing = asyncio.create_task(cluster.put(2))
        await until(lambda: len(cluster.hosts_with_pending()) == 3)
        await asyncio.sleep(0.01)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        released.set()
        await everything_is_acknowledged(cluster)
    assert await told(cluster) == [["o"]] * 3


async def test_a_post_lists_the_newest_that_any_device_holds(cluster: MemoryCluster) -> None:
    stale = cluster.primaries()[0]
    await cluster.put(2, b"old")
    with cluster.down(stale):
        await cluster.put(3, b"newer")
    await everything_is_acknowledged(cluster)
    await cluster.objects.post(PATH, 0, PostRecord(at(4), {}, "text/html", at(4)))
    for device in cluster.container_devices():
        partition = cluster.container_partition()
        listing = await cluster.databases[device.name].list_objects(partition, ACCOUNT, CONTAINER, ListingQuery())
        (row,) = listing[1]
        assert isinstance(row, ObjectRow)
        assert (row.timestamp, row.size, row.content_type) == (at(3), 5, "text/html")
        assert (row.content_type_timestamp, row.meta_timestamp) == (at(4), at(4))
    await everything_is_acknowledged(cluster)


async def test_a_post_does_not_acknowledge_data_that_one_device_alone_has(cluster: MemoryCluster) -> None:
    first = cluster.primaries()[0]
    await cluster.put(2, b"old")
    await everything_is_acknowledged(cluster)
    key = cluster.objects.key(PATH, 0)
    record, footer = record_of(PATH, at(3)), footer_of(b"newer")
    row = cluster.router.delivery(PATH, key, at(3), 3).share(0)
    await cluster.transport.put(first, key, record, b"newer", footer, row)
    with cluster.down(first):
        await cluster.objects.post(PATH, 0, PostRecord(at(4), {}))
    await cluster.transport.post(first, key, PostRecord(at(4), {}), row)
    await cluster.transport.acknowledge(first, [(key, at(4))])
    assert cluster.pending_count(first) == 1
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    assert cluster.pending_count(first) == 0
    partition = cluster.container_partition()
    listed: set[tuple[Timestamp, int]] = set()
    for replica in row.replicas:
        device = cluster.container_devices()[replica]
        listing = await cluster.databases[device.name].list_objects(partition, ACCOUNT, CONTAINER, ListingQuery())
        listed.update((one.timestamp, one.size) for one in listing[1] if isinstance(one, ObjectRow))
    assert listed == {(at(3), 5)}


async def test_a_post_whose_object_can_not_be_read_stays_pending(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2)
    await everything_is_acknowledged(cluster)

    async def gone(*_: object) -> None:
        raise NotFound("deleted meanwhile")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.transport, "head", gone)
        await cluster.objects.post(PATH, 0, PostRecord(at(4), {}, "text/html", at(4)))
    assert len(cluster.hosts_with_pending()) == 3


async def test_a_container_server_that_answers_too_late_has_it_and_the_devices_keep_it_pending(
    cluster: MemoryCluster,
) -> None:
    with cluster.databases_down(*cluster.container_devices(), fault=Fault.TIMEOUT_AFTER):
        assert not (await cluster.put(2)).container_missing
    assert await told(cluster) == [["o"]] * 3
    assert len(cluster.hosts_with_pending()) == 3


async def test_rows_that_container_servers_lose_with_their_power_come_back(cluster: MemoryCluster) -> None:
    taken: list[asyncio.Future[None]] = []

    async def forgets(
        _device: Device, _partition: int, _account: str, _container: str, _rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        assert later, "devices have it pending"
        taken.append(asyncio.get_running_loop().create_future())
        return taken[-1]

    bring_rows = cluster.listing_transport.bring_rows
    cluster.listing_transport.bring_rows = forgets  # type: ignore[assignment, method-assign]
    await cluster.put(2)
    assert len(taken) == 3
    assert len(cluster.hosts_with_pending()) == 3, "nothing is acknowledged before it is durable"
    taken[0].set_result(None)
    for durable in taken[1:]:
        durable.set_exception(NodeUnreachable("its power failed"))
    cluster.listing_transport.bring_rows = bring_rows  # type: ignore[method-assign]
    await cluster.router.drain(10)
    assert len(cluster.hosts_with_pending()) == 2, "one replica has it for good"
    await cluster.deliver_pending(PENDING_FOR_S + 1)
    await cluster.router.drain(10)
    assert not cluster.hosts_with_pending()
    listed = [await cluster.listed(device) for device in cluster.container_devices()]
    assert sum(names == ["o"] for names in listed) == 2


async def test_what_no_device_owes_is_durable_before_the_answer(cluster: MemoryCluster) -> None:
    later: dict[str, bool] = {}
    bring_rows = cluster.listing_transport.bring_rows

    async def noted(
        device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], may_wait: bool
    ) -> asyncio.Future[None] | None:
        later[device.name] = may_wait
        return await bring_rows(device, partition, account, container, rows, may_wait)

    cluster.listing_transport.bring_rows = noted  # type: ignore[assignment, method-assign]
    lost = cluster.primaries()[2]
    for device in (lost, *cluster.handoffs()):
        cluster.transport.link(device).unreachable = True
    await cluster.put(2)
    await cluster.router.drain(10)
    assert sorted(later.values()) == [False, True, True]
