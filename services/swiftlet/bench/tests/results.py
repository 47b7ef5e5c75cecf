"""Results for tests, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet.bench.results import Failures, OperationResult, Point, Result, StepResult, Usage
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.times import Times


def operation(p: float = 5, ended: int = 1000, failures: Mapping[str, Failures] | None = None) -> OperationResult:
    """A thousand operations, a hundred each second, of `p` milliseconds each."""
    times = Times(counts=((round(p * 1e6), ended),))
    return OperationResult(
        succeeded=ended,
        ended=ended,
        bytes=ended * 1000,
        latency=times,
        first_byte=times,
        failures=dict(failures or {}),
    )


def step(
    run: int = 1,
    connections: int = 4,
    operations: Mapping[str, OperationResult] | None = None,
    busiest: float = 0.1,
    lateness: Times | None = None,
    ended_early: str | None = None,
    usage: Usage | None = None,
) -> StepResult:
    """Ten seconds of operations."""
    chosen = dict(operations or {"read": operation()})
    point = Point(at_s=10, operations_per_s=100, bytes_per_s=100_000, failed=0, p99_s=0.005)
    return StepResult(
        run=run,
        connections=connections,
        per_second=None,
        window_s=10.0,
        moved_bytes=sum(one.bytes for one in chosen.values()),
        workers_operations_per_s=100.0,
        workers_bytes_per_s=100_000.0,
        lateness=lateness or Times(),
        resent=0,
        ended_early=ended_early,
        operations=chosen,
        all_succeeded=sum(one.succeeded for one in chosen.values()),
        generator_cpu_s=0.01,
        generator_busiest=busiest,
        usage=usage,
        points=(point.model_copy(update={"at_s": 5.0}), point),
    )


def result(document: Mapping[str, Any], steps: Sequence[StepResult], is_cut_short: bool = False) -> Result:
    """A result of these steps."""
    return Result(
        scenario=Scenario.model_validate(document).document(),
        target="http://store/v1/AUTH_test",
        began="2026-11-27T00:00:00+00:00",
        environment={"processor": "a processor", "processors": 2},
        preparation_s=1.0,
        is_cut_short=is_cut_short,
        steps=tuple(steps),
    )
