"""The front path of a standalone cluster: small and large objects through the proxy, three durable replicas.

    make bench-baseline            # or: .venv/bin/python -m bench.baseline.run --seconds 10

Starts a cluster of its own in a temporary directory (four object servers, three container servers, two proxy
workers) and drives it with `swiftlet bench` on the same machine, so the load generator shares the processors with the
cluster. Absolute numbers move with the machine: compare only what was measured in one run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.micro import Measured, report
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.figures import (
    BYTES_PER_S,
    CPU,
    FAILED,
    GENERATOR_CPU,
    OPERATIONS_PER_S,
    P50,
    P99,
    Figure,
    keys,
    values,
)
from swiftlet.bench.processes import Watch
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

FIGURES: Mapping[Figure, tuple[str, float]] = {
    OPERATIONS_PER_S: ("op/s", 1.0),
    BYTES_PER_S: ("MB/s", 1e-6),
    P50: ("p50, µs", 1e6),
    P99: ("p99, µs", 1e6),
    CPU: ("CPU/op, µs", 1e6),
    GENERATOR_CPU: ("generator's CPU/op, µs", 1e6),
    FAILED: ("failed", 1.0),
}
"""Figures with their units, and what makes them of seconds and bytes."""


def scenarios(seconds: int, count: int) -> Iterator[Scenario]:
    """PUT and GET of 10 KiB with 1 and 20 clients for some seconds, and of 100 MiB with one, so many times."""
    small = {"sizes": {"fixed": "10 KiB"}, "closed": {"connections": [1, 20]}, "duration_s": seconds, "warm_up_s": 1}
    large = {"sizes": {"fixed": "100 MiB"}, "closed": {"connections": [1]}, "count": count, "warm_up_s": 0}
    for size, fields, stored in (("10 KiB", small, 2000), ("100 MiB", large, 2)):
        put = {"title": f"PUT {size}", "operations": {"create": 1}}
        get = {"title": f"GET {size}", "operations": {"read": 1}, "objects": stored}
        yield from (Scenario.model_validate({**fields, **one}) for one in (put, get))


def measured(cluster: Cluster, scenario: Scenario) -> Iterator[Measured]:
    """The figures of each number of clients."""
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    watch = Watch([cluster.process.pid])
    target = Target(f"{cluster.endpoint}{client.base}", client.token)
    result = run(scenario, target, Options(prefix="bench", watch=watch))
    for key in keys(result):
        what = f"{scenario.title}, {key.step} client{'' if key.connections == 1 else 's'}"
        for figure, (unit, scale) in FIGURES.items():
            if found := values(result, key, figure):
                yield Measured(what, unit, tuple(value * scale for value in found))


def md5_rate() -> float:
    """The speed that MD5 alone reaches here on one core, in MB/s: the bound of a single stream with an ETag."""
    data = os.urandom(1 << 20)
    began = time.perf_counter()
    for _ in range(200):
        hashlib.md5(data, usedforsecurity=False).digest()
    return 200 * (1 << 20) / 1e6 / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="length of each small-object run (default 10)")
    parser.add_argument("--runs", type=int, default=5, help="large objects each way (default 5)")
    arguments = parser.parse_args()
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="swiftlet-bench-") as data:
        cluster = start_cluster(Path(data))
        try:
            for scenario in scenarios(arguments.seconds, arguments.runs):
                found += measured(cluster, scenario)
        finally:
            cluster.stop()
    report("baseline", [*found, Measured("MD5 alone, one core", "MB/s", (md5_rate(),))])


if __name__ == "__main__":
    main()
