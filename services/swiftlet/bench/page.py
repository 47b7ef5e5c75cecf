"""A result as one HTML page that stands by itself: a table, plots, and the facts of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from statistics import median

from swiftlet.bench.degrade.pictures import pictures
from swiftlet.bench.figures import (
    ALL,
    OPERATIONS_PER_S,
    P50,
    P95,
    P99,
    Figure,
    Key,
    keys,
    operations,
    shown,
    values,
)
from swiftlet.bench.plots import STYLE as PLOTS_STYLE
from swiftlet.bench.plots import Axis, Line, plot
from swiftlet.bench.results import Result
from swiftlet.bench.table import cell, notes
from swiftlet.bench.times import Times, merged
from swiftlet.units import number_text, time_text

MAX_TIMELINES = 7
"""Steps that are shown over time: as many lines as one can tell apart."""
MAX_LABELS = 12
"""Steps that an axis names; of more it names round numbers."""
_MUCH = 4
_SHARES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
_PAGE_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
pre { background: #f5f5f5; padding: 1rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; margin: .5rem 0; }
"""
STYLE = _PAGE_STYLE + PLOTS_STYLE


def render(result: Result, more: Sequence[str] = ()) -> str:
    """Return the self-contained HTML page of a result; `more` are further notes below its table."""
    scenario = result.scenario
    described = [
        text for text in (scenario["about"], f"Repeats {scenario['repeats']}" if scenario["repeats"] else "") if text
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(scenario['title'])}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(scenario['title'])}</h1>",
        *(f"<p>{escape(text)}</p>" for text in described),
        f"<p>{escape(result.target)}, {escape(result.began)}, {result.runs} run{'s' if result.runs > 1 else ''}</p>",
        *_table(result),
        "<ul>",
        *(f"<li>{escape(note)}</li>" for note in [*notes(result), *more]),
        "</ul>",
        *(pictures(result) if result.modes else _plots(result)),
        "<h2>Environment</h2>",
        f"<pre>{escape(json.dumps(result.environment, indent=2))}</pre>",
        "<h2>Scenario</h2>",
        f"<pre>{escape(json.dumps(scenario, indent=2))}</pre>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(result: Result) -> Iterator[str]:
    rows, figures, title = shown(result)
    heads = [title, "operation", *(figure.title for figure in figures)]
    yield "<table><tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"
    for key in rows:
        cells = [key.step, key.operation, *(cell(result, key, figure) for figure in figures)]
        yield "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in cells) + "</tr>"
    yield "</table>"


def _plots(result: Result) -> Iterator[str]:
    found = keys(result)
    steps = list(dict.fromkeys((key.connections, key.per_second) for key in found))
    names = list(dict.fromkeys(key.operation for key in found))
    if len(steps) > 1:
        axis = _of_steps(steps)
        rates = [_by_step(result, found, name, OPERATIONS_PER_S, name) for name in names]
        yield plot("Operations per second", axis, Axis("", number_text), rates)
        chosen = ALL if ALL in names else names[0]
        latencies = [_by_step(result, found, chosen, figure, figure.title) for figure in (P50, P95, P99)]
        yield plot(f"Latency ({chosen})", axis, Axis("", time_text, is_log=True), latencies)
    for connections, per_second in steps:
        of_step = [key for key in found if (key.connections, key.per_second) == (connections, per_second)]
        lines = [_distribution(result, key) for key in of_step if key.operation != ALL or len(of_step) == 1]
        title = f"Latency by percentile, {_name(of_step[0])}"
        yield plot(title, _percentiles(), Axis("", time_text, is_log=True), lines)
    yield from _timelines(result)


def _of_steps(steps: Sequence[tuple[int, float | None]]) -> Axis:
    """Return the axis on which a plot has its steps; doubling takes the same room everywhere when they differ much."""
    is_open = steps[0][1] is not None
    places = sorted(per_second or float(connections) for connections, per_second in steps)
    title = "operations per second that are to begin" if is_open else "clients"
    is_log = places[-1] > _MUCH * places[0]
    return Axis(title, number_text, is_log, places if len(places) <= MAX_LABELS else None)


def _name(key: Key) -> str:
    if key.per_second is not None:
        return key.step
    return f"{key.connections} client{'s' if key.connections > 1 else ''}"


def _by_step(result: Result, found: Sequence[Key], operation: str, figure: Figure, name: str) -> Line:
    points = []
    for key in found:
        several = values(result, key, figure) if key.operation == operation else []
        if several:
            points.append((key.per_second or float(key.connections), median(several)))
    return Line(name, points)


def _percentiles() -> Axis:
    """Return an axis on which each nine of a percentile takes the same room."""
    ticks = [1 / (1 - share) for share in _SHARES]
    return Axis("percentile", lambda tail: f"{(1 - 1 / tail) * 100:.6g}", is_log=True, ticks=ticks)


def _distribution(result: Result, key: Key) -> Line:
    times: Times = merged(operation.latency for _, operation in operations(result, key))
    # The rarest that there is more than one of; beyond it, one operation is the whole tail.
    tails = [10 ** (step / 10) for step in range(41) if 10 ** (step / 10) <= max(1, times.count)]
    quantiles = times.quantiles_s([1 - 1 / tail for tail in tails]) if times.counts else []
    return Line(key.operation, list(zip(tails, quantiles, strict=True)) if quantiles else [])


def _timelines(result: Result) -> Iterator[str]:
    first = result.steps[:MAX_TIMELINES]
    lines = [(f"{_name(Key(step.connections, step.per_second, ALL))}, run {step.run}", step.points) for step in first]
    axis = Axis("seconds of the step, warm-up included", number_text)
    rates = [Line(name, [(point.at_s, point.operations_per_s) for point in points]) for name, points in lines]
    yield plot("Operations per second over time", axis, Axis("", number_text), rates)
    slow = [Line(name, [(point.at_s, point.p99_s) for point in points if point.p99_s]) for name, points in lines]
    yield plot("99th percentile of latency over time", axis, Axis("", time_text, is_log=True), slow)
