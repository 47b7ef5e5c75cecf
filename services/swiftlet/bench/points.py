"""What happened over time in a step: a bounded number of points, however long the step is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from swiftlet.bench.results import MAX_POINTS, Point


class Points:
    """Collects points; when there are too many, two neighbours become one."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._open: list[tuple[float, Point]] = []
        self._merging = 1

    def add(self, at_s: float, interval_s: float, recent: Mapping[str, Any]) -> None:
        """Note what happened in the last `interval_s` seconds."""
        point = Point(
            at_s=at_s,
            operations_per_s=recent["succeeded"] / interval_s,
            bytes_per_s=recent["moved_bytes"] / interval_s,
            failed=recent["failed"],
            p99_s=recent["p99_s"],
        )
        self._open.append((interval_s, point))
        if len(self._open) < self._merging:
            return
        self._points.append(_merged(self._open))
        self._open = []
        if len(self._points) >= MAX_POINTS:
            ends = [0.0, *(point.at_s for point in self._points)]
            times = [end - begin for begin, end in pairwise(ends)]
            weighted = list(zip(times, self._points, strict=True))
            self._points = [_merged(weighted[place : place + 2]) for place in range(0, len(weighted), 2)]
            self._merging *= 2

    def all(self) -> tuple[Point, ...]:
        """Return the points so far."""
        return (*self._points, *([_merged(self._open)] if self._open else []))


def _merged(weighted: list[tuple[float, Point]]) -> Point:
    """Return one point for several; of their 99th percentiles the largest."""
    total = sum(seconds for seconds, _ in weighted) or 1.0
    return Point(
        at_s=weighted[-1][1].at_s,
        operations_per_s=sum(seconds * point.operations_per_s for seconds, point in weighted) / total,
        bytes_per_s=sum(seconds * point.bytes_per_s for seconds, point in weighted) / total,
        failed=sum(point.failed for _, point in weighted),
        p99_s=max(point.p99_s for _, point in weighted),
    )
