"""The conformance suite against the transport in memory; natively it is in `test_native_objects`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from swiftlet_native import Doubts

from swiftlet.ring.model import Device
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.memory_pending import MemoryPending
from swiftlet.testing.storage.object_conformance import ObjectTransportConformance, Peer
from swiftlet.testing.store.faults import FaultyStore


class TestInProcess(ObjectTransportConformance):
    @asynccontextmanager
    async def connected(self, store: FaultyStore) -> AsyncIterator[Peer]:
        device = Device(0, "one", "127.0.0.1", 6200, "d1", "r1", "z1", "n1", 1.0)
        pending = MemoryPending()
        transport = MemoryObjectTransport({device.address: store}, pending={device.address: pending})
        doubts = transport.doubts[device.address] = Doubts()
        yield Peer(transport, device, store, pending, doubts)
