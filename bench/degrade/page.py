"""The picture: one HTML page that stands by itself, with a plot of each mode over time, and the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

from bench.degrade.measuring import Measured, Phase
from swiftlet.bench.page import STYLE
from swiftlet.bench.plots import Axis, Line, as_file, plot, stacked
from swiftlet.bench.results import Point
from swiftlet.units import number_text, time_text

HEADS = ("mode", "phase", "op/s", "p50", "p99", "max", "failed", "whole again after")


def render(
    found: Sequence[Measured], skipped: Mapping[str, str], environment: Mapping[str, Any], seconds: float
) -> str:
    """Return the page: the table, what was not done, two plots of each mode, and the environment."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>Degraded modes</title><style>{STYLE}</style></head><body>",
        "<h1>Degraded modes</h1>",
        f"<p>Each mode: {seconds:g} s before, {seconds:g} s while something is broken, {seconds:g} s after it was "
        "mended. A task, such as an upgrade, lasts as long as it takes, and <em>whole again after</em> counts from its "
        f"begin. Load average at the beginning: {environment['load_average']} on {environment['processors']} "
        "processors: timings are as good as that.</p>",
        "<table><tr>" + "".join(f"<th>{escape(head)}</th>" for head in HEADS) + "</tr>",
        *("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(found)),
        "</table>",
        *(f"<p>Not done: {escape(name)}: {escape(why)}</p>" for name, why in skipped.items()),
        *(part for one in found for part in _pictures(one)),
        f"<h2>Environment</h2><pre>{escape(json.dumps(dict(environment), indent=2))}</pre>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def rows(found: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    """A row for each phase of each mode."""
    for one in found:
        for phase in one.phases:
            whole = "" if phase.name != "after" else "not in time" if one.whole_s is None else f"{one.whole_s:.0f} s"
            yield (
                one.mode,
                phase.name,
                number_text(phase.operations_per_s),
                time_text(phase.p50_s),
                time_text(phase.p99_s),
                time_text(phase.max_s),
                f"{phase.failed:,} of {phase.failed + phase.succeeded:,}",
                whole,
            )


def _pictures(one: Measured) -> Iterator[str]:
    yield f"<h2>{escape(one.mode)}</h2><p>{escape(one.what)}</p>"
    yield _rates(one, "Operations per second")
    yield _latency(one)
    for phase in one.phases:
        for kind, example in phase.failures.items():
            yield f"<p>{escape(phase.name)}, {escape(kind)}: {escape(example)}</p>"


def picture(one: Measured) -> str:
    """Return operations, failures and the 99th percentile over time as a file of its own, in SVG."""
    return as_file(stacked([_rates(one, f"{one.mode}: operations per second"), _latency(one)]))


def _rates(one: Measured, title: str) -> str:
    begins = accumulate((phase.lasted_s for phase in one.phases), initial=0.0)
    failures = [
        (begin + min(point.at_s, phase.lasted_s), point.failed / length_s)
        for phase, begin in zip(one.phases, begins, strict=False)
        for point, length_s in _intervals(phase)
    ]
    lines = _lines(one, "operations_per_s")
    return plot(title, _seconds_axis(one), Axis("", number_text), [*lines, Line("failed", failures)])


def _intervals(phase: Phase) -> Iterator[tuple[Point, float]]:
    """The points of a phase, and the seconds that each is of."""
    last_s = 0.0
    for point in phase.points:
        if point.at_s > last_s:
            yield point, point.at_s - last_s
        last_s = point.at_s


def _latency(one: Measured) -> str:
    title = "99th percentile of latency"
    return plot(title, _seconds_axis(one), Axis("", time_text, is_log=True), _lines(one, "p99_s"))


def _seconds_axis(one: Measured) -> Axis:
    ends = [round(end, 1) for end in accumulate(phase.lasted_s for phase in one.phases)]
    first, last = ("begun", "done") if one.is_task else ("broken", "mended")
    whole = "not whole again in time" if one.whole_s is None else f"whole again after {one.whole_s:.0f} s"
    return Axis(f"seconds; {first} at {ends[0]:g}, {last} at {ends[1]:g}; {whole}", number_text, ticks=[0.0, *ends])


def _lines(one: Measured, field: str) -> list[Line]:
    begins = accumulate((phase.lasted_s for phase in one.phases), initial=0.0)
    return [_line(phase, begin, field) for phase, begin in zip(one.phases, begins, strict=False)]


def _line(phase: Phase, begin: float, field: str) -> Line:
    points = [(begin + min(point.at_s, phase.lasted_s), getattr(point, field)) for point in phase.points]
    return Line(phase.name, [(x, y) for x, y in points if y or field != "p99_s"])
