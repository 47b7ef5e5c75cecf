"""Small objects through both proxies: 10 KiB PUT and GET from 20 clients, three replicas, on the same disk.

The two stores run one after the other, in turns: neither takes processors from the other.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.baseline.wrk import Figures, wrk
from bench.micro import Measured
from bench.peers.openstack import KEY, PROXY_PORT, USER, OpenStack
from bench.peers.processes import family_of, seconds_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

CLIENTS, NODES, REPLICAS, PART_POWER = 20, 4, 3, 7
_STARTS = 5
OPERATIONS = {"PUT 10 KiB": "put.lua", "GET 10 KiB": "get.lua"}
BARS = {"PUT 10 KiB": 40, "GET 10 KiB": 25}
"""How many times OpenStack Swift's rate ours is to have."""
HEAD = (
    "| operation | system | requests/s | p50 ms | p99 ms | CPU ms a request | each round's requests/s |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Round:
    """One run of wrk."""

    figures: Figures
    cpu_ms: float
    """Per request, of all processes of the store."""


@contextmanager
def openstack(directory: Path) -> Iterator[tuple[Client, Callable[[], float]]]:
    """OpenStack Swift, running, and its processor time."""
    cluster = OpenStack(directory, NODES, REPLICAS, PART_POWER)
    try:
        cluster.start_storage(("object", "container", "account"))
        cluster.start_proxy()
        time.sleep(1)
        yield Client(f"http://127.0.0.1:{PROXY_PORT}", USER, KEY), cluster.cpu_s
    finally:
        cluster.stop()


@contextmanager
def swiftlet(directory: Path, *options: str) -> Iterator[tuple[Client, Callable[[], float]]]:
    """Our own store, running, and its processor time."""
    cluster = _started(directory, options)
    try:
        # As in a store that has been running for a quarter of a minute.
        cluster.wait_until_proved()
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        yield client, lambda: sum(seconds_of(one) for one in family_of(cluster.process.pid))
    finally:
        cluster.stop()


def one_worker(directory: Path) -> AbstractContextManager[tuple[Client, Callable[[], float]]]:
    """Our own store with one worker of each service."""
    return swiftlet(directory, "--workers", "1")


def _started(directory: Path, options: tuple[str, ...]) -> Cluster:
    """A store; one that a busy machine did not let start in time is started once more."""
    for _ in range(_STARTS - 1):
        try:
            return start_cluster(directory, *options)
        except AssertionError:
            time.sleep(5)
    return start_cluster(directory, *options)


OURS = ("Swiftlet, as it comes", "Swiftlet, one worker")
"""Swiftlet is measured as it comes, with two workers per service, and with one worker per service, which leaves more
of the two processors to the clients.
"""
SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[tuple[Client, Callable[[], float]]]]] = {
    OURS[0]: swiftlet,
    OURS[1]: one_worker,
    "OpenStack": openstack,
}


def measure(directory: Path, rounds: int, seconds: int) -> dict[tuple[str, str], list[Round]]:
    """Rounds by operation and system."""
    found: dict[tuple[str, str], list[Round]] = {}
    for number in range(rounds):
        for system, running in SYSTEMS.items():
            place = directory / f"{list(SYSTEMS).index(system)}-{number}"
            with running(place) as (client, cpu_s):
                container, count = "bench", 1
                answer = client.call("PUT", container)
                assert answer.status in {201, 202}, answer
                for operation, script in OPERATIONS.items():
                    used_s = cpu_s()
                    figures = wrk(client, script, container, CLIENTS, seconds, count)
                    used_s = cpu_s() - used_s
                    count = max(1, figures.requests - CLIENTS)
                    assert figures.failed <= figures.requests // 100, (system, figures)
                    round_ = Round(figures, used_s / figures.requests * 1000)
                    found.setdefault((operation, system), []).append(round_)
            shutil.rmtree(place)
    return found


def rows(found: dict[tuple[str, str], list[Round]]) -> Iterable[str]:
    """The table: medians, and each round's rate."""
    yield HEAD
    for (operation, system), rounds in found.items():
        rate, p50, p99 = (
            statistics.median(getattr(one.figures, name) for one in rounds)
            for name in ("per_second", "p50_ms", "p99_ms")
        )
        cpu_ms = statistics.median(one.cpu_ms for one in rounds)
        each = ", ".join(f"{one.figures.per_second:,.0f}" for one in rounds)
        yield f"| {operation} | {system} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {cpu_ms:.2f} | {each} |"
    yield "\n| ours as a multiple of OpenStack's | | requests/s | CPU | wanted |\n|---|---|---|---|---|"
    for operation, bar in BARS.items():
        for ours in OURS:
            rate, cpu = (statistics.median(each) for each in ratios(found, operation, ours))
            yield f"| {operation} | {ours} | {rate:.1f} x | {cpu:.1f} x less | {bar} x |"


def ratios(found: Mapping[tuple[str, str], list[Round]], operation: str, ours: str) -> tuple[list[float], list[float]]:
    """Return how many times OpenStack's rate ours has in each round, and how many times less processor time."""
    pairs = list(zip(found[operation, ours], found[operation, "OpenStack"], strict=True))
    rates = [a.figures.per_second / b.figures.per_second for a, b in pairs]
    return rates, [b.cpu_ms / a.cpu_ms for a, b in pairs]


def reported(found: Mapping[tuple[str, str], list[Round]]) -> Iterator[Measured]:
    """Yield what the page of all measurements has of it."""
    for (operation, system), rounds in found.items():
        yield Measured(f"{operation}, {system}", "1/s", tuple(one.figures.per_second for one in rounds))
        taken = tuple(one.cpu_ms for one in rounds)
        yield Measured(f"{operation}, {system}, processor time of all", "ms", taken)
    for operation, bar in BARS.items():
        for ours in OURS:
            rates, _ = ratios(found, operation, ours)
            yield Measured(f"{operation}, {ours}, by OpenStack's rate (bar {bar})", "times", tuple(rates))
