"""Which threads take the processor time of small requests, and how often they are woken.

    .venv/bin/python -m bench.dataplane.threads DIRECTORY [--rounds 3] [--seconds 5] [--workers 2] [--clients 20]
        [--kib 10] [--native NAME=FOLDER] [--delete]

Standalone stores, measured in turns with wrk: PUTs and GETs of 10 KiB, or of what `--kib` says, and, with `--delete`,
DELETEs of the same objects. For each kind of process and thread a table has the microseconds of processor time, and how
often such a thread has begun to wait, for each request; the medians of all rounds. Each `--native` is a store with
another build of the native package, which is in that folder (`swiftlet_native` with its library), so that builds can be
compared in the same minutes; without any the installed one is measured.

What the kernel does for everybody (interrupts, its own threads for the disk) belongs to no process and is not counted.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.baseline.wrk import SMALL, Figures
from bench.dataplane.proxy import CLIENTS, Store, children_of
from e2e.standalone.cluster import SOURCES, Cluster, start_cluster

Kind = tuple[str, str]
"""A kind of process, and of its threads."""
LEAST_US = 0.5
"""Threads that take less for a request are left out of the table."""
INSTALLED = "installed"
"""The store with the native package that is installed."""


def _used(cluster: Cluster) -> tuple[Counter[Kind], Counter[Kind]]:
    """Return nanoseconds of processor time, and how often threads began to wait, by kind."""
    spent: Counter[Kind] = Counter()
    waits: Counter[Kind] = Counter()
    for name, pid in cluster.pids.items():
        for one in (pid, *children_of(pid)):
            for task in Path(f"/proc/{one}/task").iterdir():
                try:
                    kind = name.split("-")[0], re.sub(r"[-_]?[0-9]+.*", "", (task / "comm").read_text().strip())
                    nanoseconds = int((task / "schedstat").read_text().split()[0])
                    status = (task / "status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue  # It has ended meanwhile.
                switches = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)
                spent[kind] += nanoseconds
                waits[kind] += int(switches[1]) if switches else 0
    return spent, waits


@dataclass(frozen=True)
class Round:
    """One run of wrk: for each request microseconds of processor time and waits, by kind of thread."""

    figures: Figures
    spent: dict[Kind, float]
    waits: dict[Kind, float]


def _measure(store: Store, script: str, seconds: int) -> Round:
    spent, waits = _used(store.cluster)
    figures = store.measure(script, seconds).figures
    spent_after, waits_after = _used(store.cluster)
    return Round(
        figures,
        {kind: (after - spent[kind]) / 1000 / figures.requests for kind, after in spent_after.items()},
        {kind: (after - waits[kind]) / figures.requests for kind, after in waits_after.items()},
    )


@contextmanager
def _store(directory: Path, name: str, folder: Path | None, workers: int, clients: int, size: int) -> Iterator[Store]:
    settings = {} if folder is None else {"PYTHONPATH": f"{folder.absolute()}:{SOURCES}"}
    cluster = start_cluster(directory / name, "--workers", str(workers), settings=settings)
    try:
        # As in a store that has been running for a quarter of a minute.
        cluster.wait_until_proved()
        yield Store(name, cluster, clients, size)
    finally:
        cluster.stop()


def _print(operation: str, found: dict[str, list[Round]]) -> None:
    print(f"\n{operation}")
    kinds = sorted({kind for rounds in found.values() for one in rounds for kind in one.spent})
    print("| process | thread | " + " | ".join(f"{name}: µs | waits" for name in found) + " |")
    print("|---|---|" + "---|---|" * len(found))
    for kind in kinds:
        cells = [
            (
                statistics.median(one.spent.get(kind, 0.0) for one in rounds),
                statistics.median(one.waits.get(kind, 0.0) for one in rounds),
            )
            for rounds in found.values()
        ]
        if any(microseconds >= LEAST_US for microseconds, _ in cells):
            print(f"| {kind[0]} | {kind[1]} | {' | '.join(f'{spent:.1f} | {waits:.2f}' for spent, waits in cells)} |")
    for name, rounds in found.items():
        totals = [sum(one.spent.values()) for one in rounds]
        waits = statistics.median(sum(one.waits.values()) for one in rounds)
        print(
            f"{name}: {statistics.median(totals):.0f} µs ({', '.join(f'{total:.0f}' for total in totals)}), "
            f"{waits:.1f} waits, {', '.join(f'{one.figures.per_second:,.0f}' for one in rounds)} a second, p50/p99 "
            f"{', '.join(f'{one.figures.p50_ms:.2f}/{one.figures.p99_ms:.1f}' for one in rounds)} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 4 GB for each")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each (default 5)")
    parser.add_argument("--workers", type=int, default=2, help="processes of each proxy (default 2)")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"clients at the same time (default {CLIENTS})")
    parser.add_argument("--kib", type=int, default=SMALL >> 10, help=f"size of the objects (default {SMALL >> 10})")
    parser.add_argument("--native", action="append", default=[], metavar="NAME=FOLDER", help="a build to compare")
    parser.add_argument("--delete", action="store_true", help="measure DELETEs too")
    arguments = parser.parse_args()
    builds: dict[str, Path | None] = {
        name: Path(folder) for name, _, folder in (native.partition("=") for native in arguments.native)
    } or {INSTALLED: None}
    operations = {"PUT": "put.lua", "GET": "get.lua"} | ({"DELETE": "delete.lua"} if arguments.delete else {})
    found: dict[str, dict[str, list[Round]]] = {what: {name: [] for name in builds} for what in operations}
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(
                _store(arguments.directory, name, folder, arguments.workers, arguments.clients, arguments.kib << 10)
            )
            for name, folder in builds.items()
        }
        for number in range(arguments.rounds):
            names = list(builds) if number % 2 == 0 else list(reversed(builds))
            for name in names:
                for operation, script in operations.items():
                    found[operation][name].append(_measure(stores[name], script, arguments.seconds))
    print(f"load (1 minute) {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    for operation, each in found.items():
        _print(operation, each)


if __name__ == "__main__":
    main()
