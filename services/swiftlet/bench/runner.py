"""Drives the generator through a scenario: stores objects, measures step by step, deletes what it has stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from swiftlet.bench.direct.engine import Phase, Plan
from swiftlet.bench.direct.load import DirectLoad
from swiftlet.bench.environment import facts
from swiftlet.bench.errors import BenchError
from swiftlet.bench.points import Points
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import Failures, OperationResult, Result, StepResult
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target, resolve
from swiftlet.bench.times import Times

if TYPE_CHECKING:
    from swiftlet_native import Load

MAX_PREPARING = 64
"""Connections over which objects are stored before measuring, and deleted after it."""
_LOOK_S = 0.25
_CLEAN_ATTEMPTS = 20
_CLEAN_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being done, for people who wait."""

    what: str
    succeeded: int
    failed: int
    seconds: float
    recent: Mapping[str, Any]
    """The generator's own figures for the last quarter of a second."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is measured by itself."""

    connections: int
    per_second: float | None = None

    def __str__(self) -> str:
        """Return it for people."""
        if self.per_second is not None:
            return f"{self.per_second:g} operations per second"
        return f"{self.connections} connection{'s' if self.connections > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Options:
    """How a scenario is run."""

    prefix: str
    """Containers' names begin with it."""
    runs: int = 1
    keeps: bool = False
    """Whether objects are left in the store."""
    watch: Watch | None = None
    report: Callable[[Progress], None] = field(default=lambda _: None)
    stops: Callable[[], int] = field(default=lambda: 0)
    """How often the user has asked to stop: once ends measuring, twice leaves the objects in the store."""
    suffices: Callable[[Progress], bool] = field(default=lambda _: False)
    """Whether the step under way may end before its time."""
    ended: Callable[[], None] = field(default=lambda: None)
    """Called when nothing more is measured, for whatever reason, and before objects are deleted; BenchError ends the
    run."""
    gate: Callable[[], None] = field(default=lambda: None)
    """Returns when the next step may begin; BenchError ends the run."""
    measured: Callable[[StepResult], None] = field(default=lambda _: None)
    """Told of each step that has ended."""
    settle_s: float = 0.0
    """Pause before a step, and after it, while the use of the watched processes still counts: a store ends some of its
    work later."""


def run(scenario: Scenario, target: Target, options: Options) -> Result:
    """Run a scenario against a store; what was measured, also when Ctrl-C cut it short.

    BenchError when objects can't be stored in advance, or the generator can't work.
    """
    one = _Run(scenario, target, options)
    try:
        return one.run()
    finally:
        one.close()


class _Run:
    def __init__(self, scenario: Scenario, target: Target, options: Options) -> None:
        self._scenario = scenario
        self._target = target
        self._options = options
        self._load = _generator(scenario, target, options.prefix)
        self._steps: list[StepResult] = []
        self._is_cut_short = False

    def run(self) -> Result:
        environment, began, clock = facts(), datetime.now(UTC), time.monotonic()
        try:
            self._prepare()
            preparation_s = time.monotonic() - clock
            try:
                self._measure()
            finally:
                self._options.ended()
        except BenchError as error:
            try:
                self._clean()
            except BenchError as left:
                raise BenchError(f"{error}; {left}") from error
            raise
        self._clean()
        return Result(
            scenario=self._scenario.document(),
            target=self._target.storage_url,
            began=began.isoformat(timespec="seconds"),
            environment=environment,
            preparation_s=preparation_s,
            is_cut_short=self._is_cut_short,
            steps=tuple(self._steps),
        )

    def close(self) -> None:
        """Let the generator's processes end, if it has any."""
        if isinstance(self._load, DirectLoad):
            self._load.close()

    def _prepare(self) -> None:
        phase: Phase
        for phase, what, objects in (
            ("create_containers", "creating containers", 0),
            ("fill", f"storing {self._scenario.objects:,} objects", self._scenario.objects),
        ):
            self._load.begin(phase, MAX_PREPARING, objects)
            if not self._wait(what):
                self._load.finish()
                raise BenchError(f"interrupted while {what}: nothing was measured")
            outcome = self._load.finish()
            if failures := _failures(outcome):
                raise BenchError(f"{what} failed: {failures}")
            if 0 < objects <= outcome.get("over_http", 0):
                raise BenchError("no object went directly to the devices: is direct access enabled in this store?")

    def _measure(self) -> None:
        for number in range(1, self._options.runs + 1):
            before: StepResult | None = None
            for step in steps(self._scenario):
                self._options.gate()
                found = self._step(number, step)
                self._steps.append(found)
                self._options.measured(found)
                if self._is_cut_short:
                    return
                if self._is_saturated(before, found):
                    break
                before = found

    def _is_saturated(self, before: StepResult | None, now: StepResult) -> bool:
        closed = self._scenario.closed
        if before is None or closed is None or closed.ramp is None:
            return False
        rates = [one.total.ended / one.window_s if one.window_s else 0.0 for one in (before, now)]
        return rates[1] < rates[0] * (1 + closed.ramp.gain)

    def _step(self, number: int, step: Step) -> StepResult:
        scenario, watch = self._scenario, self._options.watch
        closed, open_ = scenario.closed, scenario.open
        time.sleep(self._options.settle_s)
        if watch is not None:
            watch.begin()
        self._load.measure(
            step.connections,
            warm_up_s=scenario.warm_up_s,
            duration_s=scenario.duration_s,
            operations=scenario.count,
            think_s=closed.think_s if closed is not None else 0.0,
            interval_s=1 / step.per_second if step.per_second is not None else None,
            is_random=closed.think == "random" if closed is not None else open_ is None or open_.arrivals == "random",
        )
        points = Points()
        self._is_cut_short = not self._wait(f"run {number} of {self._options.runs}, {step}", points)
        outcome = self._load.finish()
        time.sleep(self._options.settle_s)
        return StepResult(
            run=number,
            connections=step.connections,
            per_second=step.per_second,
            operations={name: _operation(found) for name, found in outcome["operations"].items()},
            all_succeeded=self._succeeded,
            generator_cpu_s=outcome["cpu_s"],
            generator_busiest=outcome["busiest"],
            usage=watch.usage() if watch is not None else None,
            points=points.all(),
            lateness=Times(counts=tuple(outcome["lateness"])),
            over_http=outcome.get("over_http", 0),
            # What suffices was not cut short.
            ended_early=None if self._suffices and not self._is_cut_short else outcome["ended_early"],
            **{name: outcome[name] for name in _AS_THEY_ARE},
        )

    def _wait(self, what: str, points: Points | None = None, patience: int = 0) -> bool:
        """Wait for the end of what was begun; False when the user asked to stop more often than `patience`."""
        began = last = time.monotonic()
        self._succeeded = failed = 0
        self._suffices = is_stopped = is_done = False
        while not is_done:
            is_done = self._load.wait(_LOOK_S)
            if not is_done and self._options.stops() > patience:
                is_stopped = True
                self._load.cancel()
            now = time.monotonic()
            recent = self._load.recent()
            self._succeeded += recent["succeeded"]
            failed += recent["failed"]
            if points is not None and now > last:
                points.add(now - began, now - last, recent)
            if points is not None and self._options.watch is not None:
                self._options.watch.look()
            last = now
            if not is_done:
                progress = Progress(what, self._succeeded, failed, now - began, recent)
                self._options.report(progress)
                if points is not None and not self._suffices and self._options.suffices(progress):
                    self._suffices = True
                    self._load.cancel()
        return not is_stopped

    def _clean(self) -> None:
        """Delete what was stored, as far as that is possible."""
        if self._options.keeps:
            return
        left = f"containers {self._options.prefix}-* are left in the store (`swiftlet rm` deletes them)"
        phase: Phase
        for phase, what in (("empty", "deleting objects"), ("delete_containers", "deleting containers")):
            for _ in range(_CLEAN_ATTEMPTS):
                self._load.begin(phase, MAX_PREPARING)
                is_done = self._wait(what, patience=1)
                outcome = self._load.finish()
                failures = _failures(outcome)
                if not is_done:
                    raise BenchError(f"interrupted while {what}; {left}")
                if not failures:
                    break
                if not _is_refused(outcome):
                    raise BenchError(f"{what} failed: {failures}; {left}")
                # A container whose listing still has names of deleted objects can't be deleted yet.
                time.sleep(_CLEAN_PAUSE_S)
            else:
                raise BenchError(f"{what} failed: {failures}; {left}")


_AS_THEY_ARE = (
    "window_s",
    "moved_bytes",
    "workers_operations_per_s",
    "workers_bytes_per_s",
    "resent",
)


def steps(scenario: Scenario) -> Iterator[Step]:
    """Return what a scenario measures; a ramp may end before its last step."""
    if scenario.open is not None:
        for rate in scenario.open.per_second:
            yield Step(scenario.open.connections, rate)
        return
    assert scenario.closed is not None
    for connections in scenario.closed.connections or (
        scenario.closed.ramp.connections() if scenario.closed.ramp else ()
    ):
        yield Step(connections)


def _generator(scenario: Scenario, target: Target, prefix: str) -> Load | DirectLoad:
    if target.opens is not None:
        return DirectLoad(Plan(target.opens, scenario, prefix))
    try:
        from swiftlet_native import Load
    except ImportError as error:
        raise BenchError(f"the native package, which has the generator, can't be loaded: {error}") from error
    place, keys = resolve(target), target.keys
    headers = [("X-Auth-Token", target.token)] if target.token else []
    try:
        return Load(
            api=target.api,
            keys=(keys.access, keys.secret, keys.region) if keys is not None else None,
            addresses=place.addresses,
            host=place.host,
            path=place.path,
            headers=headers,
            authorities=place.authorities,
            server_name=place.server_name,
            prefix=prefix,
            containers=scenario.containers,
            sizes=scenario.sizes.pieces(),
            mix=scenario.operations.weights(),
            page=scenario.page,
            seed=scenario.seed,
            verify=scenario.verify,
            timeout_s=scenario.timeout_s,
            threads=scenario.threads,
        )
    except ValueError as error:
        raise BenchError(f"the generator refuses: {error}") from error


def _operation(found: Mapping[str, Any]) -> OperationResult:
    failures = {kind: Failures(count=count, example=example) for kind, (count, example) in found["failures"].items()}
    return OperationResult(
        succeeded=found["succeeded"],
        compared=found["compared"],
        ended=found["ended"],
        bytes=found["bytes"],
        latency=Times(counts=tuple(found["latency"])),
        first_byte=Times(counts=tuple(found["first_byte"])),
        failures=failures,
    )


def _is_refused(outcome: Mapping[str, Any]) -> bool:
    """Return whether the store answered all that failed, so that it may answer otherwise later."""
    return all(kind.startswith("status ") for found in outcome["operations"].values() for kind in found["failures"])


def _failures(outcome: Mapping[str, Any]) -> str:
    """Return all failures in a line, empty when there are none."""
    every = [
        f"{count} times {kind} ({example})"
        for found in outcome["operations"].values()
        for kind, (count, example) in found["failures"].items()
    ]
    return "; ".join(every)
