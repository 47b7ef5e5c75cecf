"""PUTs per second under precise quotas: writers who share one account, with limits of the container and of the account.

    PYTHONPATH=services .venv/bin/python -m bench.listing.bench_claims DIRECTORY [--writers 50] [--seconds 8]

Runs a standalone store whose quota file is replaced between the rounds, as an operator replaces it. Every writer puts
empty objects one after the other over a connection of its own; a round counts those that were stored.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.micro import Measured, report
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client

PLENTY = 10**12
LIMITS: Mapping[str, Mapping[str, int]] = {
    "none": {},
    "of the container": {"object_count": PLENTY},
    "of the account": {"account_object_count": PLENTY},
    "of both": {"object_count": PLENTY, "account_object_count": PLENTY},
}
SETTLED_S = 2.0
"""Seconds until a replaced quota file is in force, and what was written before has been reported."""


def write(path: Path, limits: Mapping[str, int]) -> None:
    """Put a quota file in the place of the old one."""
    aside = path.with_suffix(".new")
    aside.write_text(yaml.safe_dump({"precise": True, "levels": {"default": dict(limits)}}))
    aside.rename(path)


async def put_all(base: str, token: str, containers: Sequence[str], writers: int, seconds: float) -> list[float]:
    """Seconds that each PUT took, of all writers."""
    took: list[float] = []
    until = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=writers)
    async with aiohttp.ClientSession(connector=connector, headers={"X-Auth-Token": token}) as session:

        async def writer(number: int) -> None:
            count = 0
            while (began := time.monotonic()) < until:
                container = containers[number % len(containers)]
                async with session.put(f"{base}/{container}/{number}-{count % 50}", data=b"") as answer:
                    assert answer.status == 201, (answer.status, await answer.text())
                took.append(time.monotonic() - began)
                count += 1

        await asyncio.gather(*(writer(number) for number in range(writers)))
    return took


def rounds(cluster: Cluster, quotas: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each kind of limit, with all writers in one container and in eight."""
    client, found = Client(cluster.endpoint, cluster.user, cluster.key), []
    names = [f"c{number}" for number in range(8)]
    for name in names:
        assert client.call("PUT", name).status in {201, 202}
    for what, limits in LIMITS.items():
        for containers in (names[:1], names):
            write(quotas, limits)
            time.sleep(SETTLED_S)
            url = cluster.endpoint + client.base
            work = put_all(url, client.token, containers, arguments.writers, arguments.seconds)
            took = sorted(asyncio.run(work))
            per_s, half = len(took) / arguments.seconds, 1000 * took[len(took) // 2]
            print(f"limit {what}, containers {len(containers)}: {per_s:.0f} PUT/s, median {half:.0f} ms", flush=True)
            found.append({"limit": what, "containers": len(containers), "per_s": per_s, "median_ms": half})
    return found


def main() -> None:
    """Run, and print a line per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    quotas = arguments.directory / "quotas.yaml"
    arguments.directory.mkdir(parents=True, exist_ok=True)
    write(quotas, {})
    settings = {"SWIFTLET_QUOTA__FILE": str(quotas), "SWIFTLET_QUOTA__CHECK_INTERVAL_S": "0.5"}
    cluster = start_cluster(arguments.directory / "store", settings=settings)
    try:
        print(f"load {os.getloadavg()[0]:.0f}", flush=True)
        found = rounds(cluster, quotas, arguments)
    finally:
        cluster.stop()
    report("listing-claims", [reported(one) for one in found])


def reported(found: Mapping[str, Any]) -> Measured:
    """Return a round as the page has it."""
    several = "" if found["containers"] == 1 else "s"
    return Measured(f"limit {found['limit']}, {found['containers']} container{several}", "PUT/s", (found["per_s"],))


if __name__ == "__main__":
    main()
