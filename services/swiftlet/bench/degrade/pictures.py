"""Pictures of modes: operations, failures and the 99th percentile over time, with what was broken and mended when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate

from swiftlet.bench.plots import Axis, Line, as_file, plot, stacked
from swiftlet.bench.results import Point, Result, StepResult
from swiftlet.units import number_text, time_text

Phases = Sequence[StepResult]
"""The phases of a mode in one run."""


def pictures(result: Result) -> Iterator[str]:
    """Return a heading and two plots of each mode in its first run, as parts of a page."""
    for name, mode in result.modes.items():
        phases = phases_of(result, name)
        if not phases:
            continue
        yield f"<h2>{escape(name)}</h2><p>{escape(mode.about)}</p>"
        yield _rates(phases, mode.is_task, f"{name}: operations per second")
        yield _latency(phases, mode.is_task)


def phases_of(result: Result, mode: str) -> Phases:
    """Return the phases of a mode in its first run."""
    several = [step for step in result.steps if step.mode == mode]
    return [step for step in several if step.run == several[0].run]


def picture(result: Result, mode: str) -> str:
    """Return the picture of a mode as a file of its own, in SVG."""
    phases, is_task = phases_of(result, mode), result.modes[mode].is_task
    drawn = [_rates(phases, is_task, f"{mode}: operations per second"), _latency(phases, is_task)]
    return as_file(stacked(drawn))


def _rates(phases: Phases, is_task: bool, title: str) -> str:
    failures = [
        (begin + min(point.at_s, phase.window_s), point.failed / length_s)
        for phase, begin in zip(phases, _begins(phases), strict=False)
        for point, length_s in _intervals(phase)
    ]
    lines = _lines(phases, "operations_per_s")
    return plot(title, _seconds_axis(phases, is_task), Axis("", number_text), [*lines, Line("failed", failures)])


def _latency(phases: Phases, is_task: bool) -> str:
    axis = Axis("", time_text, is_log=True)
    return plot("99th percentile of latency", _seconds_axis(phases, is_task), axis, _lines(phases, "p99_s"))


def _intervals(phase: StepResult) -> Iterator[tuple[Point, float]]:
    """The points of a phase, and the seconds that each is of."""
    last_s = 0.0
    for point in phase.points:
        if point.at_s > last_s:
            yield point, point.at_s - last_s
        last_s = point.at_s


def _begins(phases: Phases) -> Iterator[float]:
    return accumulate((phase.window_s for phase in phases), initial=0.0)


def _seconds_axis(phases: Phases, is_task: bool) -> Axis:
    """The axis of time, labelled where phases begin; what was not reached is not named."""
    ends = [round(end, 1) for end in accumulate(phase.window_s for phase in phases)]
    marks = ("begun", "done") if is_task else ("broken", "mended")
    told = ", ".join(f"{mark} at {end:g}" for mark, end in zip(marks, ends, strict=False))
    last = phases[-1]
    if last.is_whole is not None:
        told += f"; whole again after {last.whole_s:.0f} s" if last.whole_s is not None else "; not whole again in time"
    return Axis(f"seconds; {told}", number_text, ticks=[0.0, *ends])


def _lines(phases: Phases, field: str) -> list[Line]:
    return [_line(phase, begin, field) for phase, begin in zip(phases, _begins(phases), strict=False)]


def _line(phase: StepResult, begin: float, field: str) -> Line:
    points = [(begin + min(point.at_s, phase.window_s), getattr(point, field)) for point in phase.points]
    return Line(phase.phase, [(x, y) for x, y in points if y or field != "p99_s"])
