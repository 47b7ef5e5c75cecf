"""The page of all measurements, `bench/RESULTS.md`: made of one document of JSON, so that it can be made again."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.degrade.page import whole as whole_text
from swiftlet.bench.comparison import bootstrap
from swiftlet.units import number_text, size_text, time_text

OURS, PEER = "Swiftlet", "OpenStack"
_COLUMNS = 100
_HEADS = ("workload", "store", "op/s", "spread", "MB/s", "p50", "p99", "CPU/op", "load", "failed", "ours is", "95 %")
_PHASES = ("mode", "store", "phase", "op/s", "p50", "p99", "max", "failed", "whole again after")


def render(document: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return the page; `others` are the paragraphs about what was measured outside of the sitting."""
    environment = document["environment"]
    memory = size_text(environment["memory_bytes"])
    loads = document["load_average"]
    parts = [
        "# Measurements",
        f"`{_command(document)}` measures stores in turns and on bad days in one sitting and writes this page; what "
        "stands under [One part at a time](#one-part-at-a-time) was measured by itself.",
        f"Begun {document['began']}, {document['took_s'] / 60:.0f} minutes long, on {environment['processors']} "
        f"processors ({environment['processor']}), {memory} of memory, {environment['system']}. Load average: "
        f"{loads['before']} before, {loads['after']} after. Each turn starts a store anew on the same disk; generator "
        "and store share the processors. Absolute numbers are those of this machine: compare what stands in one table.",
        "## Stores in turns",
        f"Medians of {_turns(document)} turns, in which the stores took turns: about {document['seconds']:g} s of "
        "each for a workload, or a few objects where they are large. *Spread* is the largest rate less the smallest, "
        "by the median. *CPU/op* is the store's processor time for an operation, and *load* what the load generator "
        f"needed beside it, as a share of that{_compared(document)}. *Ours is* how many times this store's rate "
        "Swiftlet's is (below 1: it is slower), and *95 %* the interval of that by a bootstrap over turns.",
        *_table(_HEADS, _rows(document["rows"])),
        "## Durability",
        "How the stores are set up, what an acknowledged PUT has behind it, and calls of the system that ask the disk "
        "to keep something, counted by strace for PUTs of 10 KiB by one client. All copies are on one disk here.",
        *_table(("store", "version", "setup", "durability", "calls a PUT"), _durability(document["systems"])),
    ]
    if document.get("degraded"):
        parts += [
            "## Bad days",
            "Something is broken under load, and mended ([the modes](../docs/guide/benchmarks.md#bad-days)). *Whole "
            "again after* is the time to full redundancy: from mending on, or from the begin of an upgrade or a "
            "rebalance.",
            *_table(_PHASES, _phases(document["degraded"], document.get("without", {}))),
        ]
        parts += [f"![{one['mode']}]({one['picture']})" for one in document["degraded"] if one.get("picture")]
    missing = [*document["missing"], *document["failed"]]
    if missing:
        parts += ["## Not measured", "\n".join(f"- {one}" for one in missing)]
    return laid_out([*parts, *others])


def _turns(document: Mapping[str, Any]) -> str:
    """Return how many turns the stores had: fewer than were wanted where there was no time."""
    figures = (figure for stores in document["rows"].values() for store in stores.values() for figure in store.values())
    counts = {len(figure) for figure in figures} or {document["turns"]}
    return f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _compared(document: Mapping[str, Any]) -> str:
    """Return what the generator did with what it read; nothing for sittings that did not note it and compared all."""
    if "compared" not in document:
        return ""
    return (
        f"; it compares {document['compared']:.0%} of reads byte by byte with what was written, the first of each "
        "workload among them, and of the others the size, while the kernel drops their bytes"
    )


def laid_out(parts: Sequence[str]) -> str:
    """Return paragraphs, tables and lists as the text of a page."""
    return "\n\n".join(_joined(parts)) + "\n"


def _command(document: Mapping[str, Any]) -> str:
    """Return the command that repeats the sitting; where its page goes is the Makefile's."""
    given = list(document["arguments"])
    if "--page" in given:
        at = given.index("--page")
        del given[at : at + 2]
    return f"{document['command']} BENCH_ARGS='{shlex.join(given)}'" if given else str(document["command"])


def _joined(parts: Sequence[str]) -> Iterator[str]:
    """Rows of a table follow each other without a blank line."""
    rows: list[str] = []
    for part in parts:
        if part.startswith("|"):
            rows.append(part)
            continue
        if rows:
            yield "\n".join(rows)
            rows = []
        yield part if part.startswith(("#", "-", "!")) else _wrapped(part)
    if rows:
        yield "\n".join(rows)


def _wrapped(text: str) -> str:
    """Lines of at most 100 characters, broken at blanks: within code or a link only if it is longer than a line."""
    words = re.findall(r"(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|\S)+", text)
    pieces = (word.split() if len(word) > _COLUMNS else [word] for word in words)
    lines = [""]
    for word in itertools.chain.from_iterable(pieces):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _COLUMNS:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _rows(found: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> Iterator[Sequence[str]]:
    for workload, by_system in found.items():
        ours = by_system.get(OURS, {}).get("operations_per_s", [])
        for system, figures in by_system.items():
            rates = figures["operations_per_s"]
            if not rates:
                continue
            middle = median(rates)
            spread = f"{(max(rates) - min(rates)) / middle:.0%}" if middle else "-"
            ratio, interval = "", ""
            if system != OURS and ours and middle:
                ratio = f"{median(ours) / middle:.2f}"
                bounds = bootstrap(rates, ours)
                interval = f"{bounds[0]:.2f} to {bounds[1]:.2f}" if bounds is not None else "-"
            yield (
                workload,
                system,
                number_text(middle),
                spread,
                f"{_middle(figures, 'bytes_per_s') / 1e6:.1f}",
                time_text(_middle(figures, "p50_s")),
                time_text(_middle(figures, "p99_s")),
                time_text(_middle(figures, "cpu_per_operation_s")),
                _load(figures),
                f"{sum(figures['failed']):.0f}",
                ratio,
                interval,
            )


def _load(figures: Mapping[str, list[float]]) -> str:
    """Return the load generator's processor time by the store's."""
    store = _middle(figures, "cpu_per_operation_s")
    return f"{_middle(figures, 'generator_cpu_per_operation_s') / store:.0%}" if store else "-"


def _middle(figures: Mapping[str, list[float]], name: str) -> float:
    return median(figures[name]) if figures[name] else 0.0


def _durability(systems: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    for name, system in systems.items():
        calls = system["syncs"]
        told = ", ".join(f"{count:.2f} {call}" for call, count in calls.items()) if calls else "none"
        yield (
            name,
            system["version"],
            system["settings"],
            system["durability"],
            told if calls is not None else "not counted",
        )


def _phases(modes: Sequence[Mapping[str, Any]], without: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """Rows of all phases; `without` are the modes that have no counterpart in OpenStack Swift, and why."""
    for one in modes:
        mode, _, store = one["mode"].partition(", ")
        for phase in one["phases"]:
            whole = whole_text(one["whole_s"]) if phase is one["phases"][-1] else ""
            yield (
                mode,
                store or OURS,
                phase["name"],
                number_text(phase["operations_per_s"]),
                time_text(phase["p50_s"]),
                time_text(phase["p99_s"]),
                time_text(phase["max_s"]),
                f"{phase['failed']:,} of {phase['failed'] + phase['succeeded']:,}",
                whole,
            )
        if why := without.get(one["mode"]):
            yield (mode, PEER, f"no counterpart: {why}", *[""] * (len(_PHASES) - 3))
