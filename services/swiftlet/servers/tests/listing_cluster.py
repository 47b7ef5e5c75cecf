"""A few devices with listing stores, reached in process or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.listing.pool import ListingStore
from swiftlet.names import HashPath
from swiftlet.ring.model import Device
from swiftlet.servers.containers.container_server import ContainerReporter, ContainerServer, add_container_routes
from swiftlet.testing.storage.inline_listing import InlineListingStore
from swiftlet.testing.storage.memory_listing import MemoryListingTransport
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.signing import ClusterKey

HASH_PATH = HashPath(b"prefix", b"suffix")
KEY = b"the cluster's key"
Transport = MemoryListingTransport | HttpListingTransport


@dataclass
class ListingCluster:
    """Devices by index, their stores by device name, and a way to reach them."""

    devices: list[Device]
    stores: dict[str, ListingStore]
    transport: Transport


def device(id: int) -> Device:
    return Device(id, f"device-{id}", "127.0.0.1", 1 + id, f"d{id}", "r", f"z{id}", f"n{id}", 1.0)


@asynccontextmanager
async def memory_cluster(root: Path, count: int) -> AsyncIterator[ListingCluster]:
    devices = [device(id) for id in range(count)]
    stores: dict[str, ListingStore] = {d.name: InlineListingStore(root / d.name, HASH_PATH) for d in devices}
    yield ListingCluster(devices, stores, MemoryListingTransport(stores))
    for store in stores.values():
        await store.close()


@asynccontextmanager
async def http_cluster(
    root: Path, count: int, reporter: ContainerReporter | None = None
) -> AsyncIterator[ListingCluster]:
    async with AsyncExitStack() as stack:
        devices, stores = [], {}
        for plain in map(device, range(count)):
            store = ListingStore(root / plain.name, HASH_PATH)
            stack.push_async_callback(store.close)
            app = web.Application(client_max_size=0)
            add_container_routes(app, ContainerServer({plain.device: store}, reporter, ClusterKey(KEY)))
            server = await stack.enter_async_context(TestServer(app))
            assert server.port is not None
            devices.append(replace(plain, port=server.port))
            stores[plain.name] = store
        transport = HttpListingTransport(NodeClient(HttpSettings(connect_timeout_s=10.0), ClusterKey(KEY)))
        stack.push_async_callback(transport.close)
        yield ListingCluster(devices, stores, transport)
