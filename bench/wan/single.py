"""One stream of 1 GB into a site and back: by Swiftlet, by OpenStack Swift, and by TCP alone beside them.

    python -m bench.wan.single run [--rounds 1] [--congestion cubic bbr] [--places remote three]
    python -m bench.wan.single page

The stream is measured twice, as what a TCP connection has met before counts: over a connection of its own, and over one
that was one of fifty which have filled the link together before. `swiftlet cp` is measured beside it. What was measured
is kept in `.cache`, as that of the study is, and `page` writes the part of the results page that is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.wan.lab import ROOT, Lab
from bench.wan.links import DRIVER, LINKS, REGIONS, SLOW_MIB_S
from bench.wan.load import Cell
from bench.wan.study import MB, PLACES, SYSTEMS, Place, drive, pair
from bench.wan.study_judging import OURS, SWIFT, Verdict
from bench.wan.study_judging import PLACES as PLACE_NAMES
from bench.wan.study_page import between, verdicts
from bench.wan.study_results import Measured, append, median, read

RESULTS = ROOT / ".cache" / "bench-wan-single" / "results.jsonl"
BEGIN, END = "<!-- single streams: written by bench.wan.single -->", "<!-- single streams' end -->"
PLAIN, COPYING = "TCP alone", "Swiftlet, 3 copies, `swiftlet cp`"
WAYS = (PLAIN, OURS, COPYING, SWIFT)
_WAYS = {"tcp": PLAIN, "swiftlet": OURS, "swift": SWIFT}
BAR = 0.9
SIZE = 1000 * MB
_LIMIT_S = 150.0
_PORT = 7000


def plan() -> list[Cell]:
    """Return the cells: what fills the link by many connections, one of these, and one that is new."""
    return [
        *pair("many", 2 * MB, 50, 50, _LIMIT_S),
        *pair("fewer", 20 * MB, 10, 10, _LIMIT_S),
        *pair("used", SIZE, 1, 1, _LIMIT_S, has_samples=True),
        *(replace(cell, is_anew=True) for cell in pair("single", SIZE, 1, 1, _LIMIT_S, has_samples=True)),
    ]


def run(rounds: int, places: Sequence[str], systems: Sequence[str], congestions: Sequence[str]) -> None:
    """Measure what has no line in the results yet."""
    for number in range(1, rounds + 1):
        for congestion in congestions:
            for place in PLACES:
                for system in systems if place.name in places else ():
                    _measure(number, congestion, place, system)


def _known(number: int, congestion: str, place: Place) -> set[str]:
    found = read(RESULTS)
    return {one.way for one in found if (one.round, one.congestion, one.place) == (number, congestion, place.name)}


def _measure(number: int, congestion: str, place: Place, system: str) -> None:
    way = _WAYS[system]
    # Where the proxies are beside the client, they are who sends over the link.
    if way in _known(number, congestion, place) or (system == "tcp" and place.proxy == DRIVER):
        return
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, Lab(Path(folder), REGIONS, LINKS, congestion) as lab:
        print(f"{place.name}, {system}, {congestion}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        found: list[Measured] = []
        if system == "tcp":
            host = lab.address(place.proxy)
            lab.start(place.proxy, "plain", [sys.executable, "-m", "bench.wan.plain", host, str(_PORT)])
            lab.processes.wait_until(lambda: lab.listens(place.proxy, _PORT), "the other end listens")
            target: dict[str, Any] = {"api": "tcp", "host": host, "port": _PORT}
            found += drive(lab, number, place, way, target, plan(), {})
        else:
            store = SYSTEMS[system](lab, Path(folder) / "store", place)
            store.start()
            store.settle()
            target = store.targets()[way]
            found += drive(lab, number, place, way, target, plan(), {})
            if system == "swiftlet":
                text = json.dumps({"target": target, "size": SIZE, "folder": folder})
                found += drive(lab, number, place, COPYING, target, [], {}, ("bench.wan.copying", text))
            store.stop()
        append(RESULTS, (replace(one, congestion=congestion) for one in found if one.steady_mib_s is not None))


def lines(found: Sequence[Measured]) -> Iterator[str]:
    """Return the part of the page: the table, and what it comes to."""
    loads = [one.load for one in found]
    yield ""
    yield f"Rounds begun: {max(one.round for one in found)}; medians of what they have. Load average while it was"
    yield f"measured: {min(loads):.0f} to {max(loads):.0f}."
    yield "\n### One stream of 1 GB, MiB/s after its first second\n"
    yield "| | | | new connection, write | read | used connection, write | read |\n|---|---|---|---|---|---|---|"
    for congestion in dict.fromkeys(one.congestion for one in found):
        here = [one for one in found if one.congestion == congestion]
        for place, name in PLACE_NAMES.items():
            for way in WAYS:
                rates = [
                    median(here, place, way, f"{group} {kind}", "steady_mib_s")
                    for group in ("single", "used")
                    for kind in ("write", "read")
                ]
                if any(rate is not None for rate in rates):
                    cells = ["" if rate is None else f"{rate:.1f}" for rate in rates]
                    yield f"| {congestion} | {name} | {way} | " + " | ".join(cells) + " |"
    yield from verdicts("What a single stream is to reach", bars(found))
    yield ""


def bars(found: Sequence[Measured]) -> Iterator[Verdict]:
    """Judge a stream with a connection of its own, by the link, and tell what TCP alone has there."""
    here = [one for one in found if one.congestion == "cubic"]
    for place, kind in (("three", "write"), ("remote", "write"), ("remote", "read")):
        rate = median(here, place, OURS, f"single {kind}", "steady_mib_s")
        plain = median(here, place, PLAIN, f"single {kind}", "steady_mib_s")
        statement = f"single stream of 1 GB, {PLACE_NAMES[place]}, {kind}: {BAR:g} of the link after the first second"
        if rate is None:
            yield Verdict(statement, "not measured", None)
            continue
        beside = "" if plain is None else f"; TCP alone {plain / SLOW_MIB_S:.2f}"
        share = rate / SLOW_MIB_S
        yield Verdict(statement, f"{share:.2f} ({rate:.1f} of {SLOW_MIB_S} MiB/s{beside})", share >= BAR)


def write_page(found: Sequence[Measured], folder: Path) -> None:
    """Put the tables between their marks of RESULTS.md in a folder; nothing without measurements."""
    if found:
        page = folder / "RESULTS.md"
        text = between(page.read_text(encoding="utf-8"), "\n".join(lines(found)), BEGIN, END)
        page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--rounds", type=int, default=1, help="how often each is measured")
    running.add_argument("--places", nargs="*", choices=["remote", "three"], default=["remote", "three"])
    running.add_argument(
        "--systems", nargs="*", choices=["tcp", "swiftlet", "swift"], default=["tcp", "swiftlet", "swift"]
    )
    running.add_argument("--congestion", nargs="*", default=["cubic", "bbr"], help="congestion controls of TCP")
    commands.add_parser("page")
    options = parser.parse_args(arguments)
    if options.command == "run":
        run(options.rounds, options.places, options.systems, options.congestion)
    write_page(read(RESULTS), ROOT / "bench" / "wan")


if __name__ == "__main__":
    main()
