"""Small objects that many clients store in one container and in many: whether the front keeps its rate.

    .venv/bin/python -m bench.dataplane.many DIRECTORY [--rounds 5] [--seconds 10] [--clients 200] [--containers 1000]

One standalone store; PUTs of new objects of 10 KiB into one container and into many, in turns. Each round writes to the
same containers: the first shows what it takes until the proxies know them, the others what they reach then.
"""

from __future__ import annotations

import argparse
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.baseline.wrk import Figures, wrk
from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client

MAKERS = 8
"""Threads that make containers."""


def prepare(client: Client, prefix: str, containers: int) -> None:
    """Make the containers that `put.lua` writes to."""
    names = [prefix] if containers == 1 else [f"{prefix}-{number}" for number in range(containers)]
    with ThreadPoolExecutor(MAKERS) as pool:
        statuses = set(pool.map(lambda name: client.call("PUT", name).status, names))
    assert statuses <= {201, 202}, statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the store's data goes; about 10 GB")
    parser.add_argument("--rounds", type=int, default=5, help="the medians of all but the first count (default 5)")
    parser.add_argument("--seconds", type=int, default=10, help="length of each (default 10)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the proxy (default 2)")
    parser.add_argument("--clients", type=int, default=200, help="clients at the same time (default 200)")
    parser.add_argument("--containers", type=int, default=1000, help="how many are many (default 1,000)")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds: the first does not count, so there have to be two at least")
    cluster = start_cluster(arguments.directory / "store", "--workers", str(arguments.workers))
    found: dict[int, list[Figures]] = {1: [], arguments.containers: []}
    load = []
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        for containers in found:
            prepare(client, f"bench-{containers}", containers)
        for number in range(arguments.rounds):
            for containers, figures in found.items():
                load.append(os.getloadavg()[0])
                one = wrk(
                    client,
                    "put.lua",
                    f"bench-{containers}",
                    arguments.clients,
                    arguments.seconds,
                    containers=containers,
                    names=f"{number}-",
                )
                assert not one.failed, one
                figures.append(one)
    finally:
        cluster.stop()
    print(f"load (1 minute) {min(load):.1f} to {max(load):.1f}, {os.cpu_count()} processors\n")
    print("| containers | first round, PUT/s | PUT/s | p50 ms | p99 ms | each round |")
    print("|---|---|---|---|---|---|")
    for containers, figures in found.items():
        rate, p50, p99 = (
            statistics.median(getattr(one, name) for one in figures[1:]) for name in ("per_second", "p50_ms", "p99_ms")
        )
        each = ", ".join(f"{one.per_second:,.0f}" for one in figures[1:])
        print(f"| {containers:,} | {figures[0].per_second:,.0f} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {each} |")
    ratios = [many.per_second / one.per_second for one, many in zip(found[1], found[arguments.containers], strict=True)]
    print(f"\nmany containers reach {statistics.median(ratios[1:]):.2f} of the rate of one, {ratios[0]:.2f} at first")


if __name__ == "__main__":
    main()
