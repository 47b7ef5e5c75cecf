"""The study's part of the results page, and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bench import micro
from bench.wan.study_judging import PLACES, THREADED, WAYS, Verdict, bars, orderings
from bench.wan.study_results import Measured, median
from swiftlet.bench.plots import Axis, Line, as_file, plot
from swiftlet.units import number_text, time_text

BEGIN, END = "<!-- the study: written by bench.wan.study -->", "<!-- the study's end -->"
_PICTURES = "pictures"
_COUNTS = {"small 10": 10, "small 30": 30, "small 50": 50}


def write_page(found: Sequence[Measured], folder: Path) -> None:
    """Put tables between the marks of RESULTS.md in a folder, and pictures beside it; nothing without measurements."""
    if not found:
        return
    page = folder / "RESULTS.md"
    page.write_text(between(page.read_text(encoding="utf-8"), "\n".join(_lines(found))), encoding="utf-8")
    (folder / _PICTURES).mkdir(exist_ok=True)
    for name, drawn in pictures(found):
        if not drawn:
            continue
        (folder / _PICTURES / f"{name}.svg").write_text(as_file(drawn), encoding="utf-8")


def between(page: str, text: str, first: str = BEGIN, last: str = END) -> str:
    """Return the page with other text between the marks; ValueError without them."""
    head, begin, rest = page.partition(first)
    _, end, tail = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"the page has no {first} and {last}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def _lines(found: Sequence[Measured]) -> Iterator[str]:
    loads = [one.load for one in found]
    rounds = max(one.round for one in found)
    yield ""
    yield f"Rounds begun: {rounds}; medians of what they have. Load average while it was measured: {min(loads):.0f} to "
    yield f"{max(loads):.0f}."
    yield from _table("Throughput, MB/s (read / write)", found, THREADED, "mb_s", lambda value: f"{value:.1f}")
    yield from _table("Mean response time, s (read / write)", found, THREADED, "mean_s", lambda value: f"{value:.2f}")
    yield from _table(
        "Processor seconds of the store for 1 GB (read / write)",
        found,
        THREADED,
        "cpu_per_gb_s",
        lambda value: f"{value:.1f}",
    )
    yield from _latency(found)
    yield from _cold(found)
    yield from verdicts("What Swiftlet is to reach", bars(found))
    yield from verdicts("Orderings of the paper", orderings(found))
    yield from _bad(found)
    for name, drawn in pictures(found):
        if drawn:
            yield f"\n![{name}]({_PICTURES}/{name}.svg)"
    yield ""


def reported(found: Sequence[Measured]) -> Iterator[micro.Measured]:
    """What is told on the page of all measurements: throughput of each store in each place, of all rounds."""
    for place, way in _rows(found):
        for group in THREADED:
            for kind in ("read", "write"):
                cell = f"{group} {kind}"
                rates = tuple(one.mb_s for one in found if (one.place, one.way, one.cell.name) == (place, way, cell))
                if rates:
                    what = f"{PLACES[place]}, {way}, {kind} {group.replace(' ', ', ')} threads"
                    yield micro.Measured(what, "MB/s", rates)


def _cell(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)


def _rows(found: Sequence[Measured]) -> Iterator[tuple[str, str]]:
    known = {(one.place, one.way) for one in found}
    yield from ((place, way) for place in PLACES for way in WAYS if (place, way) in known)


def _table(
    title: str, found: Sequence[Measured], groups: Sequence[str], field: str, text: Callable[[float], str]
) -> Iterator[str]:
    yield f"\n### {title}\n"
    yield "| | | " + " | ".join(f"{group.replace(' ', ', ')} threads" for group in groups) + " |"
    yield "|---|---|" + "---|" * len(groups)
    for place, way in _rows(found):
        cells = []
        for group in groups:
            pair = [median(found, place, way, f"{group} {kind}", field) for kind in ("read", "write")]
            cells.append(" / ".join(_cell(value, text) or "-" for value in pair))
        yield f"| {PLACES[place]} | {way} | " + " | ".join(cells) + " |"


def _latency(found: Sequence[Measured]) -> Iterator[str]:
    def ms(value: float) -> str:
        return f"{value * 1e3:.1f}"

    yield "\n### 10 KiB, one at a time, ms\n"
    yield "| | | first PUT | median of the others | first GET | median of the others |\n|---|---|---|---|---|---|"
    for place, way in _rows(found):
        cells = [
            _cell(median(found, place, way, f"latency {kind}", field), ms)
            for kind in ("write", "read")
            for field in ("first_s", "median_rest_s")
        ]
        yield f"| {PLACES[place]} | {way} | " + " | ".join(cells) + " |"


def _cold(found: Sequence[Measured]) -> Iterator[str]:
    yield "\n### Cold and warm, 10 threads, MB/s\n"
    yield "| | | cold write | warm write | cold read | warm read |\n|---|---|---|---|---|---|"
    for place, way in _rows(found):
        names = ("cold write", "small 10 write", "cold read", "warm read")
        cells = [_cell(median(found, place, way, name, "mb_s"), lambda value: f"{value:.1f}") for name in names]
        yield f"| {PLACES[place]} | {way} | " + " | ".join(cells) + " |"


def verdicts(title: str, all_of_them: Iterable[Verdict]) -> Iterator[str]:
    """Return a table of verdicts."""
    yield f"\n### {title}\n"
    yield "| | found | |\n|---|---|---|"
    words = {True: "yes", False: "**no**", None: "not measured"}
    for one in all_of_them:
        yield f"| {one.statement} | {one.found} | {words[one.holds]} |"


def _bad(found: Sequence[Measured]) -> Iterator[str]:
    bad = [one for one in found if one.failed or one.unfinished]
    if not bad:
        yield "\nEvery operation was served within its time."
        return
    yield "\n### What was not served\n"
    yield "| | | | served | failed | not done in time |\n|---|---|---|---|---|---|"
    for one in bad:
        yield f"| {PLACES[one.place]} | {one.way} | {one.cell.name} | {one.done} | {one.failed} | {one.unfinished} |"


def pictures(found: Sequence[Measured]) -> Iterator[tuple[str, str]]:
    """Return names and plots: throughput and mean response time by threads, for each place and kind."""
    threads = Axis("threads", number_text, ticks=list(_COUNTS.values()))
    for place, name in PLACES.items():
        for kind in ("read", "write"):
            rates = _curves(found, place, kind, "mb_s")
            axis = Axis("", lambda value: f"{value:g} MB/s", is_log=True)
            yield f"{place}-{kind}", plot(f"Throughput, {name}, {kind}", threads, axis, rates)
            times = _curves(found, place, kind, "mean_s")
            axis = Axis("", time_text, is_log=True)
            yield f"{place}-{kind}-time", plot(f"Mean response time, {name}, {kind}", threads, axis, times)


def _curves(found: Sequence[Measured], place: str, kind: str, field: str) -> list[Line]:
    lines = []
    for way in WAYS:
        values = [(count, median(found, place, way, f"{group} {kind}", field)) for group, count in _COUNTS.items()]
        points = [(float(count), value) for count, value in values if value]
        if points:
            lines.append(Line(way, points))
    return lines
