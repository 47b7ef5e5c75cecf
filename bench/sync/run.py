"""Rounds of replicators over HTTP, on one machine: bytes on the wire (headers included), requests, time, CPU.

Each node is an object server behind a relay that counts; its store is a native one in a directory in memory. Nodes do
their rounds one after the other, in the same process. What a replicator asks of its own device is counted apart, for it
does not leave the node. TCP and IP headers are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import resource
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web
from swiftlet_native import xxh3_64

from swiftlet.errors import NotFound
from swiftlet.model import ObjectKey, ObjectRow, PutFooter, PutRecord
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.model import Device
from swiftlet.storage.object_server import ObjectServer, add_object_routes
from swiftlet.storage.outbox import Outbox
from swiftlet.store.native import NativeStore
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.report import RoundReport
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_objects import HttpObjectTransport
from swiftlet.transport.signing import ClusterKey

KEY = ClusterKey(b"the key of the benchmark")
BODY = b"x" * 100


class Rows:
    """Takes no rows: none is sent."""

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Refuse."""
        raise NotFound("there are no containers")


class Relay:
    """Counts what goes to one server and back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.bytes = 0
        self.requests = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and end those there are."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, thither = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._pump(there, writer, counts=False))
        try:
            await self._pump(reader, thither, counts=True)
        finally:
            back.cancel()
            writer.close()
            thither.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        while piece := await reader.read(1 << 16):
            self.bytes += len(piece)
            if counts:
                self.requests += piece.count(b" HTTP/1.1\r\n")
            writer.write(piece)
            await writer.drain()


@dataclass
class Node:
    """One node."""

    device: Device
    store: NativeStore
    relay: Relay


class Cluster:
    """Nodes, their ring, and what is in them."""

    def __init__(self, ring: Ring, nodes: list[Node]) -> None:
        self.ring = ring
        self.nodes = nodes
        self.by_device = {node.device.id: node for node in nodes}

    def put(self, number: int, second: float, replicas: int) -> None:
        """Put an object on its first replicas."""
        key = self.key(number)
        for device in self.ring.primaries(key.partition)[:replicas]:
            writer = self.by_device[device.id].store.create(key)
            writer.write(BODY)
            record = PutRecord(f"/a/c/{number}", Timestamp.at(second), "text/plain")
            writer.commit(record, PutFooter(len(BODY), hashlib.md5(BODY).hexdigest(), xxh3_64(BODY)))

    def delete(self, number: int, second: float, replicas: int) -> None:
        """Delete an object at its first replicas."""
        key = self.key(number)
        for device in self.ring.primaries(key.partition)[:replicas]:
            self.by_device[device.id].store.delete(key, Timestamp.at(second), f"/a/c/{number}")

    def key(self, number: int) -> ObjectKey:
        """An object's place."""
        digest = hashlib.md5(str(number).encode()).digest()
        return ObjectKey(0, self.ring.partition_of(digest), digest)


@asynccontextmanager
async def cluster_of(nodes: int, replicas: int, part_power: int) -> AsyncIterator[Cluster]:
    """Servers, running."""
    builder = RingBuilder(part_power, replicas, min_part_hours=0)
    for number in range(nodes):
        builder.add_device(host=f"h{number}", port=1, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    made: list[Node] = []
    runners: list[web.AppRunner] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for device in builder.ring.devices:
            assert device is not None
            root = Path(directory) / f"d{device.id}"
            root.mkdir()
            store = NativeStore(root, volume_bytes=8 << 20)
            app = web.Application(client_max_size=0)
            outbox = Outbox(Path(directory) / str(device.id))
            add_object_routes(app, ObjectServer({"d": store}, {"d": outbox}, Rows(), key=KEY))
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
            relay = Relay(runner.addresses[0][1])
            await relay.start()
            made.append(Node(replace(device, host="127.0.0.1", port=relay.port), store, relay))
        old = builder.ring
        devices = [node.device for node in made]
        rows = [[0] * old.partition_count for _ in range(replicas)]
        for partition in range(old.partition_count):
            for replica, holder in enumerate(old.primaries(partition)):
                rows[replica][partition] = holder.id
        yield Cluster(Ring(1, part_power, replicas, devices, [array("H", row) for row in rows]), made)
        for node in made:
            await node.relay.stop()
        for runner in runners:
            await runner.cleanup()
        for node in made:
            node.store.close()


@dataclass
class Measured:
    """Means over the nodes that did a round."""

    kilobytes: float
    requests: float
    local_kilobytes: float
    seconds: float
    cpu_s: float
    moved: int
    failed: int


async def rounds(cluster: Cluster, sessions: bool, leave_out: int | None = None) -> Measured:
    """One round of each node, one after the other."""
    wire = requests = local = 0
    seconds = cpu_s = 0.0
    moved = failed = 0
    working = [node for node in cluster.nodes if node.device.id != leave_out]
    for node in working:
        for other in cluster.nodes:
            other.relay.bytes = other.relay.requests = 0
        transport = HttpObjectTransport(key=KEY)
        worker = Replicator(_only(node.device), lambda policy: cluster.ring, transport, sessions=sessions)
        began, cpu = time.monotonic(), _cpu_s()
        report: RoundReport = await worker.run_round([0])
        seconds += time.monotonic() - began
        cpu_s += _cpu_s() - cpu
        await transport.close()
        wire += sum(other.relay.bytes for other in cluster.nodes if other is not node)
        requests += sum(other.relay.requests for other in cluster.nodes if other is not node)
        local += node.relay.bytes
        moved += report.pushed + report.pulled
        failed += report.failed + report.skipped
    count = len(working)
    return Measured(
        wire / count / 1000, requests / count, local / count / 1000, seconds / count, cpu_s / count, moved, failed
    )


def _only(device: Device) -> Callable[[Ring], list[Device]]:
    return lambda ring: [device]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def bench(objects: int, replicas: int, part_power: int, mode: str) -> None:
    """All scenarios in one mode."""
    sessions = mode == "batched"
    async with cluster_of(5, replicas, part_power) as cluster:
        for number in range(objects):
            cluster.put(number, 2, replicas)

        def show(scenario: str, found: Measured) -> None:
            print(
                f"| {mode} | {replicas} | {objects} | {scenario} | {found.kilobytes:.1f} | {found.requests:.0f} |"
                f" {found.local_kilobytes:.1f} | {found.seconds:.2f} | {found.cpu_s:.2f} | {found.moved} |"
                f" {found.failed} |",
                flush=True,
            )

        show("stable", await rounds(cluster, sessions))
        for number in range(objects, objects + objects // 10):
            cluster.put(number, 3, 1)
        show("10 % created, on one replica", await rounds(cluster, sessions))
        for number in range(objects // 10):
            cluster.delete(number, 4, 1)
        show("10 % deleted, on one replica", await rounds(cluster, sessions))
        await cluster.nodes[0].relay.stop()
        show("a node is down", await rounds(cluster, sessions, leave_out=0))


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--part-power", type=int, default=14)
    parser.add_argument("--modes", nargs="+", default=["batched", "all_to_all"], choices=["batched", "all_to_all"])
    arguments = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(
        "| mode | r | objects | scenario | KB a node | requests | KB local | s a round | CPU s | moved | not compared |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for mode in arguments.modes:
        asyncio.run(bench(arguments.objects, arguments.replicas, arguments.part_power, mode))


if __name__ == "__main__":
    main()
