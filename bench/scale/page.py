"""RESULTS.md with its curves: what was measured, and what the model says of stores beyond this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.micro import Measured
from bench.scale.curves import Curves, Operation, Point, Round
from bench.scale.model import Shape
from bench.scale.predictions import SHAPES, fits
from swiftlet.bench.plots import Axis, Line, as_file, plot
from swiftlet.units import number_text, size_text, time_text


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark as a chapter."""

    name: str
    title: str
    variable: str
    text: str
    columns: tuple[str, ...] = ()
    """Amounts that have a column."""


UP_TO = {"workers": 4, "objects": 10_000_000, "devices": 64, "containers": 100_000, "powers": 22, "rings": 1024}
"""The largest size of each part that `make bench-scale` measures; a page without it says so."""
_RING = ("ring_file_bytes", "ring_memory_bytes", "ring_build_cpu_s", "ring_read_cpu_s")
PARTS = (
    Part(
        "workers",
        "Workers of the proxy",
        "workers",
        "Objects of 10 KiB over HTTP, 32 connections, `swiftlet bench` on the same machine as the store.",
    ),
    Part(
        "objects",
        "Objects on a device",
        "objects",
        "The engine alone: durable puts and deletes of 10 KiB by 20 threads, gets and stats by one. A stat\n"
        "is of any object, a get of one that was just put. A store is opened, after its checkpoint, by a\n"
        "process of its own, whose memory is told. Rounds are of three devices that hold the same, 2^14\n"
        "partitions.",
        ("store_resident_bytes", "store_open_s", "store_open_cpu_s"),
    ),
    Part(
        "devices",
        "Devices",
        "devices",
        "A ring of 2^14 partitions; the round of one device among so many, all servers in one process.",
        _RING,
    ),
    Part(
        "containers",
        "Containers on a device",
        "containers",
        "A database and an object each; the listing store without HTTP, 16 operations at a time, each on a\n"
        "database that is not open. Rounds are of three devices that hold the same, in one process; its\n"
        "first round reads every database of all three.",
        ("containers_bytes",),
    ),
    Part(
        "powers",
        "Part power",
        "part_power",
        "Five devices without objects; the round of one of them. For more than 2^16 partitions its ring\n"
        "repeats the layout of one of 2^16.",
        _RING,
    ),
    Part("rings", "Rings alone", "devices", "More devices than have servers here, 2^14 partitions.", _RING),
)
_OPERATION_CURVES: tuple[tuple[str, Callable[[Operation], float]], ...] = (
    ("processor time", lambda one: one.cpu_s),
    ("99th percentile", lambda one: one.p99_s),
)
_ROUND_CURVES: tuple[tuple[str, Callable[[Round], float], Callable[[float], str]], ...] = (
    ("seconds", lambda one: one.seconds, time_text),
    ("bytes", lambda one: one.bytes, size_text),
)


def write(curves: Curves, folder: Path) -> None:
    """Write RESULTS.md and the curves that it shows."""
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn: dict[str, str] = {}
    lines = [*_head(curves)]
    for part in PARTS:
        if points := curves.parts.get(part.name):
            lines += _chapter(part, points, drawn)
    lines += _model(curves)
    for name, picture in drawn.items():
        (folder / name).write_text(as_file(picture))
    (folder / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n")


def _head(curves: Curves) -> Iterator[str]:
    yield "# Cost by size, measured and beyond\n"
    yield "Written by `make bench-scale`, which measures all parts; `SCALE_ARGS='--only objects'` one of them."
    yield "All figures are in [results.json](results.json). Times are of a machine with the load that is named;"
    yield "compare only what is in one table. Processor time says most where others used it, too.\n"
    yield "| part | began | processors | load average before | release |\n|---|---|---|---|---|"
    for part in PARTS:
        if found := curves.machine.get(part.name):
            cells = (found["began"], found["processors"], found["load_average"], found["swiftlet"])
            yield f"| {part.name} | {' | '.join(map(str, cells))} |"
    yield ""
    if left := list(_left_out(curves)):
        yield "Sizes that were not measured yet:\n"
        yield from left
        yield ""


def _left_out(curves: Curves) -> Iterator[str]:
    """A line for each part whose largest sizes were not measured."""
    for part in PARTS:
        reached = max((point.at[part.variable] for point in curves.parts.get(part.name, ())), default=0)
        if reached < UP_TO[part.name]:
            yield f"- {part.title.lower()}: more than {reached:,.0f}, up to {UP_TO[part.name]:,}"
        rounds = [point.at[part.variable] for point in curves.parts.get(part.name, ()) if point.rounds]
        if rounds and max(rounds) < reached:
            yield f"- {part.title.lower()}: rounds with more than {max(rounds):,.0f}, up to {reached:,.0f}"


def _chapter(part: Part, points: Sequence[Point], drawn: dict[str, str]) -> Iterator[str]:
    yield f"## {part.title}\n"
    yield f"{part.text}\n"
    if part.columns:
        heads = [part.variable, *part.columns]
        yield f"| {' | '.join(head.replace('_', ' ') for head in heads)} |\n|{'---|' * len(heads)}"
        for point in points:
            cells = [_text(name, point.amounts[name]) if name in point.amounts else "" for name in part.columns]
            yield f"| {_at(point, part)} | {' | '.join(cells)} |"
        yield ""
    operations = [(point, one) for point in points for one in point.operations]
    if operations:
        yield f"| {part.variable.replace('_', ' ')} | operation | per second | p50 | p99 | processor |\n|{'---|' * 6}"
        for point, one in sorted(operations, key=lambda pair: pair[1].operation):
            yield (
                f"| {_at(point, part)} | {one.operation} | {number_text(one.per_second)} | {time_text(one.p50_s)} | "
                f"{time_text(one.p99_s)} | {time_text(one.cpu_s)} |"
            )
        yield ""
    rounds = [(point, one) for point in points for one in point.rounds]
    if rounds:
        heads = [part.variable.replace("_", " "), "round", "bytes", "messages", "seconds", "processor", "memory"]
        yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
        for point, turn in sorted(rounds, key=lambda pair: pair[1].kind):
            yield (
                f"| {_at(point, part)} | {turn.kind} | {size_text(turn.bytes)} | {number_text(turn.messages)} | "
                f"{time_text(turn.seconds)} | {time_text(turn.cpu_s)} | {size_text(turn.memory_bytes)} |"
            )
        yield ""
    for name, picture in _curves(part, points):
        if picture:
            file = f"{part.name}-{name.replace(' ', '-')}.svg"
            drawn[file] = picture
            yield f"![{part.title}: {name}]({file})\n"


def _curves(part: Part, points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    across = [point.at[part.variable] for point in points]
    axis = Axis(part.variable.replace("_", " "), number_text, part.variable != "part_power", across)
    for name, of in _OPERATION_CURVES:
        lines = _lines((one.operation, x, of(one)) for x, p in zip(across, points, strict=True) for one in p.operations)
        yield f"operations {name}", plot(f"An operation: {name}", axis, Axis("", time_text, is_log=True), lines)
    for name, of_round, text in _ROUND_CURVES:
        lines = _lines((one.kind, x, of_round(one)) for x, p in zip(across, points, strict=True) for one in p.rounds)
        yield f"rounds {name}", plot(f"A round: {name}", axis, Axis("", text, is_log=True), lines)


def _lines(found: Iterable[tuple[str, float, float]]) -> list[Line]:
    """Return a line for each name, through its points."""
    known: dict[str, list[tuple[float, float]]] = {}
    for name, x, y in found:
        known.setdefault(name, []).append((x, y))
    return [Line(name, points) for name, points in known.items()]


def _at(point: Point, part: Part) -> str:
    return f"{point.at[part.variable]:,.0f}"


def _text(name: str, value: float) -> str:
    return size_text(value) if name.endswith("_bytes") else time_text(value)


def _unit(unit: str) -> Callable[[float], str]:
    return {"bytes": size_text, "s": time_text}.get(unit, number_text)


def _model(curves: Curves) -> Iterator[str]:
    found = list(fits(curves))
    if not any(fitted for _, fitted, _ in found):
        return
    yield "## Beyond this machine: a model\n"
    yield "Nothing in this chapter was measured. Each amount is a formula ([model.py](model.py)) whose"
    yield "coefficients are fitted to the points above by least squares of relative errors. *Error*: how far"
    yield "the formula is from these points, in the mean and at worst. *Beyond*: how far it is from the"
    yield "point that has most of a variable when it is fitted to the others alone; with several variables"
    yield "the worst of these. A prediction goes further than that, so it may be wrong by more. Variables"
    yield "are of one device: `partitions` that it holds, `neighbours` it shares them with, `objects`,"
    yield "`containers`; `assignments` are all partitions times replicas.\n"
    yield "Times are processor time, because it says what the work is whatever else the machine does. Rounds"
    yield "are done by one process of each side, so a round takes no less than its own side's part of the"
    yield "processor time; here both sides are one process, and that of all devices that answer is counted."
    yield "What a network adds is about a round trip for each message, of as many at a time as the"
    yield "replicator's concurrency allows. A first round of databases reads those of all three devices.\n"
    yield "| amount | formula | points | error | at worst | beyond |\n|---|---|---|---|---|---|"
    for amount, fitted, count in found:
        if fitted is None:
            yield f"| {amount.name} | too few points | {count} | | | |"
            continue
        beyond = "" if fitted.beyond_error is None else f"{fitted.beyond_error:+.0%}"
        formula = fitted.formula(lambda value: f"{value:.3g}")
        yield (
            f"| {amount.name} | {formula} | {count} | {fitted.mean_error:.0%} | {fitted.worst_error:.0%} | {beyond} |"
        )
    yield ""
    heads = [_shape(shape) for shape in SHAPES]
    yield f"| of one device or process | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}"
    for name in ("partitions", "neighbours", "objects", "containers"):
        yield f"| {name} | {' | '.join(number_text(shape.at()[name]) for shape in SHAPES)} |"
    for amount, fitted, _ in found:
        if fitted is not None:
            cells = [_unit(amount.unit)(fitted.at(shape.at())) for shape in SHAPES]
            yield f"| {amount.name} | {' | '.join(cells)} |"
    yield ""
    yield from _checked(curves)


def _shape(shape: Shape) -> str:
    return (
        f"{shape.nodes:,} nodes of {shape.devices_per_node} devices, {shape.objects:.0e} objects, "
        f"{shape.containers:.0e} containers, 2^{shape.part_power} partitions"
    )


def _checked(curves: Curves) -> Iterator[str]:
    """Predictions beside a measurement that no formula was fitted to."""
    rows = []
    for point in curves.parts.get("check", ()):
        for amount, fitted, _ in fits(curves):
            value = amount.of(point) if "rings" in amount.parts else None
            if fitted is not None and value:
                told, text = fitted.at(point.at), _unit(amount.unit)
                where = f"{point.at['devices']:,.0f} devices, 2^{point.at['part_power']:.0f}"
                rows.append(f"| {where} | {amount.name} | {text(told)} | {text(value)} | {told / value - 1:+.0%} |")
    if rows:
        yield "A ring can be made without its devices, so here is one that no formula was fitted to:\n"
        yield "| ring | amount | by the model | measured | error |\n|---|---|---|---|---|"
        yield from rows
        yield ""


def reported(curves: Curves) -> Iterator[Measured]:
    """What is told on the page of all measurements: of each part what the smallest and the largest point took."""
    for part in PARTS:
        points = sorted(curves.parts.get(part.name, ()), key=lambda point: point.at[part.variable])
        for point in points[:1] + points[1:][-1:]:
            where = f"{part.title}: {point.at[part.variable]:,.0f}"
            for one in point.operations:
                yield Measured(f"{where}, {one.operation}, processor time", "µs", (one.cpu_s * 1e6,))
            for turn in point.rounds:
                yield Measured(f"{where}, a round, {turn.kind}", "s", (turn.seconds,))


def as_json(curves: Curves) -> str:
    """Return the document of all figures."""
    return json.dumps(curves.model_dump(mode="json"), indent=1) + "\n"
