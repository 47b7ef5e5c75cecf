"""Rows that nobody acknowledged: what the device itself delivers, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from swiftlet.errors import NodeUnreachable, NotFound, StoreFormatError
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord
from swiftlet.servers.objects.native_pending import NativePending
from swiftlet.servers.objects.object_server import ObjectServer, ObjectServerSettings, add_object_routes
from swiftlet.servers.objects.pending_delivery import DeliveryTimes, PendingDelivery
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.tests.test_device_status import until
from swiftlet.store.native import NativeStore
from swiftlet.testing.storage.memory_pending import MemoryPending
from swiftlet.testing.storage.object_conformance import ROW, RowRecorder, record
from swiftlet.testing.store.conformance import NAME, at, footer_of, key_of, put
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.transport.tests.test_native_objects import client_of, device_at, served
from swiftlet.web.app import create_base_app
from swiftlet.web.statusz import STATUS

DATA = b"data"
RECLAIM_AGE_S = 1000.0


@dataclass
class Containers:
    """Container replicas, some of which are without the container or can't be asked."""

    without: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    rows: list[tuple[str, str, int, ObjectRow]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        self.asked.append(replica_index)
        if replica_index in self.without:
            raise NotFound("no such container")
        if replica_index in self.gone:
            raise NodeUnreachable("down")
        self.rows.append((account, container, replica_index, row))

    @property
    def told(self) -> list[int]:
        return [replica for _, _, replica, _ in self.rows]


class Device:
    """A device with pending updates, and its delivery; time passes when told to."""

    def __init__(self) -> None:
        self.now_s = at(1).seconds
        self.store = MemoryStore()
        self.pending = MemoryPending(clock=lambda: self.now_s)
        self.containers = Containers()
        self.pool = DevicePool("d1", 1, 10)
        self.delivery = self.process()

    def process(self) -> PendingDelivery:
        """A delivery as a process makes it when it starts."""
        times = DeliveryTimes(send_s=1.0, interval_s=5.0, reclaim_age_s=RECLAIM_AGE_S)
        return PendingDelivery("d1", self.store, self.pending, self.pool, self.containers, times, lambda: self.now_s)

    def put(self, number: int, moment: float, *replicas: int, name: str = NAME) -> ObjectKey:
        """A write whose row is pending for these replicas."""
        put(self.store, key_of(number), moment, DATA, name)
        self.pending.add(key_of(number), at(moment), name, replicas)
        return key_of(number)

    async def deliver(self, after_s: float) -> int:
        """Let time pass, then do what is due."""
        self.now_s += after_s
        return await self.delivery.deliver()


@pytest.fixture
async def device() -> AsyncIterator[Device]:
    made = Device()
    yield made
    made.pool.close()


def listed(moment: float, content_type: str = "type/1") -> ObjectRow:
    return ObjectRow("object", at(moment), len(DATA), footer_of(DATA).etag, content_type)


async def test_what_is_pending_for_long_is_delivered_to_all_its_replicas_and_acknowledged(device: Device) -> None:
    device.put(1, 1, 0, 2)
    assert await device.deliver(9.9) == 0
    assert device.containers.asked == []
    assert await device.deliver(0.2) == 1
    assert device.containers.rows == [
        ("account", "container", 0, listed(1)),
        ("account", "container", 2, listed(1)),
    ]
    assert device.pending.count() == 0
    assert await device.deliver(100) == 0


async def test_the_newest_is_listed_of_older_and_newer_writes(device: Device) -> None:
    key = device.put(1, 1, 0)
    device.put(1, 3, 1)
    device.store.post(key, PostRecord(at(4), {}, "image/png", at(4)))
    assert await device.deliver(11) == 1
    newest = replace(listed(3, "image/png"), content_type_timestamp=at(4), meta_timestamp=at(4))
    assert [row for _, _, _, row in device.containers.rows] == [newest] * 2
    assert sorted(device.containers.told) == [0, 1]


async def test_a_deletion_takes_the_row_out(device: Device) -> None:
    key = device.put(1, 1, 0)
    device.store.delete(key, at(2), NAME)
    device.pending.add(key, at(2), NAME, (0,))
    assert await device.deliver(11) == 1
    assert device.containers.rows == [("account", "container", 0, ObjectRow("object", at(2), deleted=True))]


async def test_a_write_in_the_middle_of_the_delivery_stays_pending(device: Device) -> None:
    device.put(1, 1, 0)

    class Writing(Containers):
        async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
            await super().send(account, container, replica_index, row)
            if len(self.rows) == 1:
                device.put(1, 2, 0)

    device.containers = Writing()
    device.delivery = device.process()
    assert await device.deliver(11) == 1
    assert device.pending.count() == 1
    assert await device.deliver(1) == 1
    assert [row.timestamp for _, _, _, row in device.containers.rows] == [at(1), at(2)]


async def test_a_replica_that_is_down_has_pauses_and_the_others_are_told_once(device: Device) -> None:
    device.containers.gone.add(1)
    device.put(1, 1, 0, 1)
    attempts = []
    device.now_s += 9
    for _ in range(200):
        before = len(device.containers.asked)
        await device.deliver(1)
        if len(device.containers.asked) > before:
            attempts.append(device.now_s)
    assert [later - earlier for earlier, later in pairwise(attempts)] == [5, 10, 20, 40, 80]
    assert device.containers.told == [0]
    device.containers.gone.clear()
    assert await device.deliver(200) == 1
    assert device.containers.told == [0, 1]


async def test_a_group_in_a_pause_does_not_hold_up_the_others(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftlet.servers.objects.pending_delivery._BATCH", 5)
    device.containers.gone.add(1)
    for number in range(20):
        device.put(number, 1, 1)
    device.now_s += 1
    for number in range(20, 40):
        device.put(number, 1, 0)
    for _ in range(3):
        await device.deliver(10)
    assert device.containers.told == [0] * 20
    assert device.pending.count() == 20
    device.containers.gone.clear()
    assert await device.deliver(300) == 20


async def test_a_replica_refuses_while_another_lists(device: Device) -> None:
    device.containers.without.add(1)
    device.put(1, 1, 0, 1)
    assert await device.deliver(11) == 1
    assert device.containers.told == [0]


async def test_a_row_of_a_missing_container_is_kept_for_the_reclaim_age(device: Device) -> None:
    device.containers.without |= {0, 1}
    device.put(1, 1, 0, 1)
    for _ in range(9):
        assert await device.deliver(100) == 0
    device.containers.without.remove(0)
    assert await device.deliver(0) == 0, "the replica has a pause"
    device.containers.without.add(0)
    assert await device.deliver(RECLAIM_AGE_S) == 1
    assert device.containers.rows == []


async def test_a_container_that_appears_in_time_gets_its_rows(device: Device) -> None:
    device.containers.without.add(0)
    device.put(1, 1, 0)
    assert await device.deliver(11) == 0
    device.containers.without.clear()
    assert await device.deliver(5) == 1
    assert device.containers.told == [0]


async def test_what_can_not_be_read_stays_pending(device: Device) -> None:
    device.put(1, 1, 0)
    device.store.faults.broken = True
    assert await device.deliver(11) == 0
    device.store.faults.clear()
    assert await device.deliver(5) == 1


async def test_what_is_not_held_any_more_is_delivered_to_nobody(device: Device) -> None:
    device.pending.add(key_of(9), at(1), NAME, (0,))
    device.put(2, 1, 0, name="without a container")
    assert await device.deliver(11) == 2
    assert device.containers.asked == []
    assert device.pending.count() == 0


async def test_a_deletion_that_a_replicator_brought_is_left_to_those_who_deleted(tmp_path: Path) -> None:
    store, containers, pool = NativeStore(tmp_path, volume_bytes=8 << 20), Containers(), DevicePool("d1", 1, 10)
    pending = NativePending(store)
    with served({"d1": store}) as (port, _):
        device, offset = device_at(port)
        async with client_of(offset) as transport:
            await transport.put(device, key_of(1), record(1), DATA, footer_of(DATA), ROW)
    store.delete(key_of(1), at(2), "")
    assert pending.count() == 1
    times = DeliveryTimes(send_s=1.0, interval_s=5.0, reclaim_age_s=RECLAIM_AGE_S, pending_for_s=0.0)
    with capture_logs() as logs:
        await PendingDelivery("d1", store, pending, pool, containers, times).deliver()
    assert (containers.rows, pending.count()) == ([], 0)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    pool.close()
    store.close()


async def test_two_processes_deliver_the_same_row(device: Device) -> None:
    device.put(1, 1, 0)
    device.now_s += 11
    both = asyncio.Barrier(2)

    class Together(Containers):
        async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
            await both.wait()
            await super().send(account, container, replica_index, row)

    device.containers = Together()
    await asyncio.gather(device.process().deliver(), device.process().deliver())
    assert device.containers.rows == [("account", "container", 0, listed(1))] * 2
    assert device.pending.count() == 0


async def test_a_native_device_delivers_what_its_callers_leave_to_it(tmp_path: Path) -> None:
    store, containers, pool = NativeStore(tmp_path, volume_bytes=8 << 20), Containers(), DevicePool("d1", 1, 10)
    pending = NativePending(store)
    with served({"d1": store}) as (port, _):
        device, offset = device_at(port)
        async with client_of(offset) as transport:
            for number in (1, 2):
                await transport.put(device, key_of(number), record(1), DATA, footer_of(DATA), ROW)
            await transport.delete(device, key_of(2), at(2), NAME, ROW)
    assert (pending.count(), pending.name(key_of(2))) == (2, NAME)
    times = DeliveryTimes(send_s=1.0, interval_s=5.0, reclaim_age_s=RECLAIM_AGE_S, pending_for_s=0.0)
    assert await PendingDelivery("d1", store, pending, pool, containers, times).deliver() == 2
    deleted = ObjectRow("object", at(2), deleted=True)
    told = sorted(containers.rows, key=lambda sent: (sent[2], sent[3].deleted))
    assert [(replica, row) for _, _, replica, row in told] == [
        (replica, row) for replica in ROW.replicas for row in (listed(1, "text/plain"), deleted)
    ]
    assert pending.count() == 0
    pool.close()
    store.close()


async def test_an_object_server_tells_and_delivers_what_a_device_has_pending() -> None:
    now_s = 0.0
    store, rows, pending = MemoryStore(), RowRecorder(), MemoryPending(clock=lambda: now_s)
    settings = ObjectServerSettings(row_interval_s=0.01)
    server = ObjectServer({"d0": store}, rows, settings, pending={"d0": pending})
    put(store, key_of(1), 1, DATA)
    pending.add(key_of(1), at(1), NAME, (0,))
    now_s = 2.5
    fields = server.devices["d0"].fields()
    assert (fields["pending"], fields["pendingOldestSeconds"]) == (1, 2.5)
    await server.devices["d0"].measure()
    assert REGISTRY.get_sample_value("swiftlet_object_pending_updates", {"device": "d0"}) == 1
    assert REGISTRY.get_sample_value("swiftlet_object_pending_oldest_seconds", {"device": "d0"}) == 2.5
    app = create_base_app("object", trust_request_ids=True)
    app[STATUS].add("devices", server.status)
    add_object_routes(app, server)
    async with TestClient(TestServer(app)):
        now_s = 12.5
        await until(lambda: not pending.count())
    assert [sent[:3] for sent in rows.rows] == [("account", "container", 0)]


class Packs:
    """What readers are told of objects that are in packs: that each was deleted at this moment, or nothing of it."""

    def __init__(self, deleted: float | None) -> None:
        self._deleted = deleted

    async def head(self, _key: ObjectKey) -> ObjectInfo:
        raise NotFound("there is no such object", None if self._deleted is None else at(self._deleted))


@pytest.mark.parametrize(("deleted", "delivered"), [(2, 1), (0.5, 0), (None, 0)])
async def test_an_update_of_an_object_in_a_pack_is_dropped_once_the_object_is_deleted(
    device: Device, monkeypatch: pytest.MonkeyPatch, deleted: float | None, delivered: int
) -> None:
    """A device that is no place of the object any more is not told of the deletion by sync."""
    key = device.put(1, 1, 0)

    def is_packed(_key: ObjectKey) -> ObjectInfo:
        raise StoreFormatError("the object is in a pack")

    monkeypatch.setattr(device.store, "stat", is_packed)
    times = DeliveryTimes(send_s=1.0, interval_s=5.0, reclaim_age_s=RECLAIM_AGE_S)
    device.delivery = PendingDelivery(
        "d1", device.store, device.pending, device.pool, device.containers, times, lambda: device.now_s, Packs(deleted)
    )
    assert await device.deliver(10.1) == delivered
    assert (device.pending.count(), device.containers.asked) == (1 - delivered, []), key
