"""Small objects through the proxy, with object servers spoken to over HTTP and natively: rates and processor time.

    .venv/bin/python -m bench.dataplane.proxy DIRECTORY [--rounds 3] [--seconds 10]

Runs two standalone stores in the directory, one per transport, and measures them in turns with wrk (Debian package
`wrk`): requests per second are what the machine had left over at that time, so compare processor time per request, and
only within one run. It is what the store's processes used, by kind, of user and system time together; the idle
share, measured beforehand in the same store, is taken off.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.baseline.run import Figures, wrk
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

    def __init__(self, transport: str, cluster: Cluster) -> None:
        """Measure what it uses while nothing is asked of it."""
        self.transport = transport
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
                used[kind] += sum(_seconds(one) for one in (pid, *children_of(pid)))
        return used

    def measure(self, script: str, seconds: int) -> Round:
        """Run a script: PUTs into a container of their own, GETs of what the last ones made."""
        if script == "put.lua":
            self._count += 1
            self._container = f"bench-{self._count}"
            self.client.call("PUT", self._container)
        before, began = self._used(), time.monotonic()
        figures = wrk(self.client, script, self._container, CLIENTS, seconds, max(1, self._puts - CLIENTS))
        took, after = time.monotonic() - began, self._used()
        assert not figures.failed, figures
        if script == "put.lua":
            self._puts = figures.requests
        cpu = {k: (after[k] - before[k] - self._idle[k] * took) / figures.requests * 1000 for k in KINDS}
        return Round(figures, cpu)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def children_of(pid: int) -> list[int]:
    """The processes that one has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def store(directory: Path, transport: str) -> Iterator[Store]:
    """A store that runs."""
    cluster = start_cluster(directory / transport, "--object-transport", transport)
    try:
        yield Store(transport, cluster)
    finally:
        cluster.stop()


def in_turns(stores: Sequence[Store], rounds: int, seconds: int) -> dict[tuple[str, str], list[Round]]:
    """PUTs, then GETs, of each store in turn, by operation and the store's `transport`; prints the machine's load."""
    found: dict[tuple[str, str], list[Round]] = {}
    load = []
    for _ in range(rounds):
        for operation, script in (("PUT 10 KiB", "put.lua"), ("GET 10 KiB", "get.lua")):
            for one in stores:
                load.append(os.getloadavg()[0])
                found.setdefault((operation, one.transport), []).append(one.measure(script, seconds))
    print(f"load (1 minute) {min(load):.1f} to {max(load):.1f}, {os.cpu_count()} processors\n")
    return found


def row(operation: str, transport: str, rounds: list[Round]) -> str:
    """The medians of all rounds."""
    rate = statistics.median(one.figures.per_second for one in rounds)
    p50, p99 = (statistics.median(getattr(one.figures, name) for one in rounds) for name in ("p50_ms", "p99_ms"))
    cpu = [statistics.median(one.cpu_ms[kind] for one in rounds) for kind in KINDS]
    figures = " | ".join(f"{value:.2f}" for value in (*cpu, sum(cpu)))
    return f"| {operation} | {transport} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {figures} |"


def ratio(operation: str, http: list[Round], native: list[Round]) -> str:
    """HTTP's processor time as a multiple of the native one's: the median over pairs of rounds next to each other."""
    parts = []
    for kinds in (("proxy",), ("object",), KINDS):
        pairs = [
            (sum(h.cpu_ms[k] for k in kinds), sum(n.cpu_ms[k] for k in kinds))
            for h, n in zip(http, native, strict=True)
        ]
        parts.append(f"{statistics.median(h / n for h, n in pairs):.2f}")
    return f"| {operation} | " + " | ".join(parts) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 4 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=10, help="length of each (default 10)")
    arguments = parser.parse_args()
    with store(arguments.directory, "http") as http, store(arguments.directory, "native") as native:
        found = in_turns((http, native), arguments.rounds, arguments.seconds)
    print("| operation | transport | requests/s | p50 ms | p99 ms | CPU ms each: proxy | object | container | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (operation, transport), rounds in sorted(found.items(), reverse=True):
        print(row(operation, transport, rounds))
    print("\n| CPU, HTTP as a multiple of native | proxy | object servers | all |\n|---|---|---|---|")
    for operation in ("PUT 10 KiB", "GET 10 KiB"):
        print(ratio(operation, found[operation, "http"], found[operation, "native"]))


if __name__ == "__main__":
    main()
