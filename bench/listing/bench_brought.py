"""What rows of writes cost container servers and the proxy: three servers, each a process, and pending updates.

    PYTHONPATH=services .venv/bin/python -m bench.listing.bench_brought [--writers 20] [--workers 2] [--containers 1]

Writers are shared out among workers with queues and connections of their own, as a proxy's processes have. A write is
some milliseconds during which its object is stored elsewhere (`--store-ms`, at random up to twice that), and its row
as the proxy brings it. Prints the servers' and the workers' processor time per write, what the servers use idly taken
off.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from contextlib import ExitStack
from pathlib import Path as Directory

from bench.listing.bench_batches import HASH_PATH, KEY, used_s
from swiftlet.boundaries.objects import WriteReply
from swiftlet.model import ObjectKey, ObjectRow
from swiftlet.names import Path
from swiftlet.placement import metrics
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.rows.row_updates import RowRouter
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp, TimestampClock
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport

ACCOUNT = "AUTH_bench"
PATIENT = HttpSettings(answer_timeout_s=60.0)
"""A busy machine takes long to start the servers."""


class Told:
    """Object servers that hear which rows are through."""

    def __init__(self) -> None:
        self.acknowledged = 0

    async def acknowledge(self, device: Device, written: object) -> None:
        """Count the acknowledged updates."""
        self.acknowledged += len(written)  # type: ignore[arg-type]


class Rings:
    """The same three devices for everything."""

    def __init__(self, ports: list[int]) -> None:
        self.devices = [
            Device(n, f"d{n}", "127.0.0.1", port, "d0", "r", f"z{n}", f"n{n}", 1.0) for n, port in enumerate(ports)
        ]
        self._ring = Ring(1, 1, 3.0, list(self.devices), [array("H", [n, n]) for n in range(3)])

    def container(self) -> Ring:
        """Return the only ring."""
        return self._ring

    account = container

    def objects(self, _policy: int) -> Ring:
        """Return the only ring, for every policy."""
        return self._ring


async def measure(pids: list[int], ports: list[int], arguments: argparse.Namespace) -> None:
    """Run the measurement once and print its result."""
    rings, told, clock = Rings(ports), Told(), TimestampClock()
    transports = [HttpListingTransport(NodeClient(PATIENT, KEY)) for _ in range(arguments.workers)]
    containers = [f"container-{number}" for number in range(arguments.containers)]
    for name in containers:
        partition = rings.container().partition_of(HASH_PATH(ACCOUNT, name))
        for device in rings.devices:
            await transports[0].put_container(device, partition, ACCOUNT, name, Timestamp(1), {}, None, 0)
    routers = [
        RowRouter(rings, RowQueues(rings.container, one, HASH_PATH), Acknowledgements(told), HASH_PATH)
        for one in transports
    ]
    before, began_s = sum(map(used_s, pids)), time.perf_counter()
    await asyncio.sleep(3)
    idle = (sum(map(used_s, pids)) - before) / (time.perf_counter() - began_s)
    latencies: list[float] = []
    ends_s = time.perf_counter() + arguments.seconds

    async def write(number: int) -> None:
        router, count = routers[number % len(routers)], 0
        while time.perf_counter() < ends_s:
            await asyncio.sleep(random.uniform(0, 2 * arguments.store_ms) / 1000)
            count += 1
            path = Path(ACCOUNT, containers[number % len(containers)], f"{number:03}/{count:09}.jpg")
            stamp = clock.next()
            delivery = router.delivery(path, ObjectKey(0, 0, b"d" * 16), stamp, 3)
            for slot, device in enumerate(rings.devices):
                delivery.replied(slot, device, WriteReply(pending=True))
            begun = time.perf_counter()
            assert not await delivery.finish(ObjectRow(path.obj or "", stamp, 10240, "0" * 32, "image/jpeg"))
            latencies.append((time.perf_counter() - begun) * 1000)

    requests, rows = metrics.UPDATE_REQUESTS._value.get(), metrics.UPDATES_SENT._value.get()
    before, own, began_s = sum(map(used_s, pids)), time.process_time(), time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(arguments.writers)))
    for router in routers:
        await router.drain(10)
    took_s = time.perf_counter() - began_s
    servers, workers = sum(map(used_s, pids)) - before - idle * took_s, time.process_time() - own
    writes = len(latencies)
    assert told.acknowledged == 3 * writes, (told.acknowledged, writes)
    each = (metrics.UPDATES_SENT._value.get() - rows) / (metrics.UPDATE_REQUESTS._value.get() - requests)
    median_ms = statistics.median(latencies)
    print(
        f"{writes / arguments.seconds:6.0f} writes/s  row {median_ms:6.1f} ms  {each:5.1f} rows a request  "
        f"CPU a write: servers {servers / writes * 1000:6.3f} ms, workers {workers / writes * 1000:6.3f} ms",
        flush=True,
    )
    for transport in transports:
        await transport.close()


def main() -> None:
    """Start the servers, measure, stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--containers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--store-ms", type=float, default=3)
    parser.add_argument("--directory", type=Directory)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        root = Directory(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.directory)))
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        servers = []
        for number, sock in enumerate(sockets):
            home = root / str(number)
            home.mkdir()
            command = [sys.executable, "-m", "bench.listing.bench_batches", "--serve", str(home), str(sock.fileno())]
            log = stack.enter_context((root / f"log-{number}").open("wb"))
            servers.append(subprocess.Popen(command, pass_fds=[sock.fileno()], stderr=log))
        try:
            ports = [sock.getsockname()[1] for sock in sockets]
            asyncio.run(measure([server.pid for server in servers], ports, arguments))
        finally:
            for server in servers:
                server.send_signal(signal.SIGTERM)
            for server in servers:
                server.wait(30)


if __name__ == "__main__":
    main()
