"""Small objects through the proxy: rates and processor time.

    .venv/bin/python -m bench.dataplane.proxy DIRECTORY [--rounds 3] [--seconds 10]

Runs a standalone store in the directory and measures it with wrk (Debian package `wrk`): requests per second are what
the machine had left over at that time, so compare processor time per request. It is what the store's processes used, by
kind, of user and system time together; the idle share, measured beforehand in the same store, is taken off. Benchmarks
of two stores measure them in turns with what is here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.baseline.wrk import SMALL, Figures, wrk
from bench.micro import Measured
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

CLIENTS = 20
KINDS = ("proxy", "object", "container")
IDLE_S = 5.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """One run of wrk against one store."""

    figures: Figures
    cpu_ms: dict[str, float]
    """Per request, by kind of process."""


class Store:
    """A store, and what its processes use."""

    def __init__(self, name: str, cluster: Cluster, clients: int = CLIENTS, size: int = SMALL) -> None:
        """Measure what it uses while nothing is asked of it; `clients` ask later at the same time, for objects of
        `size` bytes.
        """
        self.name = name
        self.clients = clients
        self.size = size
        self.cluster = cluster
        self.client = Client(cluster.endpoint, cluster.user, cluster.key)
        self._container = ""
        self._count = 0
        self._puts = 0
        before = self._used()
        time.sleep(IDLE_S)
        self._idle = {kind: (used - before[kind]) / IDLE_S for kind, used in self._used().items()}

    def _used(self) -> dict[str, float]:
        """Seconds of processor time so far, by kind."""
        used = dict.fromkeys(KINDS, 0.0)
        for name, pid in self.cluster.pids.items():
            kind = name.split("-")[0]
            if kind in used:
                used[kind] += sum(seconds_of(one) for one in (pid, *children_of(pid)))
        return used

    def measure(self, script: str, seconds: int) -> Round:
        """Run a script: PUTs into a container of their own, GETs of what the last ones made."""
        if script == "put.lua":
            self._count += 1
            self._container = f"bench-{self.size}-{self._count}"
            self.client.call("PUT", self._container)
        before, began = self._used(), time.monotonic()
        made = max(1, self._puts - self.clients)
        figures = wrk(self.client, script, self._container, self.clients, seconds, made, self.size)
        took, after = time.monotonic() - began, self._used()
        assert not figures.failed, figures
        if script == "put.lua":
            self._puts = figures.requests
        cpu = {k: (after[k] - before[k] - self._idle[k] * took) / figures.requests * 1000 for k in KINDS}
        return Round(figures, cpu)


def seconds_of(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def children_of(pid: int) -> list[int]:
    """The processes that one has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def store(directory: Path) -> Iterator[Store]:
    """A store that runs."""
    cluster = start_cluster(directory / "store")
    try:
        yield Store("store", cluster)
    finally:
        cluster.stop()


def reported(operation: str, name: str, rounds: Sequence[Round]) -> Iterator[Measured]:
    """What is told of an operation of a store on the page of all measurements."""
    yield Measured(f"{operation}, {name}", "1/s", tuple(one.figures.per_second for one in rounds))
    yield Measured(f"{operation}, {name}, 99th percentile", "ms", tuple(one.figures.p99_ms for one in rounds))
    taken = tuple(sum(one.cpu_ms.values()) for one in rounds)
    yield Measured(f"{operation}, {name}, processor time of all", "ms", taken)


OPERATIONS = {"PUT 10 KiB": "put.lua", "GET 10 KiB": "get.lua"}
"""Scripts by what they measure."""


def in_turns(
    stores: Sequence[Store], rounds: int, seconds: int, operations: Mapping[str, str] = OPERATIONS
) -> dict[tuple[str, str], list[Round]]:
    """Each operation of each store in turn, by operation and the store's `name`; prints the machine's load."""
    found: dict[tuple[str, str], list[Round]] = {}
    load = []
    for _ in range(rounds):
        for operation, script in operations.items():
            for one in stores:
                load.append(os.getloadavg()[0])
                found.setdefault((operation, one.name), []).append(one.measure(script, seconds))
    print(f"load (1 minute) {min(load):.1f} to {max(load):.1f}, {os.cpu_count()} processors\n")
    return found


def row(operation: str, name: str, rounds: list[Round]) -> str:
    """The medians of all rounds."""
    rate = statistics.median(one.figures.per_second for one in rounds)
    p50, p99 = (statistics.median(getattr(one.figures, name) for one in rounds) for name in ("p50_ms", "p99_ms"))
    cpu = [statistics.median(one.cpu_ms[kind] for one in rounds) for kind in KINDS]
    figures = " | ".join(f"{value:.2f}" for value in (*cpu, sum(cpu)))
    return f"| {operation} | {name} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 2 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=10, help="length of each (default 10)")
    arguments = parser.parse_args()
    with store(arguments.directory) as one:
        found = in_turns((one,), arguments.rounds, arguments.seconds)
    print("| operation | store | requests/s | p50 ms | p99 ms | CPU ms each: proxy | object | container | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (operation, name), rounds in sorted(found.items(), reverse=True):
        print(row(operation, name, rounds))


if __name__ == "__main__":
    main()
