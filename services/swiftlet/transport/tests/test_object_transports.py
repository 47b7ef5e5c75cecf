"""The conformance suite against the transports for objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from swiftlet_native import Doubts

from swiftlet.ring.model import Device
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.object_conformance import ObjectTransportConformance, Peer, RowRecorder
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.transport.http_client import HttpSettings

PATIENT = HttpSettings(connect_timeout_s=30.0, answer_timeout_s=60.0)
"""A hundred connections at once, client and server in one thread: on a busy machine half a second is no time."""


def device_at(port: int) -> Device:
    return Device(0, "one", "127.0.0.1", port, "d1", "r1", "z1", "n1", 1.0)


class TestInProcess(ObjectTransportConformance):
    @asynccontextmanager
    async def connected(self, store: FaultyStore, rows: RowRecorder) -> AsyncIterator[Peer]:
        device = device_at(6200)
        transport = MemoryObjectTransport({device.address: store}, rows)
        doubts = transport.doubts[device.address] = Doubts()
        yield Peer(transport, device, store, rows, doubts=doubts)
