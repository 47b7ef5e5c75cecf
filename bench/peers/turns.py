"""Workloads, and stores that take turns at them: A B A B, so that what the machine does meanwhile meets all alike."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.syncs import counted, counts
from bench.peers.systems import Running, System
from swiftlet.bench import catalogue
from swiftlet.bench.figures import (
    BYTES_PER_S,
    CPU,
    FAILED,
    GENERATOR_CPU,
    OPERATIONS_PER_S,
    P50,
    P99,
    keys,
    values,
)
from swiftlet.bench.processes import Watch
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario

FIGURES = (OPERATIONS_PER_S, BYTES_PER_S, P50, P99, CPU, GENERATOR_CPU, FAILED)
COUNTED_PUTS = 100
FIRST_PUTS = 100
"""PUTs before the measured ones, which do not count."""
COMPARED = 0.1
"""Share of reads whose bytes are compared with what was written, so that the generator takes little beside a store."""
LARGE_READS = 5
"""Reads of the large object, the first of which is compared."""
_MOST_DELETED, _FEWEST_DELETED = 3000, 40

Values = dict[str, list[float]]
"""A figure's name, and its value in each turn."""


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    seconds: float
    large: str
    """Size of the object that goes in one stream."""
    is_quick: bool = False


@dataclass
class Found:
    """What was measured so far: by workload and store; how often a PUT was synced, by store; what failed."""

    rows: dict[str, dict[str, Values]]
    syncs: dict[str, dict[str, float]]
    failed: list[str]


def fixed(title: str, size: str, operation: str, connections: Sequence[int], **fields: Any) -> tuple[str, Scenario]:
    """Return a scenario of one operation on objects of one size."""
    document = {"title": title, "sizes": {"fixed": size}, "operations": {operation: 1}, "warm_up_s": 0, **fields}
    return title, Scenario.model_validate({**document, "closed": {"connections": list(connections)}})


def workloads(extent: Extent) -> Iterator[tuple[str, Scenario]]:
    """Return what all stores do, but for deletions, whose number depends on how fast a store is."""
    timed = {"duration_s": extent.seconds}
    reading = {**timed, "verify": COMPARED}
    yield fixed("PUT 10 KiB", "10 KiB", "create", [1, 20], **timed)
    yield fixed("GET 10 KiB", "10 KiB", "read", [1, 20], objects=200, **reading)
    yield fixed("PUT 1 MiB", "1 MiB", "create", [8], **timed)
    yield fixed("GET 1 MiB", "1 MiB", "read", [8], objects=24, **reading)
    if extent.is_quick:
        return
    yield fixed("PUT 100 KiB", "100 KiB", "create", [20], **timed)
    yield fixed("GET 100 KiB", "100 KiB", "read", [20], objects=100, **reading)
    yield fixed(f"PUT {extent.large}", extent.large, "create", [1], count=2)
    yield fixed(f"GET {extent.large}", extent.large, "read", [1], count=LARGE_READS, objects=1, verify=COMPARED)
    for name in ("small-upload", "small-download"):
        changes = [f"duration_s={extent.seconds}", "warm_up_s=0", "closed.connections=20", "objects=200"]
        changes.append(f"verify={COMPARED}")
        yield f"mix {name}", catalogue.find(name, changes)


def deletions(put_per_s: float, seconds: float) -> tuple[str, Scenario]:
    """Return deletions by 1 and by 20 clients, as many as a store takes in about these seconds."""
    count = max(_FEWEST_DELETED, min(_MOST_DELETED, round(put_per_s * seconds)))
    return fixed("DELETE 10 KiB", "10 KiB", "delete", [1, 20], count=count, objects=2 * count + 40)


def turn(system: System, running: Running, extent: Extent, found: Found) -> None:
    """Let a store do all workloads once, after a few writes that do not count: some make files at the first."""
    _, first = fixed("first", "10 KiB", "create", [20], count=FIRST_PUTS)
    run(first, running.target, Options(f"bench-{secrets.token_hex(4)}"))
    rate = 0.0
    for title, scenario in workloads(extent):
        measured = _measure(system, running, title, scenario, found)
        if title == "PUT 10 KiB":
            rate = measured.get(f"{title}, 20 clients", 0.0)
    if not extent.is_quick:
        _measure(system, running, *deletions(rate, extent.seconds), found)


def _measure(system: System, running: Running, title: str, scenario: Scenario, found: Found) -> Mapping[str, float]:
    """Return operations per second by workload and clients."""
    options = Options(f"bench-{secrets.token_hex(4)}", watch=Watch(running.pids))
    rates = {}
    result = run(scenario, running.target, options)
    for key in keys(result):
        several = len(scenario.operations.model_dump(exclude_defaults=True)) > 1
        if several and key.operation != "all":
            continue
        clients = "1 client" if key.connections == 1 else f"{key.connections} clients"
        name = f"{title}, {clients}"
        row = found.rows.setdefault(name, {}).setdefault(system.name, {})
        for figure in FIGURES:
            # Processor time is of a whole step, which has one operation or is taken as all together.
            row.setdefault(figure.name, []).extend(values(result, key, figure)[:1])
        rates[name] = row[OPERATIONS_PER_S.name][-1] if row[OPERATIONS_PER_S.name] else 0.0
    return rates


def count_syncs(system: System, running: Running, directory: Path, found: Found) -> None:
    """Count how often a store syncs for a PUT of 10 KiB by one client."""
    _, scenario = fixed("PUT", "10 KiB", "create", [1], count=COUNTED_PUTS)
    summary = directory / "strace"
    with counted(running.pids, summary):
        run(scenario, running.target, Options(f"bench-{secrets.token_hex(4)}", keeps=True))
    calls = counts(summary.read_text())
    found.syncs[system.name] = {name: count / COUNTED_PUTS for name, count in calls.items()}


class Limit:
    """The seconds that turns may take in all: none begins that would last for longer, by how long turns took before."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Count from now on."""
        self._clock, self._end = clock, clock() + seconds
        self._took: dict[str, float] = {}
        self.reached: list[str] = []
        """Turns that were left out."""

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self._end - self._clock()

    def admits(self, name: str, number: int) -> bool:
        """Return whether a store's turn may begin; a store that had none yet is taken for the slowest so far."""
        expected = self._took.get(name, max(self._took.values(), default=0.0))
        if self.left > expected:
            return True
        self.reached.append(f"{name}, turn {number}: there was no time left for it")
        return False

    @contextmanager
    def counting(self, name: str) -> Iterator[None]:
        """Remember how long a store's turn takes, at the most."""
        began = self._clock()
        try:
            yield
        finally:
            self._took[name] = max(self._took.get(name, 0.0), self._clock() - began)


def measure(
    systems: Sequence[System], directory: Path, turns: int, extent: Extent, say: Callable[[str], None], limit: Limit
) -> Found:
    """Let stores take turns. What a store can't do is noted, and the others go on."""
    found = Found({}, {}, [])
    for number in range(1, turns + 1):
        for system in systems:
            if not limit.admits(system.name, number):
                say(limit.reached[-1])
                continue
            say(f"turn {number} of {turns}: {system.name}")
            place = directory / "store"
            try:
                with limit.counting(system.name), system.start(place) as running:
                    turn(system, running, extent, found)
                    # In the first one, as there may be no time for the last.
                    if number == 1:
                        count_syncs(system, running, directory, found)
            except Exception as error:
                # One store that fails doesn't take the others' numbers with it.
                found.failed.append(f"{system.name}, turn {number}: {type(error).__name__}: {error}")
                say(found.failed[-1])
            finally:
                with suppress(FileNotFoundError):
                    shutil.rmtree(place)
    return found
