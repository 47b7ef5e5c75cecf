"""One operator with many clusters: how long a reconcile takes, how much memory, and what it asks for at rest.

    make bench-operator            # or: .venv/bin/python -m bench.operator.run --clusters 100 --rest 120

Starts an API server (`hack/apiserver`; no kubelets, no controllers) and one real operator process beside it, makes the
clusters with two policies, three users and a quota each, plays the pods and their reports, and measures in phases:

birth    all clusters are made at once, rings and Secrets with them, until nothing is written any more
change   a user is added to every cluster, one after the other
start    the operator is killed and started again, and looks at every cluster (the old lease has to run out first)
rest     nothing happens

Durations come from the operator's histogram `swiftlet_operator_reconcile_seconds` (linear within a bucket), requests
from its counter, memory and processor time from /proc. API server, etcd and operator share the machine, with whatever
else runs on it: `load` is the average number of processes that wanted a core in the last minute of a phase.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.micro import Measured, report
from bench.operator.population import Population
from bench.operator.reports import served
from swiftlet_operator.kube import connected
from swiftlet_operator.tests.apiserver import FIX, ApiServer, hyperkube, kube_bin, running

ROOT = Path(__file__).resolve().parents[2]
P99_BAR_S = 1.0
MEMORY_BAR_MB = 300
QUIET_S = 20.0
"""Without a write for so long the clusters are at rest: longer than the operator's shortest second look."""
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Durations:
    """A histogram's buckets, summed over outcomes: upper bound -> count so far."""

    buckets: Mapping[float, float]

    def since(self, before: Durations) -> Durations:
        """What has been added."""
        return Durations({bound: count - before.buckets.get(bound, 0.0) for bound, count in self.buckets.items()})

    @property
    def count(self) -> int:
        """Return how many reconciles were counted."""
        return int(self.buckets.get(math.inf, 0.0))

    def quantile(self, part: float) -> float:
        """Seconds; linear within a bucket, NaN without any."""
        wanted, lower, below = part * self.count, 0.0, 0.0
        for bound, count in sorted(self.buckets.items()):
            if count >= wanted and count > below:
                return lower if bound == math.inf else lower + (bound - lower) * (wanted - below) / (count - below)
            lower, below = bound, count
        return math.nan


@dataclass(frozen=True)
class Row:
    """Holds the results of one phase."""

    name: str
    seconds: float
    durations: Durations
    reads: float
    writes: float
    processor_s: float
    rss_mb: float
    load: float

    def measured(self) -> Iterator[Measured]:
        """Yield the time, the requests and the memory that the phase took."""
        d = self.durations
        found = [
            ("", "seconds", self.seconds),
            ("", "reconciles", d.count),
            ("p50", "ms", 1000 * d.quantile(0.5)),
            ("p99", "ms", 1000 * d.quantile(0.99)),
            ("reads", "requests/s", self.reads / self.seconds),
            ("", "writes", self.writes),
            ("processor", "% of a core", 100 * self.processor_s / self.seconds),
            ("a reconcile", "CPU ms", 1000 * self.processor_s / max(1, d.count)),
            ("resident", "MB", self.rss_mb),
            ("load of the machine", "processes", self.load),
        ]
        for what, unit, value in found:
            if not math.isnan(value):
                yield Measured(f"phase {self.name}, {what}".removesuffix(", "), unit, (value,))


class Operator:
    """Runs the operator as a real process."""

    def __init__(self, server: ApiServer, log: Path) -> None:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            self.port, probe = one.getsockname()[1], two.getsockname()[1]
        environment = os.environ | {
            "KUBECONFIG": str(server.kubeconfig),
            "SWIFTLET_IMAGE": "swiftlet:bench",
            "SWIFTLET_REDIS_IMAGE": "redis:bench",
            "POD_NAMESPACE": "default",
            "POD_NAME": "bench",
            "LIVENESS_URL": f"http://127.0.0.1:{probe}/healthz",
            "METRICS_PORT": str(self.port),
        }
        with log.open("ab") as out:
            self.process = subprocess.Popen([sys.executable, "-m", "swiftlet_operator"], env=environment, stderr=out)
        self._seen = psutil.Process(self.process.pid)

    def durations(self) -> Durations:
        """All reconciles so far."""
        buckets: dict[float, float] = {}
        for sample in self._samples("swiftlet_operator_reconcile_seconds_bucket"):
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
        return Durations(buckets)

    def requests(self) -> tuple[float, float]:
        """Reads and writes so far, the lease and watches apart."""
        reads = writes = 0.0
        for sample in self._samples("swiftlet_operator_api_requests_total"):
            if sample.labels["resource"] == "leases":
                continue
            if sample.labels["method"] == "GET":
                reads += sample.value
            else:
                writes += sample.value
        return reads, writes

    def _samples(self, name: str) -> Iterator[Sample]:
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60).read().decode()
        except OSError:
            # It has not begun to listen.
            return
        for family in text_string_to_metric_families(text):
            yield from (sample for sample in family.samples if sample.name == name)

    def processor_s(self) -> float:
        """Processor time so far."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def rss_mb(self) -> float:
        """Resident memory now, in 10^6 bytes."""
        return float(self._seen.memory_info().rss) / 1e6

    def peak_mb(self) -> float:
        """The most resident memory ever."""
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) * 1024 / 1e6

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.wait()


class Measure:
    """Phases of one operator."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.rows: list[Row] = []
        self._mark()

    def _mark(self) -> None:
        one = self.operator
        self._at, self._durations, self._processor_s = time.monotonic(), one.durations(), one.processor_s()
        self._reads, self._writes = one.requests()

    def skip(self) -> None:
        """Begin the next phase only now."""
        self._mark()

    def end(self, name: str, quiet_s: float = 0.0) -> Row:
        """Close a phase whose last `quiet_s` only showed that it is over, and begin the next one."""
        one = self.operator
        reads, writes = one.requests()
        row = Row(
            name,
            time.monotonic() - self._at - quiet_s,
            one.durations().since(self._durations),
            reads - self._reads,
            writes - self._writes,
            one.processor_s() - self._processor_s,
            one.rss_mb(),
            os.getloadavg()[0],
        )
        self.rows.append(row)
        print(f"{row.name}: {row.seconds:.0f} s, {row.durations.count} reconciles", file=sys.stderr, flush=True)
        self._mark()
        return row


async def settle(population: Population, operator: Operator) -> None:
    """Play the pods until nothing is written any more and all is as it should be; TimeoutError."""
    deadline, quiet_since, before = time.monotonic() + TIMEOUT_S, time.monotonic(), -1.0
    wrong = ["never looked"]
    while time.monotonic() - quiet_since < QUIET_S or (wrong := await population.missing()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not at rest after {TIMEOUT_S} s: {wrong[:3]}")
        assert operator.process.poll() is None, "the operator has ended; see its log"
        new, (_, writes) = await population.live(), operator.requests()
        if new or writes != before:
            quiet_since, before = time.monotonic(), writes
        await asyncio.sleep(1.0)


async def reconciled(operator: Operator, count: int) -> None:
    """Until so many reconciles have ended; TimeoutError."""
    deadline = time.monotonic() + TIMEOUT_S
    while operator.durations().count < count:
        assert operator.process.poll() is None, "the operator has ended; see its log"
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {count} reconciles after {TIMEOUT_S} s")
        await asyncio.sleep(0.5)


async def measure(server: ApiServer, clusters: int, rest_s: float, log: Path) -> tuple[list[Row], float]:
    """All phases, and the most resident memory of any."""
    os.environ["KUBECONFIG"] = str(server.kubeconfig)
    operator = Operator(server, log)
    try:
        async with connected(60.0) as kube, AsyncExitStack() as stack:
            population = Population(server, kube, clusters)
            population.ports = await stack.enter_async_context(served(Population.devices(), population.used_at))
            await population.nodes()
            phases = Measure(operator)
            await population.make()
            await settle(population, operator)
            phases.end("birth", QUIET_S)
            for namespace, name in population.names():
                await population.add_user(namespace, name)
            await settle(population, operator)
            phases.end("change", QUIET_S)
            peak = operator.peak_mb()
            operator.kill()
            operator = Operator(server, log)
            again = Measure(operator)
            await reconciled(operator, clusters)
            again.end("start")
            await asyncio.sleep(QUIET_S)
            again.skip()
            await asyncio.sleep(rest_s)
            again.end("rest")
            return [*phases.rows, *again.rows], max(peak, operator.peak_mb())
    finally:
        operator.kill()


def measured(rows: Sequence[Row], clusters: int, peak_mb: float) -> tuple[list[Measured], bool]:
    """What was measured, and whether all bars are met."""
    every = Durations({b: sum(r.durations.buckets.get(b, 0.0) for r in rows) for b in rows[0].durations.buckets})
    worst = max(row.durations.quantile(0.99) for row in rows[1:] if row.durations.count)
    rest = rows[-1]
    bars = [
        (f"reconcile p99, worst phase after birth (bar {P99_BAR_S:g})", "s", worst, P99_BAR_S),
        (f"most resident memory (bar {MEMORY_BAR_MB})", "MB", peak_mb, MEMORY_BAR_MB),
        ("writes at rest (bar 0)", "writes", rest.writes, 0.0),
        ("requests at rest", "requests/s", (rest.reads + rest.writes) / rest.seconds, math.inf),
        ("processor at rest", "% of a core", 100 * rest.processor_s / rest.seconds, math.inf),
    ]
    found = [Measured(f"{clusters} clusters", "reconciles", (every.count,))]
    found += [Measured(what, unit, (value,)) for what, unit, value, _ in bars]
    found += [one for row in rows for one in row.measured()]
    return found, all(value <= bar for *_, value, bar in bars)


def main() -> int:
    """Measure and print; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=100, help="StorageClusters (default 100)")
    parser.add_argument("--rest", type=float, default=120.0, help="seconds of rest that are measured (default 120)")
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    arguments = parser.parse_args()
    binary = hyperkube()
    if binary is None:
        print(f"error: no hyperkube in {kube_bin()}\n  fix: {FIX}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="swiftlet-bench-operator-") as folder, running(binary) as server:
        server.install_crds(ROOT / "crds")
        log = arguments.log or Path(folder) / "operator.log"
        rows, peak_mb = asyncio.run(measure(server, arguments.clusters, arguments.rest, log))
    found, fine = measured(rows, arguments.clusters, peak_mb)
    report("operator", found)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
