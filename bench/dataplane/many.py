"""Small objects that many clients store in one container and in many: whether the front keeps its rate.

    .venv/bin/python -m bench.dataplane.many DIRECTORY [--rounds 3] [--seconds 8] [--clients 200] [--containers 1000]

One standalone store; PUTs of 10 KiB into one container and into many, in turns. Python decides about each container and
worker anew all the time, so many containers cost what one does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.baseline.wrk import SMALL, Figures, wrk
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
    parser.add_argument("directory", type=Path, help="where the store's data goes; about 4 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of each (default 8)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the proxy (default 2)")
    parser.add_argument("--clients", type=int, default=200, help="clients at the same time (default 200)")
    parser.add_argument("--containers", type=int, default=1000, help="how many are many (default 1,000)")
    arguments = parser.parse_args()
    cluster = start_cluster(arguments.directory / "store", "--workers", str(arguments.workers))
    found: dict[int, list[Figures]] = {1: [], arguments.containers: []}
    load = []
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        for number in range(arguments.rounds):
            for containers, figures in found.items():
                prefix = f"bench-{containers}-{number}"
                prepare(client, prefix, containers)
                load.append(os.getloadavg()[0])
                one = wrk(
                    client, "put.lua", prefix, arguments.clients, arguments.seconds, 1, SMALL, containers=containers
                )
                assert not one.failed, one
                figures.append(one)
    finally:
        cluster.stop()
    print(f"load (1 minute) {min(load):.1f} to {max(load):.1f}, {os.cpu_count()} processors\n")
    print("| containers | PUT/s | p50 ms | p99 ms | each round |")
    print("|---|---|---|---|---|")
    for containers, figures in found.items():
        rate, p50, p99 = (
            statistics.median(getattr(one, name) for one in figures) for name in ("per_second", "p50_ms", "p99_ms")
        )
        each = ", ".join(f"{one.per_second:,.0f}" for one in figures)
        print(f"| {containers:,} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {each} |")
    ratios = [many.per_second / one.per_second for one, many in zip(found[1], found[arguments.containers], strict=True)]
    print(f"\nmany containers reach {statistics.median(ratios):.2f} of the rate of one")


if __name__ == "__main__":
    main()
