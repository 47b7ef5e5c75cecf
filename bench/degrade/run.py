"""Degraded modes of a store on this machine: what clients notice before, during and after, and when it is whole again.

    make bench-degrade                       # all modes, or, as root and in namespaces of its own:
    unshare --net --mount .venv/bin/python -m bench.degrade.run --modes process disk --seconds 20 --html degrade.html

Starts a store for each mode (four object servers, three container servers, two proxy workers), loads it with
`swiftlet bench`, breaks one thing of it, and mends it again; or upgrades it, or adds a node. Prints a markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.degrade import peer
from bench.degrade.machine import NotHereError, is_own_network, mend_network
from bench.degrade.measuring import measure, scenario
from bench.degrade.modes import MODES
from bench.degrade.page import HEADS, plain, render, rows
from swiftlet.bench.degrade.pictures import phases_of, picture
from swiftlet.bench.environment import facts
from swiftlet.bench.results import Result, StepResult


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--modes", nargs="*", choices=list(MODES), default=list(MODES), metavar="MODE", help=", ".join(MODES)
    )
    parser.add_argument("--seconds", type=float, default=10, help="of each phase (default 10)")
    parser.add_argument("--objects", type=int, default=2000, help="stored in advance (default 2000)")
    parser.add_argument("--directory", type=Path, help="where stores are (default: a temporary one)")
    parser.add_argument("--peer", action="store_true", help="OpenStack Swift too, where the mode has a meaning for it")
    parser.add_argument("--html", type=Path, help="write the page with the pictures here")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write a picture of each mode here, as SVG")
    parser.add_argument("--json", type=Path, help="write what was measured here")
    arguments = parser.parse_args()
    # Shells have what they start in the background ignore it, and stores would be left running.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _loopback()
    environment = facts()
    found: list[Result] = []
    skipped: dict[str, str] = {}
    failed = False
    if arguments.directory is not None:
        # Servers of OpenStack Swift change their working directory.
        arguments.directory = arguments.directory.absolute()
        arguments.directory.mkdir(parents=True, exist_ok=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    without = {name: why for name, why in peer.WITHOUT.items() if arguments.peer and name in arguments.modes}
    with tempfile.TemporaryDirectory(prefix="degrade-", dir=arguments.directory) as directory:
        for name, measured in _wanted(arguments, Path(directory)):
            try:
                found.append(measured())
                _print(found[-1])
            except NotHereError as error:
                skipped[name] = str(error)
            except Exception as error:
                # The others are measured all the same.
                skipped[name], failed = f"it failed: {error}", True
            finally:
                mend_network()
                shutil.rmtree(Path(directory) / name, ignore_errors=True)
                # Whoever has no time for more has what was measured so far.
                _write(arguments, found, skipped, without, environment)
    for name, why in skipped.items():
        print(f"\nNot done: {name}: {why}")
    for name, why in without.items():
        print(f"\nOpenStack Swift has no counterpart of {name}: {why}")
    raise SystemExit(int(failed))


def _write(
    arguments: argparse.Namespace,
    found: Sequence[Result],
    skipped: Mapping[str, str],
    without: Mapping[str, str],
    environment: Mapping[str, Any],
) -> None:
    """Write the page, the pictures and the document that are wanted."""
    if arguments.html is not None and found:
        arguments.html.write_text(render(found, skipped, scenario(arguments.objects)), "utf-8")
    modes = [(one, mode) for one in found for mode in one.modes]
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        for one, mode in modes:
            (arguments.pictures / picture_name(mode)).write_text(picture(one, mode), "utf-8")
    if arguments.json is not None:
        known = [_mode(one, mode) for one, mode in modes]
        document = {"environment": environment, "modes": known, "skipped": skipped, "without": without}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _wanted(arguments: argparse.Namespace, directory: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    """All that is to be measured, by name."""
    how = (directory, arguments.seconds, arguments.objects)
    for name in arguments.modes:
        yield name, partial(measure, MODES[name], *how)
        if arguments.peer and name in peer.MODES:
            yield f"{name}, OpenStack", partial(peer.measure, name, *how)


def picture_name(mode: str) -> str:
    """Return the name of the file with the picture of a mode."""
    return mode.replace(", ", "-").lower() + ".svg"


def _print(one: Result) -> None:
    for row in rows([one]):
        print(f"| {' | '.join(row)} |", flush=True)


def _mode(one: Result, mode: str) -> dict[str, Any]:
    phases, known = phases_of(one, mode), one.modes[mode]
    told = [{"name": step.phase, **plain(step), "failures": _failures(step)} for step in phases]
    whole_s = phases[-1].whole_s
    return {
        "mode": mode,
        "what": known.about,
        "is_task": known.is_task,
        "began": one.began,
        "phases": told,
        "whole_s": whole_s,
    }


def _failures(step: StepResult) -> dict[str, str]:
    """Return how often each kind failed, with an example."""
    return {kind: f"{one.count} times, {one.example}" for kind, one in step.total.failures.items()}


def _loopback() -> None:
    """Switch loopback on in a network namespace of our own, where it is off at first."""
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


if __name__ == "__main__":
    main()
