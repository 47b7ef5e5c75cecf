"""Measures unit costs on a running `swiftlet standalone`: processor time, bytes written and space of each operation."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from swiftlet.advice.costs import (
    CODED_OPERATIONS,
    CODED_SERVICES,
    OPERATIONS,
    SERVICES,
    CodedCosts,
    Curve,
    UnitCosts,
    shipped,
)
from swiftlet.advice.demand import folds
from swiftlet.bench.environment import facts
from swiftlet.bench.errors import BenchError
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import StepResult, Usage
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

SIZES = (1_000, 64_000, 1_000_000, 1_100_000, 4_000_000, 16_000_000)
"""Bytes of the objects that costs are measured with: on both sides of where a store treats them differently."""
BYTES_A_STEP = 400_000_000
"""Bytes of bodies that a step moves, about."""
LEAST_A_STEP, MOST_A_STEP = 40, 4_000
"""Operations of a step."""
SMALL = 1_000_000
CONNECTIONS, FEW_CONNECTIONS = 16, 4
"""For objects of up to `SMALL` bytes, and for larger ones: with so many both processors of a small machine are busy."""
REST_S = 10.0
SETTLE_S = 3.0
"""After a step: rows are merged into databases a second later."""
CONTAINERS = 4
"""Over which the objects of a step are spread."""
LISTED_BESIDE: Mapping[str, float] = {"create": 48, "read": 48}
LISTED = 4.0
"""Weights of the operations beside listings, and of these."""
SLOW_RATE, SLOW_S = 40.0, 10.0
"""Rows per second, and seconds, of the step in which few rows come at a time."""
ATTEMPTS = 4
"""How often a step is tried in which operations fail."""
REPLICAS = 3
"""A standalone store has so many copies of everything."""
_KINDS = {"database-replicator": "replicator"}
_BY_SIZE = frozenset({"proxy", "object"})
"""Services whose costs depend on the size of the object: those of the others are measured with small ones, of which
there are many."""
_OF_EACH_COPY = frozenset({"create", "update", "delete"})
_PROVED_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A store of `swiftlet standalone`, from the file that its `--ready-file` names."""

    endpoint: str
    user: str
    key: str
    data: Path
    services: Mapping[str, Any]
    pid: int

    def names(self) -> dict[int, str]:
        """Return the kind of service of each process."""
        return {
            service["pid"]: _KINDS.get(name, name.rpartition("-")[0] or name) for name, service in self.services.items()
        }

    def watch(self) -> Watch:
        """Return a watch over all services, by kind."""
        names = self.names()
        return Watch(names, names)


def read_store(path: Path, is_broken: bool = False) -> LocalStore:
    """Return the store of a ready file; BenchError when it can't be used, or isn't broken and lacks a process."""
    try:
        known = json.loads(path.read_text("utf-8"))
        services = known["services"]
        missing = [name for name, service in services.items() if service["pid"] is None]
        if missing and not is_broken:
            raise BenchError(f"{path}: {', '.join(missing)} does not run; start the store anew")
        data = Path(known["data"])
        return LocalStore(known["endpoint"], known["user"], known["key"], data, services, known["pid"])
    except OSError as error:
        raise BenchError(
            f"{path} can't be read: {error.strerror or error}; start a store with "
            f"`swiftlet standalone --data DIRECTORY --ready-file {path}`"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no file that `swiftlet standalone --ready-file` writes: {error!r}") from error


def wait_until_proved(store: LocalStore) -> None:
    """Wait until no device may lack a write, because until then reads ask several of them. BenchError after minutes."""
    deadline = time.monotonic() + _PROVED_WITHIN_S
    while any(_doubts(store)):
        if time.monotonic() > deadline:
            raise BenchError(
                f"the store's devices have not been compared within {_PROVED_WITHIN_S:.0f} s; see its logs"
            )
        time.sleep(0.5)


def _doubts(store: LocalStore) -> Iterator[object]:
    for name, service in store.services.items():
        if name.startswith("object-"):
            with urllib.request.urlopen(f"{service['management_url']}/statusz", timeout=30) as answer:  # noqa: S310 - the store's own address
                yield from (device["unproved"] for device in json.load(answer)["devices"].values())


def scenario(operation: str, size: int, count: int) -> Scenario:
    """Return the scenario that measures an operation on objects of a size.

    Listings are measured between writes and reads: rows that wait are merged before the database is read, and what
    Python answers on a connection keeps it from the native front for a while.
    """
    stored = {"create": 0, "delete": count + 64}.get(operation, min(count, MOST_A_STEP))
    operations = {operation: 1.0} if operation != "list" else {**LISTED_BESIDE, "list": LISTED}
    return Scenario.model_validate(
        {
            "title": f"{operation} {size} bytes",
            "containers": CONTAINERS,
            "objects": stored,
            "sizes": {"fixed": size},
            "operations": operations,
            "closed": {"connections": CONNECTIONS if size <= SMALL else FEW_CONNECTIONS},
            "warm_up_s": 0,
            "count": count,
        }
    )


def slow(size: int) -> Scenario:
    """Return the scenario in which few rows come at a time."""
    return Scenario.model_validate(
        {
            "title": "few rows at a time",
            "containers": CONTAINERS,
            "sizes": {"fixed": size},
            "operations": {"create": 1},
            "open": {"per_second": SLOW_RATE, "connections": FEW_CONNECTIONS, "arrivals": "even"},
            "warm_up_s": 0,
            "count": round(SLOW_RATE * SLOW_S),
        }
    )


def measure(
    store: LocalStore, target: Target, runs: int, say: Callable[[str], None], sizes: tuple[int, ...] = SIZES
) -> UnitCosts:
    """Return the unit costs of this store on this machine: medians of so many runs. BenchError."""
    wait_until_proved(store)
    began = facts()
    say(f"at rest for {REST_S:.0f} s")
    rest = _rest(store)
    found = _Found(rest, sizes[0])
    say("warming up")
    run(scenario("create", sizes[0], MOST_A_STEP), target, Options("advise-warm", settle_s=SETTLE_S))
    say(f"few rows at a time: {runs} times {SLOW_S:.0f} s")
    for number in range(runs):
        found.add_slow(_step(store, target, slow(sizes[0]), number, say))
    for operation in OPERATIONS:
        # What these cost does not depend on the size of the object.
        for size in sizes if operation in {"create", "read", "update"} else (sizes[0],):
            count = max(LEAST_A_STEP, min(MOST_A_STEP, BYTES_A_STEP // size))
            say(f"{operation}, {size:,} bytes: {runs} times {count:,}")
            chosen = scenario(operation, size, count)
            for number in range(runs):
                found.add(operation, size, _step(store, target, chosen, number, say))
    known = shipped()
    return UnitCosts(
        fold_s=found.fold_s,
        cpu_s={service: found.curves(service, "cpu") for service in SERVICES},
        written_bytes={service: found.curves(service, "written") for service in ("object", "container")},
        memory_bytes={service: found.memory[service] for service in SERVICES},
        # These follow from the formats and take millions of objects to be seen.
        overhead_bytes=known.overhead_bytes,
        row_bytes=known.row_bytes,
        container_bytes=known.container_bytes,
        index_bytes=known.index_bytes,
        measured={
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": runs,
            **began,
            "note": "processor time of a standalone store's services, the generator beside them; overhead_bytes, "
            "row_bytes, container_bytes and index_bytes are not measured by `swiftlet bench costs`",
        },
        coded=known.coded,
    )


def measure_coded(
    store: LocalStore,
    target: Target,
    data: int,
    parity: int,
    runs: int,
    say: Callable[[str], None],
    sizes: tuple[int, ...] = SIZES,
) -> CodedCosts:
    """Return the unit costs of a store whose objects have erasure coding with so many fragments. BenchError."""
    wait_until_proved(store)
    began = facts()
    say(f"at rest for {REST_S:.0f} s")
    rest = _rest(store)
    say("warming up")
    run(scenario("create", sizes[0], MOST_A_STEP), target, Options("advise-warm", settle_s=SETTLE_S))
    points: dict[str, dict[str, list[tuple[float, float]]]] = {
        service: {operation: [] for operation in CODED_OPERATIONS} for service in CODED_SERVICES
    }
    for operation in CODED_OPERATIONS:
        for size in sizes if operation in {"create", "read", "update"} else (sizes[0],):
            count = max(LEAST_A_STEP, min(MOST_A_STEP, BYTES_A_STEP // size))
            say(f"{data}+{parity}, {operation}, {size:,} bytes: {runs} times {count:,}")
            chosen = scenario(operation, size, count)
            steps = [_step(store, target, chosen, number, say) for number in range(runs)]
            asked = {"proxy": 1, "object": data if operation in {"read", "head"} else data + parity}
            for service in CODED_SERVICES:
                each = [used(step, rest)[service] / step.all_succeeded / asked[service] for step in steps]
                at = size if service == "proxy" else size / data
                points[service][operation].append((float(round(at)), median(each)))
    known = shipped().coded
    return CodedCosts(
        data=data,
        parity=parity,
        cpu_s={
            service: {operation: Curve(tuple(found)) for operation, found in operations.items()}
            for service, operations in points.items()
        },
        # What a fragment takes that is made anew is measured by what loses a device: `make bench-advise`.
        rebuild_s=0.0 if known is None else known.rebuild_s,
        measured={
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": runs,
            **began,
            "note": "rebuild_us_per_mb is not measured by `swiftlet bench costs`",
        },
    )


def used(step: StepResult, rest: Mapping[str, float]) -> dict[str, float]:
    """Return the processor time of each service in a step, beyond what it takes at rest."""
    assert step.usage is not None
    seconds, parts = step.points[-1].at_s + SETTLE_S, step.usage.parts
    return {service: max(0.0, parts[service].cpu_s - rest[service] * seconds) for service in SERVICES}


def _step(store: LocalStore, target: Target, chosen: Scenario, number: int, say: Callable[[str], None]) -> StepResult:
    """Return a step in which nothing failed: what failed costs something else, and machines stall at times."""
    for _ in range(ATTEMPTS):
        options = Options(f"advise-{number}", watch=store.watch(), settle_s=SETTLE_S)
        try:
            (step,) = run(chosen, target, options).steps
        except BenchError as error:
            why = str(error)
        else:
            if not step.failed:
                return step
            failures = step.total.failures.items()
            why = "; ".join(f"{failure.count} times {kind} ({failure.example})" for kind, failure in failures)
        say(f"once more, because of failures: {why}")
    raise BenchError(f"{chosen.title}: it failed {ATTEMPTS} times, at last: {why}; see the store's logs")


class _Found:
    """What was measured of each service, operation and size."""

    def __init__(self, rest: Mapping[str, float], small: int) -> None:
        self._rest = rest
        self._small = small
        self._points: dict[tuple[str, str, str], dict[int, list[float]]] = {}
        # By operation, of container servers: how often rows were merged into a database, for each row.
        self._folds: dict[str, list[float]] = {}
        self._slow: list[tuple[float, float]] = []
        self.memory = dict.fromkeys(SERVICES, 0.0)

    def add_slow(self, step: StepResult) -> None:
        """Take in a step with few rows at a time."""
        copies = step.all_succeeded * REPLICAS
        self._slow.append((self._used(step)["container"] / copies, _folds(step) / copies))

    def add(self, operation: str, size: int, step: StepResult) -> None:
        """Take in a step."""
        assert step.usage is not None
        used, each = self._used(step), step.all_succeeded
        for service, part in step.usage.parts.items():
            if service in SERVICES:
                self.memory[service] = max(self.memory[service], part.rss_bytes / part.processes)
        if operation == "list":
            each = step.operations["list"].succeeded
            used = {service: max(0.0, value - self._beside(service, step)) for service, value in used.items()}
        if size == self._small and operation in _OF_EACH_COPY:
            self._folds.setdefault(operation, []).append(_folds(step) / each / REPLICAS)
        for service in SERVICES:
            copies = REPLICAS if service != "proxy" and operation in _OF_EACH_COPY else 1
            written = step.usage.parts[service].written_bytes or 0
            self._note(service, "cpu", operation, size, used[service] / each / copies)
            self._note(service, "written", operation, size, written / each / copies if operation != "list" else 0.0)

    def _used(self, step: StepResult) -> dict[str, float]:
        return used(step, self._rest)

    def _beside(self, service: str, step: StepResult) -> float:
        """Return what the operations beside listings took."""
        total = 0.0
        for operation in LISTED_BESIDE:
            copies = REPLICAS if service != "proxy" and operation in _OF_EACH_COPY else 1
            each = median(self._points[service, "cpu", operation][self._small])
            total += step.operations[operation].succeeded * copies * each
        return total

    def _note(self, service: str, what: str, operation: str, size: int, value: float) -> None:
        self._points.setdefault((service, what, operation), {}).setdefault(size, []).append(value)

    @property
    def fold_s(self) -> float:
        """Return what merging rows into a database takes: rows that come slowly cost more, by that alone."""
        slow, fast = self._slow, self._points["container", "cpu", "create"][self._small]
        dearer = median(cost for cost, _ in slow) - median(fast)
        oftener = median(folds for _, folds in slow) - median(self._folds["create"])
        return max(0.0, dearer / oftener) if oftener > 0 else 0.0

    def curves(self, service: str, what: str) -> dict[str, Curve]:
        """Return the medians of all runs."""
        found = {}
        for operation in OPERATIONS:
            points = [(float(size), median(values)) for size, values in self._points[service, what, operation].items()]
            if service not in _BY_SIZE:
                points = points[:1]
            if (service, what) == ("container", "cpu") and operation in _OF_EACH_COPY:
                merging = self.fold_s * median(self._folds[operation])
                points = [(size, max(0.0, cost - merging)) for size, cost in points]
            found[operation] = Curve(tuple(points))
        return found


def _folds(step: StepResult) -> float:
    """Return how often rows were merged into databases during a step, of all copies."""
    seconds = step.points[-1].at_s
    return REPLICAS * folds(step.all_succeeded / seconds, CONTAINERS) * seconds


def _rest(store: LocalStore) -> dict[str, float]:
    """Return the processors that each kind of service takes without any load."""
    watch = store.watch()
    watch.begin()
    time.sleep(REST_S)
    usage: Usage = watch.usage()
    return {service: usage.parts[service].cpu_s / REST_S for service in SERVICES}
