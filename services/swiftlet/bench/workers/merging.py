"""One step of those that several workers made at the same time: counts and histograms are added, never percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from swiftlet.bench.results import Failures, OperationResult, Point, StepResult
from swiftlet.bench.times import merged as merged_times

POINT_S = 1.0
"""Points of all workers are put together by this interval at least."""


def merged_step(steps: Sequence[StepResult]) -> StepResult:
    """One step of one or more that began together, each of another generator."""
    first = steps[0]
    names = dict.fromkeys(name for step in steps for name in step.operations)
    rates = [step.per_second for step in steps if step.per_second is not None]
    early = dict.fromkeys(step.ended_early for step in steps if step.ended_early is not None)
    return StepResult(
        run=first.run,
        workers=sum(step.workers for step in steps),
        connections=sum(step.connections for step in steps),
        per_second=sum(rates) if rates else None,
        window_s=max(step.window_s for step in steps),
        moved_bytes=sum(step.moved_bytes for step in steps),
        workers_operations_per_s=sum(step.workers_operations_per_s for step in steps),
        workers_bytes_per_s=sum(step.workers_bytes_per_s for step in steps),
        lateness=merged_times(step.lateness for step in steps),
        resent=sum(step.resent for step in steps),
        over_http=sum(step.over_http for step in steps),
        ended_early="; ".join(early) or None,
        operations={name: merged_operation(_of(steps, name)) for name in names},
        all_succeeded=sum(step.all_succeeded for step in steps),
        generator_cpu_s=sum(step.generator_cpu_s for step in steps),
        generator_busiest=max(step.generator_busiest for step in steps),
        usage=None,
        points=merged_points([step.points for step in steps]),
    )


def merged_operation(several: Sequence[OperationResult]) -> OperationResult:
    """The same operation of several generators."""
    compared = [one.compared for one in several if one.compared is not None]
    failures: dict[str, Failures] = {}
    for one in several:
        for kind, found in one.failures.items():
            known = failures.get(kind)
            before = known.count if known is not None else 0
            failures[kind] = Failures(count=before + found.count, example=known.example if known else found.example)
    return OperationResult(
        succeeded=sum(one.succeeded for one in several),
        compared=sum(compared) if len(compared) == len(several) else None,
        ended=sum(one.ended for one in several),
        bytes=sum(one.bytes for one in several),
        latency=merged_times(one.latency for one in several),
        first_byte=merged_times(one.first_byte for one in several),
        failures=failures,
    )


def merged_points(several: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """Return what all workers did in each interval. Its 99th percentile is the largest of theirs."""
    interval_s = max([POINT_S, *(end - begin for points in several for begin, end in _intervals(points))])
    last_s = max((points[-1].at_s for points in several if points), default=0.0)
    found, begin_s = [], 0.0
    while begin_s < last_s:
        end_s = min(begin_s + interval_s, last_s)
        found.append(_point([_within(points, begin_s, end_s) for points in several], end_s))
        begin_s += interval_s
    return tuple(found)


def _point(parts: Iterable[list[tuple[float, Point]]], at_s: float) -> Point:
    weighted = [one for part in parts for one in part]
    return Point(
        at_s=at_s,
        operations_per_s=sum(share * one.operations_per_s for share, one in weighted),
        bytes_per_s=sum(share * one.bytes_per_s for share, one in weighted),
        failed=sum(one.failed for share, one in weighted if one.at_s <= at_s),
        p99_s=max((one.p99_s for _, one in weighted), default=0.0),
    )


def _within(points: Sequence[Point], begin_s: float, end_s: float) -> list[tuple[float, Point]]:
    """The points that touch an interval, each with the share of the interval that it covers."""
    found = []
    for (begin, end), point in zip(_intervals(points), points, strict=True):
        covered = min(end, end_s) - max(begin, begin_s)
        if covered > 0:
            found.append((covered / (end_s - begin_s), point))
    return found


def _intervals(points: Sequence[Point]) -> list[tuple[float, float]]:
    ends = [0.0, *(point.at_s for point in points)]
    return list(pairwise(ends))


def _of(steps: Sequence[StepResult], name: str) -> list[OperationResult]:
    return [step.operations[name] for step in steps if name in step.operations]
