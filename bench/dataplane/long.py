"""GETs of long objects by the native front and by Python: rates, and processor time for each MiB.

    .venv/bin/python -m bench.dataplane.long DIRECTORY [--mb 2 8 16] [--clients 8] [--rounds 5] [--gib 1] [--coded 6+3]

Two stores, one with `proxy.front` off, take turns. In each round every size is read by one client, and by several at
once, each of which reads so many bytes in all over a connection that it keeps; then one object of some GiB is read.
All comes from the page cache. Clients are threads that drop what they receive within the kernel (MSG_TRUNC).

With `--coded` the objects have erasure coding, and the front reads three copies beside them: then there are as many
object servers as a coded object has fragments.

Beside it stands what `sendfile` reaches through one more local hop: a process sends a file in memory into a socket, and
another one moves it with `splice` from there into a TCP connection, which is read in the same way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.dataplane.large import KINDS, read_head, used_by
from bench.micro import Measured, report
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

MB, MIB = 1_000_000, 1 << 20
READ_BYTES = 256 * MIB
"""All clients together read so much of objects of one size in a round."""
_RECEIVED = 4 * MIB
STORES: Mapping[str, Mapping[str, str]] = {
    "front": {"SWIFTLET_PROXY__FRONT": "true"},
    "Python": {"SWIFTLET_PROXY__FRONT": "false"},
}
CODED, COPIES = "coded", "copies"
"""The names of the storage policies whose objects are compared."""


@dataclass(frozen=True)
class Read:
    """What was measured of one way of reading many bytes."""

    rate: float
    """Bytes that all clients together have received a second."""
    cpu_ms: dict[str, float]
    """Processor milliseconds for each MiB, by kind of process."""


def receive(connection: socket.socket, size: int, buffer: bytearray) -> None:
    """Drop so many bytes."""
    while size:
        count = connection.recv_into(buffer, min(size, len(buffer)), socket.MSG_TRUNC)
        assert count, f"{size} bytes are missing"
        size -= count


@dataclass(frozen=True)
class Subject:
    """What is read, and of which store."""

    name: str
    store: str
    policy: str | None = None


PLAIN = [Subject("front", "front"), Subject("Python", "Python")]
WITH_CODED = [
    Subject("front, coded", "front", CODED),
    Subject("Python, coded", "Python", CODED),
    Subject("front, three copies", "front", COPIES),
]


class Store:
    """A store with an object of each size in each policy."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], sizes: list[int], policies: Mapping[str | None, str]
    ) -> None:
        """Start it, and store them; `policies` are by their names, as the store's option has them."""
        options = [",".join(policies.values())] if any(policies.values()) else []
        told = ["--policies", *options] if options else []
        self.cluster: Cluster = start_cluster(directory, "--workers", "1", *told, settings=settings)
        self.client = Client(self.cluster.endpoint, self.cluster.user, self.cluster.key)
        for policy in policies:
            headers = {} if policy is None else {"X-Storage-Policy": policy}
            assert self.client.call("PUT", container(policy), headers=headers).status == 201
            for size in sizes:
                self._put(size, policy)

    def _connect(self) -> socket.socket:
        parts = urlsplit(self.cluster.endpoint)
        connection = socket.create_connection((parts.hostname or "", parts.port or 80))
        connection.setblocking(True)
        return connection

    def _head(self, method: str, size: int, policy: str | None, *lines: str) -> bytes:
        target = f"{method} {self.client.base}/{container(policy)}/{size} HTTP/1.1"
        return "\r\n".join([target, "Host: bench", f"X-Auth-Token: {self.client.token}", *lines, "", ""]).encode()

    def _put(self, size: int, policy: str | None) -> None:
        block = random.Random(1).randbytes(MIB)
        with self._connect() as connection:
            connection.sendall(self._head("PUT", size, policy, f"Content-Length: {size}"))
            for at in range(0, size, MIB):
                connection.sendall(block[: size - at])
            assert read_head(connection)[0] == 201

    def _get(self, size: int, policy: str | None, count: int, begin: threading.Barrier) -> None:
        buffer = bytearray(_RECEIVED)
        with self._connect() as connection:
            begin.wait()
            for _ in range(count):
                connection.sendall(self._head("GET", size, policy))
                status, fields, rest = read_head(connection)
                assert (status, fields["content-length"]) == (200, str(size))
                receive(connection, size - len(rest), buffer)

    def read(self, size: int, policy: str | None, clients: int) -> Read:
        """Have so many clients read objects of a size in a policy."""
        count = max(1, READ_BYTES // size // clients)
        begin = threading.Barrier(clients + 1)
        threads = [threading.Thread(target=self._get, args=(size, policy, count, begin)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        begin.wait()
        before, began = used_by(self.cluster), time.monotonic()
        for thread in threads:
            thread.join()
        took, after = time.monotonic() - began, used_by(self.cluster)
        bytes_read = size * count * clients
        return Read(bytes_read / took, {kind: (after[kind] - before[kind]) * 1e3 * MIB / bytes_read for kind in before})


def container(policy: str | None) -> str:
    """Return where objects of a policy are."""
    return "long" if policy is None else f"long-{policy}"


def _send_file(file: int, size: int, into: socket.socket) -> None:
    sent = 0
    while sent < size:
        sent += os.sendfile(into.fileno(), file, sent, size - sent)


def _pass_on(source: socket.socket, listening: socket.socket) -> None:
    client, _ = listening.accept()
    ahead, behind = os.pipe()
    while count := os.splice(source.fileno(), behind, MIB):
        while count:
            count -= os.splice(ahead, client.fileno(), count)


def hop(size: int) -> float:
    """Return the rate of `sendfile` through one more local hop."""
    file = os.memfd_create("hop")
    block = random.Random(1).randbytes(MIB)
    for at in range(0, size, MIB):
        os.write(file, block[: size - at])
    ours, theirs = socket.socketpair()
    fork = multiprocessing.get_context("fork")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        passing = fork.Process(target=_pass_on, args=(theirs, listening))
        passing.start()
        sending = fork.Process(target=_send_file, args=(file, size, ours))
        with socket.create_connection(listening.getsockname()) as client:
            began = time.monotonic()
            sending.start()
            receive(client, size, bytearray(_RECEIVED))
            took = time.monotonic() - began
    sending.join()
    passing.terminate()
    passing.join()
    ours.close()
    theirs.close()
    os.close(file)
    return size / took


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; 7 times the largest object")
    parser.add_argument("--mb", type=int, nargs="*", default=[2, 8, 16], help="sizes in MB (default 2 8 16)")
    parser.add_argument("--gib", type=int, default=1, help="size of the largest object in GiB; 0: none (default 1)")
    parser.add_argument("--clients", type=int, default=8, help="clients at once (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="the medians count (default 5)")
    parser.add_argument("--coded", metavar="K+M", help="read objects with this erasure coding beside three copies")
    arguments = parser.parse_args()
    subjects = WITH_CODED if arguments.coded else PLAIN
    known = {None: "", CODED: f"{CODED}={arguments.coded}", COPIES: COPIES}
    sizes = [size * MB for size in arguments.mb]
    ways = [(size, clients) for size in sizes for clients in (1, arguments.clients)]
    if arguments.gib:
        sizes.append(arguments.gib << 30)
        ways.append((sizes[-1], 1))
    found: dict[tuple[int, int, str], list[Read]] = {}
    hops: list[float] = []
    stores: dict[str, Store] = {}
    print(f"load (1 minute) {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
    try:
        for name, settings in STORES.items():
            policies = {one.policy: known[one.policy] for one in subjects if one.store == name}
            stores[name] = Store(arguments.directory / name, settings, sizes, policies)
        for number in range(arguments.rounds + 1):
            for size, clients in ways:
                for one in subjects:
                    read = stores[one.store].read(size, one.policy, clients)
                    # The first round brings objects into the page cache.
                    if number:
                        found.setdefault((size, clients, one.name), []).append(read)
            if number:
                hops.append(hop(arguments.gib << 30 or READ_BYTES))
    finally:
        for store in stores.values():
            store.cluster.stop()
    kinds = (*KINDS, "client")
    print(f"| MB | clients | by | GB/s | rounds | CPU ms per MiB: {' | '.join(kinds)} | all |")
    print("|---|---|---|---|---|" + "---|" * (len(kinds) + 1))
    for (size, clients, name), reads in found.items():
        rates = [read.rate / 1e9 for read in reads]
        cpu = [statistics.median(read.cpu_ms[kind] for read in reads) for kind in kinds]
        figures = " | ".join(f"{value:.3f}" for value in (*cpu, sum(cpu)))
        rounds = ", ".join(f"{rate:.2f}" for rate in rates)
        print(f"| {size / MB:g} | {clients} | {name} | {statistics.median(rates):.2f} | {rounds} | {figures} |")
    rounds = ", ".join(f"{rate / 1e9:.2f}" for rate in hops)
    print(f"\nsendfile through one more hop: {statistics.median(hops) / 1e9:.2f} GB/s ({rounds})")
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    told = [
        Measured(
            f"GET {size / MB:g} MB, {clients} clients, by {name}", "GB/s", tuple(read.rate / 1e9 for read in reads)
        )
        for (size, clients, name), reads in found.items()
    ]
    if not arguments.coded:
        report("dataplane-long", told)


if __name__ == "__main__":
    main()
