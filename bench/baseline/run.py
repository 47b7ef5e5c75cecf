"""The front path of a standalone cluster: small and large objects through the proxy, three durable replicas.

    make bench-baseline            # or: .venv/bin/python -m bench.baseline.run --seconds 10

Starts a cluster of its own in a temporary directory (four object servers, three container servers, two proxy
workers) and drives it with wrk (Debian package `wrk`) over keep-alive connections on the same machine, so the load
generator shares the processors with the cluster. Prints a markdown table. Absolute numbers move with the machine:
compare only what was measured in one run.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client

HERE = Path(__file__).parent
SMALL = 10 * 1024
LARGE = 100 << 20


@dataclass(frozen=True)
class Figures:
    """One run of wrk."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


def _milliseconds(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)(us|ms|s|m)", text)
    assert match, text
    return float(match[1]) * _UNITS[match[2]]


def parse_wrk(output: str) -> Figures:
    """Figures from wrk's report."""
    quantiles = dict(re.findall(r"^\s+(50|99)%\s+(\S+)\s*$", output, re.MULTILINE))
    requests = re.search(r"(\d+) requests in", output)
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", output)
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    assert requests, output
    assert rate, output
    return Figures(
        int(requests[1]),
        float(rate[1]),
        _milliseconds(quantiles["50"]),
        _milliseconds(quantiles["99"]),
        int(failed[1]) if failed else 0,
    )


def wrk(
    client: Client,
    script: str,
    container: str,
    clients: int,
    seconds: int,
    count: int = 1,
    size: int = SMALL,
    containers: int = 1,
) -> Figures:
    """Run a script against a container, `put.lua` against as many as `containers` says."""
    environment = os.environ | {
        "BENCH_TOKEN": client.token,
        "BENCH_PATH": f"{client.base}/{container}",
        "BENCH_SIZE": str(size),
        "BENCH_COUNT": str(count),
        "BENCH_CONTAINERS": str(containers),
    }
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "--latency"]
    command += ["-s", str(HERE / script), client.endpoint]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return parse_wrk(done.stdout)


def small(client: Client, seconds: int) -> list[str]:
    """PUT and GET of 10 KiB with 1 and 20 clients."""
    rows = []
    for clients in (1, 20):
        container = f"bench-{clients}"
        client.call("PUT", container)
        put = wrk(client, "put.lua", container, clients, seconds)
        get = wrk(client, "get.lua", container, clients, seconds, max(1, put.requests - clients))
        for name, f in (("PUT", put), ("GET", get)):
            bad = f", {f.failed} failed" if f.failed else ""
            rows.append(f"| {name} 10 KiB | {clients} | {f.per_second:,.0f}/s{bad} | {f.p50_ms:.1f} | {f.p99_ms:.1f} |")
    return rows


def _transfer(client: Client, method: str, body: bytes | None) -> float:
    parts = urlsplit(client.endpoint)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120, blocksize=1 << 20)
    began = time.perf_counter()
    connection.request(method, f"{client.base}/bench-large/o", body, {"X-Auth-Token": client.token})
    answer = connection.getresponse()
    while answer.read(1 << 20):
        pass
    took = time.perf_counter() - began
    connection.close()
    assert answer.status in {200, 201}, answer.status
    return took


def large(client: Client, runs: int) -> list[str]:
    """PUT and GET of 100 MiB, one stream; the median of the runs."""
    client.call("PUT", "bench-large")
    body = os.urandom(1 << 20) * (LARGE >> 20)
    rows = []
    for method, data in (("PUT", body), ("GET", None)):
        seconds = [_transfer(client, method, data) for _ in range(runs)]
        rate = LARGE / 1e6 / statistics.median(seconds)
        rows.append(f"| {method} 100 MiB | 1 | {rate:,.0f} MB/s | {statistics.median(seconds) * 1000:.0f} | - |")
    return rows


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
    parser.add_argument("--runs", type=int, default=5, help="large-object runs, the median counts (default 5)")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: apt-get install wrk")
    with tempfile.TemporaryDirectory(prefix="swiftlet-bench-") as data:
        cluster = start_cluster(Path(data))
        try:
            client = Client(cluster.endpoint, cluster.user, cluster.key)
            rows = small(client, arguments.seconds) + large(client, arguments.runs)
        finally:
            cluster.stop()
    print("| operation | clients | rate | p50 ms | p99 ms |\n|---|---|---|---|---|")
    print("\n".join(rows))
    print(f"\nMD5 alone, one core: {md5_rate():,.0f} MB/s")


if __name__ == "__main__":
    main()
