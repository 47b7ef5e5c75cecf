"""The study over the wide area again: OpenStack Swift, Tahoe-LAFS and Swiftlet on the same links, with one client.

    python -m bench.wan.study run [--rounds 3] [--places three remote local] [--systems swiftlet swift tahoe]
    python -m bench.wan.study page

Each round measures every system in every place. What came of each cell is a line of a file in `.cache`, and what was
measured of a store in one place and round is not measured again: a run that was ended goes on there. Medians are over
rounds. `page` writes the results page and its pictures from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.micro import report
from bench.peers.processes import prefer
from bench.wan.lab import ROOT, Lab, inside
from bench.wan.links import DRIVER, LINKS, REGIONS
from bench.wan.load import Cell
from bench.wan.openstack import NEAR, PLAIN, OpenStackSwift
from bench.wan.store import CODED, USER, Store
from bench.wan.study_page import reported, write_page
from bench.wan.study_results import Measured, append, done_cells, read
from bench.wan.tahoe import CODINGS, Tahoe
from e2e.standalone.cluster import environment

RESULTS = ROOT / ".cache" / "bench-wan-study"
"""The folder with a file of results for each scale."""
MB = 1_000_000
SCALE, TAHOE_SCALE = 10, 100
"""Objects are so much smaller than those of the study, of 100 MB and 1 GB: fifty of 100 MB in three copies do not fit
into the memory of a small machine, and Tahoe-LAFS would need an hour for them there."""
THREADS = (10, 30, 50)
_LARGE_THREADS = 10
_LIMIT_S, _TAHOE_LIMIT_S = 45.0, 60.0
_LATENCY_ROUNDS, _TAHOE_ROUNDS = 20, 5
_LATENCY_BYTES = 10 << 10


@dataclass(frozen=True, slots=True)
class Place:
    """Which regions have the store, and where its proxy is."""

    name: str
    where: tuple[str, ...]
    proxy: str


PLACES = (
    Place("three", REGIONS, DRIVER),
    Place("local", (DRIVER,), DRIVER),
    Place("remote", (REGIONS[0],), REGIONS[0]),
)

Target = dict[str, Any]


class _Swiftlet:
    """One store with three policies: two write quorums of three copies, and 6+3 fragments."""

    def __init__(self, lab: Lab, directory: Path, place: Place) -> None:
        quorums = ("majority", "local") if len(place.where) > 1 else ("majority",)
        self._store = Store(lab, directory, place.where, quorums, coding=(6, 3))
        self._lab = lab
        self._place = place
        self._ways = {
            "majority": "Swiftlet, 3 copies",
            "local": "Swiftlet, 3 copies, local",
            CODED: "Swiftlet, 6+3",
        }
        self._policies = (*quorums, CODED)

    def start(self) -> None:
        self._store.start()

    def settle(self) -> None:
        self._store.prove()

    def stop(self) -> None:
        self._store.stop()

    def targets(self) -> Mapping[str, Target]:
        common = {"api": "swift", "endpoint": self._store.endpoint(self._place.proxy), "user": USER}
        return {self._ways[policy]: {**common, "key": self._store.key, "policy": policy} for policy in self._policies}


class _Peer:
    """A store that is ready once it has started."""

    def __init__(self, store: OpenStackSwift | Tahoe) -> None:
        self._peer = store

    def start(self) -> None:
        self._peer.start()

    def settle(self) -> None:
        pass

    def stop(self) -> None:
        self._peer.stop()


class _OpenStack(_Peer):
    """One store with two proxies; regions matter to one of them."""

    def __init__(self, lab: Lab, directory: Path, place: Place) -> None:
        self._store = OpenStackSwift(lab, directory, place.where, place.proxy)
        self._has_near = len(place.where) > 1
        super().__init__(self._store)

    def targets(self) -> Mapping[str, Target]:
        near = {"Swift, affinity": self._store.target(NEAR)} if self._has_near else {}
        return {"Swift": self._store.target(PLAIN), **near}


class _Tahoe(_Peer):
    """One grid with a gateway for each coding."""

    def __init__(self, lab: Lab, directory: Path, place: Place) -> None:
        self._store = Tahoe(lab, directory, place.where, DRIVER)
        super().__init__(self._store)

    def targets(self) -> Mapping[str, Target]:
        return {f"Tahoe, {coding}": self._store.target(coding) for coding in CODINGS}


SYSTEMS: Mapping[str, Callable[[Lab, Path, Place], _Swiftlet | _OpenStack | _Tahoe]] = {
    "swiftlet": _Swiftlet,
    "swift": _OpenStack,
    "tahoe": _Tahoe,
}


def plan(is_tahoe: bool, scale: int = SCALE) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of a started store, and those after it was started again: `cold` and then `warm` reads."""
    scale, limit_s = (max(TAHOE_SCALE, scale), _TAHOE_LIMIT_S) if is_tahoe else (scale, _LIMIT_S)
    small, large = 100 * MB // scale, 1000 * MB // scale
    first = [
        *pair("latency", _LATENCY_BYTES, 1, _TAHOE_ROUNDS if is_tahoe else _LATENCY_ROUNDS, limit_s),
        Cell("cold write", "write", "kept", small, 10, 10, limit_s),
    ]
    for threads in THREADS:
        first += pair(f"small {threads}", small, threads, threads, limit_s)
    first += pair(f"large {_LARGE_THREADS}", large, _LARGE_THREADS, _LARGE_THREADS, limit_s)
    again = [Cell(f"{how} read", "read", "kept", small, 10, 10, limit_s) for how in ("cold", "warm")]
    # Shares of Tahoe-LAFS stay until they are collected, and each removal writes a directory.
    return [cell for cell in first if not (is_tahoe and cell.kind == "delete")], again


def pair(group: str, size: int, threads: int, objects: int, limit_s: float, has_samples: bool = False) -> list[Cell]:
    """Return the write, the read and the removal of the same objects."""
    return [
        Cell(f"{group} {kind}", kind, group, size, threads, objects, limit_s, has_samples and kind != "delete")
        for kind in ("write", "read", "delete")
    ]


def run(rounds: int, places: Sequence[str], systems: Sequence[str], scale: int, until: float | None) -> None:
    """Measure what has no line in the results yet."""
    for number in range(1, rounds + 1):
        for place in PLACES:
            for name in systems if place.name in places else ():
                if until is not None and time.time() > until:
                    return
                try:
                    _measure(number, place, name, scale)
                except (RuntimeError, subprocess.SubprocessError) as error:
                    # The next one may do; a run again takes this one up.
                    _say(f"round {number}, {place.name}, {name}: {error}")


def _measure(number: int, place: Place, name: str, scale: int) -> None:
    path = _results(scale)
    known = done_cells(read(path))
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as directory, Lab(Path(directory), REGIONS, LINKS) as lab:
        system = SYSTEMS[name](lab, Path(directory) / "store", place)
        ways = system.targets()
        left = {way: target for way, target in ways.items() if (number, place.name, way) not in known}
        if not left:
            return
        _say(f"round {number}, {place.name}, {name}: load {os.getloadavg()[0]:.1f}")
        system.start()
        system.settle()
        found: dict[str, list[Measured]] = {}
        made: dict[str, dict[str, Any]] = {way: {} for way in left}
        for way, target in left.items():
            first, _ = plan(name == "tahoe", scale)
            found[way] = list(drive(lab, number, place, way, target, first, made[way]))
        system.stop()
        system.start()
        for way, target in left.items():
            _, again = plan(name == "tahoe", scale)
            found[way] += drive(lab, number, place, way, target, again, made[way])
            append(path, found[way])
        system.stop()
        shutil.rmtree(Path(directory) / "store", ignore_errors=True)


def drive(
    lab: Lab,
    number: int,
    place: Place,
    way: str,
    target: Target,
    cells: Sequence[Cell],
    made: dict[str, Any],
    other: tuple[str, str] | None = None,
) -> Iterator[Measured]:
    """Let a client measure; `made` is what clients before it have made of the store, and gets what this one makes.

    `other` is the module of another client than that of the study, and its plan.
    """
    module, text = other or (
        "bench.wan.load",
        json.dumps({"target": {**target, **made}, "cells": [asdict(cell) for cell in cells]}),
    )
    command = [*inside(DRIVER), sys.executable, "-m", module]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
    ) as client:
        # The stores are to be the bound, not the client, which is Python and the same for all of them.
        prefer(client.pid)
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        try:
            client.stdin.write(text)
            client.stdin.close()
            before = _cpu_s(lab)
            for line in client.stdout:
                told = json.loads(line)
                if "made" in told:
                    made.update(told["made"])
                    continue
                now = _cpu_s(lab)
                measured = Measured.of(number, place.name, way, told, os.getloadavg()[0], now - before)
                before = now
                lab.processes.alive()
                if measured.cell.kind != "delete":
                    _say(f"  {way}, {measured.cell.name}: {measured.line()}")
                    yield measured
        except BaseException:
            client.kill()
            raise
        said = client.stderr.read()
    if client.returncode:
        raise RuntimeError(f"the client of {way} has failed:\n{said[-2000:]}")


def _results(scale: int) -> Path:
    """Return the file of results for a scale."""
    return RESULTS / f"scale-{scale}.jsonl"


def _cpu_s(lab: Lab) -> float:
    """Return the processor seconds of the store so far: of all that runs but the router."""
    return lab.processes.cpu_s() - lab.processes.cpu_s("router")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--rounds", type=int, default=3, help="how often each cell is measured")
    running.add_argument("--places", nargs="*", choices=[place.name for place in PLACES], default=None)
    running.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    running.add_argument(
        "--scale", type=int, default=SCALE, help="how many times smaller objects are than in the paper"
    )
    running.add_argument("--minutes", type=float, default=None, help="begin nothing more after this time")
    commands.add_parser("page").add_argument("--scale", type=int, default=SCALE, help="which results")
    options = parser.parse_args(arguments)
    if options.command == "run":
        places = options.places or [place.name for place in PLACES]
        until = None if options.minutes is None else time.time() + options.minutes * 60
        run(options.rounds, places, options.systems, options.scale, until)
    found = read(_results(options.scale))
    write_page(found, ROOT / "bench" / "wan")
    if measured := list(reported(found)):
        report("wan-study", measured)


if __name__ == "__main__":
    main()
