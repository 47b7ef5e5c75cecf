"""The twin of a device's pending updates, alone and behind the twin of the transport."""

from __future__ import annotations

import pytest

from swiftlet.boundaries.objects import WriteReply
from swiftlet.errors import NodeBusy
from swiftlet.model import PostRecord
from swiftlet.ring.model import Device
from swiftlet.servers.objects.pending_updates import PendingUpdate
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.memory_pending import MemoryPending
from swiftlet.testing.storage.object_conformance import ROW, record
from swiftlet.testing.store.conformance import NAME, at, footer_of, key_of
from swiftlet.testing.store.memory import MemoryStore

DEVICE = Device(0, "one", "127.0.0.1", 6200, "d1", "r1", "z1", "n1", 1.0)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_one_debt_per_object_with_the_newest_write_and_all_replicas() -> None:
    pending = MemoryPending()
    pending.add(key_of(1), at(2), NAME, (0,))
    pending.add(key_of(1), at(1), NAME, (2,))
    assert pending.due(0.0, 10) == [PendingUpdate(key_of(1), at(2), (0, 2))]
    assert pending.count() == 1


def test_a_post_does_not_acknowledge_what_else_is_pending() -> None:
    pending = MemoryPending()
    pending.add(key_of(1), at(1), NAME, (0,))
    pending.add(key_of(1), at(2), NAME, (1,), post=True)
    pending.acknowledge([(key_of(1), at(2))])
    (row,) = pending.due(0.0, 10)
    assert row.replicas == (0, 1)
    pending.acknowledge([(key_of(1), row.timestamp)])
    assert pending.count() == 0


def test_newer_data_acknowledge_what_is_older() -> None:
    pending = MemoryPending()
    pending.add(key_of(1), at(1), NAME, (0,))
    pending.add(key_of(1), at(2), NAME, (1,), post=True)
    pending.add(key_of(1), at(3), NAME, (1,))
    pending.acknowledge([(key_of(1), at(3))])
    assert pending.count() == 0


def test_acknowledging_an_older_write_leaves_the_newer_one_pending() -> None:
    pending = MemoryPending()
    pending.add(key_of(1), at(1), NAME, (0,))
    pending.add(key_of(1), at(2), NAME, (0,))
    pending.acknowledge([(key_of(1), at(1)), (key_of(2), at(9))])
    assert pending.count() == 1
    pending.acknowledge([(key_of(1), at(2))])
    assert (pending.count(), pending.oldest_s()) == (0, 0.0)
    assert pending.name(key_of(1)) == NAME
    assert pending.name(key_of(2)) is None


def test_the_oldest_first_and_none_that_is_too_young() -> None:
    clock = Clock()
    pending = MemoryPending(clock=clock)
    for number in (3, 1, 2):
        pending.add(key_of(number), at(1), NAME, (0,))
        clock.now_s += 1
    assert pending.oldest_s() == 3
    assert [row.key for row in pending.due(2.0, 10)] == [key_of(3), key_of(1)]
    assert [row.key for row in pending.due(0.0, 1)] == [key_of(3)]


async def test_a_device_that_owes_answers_so_until_it_owes_too_much() -> None:
    pending = MemoryPending(limit=1)
    transport = MemoryObjectTransport({DEVICE.address: MemoryStore()}, pending={DEVICE.address: pending})
    body = b"data"
    reply = await transport.put(DEVICE, key_of(1), record(1), body, footer_of(body), ROW)
    assert reply == WriteReply(pending=True)
    assert pending.due(0.0, 10) == [PendingUpdate(key_of(1), at(1), ROW.replicas)]
    with pytest.raises(NodeBusy):
        await transport.put(DEVICE, key_of(2), record(1), body, footer_of(body), ROW)
    with pytest.raises(NodeBusy):
        await transport.delete(DEVICE, key_of(1), at(2), NAME, ROW)
    without = await transport.put(DEVICE, key_of(2), record(1), body, footer_of(body), None)
    assert without == WriteReply(pending=False)
    await transport.acknowledge(DEVICE, [(key_of(1), at(1))])
    assert (await transport.post(DEVICE, key_of(1), PostRecord(at(2), {}), ROW)).pending
    assert pending.due(0.0, 10) == [PendingUpdate(key_of(1), at(2), ROW.replicas)]
    transport.link(DEVICE).loses_acknowledgements = True
    await transport.acknowledge(DEVICE, [(key_of(1), at(2))])
    assert pending.count() == 1
    with pytest.raises(ValueError, match="1001 versions"):
        await transport.acknowledge(DEVICE, [(key_of(1), at(2))] * 1001)
