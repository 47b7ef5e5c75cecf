"""What was measured, as it is kept: one document of JSON for a scenario and a store, with one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from swiftlet.bench.errors import BenchError
from swiftlet.bench.times import Times, merged

VERSION = 3
_READABLE = (1, 2, 3)
"""Version 1 knows of one generator only, version 2 of nothing that is broken meanwhile."""
MAX_RESULT_BYTES = 1 << 30
"""Of a document that is read."""
MAX_POINTS = 600
"""Points in time that are kept of each step; longer steps have them farther apart."""


class Value(BaseModel):
    """A part of a result."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Failures(Value):
    """Failures of one kind."""

    count: int
    example: str


class OperationResult(Value):
    """Operations of one kind in one step.

    `succeeded`, `bytes`, `latency`, `first_byte` and `failures` are of operations that were to begin within the window;
    `ended` counts those that succeeded within it, whenever they began.
    """

    succeeded: int
    compared: int | None = None
    """Of these, reads whose bytes were compared with what was written; None where the release did not count them."""
    ended: int
    bytes: int
    latency: Times
    first_byte: Times
    failures: dict[str, Failures]

    @property
    def failed(self) -> int:
        """Return the number of failures of all kinds."""
        return sum(one.count for one in self.failures.values())


class Point(Value):
    """Rates and latency within one interval of a step; intervals of the warm-up are included."""

    at_s: float
    """Its end, since the step began."""
    operations_per_s: float
    bytes_per_s: float
    failed: int
    p99_s: float


class PartUsage(Value):
    """The use by some of the processes under test, as those of one service."""

    cpu_s: float
    rss_bytes: int
    """The most of all of them together."""
    written_bytes: int | None
    processes: int


class Usage(Value):
    """The use of processor, memory and disk by the processes under test during a step, warm-up included."""

    cpu_s: float
    rss_bytes: int
    """The most of all together."""
    read_bytes: int | None
    """From disks; None where the system does not tell."""
    written_bytes: int | None
    processes: int
    parts: dict[str, PartUsage] = {}
    """The same by names that were given to processes; empty where none were."""


CANCELLED = "cancelled"
"""Why a step ended early that the user has cut short, as the generator says it."""


class StepResult(Value):
    """One step of one run: a number of connections, or a rate; or one phase of a mode in which something is broken."""

    run: int
    mode: str = ""
    """What was broken meanwhile, by its name; empty where nothing was to be."""
    phase: str = ""
    """Whether the mode's break was still to come, under way or over."""
    act_s: float | None = None
    """How long it took to break or to mend in this phase."""
    first_success_s: float | None = None
    """From the end of breaking to the first operation that succeeded, to half a second."""
    whole_s: float | None = None
    """From the begin of mending until redundancy was complete."""
    is_whole: bool | None = None
    """Whether redundancy was complete in time; None when nobody asked."""
    workers: int = 1
    """Generators that made it together; the other figures are of all of them."""
    connections: int
    per_second: float | None
    """Operations per second that were to begin; None in a closed loop."""
    window_s: float
    moved_bytes: int
    workers_operations_per_s: float
    """Sum over connections of operations per second in which the connection was busy, as COSBench reports."""
    workers_bytes_per_s: float
    lateness: Times
    """How late operations of an open loop began that found a free connection: the generator's own error."""
    resent: int
    over_http: int = 0
    """Requests for objects that went over HTTP where they were to go directly, warm-up included."""
    ended_early: str | None
    operations: dict[str, OperationResult]
    all_succeeded: int
    """Operations that succeeded in the whole step, warm-up included: what processor time is divided by."""
    generator_cpu_s: float
    generator_busiest: float
    """The share of time for which the generator's busiest thread had a processor."""
    usage: Usage | None
    points: tuple[Point, ...]

    @property
    def failed(self) -> int:
        """Return the number of failures of all operations."""
        return sum(one.failed for one in self.operations.values())

    @property
    def total(self) -> OperationResult:
        """Return all operations taken together."""
        every = list(self.operations.values())
        failures: dict[str, Failures] = {}
        for one in every:
            for kind, found in one.failures.items():
                known = failures.get(kind, Failures(count=0, example=found.example))
                failures[kind] = Failures(count=known.count + found.count, example=known.example)
        return OperationResult(
            succeeded=sum(one.succeeded for one in every),
            ended=sum(one.ended for one in every),
            bytes=sum(one.bytes for one in every),
            latency=merged(one.latency for one in every),
            first_byte=merged(one.first_byte for one in every),
            failures=failures,
        )


class BrokenMode(Value):
    """What was done to the store in a mode, in words or as the commands that did it."""

    about: str
    seconds: float
    """How long each phase was to last."""
    is_task: bool
    """Whether nothing was mended, as what was begun ends by itself."""


class Result(Value):
    """A scenario, where it ran, and what was measured in all runs."""

    version: int = Field(default=VERSION)
    scenario: dict[str, Any]
    target: str
    began: str
    """When the first run began, in UTC."""
    environment: dict[str, Any]
    preparation_s: float
    is_cut_short: bool
    lost: tuple[str, ...] = ()
    """Workers that were lost before their last step, each with when and why."""
    modes: dict[str, BrokenMode] = {}
    """What was broken, by the modes' names; empty in a result of a scenario alone."""
    steps: tuple[StepResult, ...]

    @property
    def runs(self) -> int:
        """Return the number of runs."""
        return len({step.run for step in self.steps})


def read_result(path: Path) -> Result:
    """Return the result in a file; BenchError when it can't be read or is none."""
    try:
        if path.stat().st_size > MAX_RESULT_BYTES:
            raise BenchError(f"{path} is too large for a result")
        result = Result.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BenchError(f"{path} can't be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(one) for one in first["loc"]) or "the document"
        raise BenchError(f"{path} is no result of `swiftlet bench run --json`: {where}: {first['msg']}") from error
    if result.version not in _READABLE:
        raise BenchError(f"{path} has version {result.version} of results; this release reads up to version {VERSION}")
    return result


def check_appending(before: Result, scenario: dict[str, Any], target: str) -> None:
    """Check that runs of a scenario and a target can be added to a result; BenchError when they can't."""
    differing = differences(before.scenario, scenario)
    if before.target != target:
        differing.append("target")
    if differing:
        named = ", ".join(differing)
        raise BenchError(f"runs can only be added to those of the same scenario and target, but these differ: {named}")


def appended(before: Result, after: Result) -> Result:
    """Return one result with the runs of both; BenchError when they are of different scenarios or stores."""
    check_appending(before, after.scenario, after.target)
    last = max((step.run for step in before.steps), default=0)
    added = tuple(step.model_copy(update={"run": step.run + last}) for step in after.steps)
    is_cut_short = before.is_cut_short or after.is_cut_short
    changes = {
        "steps": before.steps + added,
        "is_cut_short": is_cut_short,
        "lost": before.lost + after.lost,
        "modes": before.modes | after.modes,
    }
    return before.model_copy(update={**changes, "version": VERSION})


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the fields in which two scenarios differ, apart from what only describes them."""
    names = (one.keys() | other.keys()) - {"title", "repeats", "about"}
    return sorted(name for name in names if one.get(name) != other.get(name))
