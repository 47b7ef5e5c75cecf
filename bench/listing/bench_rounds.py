"""A stable round of one node over databases that are equal everywhere: seconds, processor time, requests and bytes.

    python -m bench.listing.bench_rounds 1000 10000

Three container servers in this process, signed HTTP, r = 3, 2^12 partitions. Bytes are those of bodies, both ways, with
the two peers; the node's own server is counted apart. The databases are links to one file, as only their number counts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.sync.databases.entries import POLICIES
from swiftlet.sync.databases.replica_kind import database_replicas
from swiftlet.sync.replicator import Replicator
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.signing import ClusterKey

HASH_PATH = HashPath(b"prefix", b"suffix")
KEY = ClusterKey(b"the key of a benchmark, long enough")
PART_POWER = 12
ROUNDS = 5


class Counting(NodeClient):
    """Counts requests and the bytes of bodies by device."""

    def __init__(self) -> None:
        super().__init__(HttpSettings(connect_timeout_s=20.0, answer_timeout_s=60.0), KEY)
        self.requests: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    async def call(self, device: Device, method: str, target: str, body: Any = None, *more: Any, **named: Any) -> bytes:
        answer = await super().call(device, method, target, body, *more, **named)
        self.requests[device.id] += 1
        self.bytes[device.id] += len(body or b"") + len(answer)
        return answer


def databases(count: int) -> list[DatabaseId]:
    digests = [HASH_PATH("a", f"c{number}") for number in range(count)]
    return [DatabaseId(DatabaseKind.CONTAINER, int.from_bytes(d[:4], "big") >> (32 - PART_POWER), d) for d in digests]


async def fill(root: Path, ids: Sequence[DatabaseId]) -> None:
    """One database, and links to it."""
    template = root / "template"
    store = ListingStore(template, HASH_PATH)
    await store.put_container(0, "a", "c", Timestamp.at(1), {}, None, 0)
    await store.close()
    source = database_path(template, DatabaseId(DatabaseKind.CONTAINER, 0, HASH_PATH("a", "c")))
    for device in range(3):
        for id in ids:
            path = database_path(root / f"device-{device}", id)
            path.parent.mkdir(parents=True)
            os.link(source, path)


async def measure(count: int) -> None:
    """Print what rounds cost."""
    ids = databases(count)
    with tempfile.TemporaryDirectory() as directory:
        await fill(Path(directory), ids)
        async with AsyncExitStack() as stack:
            devices = []
            for id in range(3):
                store = ListingStore(Path(directory) / f"device-{id}", HASH_PATH)
                stack.push_async_callback(store.close)
                app = web.Application(client_max_size=0)
                add_container_routes(app, ContainerServer({f"d{id}": store}, None, KEY))
                server = await stack.enter_async_context(TestServer(app))
                plain = Device(id, f"device-{id}", "127.0.0.1", 1, f"d{id}", "r", f"z{id}", f"n{id}", 1.0)
                devices.append(replace(plain, port=server.port or 0))
            ring = Ring(1, PART_POWER, 3, devices, [array("H", [id] * (1 << PART_POWER)) for id in range(3)])
            client = Counting()
            transport = HttpListingTransport(client)
            stack.push_async_callback(transport.close)
            replicator = Replicator(lambda ring: devices[:1], lambda _: ring, database_replicas(transport))
            began = time.perf_counter()
            while not (await replicator.run_round(list(POLICIES.values()))).clean:  # noqa: ASYNC110 - others look
                await asyncio.sleep(0.5)
            first_s = time.perf_counter() - began
            print(f"{count} databases: first rounds, with all databases opened once, {first_s:.1f} s")
            for _ in range(ROUNDS):
                client.requests.clear()
                client.bytes.clear()
                began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
                report = await replicator.run_round(list(POLICIES.values()))
                took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
                assert report.clean
                cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
                asked, sent = (counts[1] + counts[2] for counts in (client.requests, client.bytes))
                print(
                    f"  {took_s:.3f} s, cpu {cpu_s:.3f} s; peers {sent} bytes in {asked} requests; "
                    f"own server {client.bytes[0]} in {client.requests[0]}"
                )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        asyncio.run(measure(int(argument)))
