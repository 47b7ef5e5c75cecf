"""The conformance suite against the transports for objects."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from swiftlet_native import Doubts

from swiftlet.ring.model import Device
from swiftlet.servers.objects.object_server import create_object_app
from swiftlet.servers.objects.outbox import Outbox
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.storage.object_conformance import ObjectTransportConformance, Peer, RowRecorder
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.testing.store.faulty_native import FaultyNativeStore
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.http_objects import HttpObjectTransport
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.tls import PeerTls
from swiftlet.web.sockets import listen
from swiftlet.web.tls_or_plain import Contexts, TlsOrPlainSite

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


class TestHttp(ObjectTransportConformance):
    key: ClusterKey | None = None
    tls: PeerTls | None = None

    @asynccontextmanager
    async def connected(self, store: FaultyStore, rows: RowRecorder) -> AsyncIterator[Peer]:
        with tempfile.TemporaryDirectory() as directory:
            outboxes = {"d1": Outbox(Path(directory) / "outbox")}
            doubts = Doubts()
            app = create_object_app(
                devices={"d1": store}, outboxes=outboxes, row_sink=rows, key=self.key, doubts={"d1": doubts}
            )
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            sock, tls = listen("127.0.0.1", 0), self.tls
            port = sock.getsockname()[1]
            if tls is None:
                await web.SockSite(runner, sock).start()
                transport = HttpObjectTransport(PATIENT, self.key)
            else:
                await TlsOrPlainSite(runner, sock, Contexts(tls.server)).start()
                transport = HttpObjectTransport(PATIENT, self.key, tls.client)
            try:
                yield Peer(transport, device_at(port), store, rows, doubts=doubts)
            finally:
                await transport.close()
                await runner.cleanup()


class TestHttpSigned(TestHttp):
    key = ClusterKey(b"the cluster's key")


class TestHttpEncrypted(TestHttp):
    key = ClusterKey(b"the cluster's key")
    tls = PeerTls("required", [b"the cluster's key"])


class TestHttpOverVolumes(TestHttp):
    def fresh_store(self) -> FaultyStore:
        return FaultyNativeStore()
