"""Which requests keep a worker from others for long, and for how long.

    make soak MINUTES=30           # or: .venv/bin/python -m bench.soak.run DIRECTORY --minutes 30 [--only NAME]

A standalone store with one worker. Every shape is asked by itself, a few at a time, while a client asks about a small
container again and again. The services tell how late their event loops were, and how much of that was their own work
(`swiftlet_event_loop_lag_seconds`, `swiftlet_event_loop_work_seconds`); a shape that made one of them work for more
than `BAR_S` at a stretch is over the bar. Work is what the loop's thread computed, the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from bench.micro import Measured, report
from bench.soak.client import Client
from bench.soak.prepare import prepare
from bench.soak.shapes import SHAPES
from e2e.standalone.cluster import Cluster, start_cluster

BAR_S = 0.1
AT_ONCE = 3
TOLD = 5
"""So many kinds of requests are reported by name."""
_SAMPLE = re.compile(
    r'^swiftlet_event_loop_(lag|work)_seconds_bucket\{le="([^"]+)",service="([^"]+)"\} (\S+)$', re.MULTILINE
)
Buckets = Mapping[tuple[str, str, float], float]
"""By kind, service and bound: how many looks were up to that."""


@dataclass
class Cost:
    """The limit of what a shape may cost, in seconds."""

    runs: int = 0
    statuses: set[int] = field(default_factory=set)
    seconds: float = 0.0
    probe: float = 0.0
    """How long the other client waited."""
    lag: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    """By service, the bound of the highest bucket that was met."""


async def buckets(session: aiohttp.ClientSession, cluster: Cluster) -> Buckets:
    """What all services have measured so far."""
    found: dict[tuple[str, str, float], float] = {}
    for name in cluster.services:
        async with session.get(f"{cluster.management_url(name)}/metrics") as answer:
            for kind, bound, _, count in _SAMPLE.findall(await answer.text()):
                found[kind, name, float(bound)] = float(count)
    return found


def highest(before: Buckets, after: Buckets, kind: str) -> dict[str, float]:
    """The bound of the highest bucket that has got something since, by service."""
    found: dict[str, float] = {}
    for service in {key[1] for key in after if key[0] == kind}:
        below = 0.0
        for bound in sorted(key[2] for key in after if key[:2] == (kind, service)):
            here = after[kind, service, bound] - before.get((kind, service, bound), 0.0)
            if here > below:
                found[service], below = bound, here
    return found


@asynccontextmanager
async def probing(client: Client, cost: Cost) -> AsyncIterator[None]:
    """Somebody else's requests meanwhile."""

    async def ask() -> None:
        while True:
            began = time.perf_counter()
            await client.call("HEAD", "c")
            cost.probe = max(cost.probe, time.perf_counter() - began)
            await asyncio.sleep(0.02)

    task = asyncio.ensure_future(ask())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def run_shape(session: aiohttp.ClientSession, cluster: Cluster, client: Client, name: str, cost: Cost) -> None:
    """Once, a few at a time."""
    before, began = await buckets(session, cluster), time.perf_counter()
    async with probing(client, cost):
        told = await asyncio.gather(*(SHAPES[name](client) for _ in range(AT_ONCE)))
        cost.seconds = max(cost.seconds, time.perf_counter() - began)
        await asyncio.sleep(0.25)
    after = await buckets(session, cluster)
    cost.runs += 1
    cost.statuses |= {one.status for one in told}
    for kind, kept in (("lag", cost.lag), ("work", cost.work)):
        for service, bound in highest(before, after, kind).items():
            kept[service] = max(kept.get(service, 0.0), bound)


def table(costs: Mapping[str, Cost]) -> str:
    """The costs as Markdown, the worst first."""

    def worst(of: Mapping[str, float]) -> tuple[float, str]:
        return max(((bound, service) for service, bound in of.items()), default=(0.0, ""))

    lines = [
        "| shape | runs | statuses | seconds | another client waited | loop late | loop worked |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cost in sorted(costs.items(), key=lambda item: (worst(item[1].work), worst(item[1].lag)), reverse=True):
        statuses = ", ".join(map(str, sorted(cost.statuses)))
        (lag, late), (work, busy) = worst(cost.lag), worst(cost.work)
        over = " **over**" if work > BAR_S else ""
        lines.append(
            f"| {name} | {cost.runs} | {statuses} | {cost.seconds:.2f} | {cost.probe:.3f} s "
            f"| up to {lag:g} s ({late}) | up to {work:g} s ({busy}){over} |"
        )
    return "\n".join(lines)


def reported(costs: Mapping[str, Cost]) -> Iterator[Measured]:
    """The number of kinds of requests, and those that kept a worker for the longest time."""
    longest = {name: max(cost.work.values(), default=0.0) for name, cost in costs.items()}
    yield Measured("kinds of requests", "kinds", (len(longest),))
    yield Measured(f"of them over {BAR_S * 1e3:g} ms of work", "kinds", (sum(s > BAR_S for s in longest.values()),))
    for name in sorted(longest, key=lambda one: longest[one], reverse=True)[:TOLD]:
        yield Measured(f"{name}, work of a loop, at most", "ms", (longest[name] * 1e3,))


async def soak(cluster: Cluster, minutes: float, only: str) -> dict[str, Cost]:
    """All shapes in turn until the time is over, each once at least."""
    timeout = aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(timeout=timeout, max_field_size=65_536, max_line_size=65_536) as session:
        login = {"X-Auth-User": cluster.user, "X-Auth-Key": cluster.key}
        async with session.get(cluster.auth_url, headers=login) as answer:
            client = Client(session, answer.headers["X-Storage-Url"], answer.headers["X-Auth-Token"])
        began = time.monotonic()
        await prepare(client)
        print(f"prepared in {time.monotonic() - began:.0f} s", flush=True)
        costs = {name: Cost() for name in SHAPES if only in name}
        end, rounds = time.monotonic() + minutes * 60, 0
        while not rounds or time.monotonic() < end:
            for name, cost in costs.items():
                if rounds and time.monotonic() >= end:
                    break
                await run_shape(session, cluster, client, name, cost)
            rounds += 1
        return costs


def main() -> int:
    """Run, and print the table; 1 when a shape is over the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="shapes whose names contain this")
    options = parser.parse_args()
    cluster = start_cluster(options.directory, "--workers", "1")
    try:
        costs = asyncio.run(soak(cluster, options.minutes, options.only))
    finally:
        cluster.stop()
    print(table(costs))
    report("soak", list(reported(costs)))
    return int(any(bound > BAR_S for cost in costs.values() for bound in cost.work.values()))


if __name__ == "__main__":
    raise SystemExit(main())
