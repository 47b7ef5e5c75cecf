"""Figures of `bench.sync.run --json`: PNGs, SVGs, and one HTML page of these and the tables, with the paper's beside.

    make bench-sync-plots          # or: python bench/sync/plots.py RESULTS.json DIRECTORY PAGE.html

Run by a Python that has matplotlib (requirements.txt beside this).
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib  # type: ignore[import-not-found]

matplotlib.use("Agg")
from matplotlib import pyplot

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "swiftlet"})

MODES = ("batched", "lightsync", "all_to_all", "star", "chain")
SCENARIOS = ("stable", "10 % created", "10 % deleted", "a node down", "it is back")
MORE_SCENARIOS = ("streams open", "1 % of partitions")
"""Scenarios that are not the paper's: in the table, and not drawn."""
COLOURS = dict(zip(MODES, ("#1b6ca8", "#2e9e5b", "#c0392b", "#d68910", "#7d3c98"), strict=True))
FIGURES = (
    ("kilobytes", "KB a node and round (HTTP headers included)"),
    ("messages", "messages a node and round"),
    ("delay_s", "s a round"),
    ("cpu_s", "CPU s a round, servers included"),
    ("peak_mb", "MB that the process grew by"),
)
PAPER = (
    ("stable", "4.92 min", "1.19 min", "1758 MB", "37 MB"),
    ("10 % created", "96.2 min", "68.95 min", "1709 MB", "38 MB"),
    ("10 % deleted", "90.2 min", "76.53 min", "1720 MB", "40 MB"),
    ("a node down", "1680 min", "2 min", "1680 MB", "34 MB"),
    ("it is back", "47.62 min", "30 min", "2115 MB", "153 MB"),
)
"""Table 3 of the paper: 64 nodes, r = 5, 4 million objects a node. Scenario; time and bytes, original and LightSync."""


Found = dict[tuple[str, int, int, str], dict[str, Any]]
"""Figures by mode, replicas, objects and scenario."""


def load(path: Path) -> Found:
    """The last figure of each case."""
    known = json.loads(path.read_text())
    return {(one["mode"], one["replicas"], one["objects"], one["scenario"]): one for one in known}


def by_scenario(found: Found, objects: int, replicas: int, name: str, label: str, path: Path) -> None:
    """Bars: scenarios side by side, a colour for each mode."""
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for turn, mode in enumerate(MODES):
        cases = [found.get((mode, replicas, objects, scenario)) for scenario in SCENARIOS]
        places = [index + (turn - 2) * 0.16 for index, one in enumerate(cases) if one]
        axes.bar(places, [one[name] for one in cases if one], 0.15, label=mode, color=COLOURS[mode])
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS)
    axes.set_ylabel(label)
    if name in {"kilobytes", "messages"}:
        axes.set_yscale("log")
    axes.set_title(f"5 nodes, r = {replicas}, {objects:,} objects, 2^14 partitions")
    axes.legend(ncols=len(MODES), fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.08))
    axes.grid(axis="y", alpha=0.3)
    save(figure, path)


def by_objects(found: Found, replicas: int, name: str, label: str, path: Path) -> None:
    """Lines over the number of objects, in a stable state."""
    stable = [(m, n, one[name]) for (m, r, n, what), one in found.items() if (r, what) == (replicas, "stable")]
    figure, axes = lines(stable, label)
    axes.set_xscale("log")
    axes.set_xlabel("objects")
    axes.set_title(f"stable, 5 nodes, r = {replicas}, 2^14 partitions")
    save(figure, path)


def by_replicas(found: Found, objects: int, name: str, label: str, path: Path) -> None:
    """Lines over the number of replicas, in a stable state."""
    stable = [(m, r, one[name]) for (m, r, n, what), one in found.items() if (n, what) == (objects, "stable")]
    figure, axes = lines(stable, label)
    axes.set_xticks([2, 3, 4, 5])
    axes.set_xlabel("r")
    axes.set_title(f"stable, 5 nodes, {objects:,} objects, 2^14 partitions")
    save(figure, path)


def lines(points: Sequence[tuple[str, int, float]], label: str) -> tuple[Any, Any]:
    """A figure with a line for each mode through its (mode, x, y), and its axes."""
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for mode in MODES:
        cases = sorted((x, y) for m, x, y in points if m == mode)
        if cases:
            axes.plot(*zip(*cases, strict=True), marker="o", label=mode, color=COLOURS[mode])
    axes.set_yscale("log")
    axes.set_ylabel(label)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Save a chart as PNG for people, and as SVG beside it for the page: SVG is text, which the repository may hold."""
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


def rows(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with the head and the lines."""
    cells = "".join(f"<th>{html.escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(text))}</td>" for text in one) + "</tr>" for one in lines)
    return f"<table><tr>{cells}</tr>{body}</table>"


def table(found: Found) -> str:
    """Return an HTML table of all figures."""
    order = {name: number for number, name in enumerate((*MODES, *SCENARIOS, *MORE_SCENARIOS))}
    cases = sorted(found.items(), key=lambda item: (item[0][2], item[0][1], order[item[0][0]], order[item[0][3]]))
    head = (
        "mode",
        "r",
        "objects",
        "scenario",
        "KB",
        "with TCP/IP, estimated",
        "messages",
        "s",
        "CPU s",
        "MB",
        "rounds",
    )
    return rows(
        head,
        (
            (
                *(mode, r, f"{n:,}", scenario, f"{one['kilobytes']:,.1f}", f"{one['tcp_kilobytes']:,.1f}"),
                *(f"{one['messages']:,.0f}", f"{one['delay_s']:.2f}", f"{one['cpu_s']:.2f}", f"{one['peak_mb']:.1f}"),
                one["rounds"],
            )
            for (mode, r, n, scenario), one in cases
        ),
    )


def beside(found: Found) -> str:
    """Our ratios beside the paper's: how many times fewer bytes LightSync needs than the original protocol."""
    lines = []
    for scenario, *_, original, light in PAPER:
        paper = float(original.split()[0]) / float(light.split()[0])
        ours = []
        for n in sorted({n for _, _, n, _ in found}):
            cases = [found.get((mode, 3, n, scenario)) for mode in ("all_to_all", "lightsync", "batched")]
            known = [one["kilobytes"] for one in cases if one is not None]
            if len(known) == len(cases):
                times = " and ".join(f"{known[0] / kilobytes:,.1f}" for kilobytes in known[1:])
                ours.append(f"{n:,}: {times}")
        lines.append((scenario, original, light, f"{paper:.1f}", "; ".join(ours)))
    head = (
        "scenario",
        "paper: original",
        "LightSync",
        "times fewer bytes",
        "here, r = 3, by objects: lightsync and batched",
    )
    return rows(head, lines)


def inline(path: Path) -> str:
    """The drawing as an element of a page; what its parts are called is made its own, as a page has one name space."""
    drawing = path.read_text()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{path.stem}-", drawing)
    return re.sub(r"\s+", " ", drawing)


def main() -> None:
    source, directory, page = map(Path, sys.argv[1:])
    directory.mkdir(parents=True, exist_ok=True)
    found = load(source)
    made = []
    for old in (*directory.glob("*.png"), *directory.glob("*.svg")):
        old.unlink()
    sizes = sorted({n for _, r, n, scenario in found if r == 3 and scenario == "it is back"})
    for objects in sizes:
        for name, label in FIGURES:
            made.append(directory / f"scenarios-{objects}-{name}.png")
            by_scenario(found, objects, 3, name, label, made[-1])
    for name, label in FIGURES[:2]:
        made.append(directory / f"objects-{name}.png")
        by_objects(found, 3, name, label, made[-1])
        made.append(directory / f"replicas-{name}.png")
        by_replicas(found, 1000, name, label, made[-1])
    images = "".join(inline(path.with_suffix(".svg")) for path in made)
    title = "Rounds in five modes"
    style = "body{font:15px sans-serif;max-width:70em;margin:2em auto}td,th{padding:.15em .6em;text-align:right}"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style} svg{{width:100%;height:auto}}</style>"
        f"<h1>{title}</h1><p>Five nodes, one after the other, signed HTTP between real object servers; "
        "RESULTS.md says how it was measured, and on how busy a machine: compare bytes, messages and CPU seconds "
        "rather than seconds. 1,000,000 objects are generated indexes.</p>"
        f"<h2>Beside the paper (64 nodes, r = 5, 4 million objects a node)</h2>{beside(found)}"
        f"<h2>Figures</h2>{images}<h2>All of it, a node and round</h2>{table(found)}\n"
    )


if __name__ == "__main__":
    main()
