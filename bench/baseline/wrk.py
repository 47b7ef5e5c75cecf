"""wrk (Debian package `wrk`) with the scripts of this folder, for benchmarks that need nothing but a rate."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.standalone.wire import Client

HERE = Path(__file__).parent
SMALL = 10 * 1024


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
    names: str = "",
) -> Figures:
    """Run a script against a container, `put.lua` against as many as `containers` says, with objects whose names begin
    with `names`.
    """
    environment = os.environ | {
        "BENCH_TOKEN": client.token,
        "BENCH_PATH": f"{client.base}/{container}",
        "BENCH_SIZE": str(size),
        "BENCH_COUNT": str(count),
        "BENCH_CONTAINERS": str(containers),
        "BENCH_NAMES": names,
    }
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "--latency"]
    command += ["-s", str(HERE / script), client.endpoint]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return parse_wrk(done.stdout)
