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

from swiftlet.advice.costs import OPERATIONS, SERVICES, Curve, UnitCosts, shipped
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
ATTEMPTS = 4
"""Of a step in which operations fail."""
REPLICAS = 3
"""Of a standalone store."""
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

    def names(self) -> dict[int, str]:
        """Return the kind of service of each process."""
        return {
            service["pid"]: _KINDS.get(name, name.rpartition("-")[0] or name) for name, service in self.services.items()
        }

    def watch(self) -> Watch:
        """Return a watch over all services, by kind."""
        names = self.names()
        return Watch(names, names)


def read_store(path: Path) -> LocalStore:
    """Return the store of a ready file; BenchError when it can't be used."""
    try:
        known = json.loads(path.read_text("utf-8"))
        services = known["services"]
        if missing := [name for name, service in services.items() if service["pid"] is None]:
            raise BenchError(f"{path}: {', '.join(missing)} does not run; start the store anew")
        return LocalStore(known["endpoint"], known["user"], known["key"], Path(known["data"]), services)
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


def scenario(operation: str, size: int, count: int, containers: int = 4) -> Scenario:
    """Return the scenario that measures an operation on objects of a size."""
    stored = {"create": 0, "delete": count + 64}.get(operation, min(count, MOST_A_STEP))
    return Scenario.model_validate(
        {
            "title": f"{operation} {size} bytes",
            "containers": containers,
            "objects": stored,
            "sizes": {"fixed": size},
            "operations": {operation: 1},
            "closed": {"connections": CONNECTIONS if size <= SMALL else FEW_CONNECTIONS},
            "warm_up_s": 0,
            "count": count,
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
    found = _Found(rest)
    say("warming up")
    run(scenario("create", sizes[0], MOST_A_STEP), target, Options("advise-warm", settle_s=SETTLE_S))
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
    )


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

    def __init__(self, rest: Mapping[str, float]) -> None:
        self._rest = rest
        self._points: dict[tuple[str, str, str], dict[int, list[float]]] = {}
        self.memory = dict.fromkeys(SERVICES, 0.0)

    def add(self, operation: str, size: int, step: StepResult) -> None:
        """Take in a step."""
        assert step.usage is not None
        seconds = step.points[-1].at_s + SETTLE_S
        for service in SERVICES:
            part = step.usage.parts[service]
            copies = REPLICAS if service != "proxy" and operation in _OF_EACH_COPY else 1
            each = step.all_succeeded * copies
            used = max(0.0, part.cpu_s - self._rest[service] * seconds)
            self._note(service, "cpu", operation, size, used / each)
            self._note(service, "written", operation, size, (part.written_bytes or 0) / each)
            self.memory[service] = max(self.memory[service], part.rss_bytes / part.processes)

    def _note(self, service: str, what: str, operation: str, size: int, value: float) -> None:
        self._points.setdefault((service, what, operation), {}).setdefault(size, []).append(value)

    def curves(self, service: str, what: str) -> dict[str, Curve]:
        """Return the medians of all runs."""
        return {
            operation: Curve(
                tuple(
                    (float(size), median(values))
                    for number, (size, values) in enumerate(self._points[service, what, operation].items())
                    if service in _BY_SIZE or number == 0
                )
            )
            for operation in OPERATIONS
        }


def _rest(store: LocalStore) -> dict[str, float]:
    """Return the processors that each kind of service takes without any load."""
    watch = store.watch()
    watch.begin()
    time.sleep(REST_S)
    usage: Usage = watch.usage()
    return {service: usage.parts[service].cpu_s / REST_S for service in SERVICES}
