"""PUT with ETags by MD5 and by xxh3 in turns, and what the hashes cost alone.

    .venv/bin/python -m bench.dataplane.etags DIRECTORY... [--rounds 3] [--mib 1024]

In each directory a standalone store is started with a policy of each kind. Each round uploads objects of 10 KiB and
1 MiB in several turns and one of `--mib` MiB into both policies, over one connection, and deletes them. What counts is
the ratio within one run: how long a PUT takes, and how much processor time of the proxy and of all services. The ratio
is that of the medians; behind it stand the quartiles of the turns' own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swiftlet_native import Hasher, xxh3_64, xxh3_128

from bench.dataplane.large import KINDS, Source, read_head
from bench.micro import Measured, report
from bench.peers.processes import family_of, seconds_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

ETAGS = ("md5", "xxh3")
"""Policies' names, the hash in their ETags, and the containers that have them."""
_MIB = 1 << 20
_KIB = 1 << 10


@dataclass(frozen=True)
class Cost:
    """The seconds that one PUT took: by the clock, and of processors in the proxy and in all services."""

    wall: float
    proxy: float
    all: float


class Store:
    """A store with a container of each kind."""

    def __init__(self, directory: Path) -> None:
        """Start it; its data goes into the directory."""
        policies = [{"index": at, "name": kind, "default": at == 0, "etag": kind} for at, kind in enumerate(ETAGS)]
        settings = {"SWIFTLET_POLICIES": json.dumps(policies)}
        self.cluster: Cluster = start_cluster(directory / "store", "--policies", ",".join(ETAGS), settings=settings)
        self._client = Client(self.cluster.endpoint, self.cluster.user, self.cluster.key)
        for kind in ETAGS:
            assert self._client.call("PUT", kind, headers={"X-Storage-Policy": kind}).status == 201
        self._count = 0

    def put(self, kind: str, source: Source, count: int) -> Cost:
        """Upload so many new objects one after the other, and delete them."""
        parts = urlsplit(self.cluster.endpoint)
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=600) as connection:
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            before, began = self._used(), time.monotonic()
            names = [self._put(connection, kind, source) for _ in range(count)]
            wall, after = time.monotonic() - began, self._used()
        for name in names:
            assert self._client.call("DELETE", name).status == 204
        used = {one: (after[one] - before[one]) / count for one in before}
        return Cost(wall / count, used["proxy"], sum(used.values()))

    def _put(self, connection: socket.socket, kind: str, source: Source) -> str:
        self._count += 1
        name = f"{kind}/{self._count}"
        fields = {"Host": "bench", "X-Auth-Token": self._client.token, "Content-Type": "application/octet-stream"}
        lines = [f"PUT {self._client.base}/{name} HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items())]
        connection.sendall("\r\n".join([*lines, f"Content-Length: {source.size}", "", ""]).encode())
        source.send(connection)
        status, answered, _ = read_head(connection)
        assert status == 201, (status, answered)
        assert answered["etag"].startswith("xxh3-") == (kind == "xxh3"), answered
        return name

    def _used(self) -> dict[str, float]:
        found = dict.fromkeys(KINDS, 0.0)
        for name, pid in self.cluster.pids.items():
            if (kind := name.split("-")[0]) in found:
                found[kind] += sum(seconds_of(one) for one in family_of(pid))
        return found


def hashes(rounds: int) -> Iterator[Measured]:
    """Print how fast one core computes what an object needs, a MiB in the cache at a time, and 10 KiB as a whole."""
    piece, small = bytes(_MIB), bytes(10 * _KIB)

    def stream(md5: bool, wide: bool) -> None:
        hasher = Hasher(md5=md5)
        for _ in range(256):
            hasher.update(piece)
        hasher.xxh3_64()
        if wide:
            hasher.xxh3_128_hexdigest()

    def smalls(compute: Callable[[bytes], object]) -> None:
        for _ in range(20_000):
            compute(small)

    runs: dict[str, tuple[int, Callable[[], None]]] = {
        "256 MiB in pieces: MD5 and xxh3-64": (256 * _MIB, lambda: stream(md5=True, wide=False)),
        "256 MiB in pieces: xxh3-64": (256 * _MIB, lambda: stream(md5=False, wide=False)),
        "256 MiB in pieces: xxh3-64 and XXH3-128": (256 * _MIB, lambda: stream(md5=False, wide=True)),
        "10 KiB: xxh3-64": (20_000 * len(small), lambda: smalls(xxh3_64)),
        "10 KiB: XXH3-128": (20_000 * len(small), lambda: smalls(xxh3_128)),
    }
    print("| computed on one core | GB per processor second | rounds |\n|---|---|---|")
    for name, (size, run) in runs.items():
        rates = []
        for _ in range(rounds):
            began = time.process_time()
            run()
            rates.append(size / (time.process_time() - began) / 1e9)
        print(f"| {name} | {statistics.median(rates):.2f} | {', '.join(f'{rate:.2f}' for rate in rates)} |")
        yield Measured(name, "GB/s of processor", tuple(rates))


def measure(store: Store, where: str, rounds: int, mib: int, of: str) -> Iterator[Measured]:
    """Upload in turns, and print what that took; `of` tells apart what is told of one of several directories."""
    sizes = (("10 KiB", 10 * _KIB, 200, 4), ("1 MiB", _MIB, 20, 4), (f"{mib} MiB", mib * _MIB, 1, 1))
    for label, size, count, turns in sizes:
        source, found = Source(size), dict[str, list[Cost]]()
        # The first turn touches memory for the first time.
        for number in range(rounds * turns + 1):
            for kind in ETAGS if number % 2 else reversed(ETAGS):
                cost = store.put(kind, source, count)
                if number:
                    found.setdefault(kind, []).append(cost)
        shown = []
        for attribute in ("wall", "proxy", "all"):
            md5, xxh3 = ([getattr(cost, attribute) for cost in found[kind]] for kind in ETAGS)
            medians = statistics.median(md5), statistics.median(xxh3)
            shown += [f"{1e3 * medians[0]:.2f}", f"{1e3 * medians[1]:.2f}", ratio(md5, xxh3)]
        print(f"| {where} | {label} | {' | '.join(shown)} |", flush=True)
        for attribute, what in (("wall", ""), ("all", ", processor time of all")):
            for kind, each in sorted(found.items()):
                took = tuple(1e3 * getattr(cost, attribute) for cost in each)
                yield Measured(f"PUT {label}, {'MD5' if kind == 'md5' else kind}{what}{of}", "ms", took)


def ratio(md5: Sequence[float], xxh3: Sequence[float]) -> str:
    """Return the ratio of the medians; several turns have the quartiles of their own ratios behind it."""
    whole = f"{statistics.median(md5) / statistics.median(xxh3):.2f}"
    if len(md5) == 1:
        return whole
    low, _, high = statistics.quantiles([one / other for one, other in zip(md5, xxh3, strict=True)])
    return f"{whole} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+", help="where stores' data goes; seven times an object")
    parser.add_argument("--mib", type=int, default=1024, help="size of the largest objects (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    arguments = parser.parse_args()
    print(f"load (1 minute) {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
    told = list(hashes(arguments.rounds))
    columns = [f"{what}: {kind}" for what in ("ms each", "CPU ms, proxy", "CPU ms, all") for kind in (*ETAGS, "ratio")]
    print(f"\n| where | PUT | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    for number, directory in enumerate(arguments.directories, 1):
        of = f", directory {number}" if len(arguments.directories) > 1 else ""
        store = Store(directory)
        try:
            told += measure(store, str(directory), arguments.rounds, arguments.mib, of)
        finally:
            store.cluster.stop()
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    report("dataplane-etags", told)


if __name__ == "__main__":
    main()
