"""Grants a second of one metadata server worker: `.venv/bin/python -m bench.dataplane.grants [--beside TREE]`.

A standalone store in a temporary directory has a metadata server of its own for this, with one worker, as it is run
anywhere: it checks the token, decides by what it knows of containers, signs, writes a line for each grant and one for
each request to its log, and counts. wrk (Debian package `wrk`) asks it on connections that stay open, for grants in
several containers in turn. Every grant's line has to be in the log in the end.

`--beside` names another tree of the project, whose metadata server is measured in turns with this one's: what a change
has brought, in one run. Beside other work rates are what the machine had left over; `--realtime` (as root) lets the
worker and wrk run before everything else that the machine does. What a worker's processor time is enough for is beside
the rate, and so is the least that it answers at all (`/healthz`): what a request costs without a grant.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from bench.baseline.wrk import Figures, parse_wrk
from bench.dataplane.proxy import seconds_of
from bench.micro import Measured, report
from e2e.standalone.cluster import SOURCES, Cluster, end_with_us, environment, free_port, start_cluster
from e2e.standalone.wire import Client

CONTAINER = "grants"
GIVEN = '"event": "a grant was given"'
SETTINGS = {"SWIFTLET_CLUSTER__DIRECT_ACCESS": "true"}


class Worker:
    """A metadata server with one worker, of the sources of a tree."""

    def __init__(self, cluster: Cluster, directory: Path, name: str, sources: Path) -> None:
        self.name = name
        self.port = free_port(1)
        self.asked = 0
        self._log = directory / f"{self.port}.log"
        settings = yaml.safe_load(cluster.settings_file("metadata").read_text())
        settings["metadata"] |= {"port": self.port, "management_port": self.port + 1, "workers": 1}
        config = directory / f"{self.port}.yaml"
        config.write_text(yaml.safe_dump(settings))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "swiftlet.main", "metadata", "--config", str(config), *end_with_us()],
                stderr=log,
                env={**environment(), **SETTINGS, "PYTHONPATH": str(sources)},
            )
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port + 1}/readyz", timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"the metadata server does not become ready:\n{self._log.read_text()}")

    def measure(self, client: Client, clients: int, containers: int, seconds: int) -> tuple[float, float]:
        """Return grants a second, and microseconds of the worker's processor time for each."""
        script = ["-s", str(Path(__file__).with_suffix(".lua"))]
        wanted = {"BENCH_TOKEN": client.token, "BENCH_ACCOUNT": client.account}
        wanted |= {"BENCH_CONTAINER": CONTAINER, "BENCH_CONTAINERS": str(containers)}
        figures, each = self._wrk(clients, seconds, [*script, f"http://127.0.0.1:{self.port}"], wanted)
        self.asked += figures.requests
        return figures.per_second, each

    def measure_least(self, clients: int, seconds: int) -> tuple[float, float]:
        """Return the same of the least that it answers: that it is alive."""
        figures, each = self._wrk(clients, seconds, [f"http://127.0.0.1:{self.port}/healthz"], {})
        return figures.per_second, each

    def _wrk(self, clients: int, seconds: int, asking: list[str], wanted: dict[str, str]) -> tuple[Figures, float]:
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "--latency", *asking]
        before = seconds_of(self.process.pid)
        done = subprocess.run(command, env=os.environ | wanted, capture_output=True, text=True, check=True)
        figures = parse_wrk(done.stdout)
        assert not figures.failed, done.stdout
        return figures, (seconds_of(self.process.pid) - before) / figures.requests * 1e6

    def check_lines(self, most_more: int) -> None:
        """Compare grants with lines of the log; answers that were on their way when wrk ended have a line as well."""
        self.process.terminate()
        assert self.process.wait(30) == 0, self._log.read_text()[-2000:]
        with self._log.open() as log:
            lines = sum(GIVEN in line for line in log)
        assert self.asked <= lines <= self.asked + most_more, (self.asked, lines)


@contextmanager
def workers(cluster: Cluster, directory: Path, trees: Sequence[Path]) -> Iterator[list[Worker]]:
    """Start a worker of this tree, and of the others; end them afterwards."""
    made: list[Worker] = []
    try:
        made.append(Worker(cluster, directory, "this tree", SOURCES))
        made += [Worker(cluster, directory, str(tree), tree / "services") for tree in trees]
        yield made
    finally:
        for worker in made:
            worker.process.kill()
            worker.process.wait()


def main() -> None:
    """Measure, and write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32, help="connections (default 32)")
    parser.add_argument("--containers", type=int, default=16, help="containers that are asked for in turn (default 16)")
    parser.add_argument("--seconds", type=int, default=5, help="length of a round (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="the medians count (default 5)")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another tree to compare with")
    parser.add_argument("--realtime", action="store_true", help="before everything else that the machine does")
    given = parser.parse_args()
    if given.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = start_cluster(directory / "store", "--workers", "1", settings=SETTINGS)
        stack.callback(cluster.stop)
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        for number in range(given.containers):
            assert client.call("PUT", f"{CONTAINER}-{number}").status == 201
        measured = stack.enter_context(workers(cluster, directory, given.beside))
        found: dict[str, list[tuple[float, float]]] = {worker.name: [] for worker in measured}
        for worker in measured:
            worker.measure(client, given.clients, given.containers, 1)
        least: list[tuple[float, float]] = []
        for number in range(given.rounds):
            least.append(measured[0].measure_least(given.clients, given.seconds))
            for worker in measured[:: 1 if number % 2 else -1]:
                found[worker.name].append(worker.measure(client, given.clients, given.containers, given.seconds))
        for worker in measured:
            worker.check_lines((given.rounds + 1) * given.clients)
    ours = found.pop("this tree")
    for name, others in found.items():
        for what, place in (("grants a second", 0), ("processor time for each", 1)):
            ratio = statistics.median(one[place] for one in ours) / statistics.median(one[place] for one in others)
            print(f"{what}: {ratio:.2f} times that of {name}, {[round(one[place]) for one in others]}")
    report(
        "grants",
        [
            Measured("grants of one worker", "1/s", tuple(round(rate) for rate, _ in ours)),
            Measured("the worker's processor time for a grant", "µs", tuple(round(each, 1) for _, each in ours)),
            Measured("grants in a processor second", "1/s", tuple(round(1e6 / each) for _, each in ours)),
            Measured("the same worker's answers that it is alive", "1/s", tuple(round(rate) for rate, _ in least)),
            Measured("its processor time for one of these", "µs", tuple(round(each, 1) for _, each in least)),
        ],
    )


if __name__ == "__main__":
    main()
