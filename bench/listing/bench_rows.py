"""Rows of many writes into one container, brought by the proxy while they are pending.

Objects are in memory; container servers are real ones over HTTP with databases on disk, in this process. Says writes
per second, CPU time of all of it (container servers included), and requests with rows to container servers per write.

    .venv/bin/python bench/listing/bench_rows.py [--writes 20000] [--writers 64] [--objects 6]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path as Directory
from typing import cast

import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.model import ObjectRow
from swiftlet.names import Path
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, MemoryCluster
from swiftlet.ring.model import Device
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport


class CountedListing:
    """The way to the container servers; only rows go over it."""

    def __init__(self, transport: HttpListingTransport, places: dict[str, Device]) -> None:
        self._transport = transport
        self._places = places
        self.requests = self.rows = 0

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        self.requests += 1
        self.rows += len(rows)
        return await self._transport.bring_rows(self._places[device.name], partition, account, container, rows, later)


def queues_to(cluster: MemoryCluster, listing: CountedListing) -> RowQueues:
    return RowQueues(cluster.rings.container, cast(ListingTransport, listing), HASH_PATH)


async def measure(root: Directory, writes: int, writers: int, devices: int) -> str:
    """Put `writes` objects by `writers` at a time; return the line of the results with their times."""
    async with AsyncExitStack() as stack:
        cluster = MemoryCluster(root, devices=devices, replicas=3, suppress_after=1_000_000)
        stack.push_async_callback(cluster.close)
        places = {}
        for device in cluster.devices:
            app = web.Application(client_max_size=0)
            add_container_routes(app, ContainerServer({device.device: cluster.databases[device.name]}))
            server = await stack.enter_async_context(TestServer(app))
            places[device.name] = replace(device, host="127.0.0.1", port=server.port or 0)
        transport = HttpListingTransport(NodeClient())
        stack.push_async_callback(transport.close)
        listing = CountedListing(transport, places)
        cluster.router._queues = queues_to(cluster, listing)
        await cluster.make_container()
        numbers = iter(range(writes))

        async def writer() -> None:
            for number in numbers:
                await cluster.put(2 + number, path=Path(ACCOUNT, CONTAINER, f"object-{number:08}"))

        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(writer() for _ in range(writers)))
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        await cluster.router.drain(10)
        assert listing.rows == 3 * writes
        assert not cluster.hosts_with_pending()
        assert (await cluster.listings.container_info(ACCOUNT, CONTAINER)).object_count == writes
        return (
            f"{writes / seconds:6.0f} writes/s  {cpu_s / writes * 1e6:5.0f} us of CPU per write  "
            f"{listing.requests / writes:6.3f} requests per write  "
            f"{listing.rows / listing.requests:5.1f} rows per request"
        )


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=20_000)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--objects", type=int, default=6, help="object servers")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for _ in range(3):
        with tempfile.TemporaryDirectory() as root:
            sizes = (arguments.writes, arguments.writers, arguments.objects)
            print(asyncio.run(measure(Directory(root), *sizes)), flush=True)


if __name__ == "__main__":
    main()
