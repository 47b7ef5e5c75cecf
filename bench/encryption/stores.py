"""What encryption between the services costs a store: small and large objects through the proxy, off and on in turns.

    .venv/bin/python -m bench.encryption.stores DIRECTORY [--rounds 3] [--seconds 5] [--mib 1024]

Runs two standalone stores in the directory that differ in `cluster.encryption` alone, and drives them in turns: PUT and
GET of 10 KiB by 20 clients, of 1 MiB by 8, and of one large object by one. The stores' processes speak TCP to each
other, as pods do, and not the shared memory of one machine. Compare processor time, and the ratio of rounds next to
each other: it is what the store's processes used, without the clients; rates are what the machine had left over.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.dataplane.large import KINDS
from bench.micro import Measured, report
from bench.peers.processes import family_of, seconds_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

MODES = ("none", "required")
_NO_SOCKETS = "a-path-that-is-too-long-for-sockets-so-that-services-speak-by-tcp"
_LARGE = "one object"


@dataclass(frozen=True)
class Work:
    """Requests of one kind."""

    name: str
    size: int
    clients: int


@dataclass(frozen=True)
class Figures:
    """One round of them."""

    per_second: float
    cpu_ms: float
    """Processor time of the store, per request."""


class Store:
    """A store in one of the modes."""

    def __init__(self, directory: Path, mode: str) -> None:
        """Start a store with this encryption mode below `directory`."""
        settings = {"SWIFTLET_CLUSTER__ENCRYPTION": mode}
        where = directory / _NO_SOCKETS / mode
        self.cluster: Cluster = start_cluster(where, settings=settings)
        self._clients = [Client(self.cluster.endpoint, self.cluster.user, self.cluster.key) for _ in range(20)]
        assert self._clients[0].call("PUT", "bench").status in (201, 202)
        self._count = 0

    def _used(self) -> float:
        kinds = [pid for name, pid in self.cluster.pids.items() if name.split("-")[0] in KINDS]
        return sum(seconds_of(one) for pid in kinds for one in family_of(pid))

    def measure(self, work: Work, method: str, seconds: float) -> Figures:
        """Requests by all clients at once for so long, at least one by each."""
        body = os.urandom(min(work.size, 1 << 20)) * max(1, work.size >> 20)
        until = time.monotonic() + seconds

        def drive(number: int) -> int:
            done = 0
            while not done or time.monotonic() < until:
                name = f"bench/{work.size}-{number}"
                answer = self._clients[number].call(method, name, body=body if method == "PUT" else b"")
                assert answer.status in (200, 201), answer
                assert method == "PUT" or len(answer.body) == work.size
                done += 1
            return done

        before, began = self._used(), time.monotonic()
        with ThreadPoolExecutor(work.clients) as threads:
            count = sum(threads.map(drive, range(work.clients)))
        took = time.monotonic() - began
        return Figures(count / took, (self._used() - before) / count * 1000)


def in_turns(stores: dict[str, Store], works: list[Work], rounds: int, seconds: float) -> Iterator[Measured]:
    """Measure each kind of work in each mode."""
    for work in works:
        for method in ("PUT", "GET"):
            found: dict[str, list[Figures]] = {mode: [] for mode in stores}
            for _ in range(rounds):
                for mode, store in stores.items():
                    found[mode].append(store.measure(work, method, seconds))
            for mode, figures in found.items():
                what, pairs = f"{method} {work.name}, {mode}", zip(figures, found["none"], strict=True)
                yield Measured(what, "requests/s", tuple(one.per_second for one in figures))
                yield Measured(what, "CPU ms each", tuple(one.cpu_ms for one in figures))
                yield Measured(what, "of the CPU of none", tuple(one.cpu_ms / plain.cpu_ms for one, plain in pairs))


def main() -> None:
    """Measure all modes and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 16 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each (default 5)")
    parser.add_argument("--mib", type=int, default=1024, help="size of the one large object (default 1024)")
    arguments = parser.parse_args()
    works = [
        Work("10 KiB, 20 clients", 10 << 10, 20),
        Work("1 MiB, 8 clients", 1 << 20, 8),
        Work(f"{arguments.mib} MiB, {_LARGE}", arguments.mib << 20, 1),
    ]
    stores: dict[str, Store] = {}
    try:
        for mode in MODES:
            stores[mode] = Store(arguments.directory, mode)
        report("encryption-stores", list(in_turns(stores, works, arguments.rounds, arguments.seconds)))
    finally:
        for store in stores.values():
            store.cluster.stop()


if __name__ == "__main__":
    main()
