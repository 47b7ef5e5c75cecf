"""One large object through the proxy, durable in three copies, beside what MD5 and the disk can do.

    make bench-large               # or: .venv/bin/python -m bench.dataplane.large DIRECTORY... [--mib 1024]

In each directory a standalone store is started. In turns, each round computes the MD5 of as many bytes on one core,
writes three files of them one after the other with one fsync each, uploads them as one object over one connection, and
downloads it from page cache. The limit of an upload is the slower of the first two: the object has to be digested as
a whole, and three copies have to be on the disk. The client sends with sendfile and drops what it receives within the
kernel (MSG_TRUNC), so that it costs little of the processors that it shares with the store. The object's ETag is
compared each time, and the bytes of the first download.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swiftlet_native import Hasher

from bench.micro import Measured, report
from bench.peers.processes import family_of, seconds_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

KINDS = ("proxy", "object", "container")
COPIES = 3
_MIB = 1 << 20
_BLOCK_BYTES = 64 * _MIB
"""The object's bytes are a block of random ones, again and again."""
_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Transfer:
    """One way of moving the object's bytes."""

    rate: float
    """The bytes that the client receives or sends in a second."""
    cpu_s: dict[str, float]
    """Processor seconds per GB, by kind of process; of the client, too."""


class Source:
    """The bytes of the object, in memory and as a file of which any part can be sent."""

    def __init__(self, size: int) -> None:
        """The object has `size` bytes."""
        self.size = size
        self.block = random.Random(1).randbytes(min(size, _BLOCK_BYTES))
        self.file = os.memfd_create("large")
        os.write(self.file, self.block)
        digest = hashlib.md5(usedforsecurity=False)
        for length in self._lengths(len(self.block)):
            digest.update(memoryview(self.block)[:length])
        self.md5 = digest.hexdigest()

    def _lengths(self, piece: int) -> list[int]:
        whole, rest = divmod(self.size, piece)
        return [piece] * whole + [rest] * (rest > 0)

    def digest(self) -> None:
        """The MD5 of all bytes, on this core, a MiB that is in the cache at a time."""
        hasher = Hasher(md5=True, xxh3=False)
        for length in self._lengths(_MIB):
            hasher.update(memoryview(self.block)[:length])
        hasher.md5_digest()

    def copies(self, directory: Path) -> None:
        """Files of all bytes, one after the other, each on the disk before the next."""
        for number in range(COPIES):
            path = directory / f"copy-{number}"
            with path.open("wb", buffering=0) as file:
                for length in self._lengths(_MIB):
                    file.write(memoryview(self.block)[:length])
                os.fsync(file.fileno())

    def send(self, to: socket.socket) -> None:
        """All bytes, from the page cache to the socket."""
        for length in self._lengths(len(self.block)):
            sent = 0
            while sent < length:
                sent += os.sendfile(to.fileno(), self.file, sent, length - sent)


class Store:
    """A store with one object."""

    def __init__(self, directory: Path, source: Source) -> None:
        """Start it; its data goes into the directory."""
        self.directory = directory
        self.source = source
        self.cluster: Cluster = start_cluster(directory / "store")
        self.client = Client(self.cluster.endpoint, self.cluster.user, self.cluster.key)
        assert self.client.call("PUT", "large").status == 201
        self._count = 0

    def connect(self) -> socket.socket:
        """A connection to the proxy."""
        parts = urlsplit(self.cluster.endpoint)
        connection = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=600)
        # A socket with a timeout is asked twice for everything.
        connection.setblocking(True)
        return connection

    def head(self, method: str, headers: dict[str, str]) -> bytes:
        """The head of a request for the object."""
        lines = [f"{method} {self.client.base}/large/{self._count} HTTP/1.1", "Host: bench"]
        fields = {"X-Auth-Token": self.client.token, **headers}
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields.items()), "", ""]).encode()

    def put(self) -> None:
        """Upload a new object."""
        with self.connect() as connection:
            connection.sendall(self.head("PUT", {"Content-Length": str(self.source.size)}))
            self.source.send(connection)
            status, fields, _ = read_head(connection)
        assert (status, fields.get("etag")) == (201, self.source.md5), (status, fields)

    def check(self) -> None:
        """Download it and compare the bytes."""
        self.get(check=True)

    def get(self, check: bool = False) -> None:
        """Download it; with `check` compare the bytes, too."""
        buffer, digest = bytearray(_MIB), hashlib.md5(usedforsecurity=False)
        with self.connect() as connection:
            connection.sendall(self.head("GET", {}))
            status, _, rest = read_head(connection)
            assert status == 200, status
            digest.update(rest)
            left = self.source.size - len(rest)
            while left and (count := connection.recv_into(buffer, 0, 0 if check else socket.MSG_TRUNC)):
                left -= count
                if check:
                    digest.update(memoryview(buffer)[:count])
        assert not left, f"{left} bytes are missing"
        assert not check or digest.hexdigest() == self.source.md5

    def replace(self) -> None:
        """Delete the object; the next one has another name."""
        assert self.client.call("DELETE", f"large/{self._count}").status == 204
        self._count += 1

    def used(self) -> dict[str, float]:
        """Processor seconds so far, by kind of process."""
        return used_by(self.cluster)


def used_by(cluster: Cluster) -> dict[str, float]:
    """Processor seconds that a store's services have taken so far, by kind, and those of this process as the client."""
    found = dict.fromkeys(KINDS, 0.0)
    for name, pid in cluster.pids.items():
        kind = name.split("-")[0]
        if kind in found:
            found[kind] += sum(seconds_of(one) for one in family_of(pid))
    return found | {"client": time.process_time()}


def read_head(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers with their names in lower case, and what has come of the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(_HEAD_BYTES)
        assert more, received
        received += more
    head, _, rest = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), {name.lower(): value for name, value in fields.items()}, rest


def measure(run: Callable[[], None], size: int, used: Callable[[], dict[str, float]]) -> Transfer:
    """How fast `size` bytes went."""
    before, began = used(), time.monotonic()
    run()
    took, after = time.monotonic() - began, used()
    return Transfer(size / took, {kind: (after[kind] - before[kind]) / size * 1e9 for kind in before})


def in_turns(store: Store, rounds: int) -> dict[str, list[Transfer]]:
    """Both limits, upload and download, in turns."""
    source, found = store.source, dict[str, list[Transfer]]()
    files = store.directory / "files"
    files.mkdir(exist_ok=True)
    for number in range(rounds + 1):
        runs = {
            "MD5": source.digest,
            "files": lambda: source.copies(files),
            "PUT": store.put,
            "GET": store.get if number else store.check,
        }
        for name, run in runs.items():
            transfer = measure(run, source.size, store.used)
            if name == "files":
                shutil.rmtree(files)
                files.mkdir()
            # The first round touches memory for the first time, and checks every byte.
            if number:
                found.setdefault(name, []).append(transfer)
        store.replace()
    return found


def show(where: str, found: dict[str, list[Transfer]]) -> Iterator[Measured]:
    """Print what was found, and yield what is told on the page of all measurements."""
    rate = {name: statistics.median(one.rate for one in all_of) for name, all_of in found.items()}
    for name, all_of in found.items():
        rates = ", ".join(f"{one.rate / 1e9:.2f}" for one in all_of)
        cpu = [statistics.median(one.cpu_s[kind] for one in all_of) for kind in (*KINDS, "client")]
        figures = " | ".join(f"{value:.2f}" for value in (*cpu, sum(cpu)))
        print(f"| {where} | {name} | {rate[name] / 1e9:.2f} | {rates} | {figures} |")
        yield Measured(f"{where}: {name}", "GB/s", tuple(one.rate / 1e9 for one in all_of))
    pairs = zip(found["PUT"], found["MD5"], found["files"], strict=True)
    ratios = [put.rate / min(md5.rate, files.rate) for put, md5, files in pairs]
    limit = "MD5" if rate["MD5"] < rate["files"] else "the disk"
    print(
        f"| {where} | PUT : limit, which is {limit} | {statistics.median(ratios):.2f} | "
        f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} | | | | | |"
    )
    yield Measured(f"{where}: PUT by {limit}", "times", tuple(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+", help="where stores' data goes; seven times the object")
    parser.add_argument("--mib", type=int, default=1024, help="size of the object (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    arguments = parser.parse_args()
    source = Source(arguments.mib * _MIB)
    print(f"{arguments.mib} MiB; load (1 minute) {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
    print("| where | what | GB/s | rounds | CPU s per GB: proxy | object | container | client | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    told: list[Measured] = []
    for directory in arguments.directories:
        store = Store(directory, source)
        try:
            told += show(str(directory), in_turns(store, arguments.rounds))
        finally:
            store.cluster.stop()
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    report("dataplane-large", told)


if __name__ == "__main__":
    main()
