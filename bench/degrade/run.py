"""Degraded modes of a store on this machine: what clients notice before, during and after, and when it is whole again.

    make bench-degrade                       # all modes, or, as root and in namespaces of its own:
    unshare --net --mount .venv/bin/python -m bench.degrade.run --modes process disk --seconds 20 --html degrade.html

Starts a store for each mode (four object servers, three container servers, two proxy workers), loads it with
`swiftlet bench`, breaks one thing of it, and mends it again. Prints a markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.degrade.measuring import Measured, measure
from bench.degrade.modes import MODES, NotHereError, is_own_network
from bench.degrade.page import HEADS, render, rows
from swiftlet.bench.environment import facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--modes", nargs="*", choices=list(MODES), default=list(MODES), metavar="MODE", help=", ".join(MODES)
    )
    parser.add_argument("--seconds", type=float, default=10, help="of each phase (default 10)")
    parser.add_argument("--objects", type=int, default=2000, help="stored in advance (default 2000)")
    parser.add_argument("--directory", type=Path, help="where stores are (default: a temporary one)")
    parser.add_argument("--html", type=Path, help="write the page with the pictures here")
    parser.add_argument("--json", type=Path, help="write what was measured here")
    arguments = parser.parse_args()
    _loopback()
    environment = facts()
    found: list[Measured] = []
    skipped: dict[str, str] = {}
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="degrade-", dir=arguments.directory) as directory:
        for name in arguments.modes:
            try:
                found.append(measure(MODES[name], Path(directory), arguments.seconds, arguments.objects))
            except NotHereError as error:
                skipped[name] = str(error)
                print(f"{name}: not done: {error}", file=sys.stderr, flush=True)
                continue
            finally:
                shutil.rmtree(Path(directory) / name, ignore_errors=True)
            for row in rows(found[-1:]):
                print(f"| {' | '.join(row)} |", flush=True)
    for name, why in skipped.items():
        print(f"\nNot done: {name}: {why}")
    if arguments.html is not None:
        arguments.html.write_text(render(found, skipped, environment, arguments.seconds), "utf-8")
    if arguments.json is not None:
        known = [{**asdict(one), "phases": [_plain(phase) for phase in one.phases]} for one in found]
        arguments.json.write_text(json.dumps({"environment": environment, "modes": known}, indent=1) + "\n", "utf-8")


def _plain(phase: object) -> dict[str, object]:
    fields = {name: getattr(phase, name) for name in ("name", "operations_per_s", "p50_s", "p99_s", "max_s")}
    counts = {name: getattr(phase, name) for name in ("succeeded", "failed", "failures")}
    return {**fields, **counts}


def _loopback() -> None:
    """Switch loopback on in a network namespace of our own, where it is off at first."""
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


if __name__ == "__main__":
    main()
