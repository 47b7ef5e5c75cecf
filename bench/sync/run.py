"""Rounds of the replicator in all five modes, over sync streams between real object servers, and what they cost.

    make bench-sync                                            # quick: 1,000 objects, about a minute
    make bench-sync SYNC_ARGS='--objects 10000 --replicas 3'
    .venv/bin/python -m bench.sync.run --objects 1000000 --generated --modes batched lightsync

Prints a markdown table; `--json FILE` adds the figures to a file that `bench.sync.plots` draws. All modes work on the
same stores, one after the other. TCP and IP headers are estimated; the rest is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import uvloop

from bench import micro
from bench.sync.cluster import Generated, cluster_of, generated_hashes, native
from bench.sync.measure import Measured, Subject, warm_up
from bench.sync.scenarios import SCENARIOS, fill, scenarios
from swiftlet.main.garbage_collection import collect_garbage_seldom
from swiftlet.store.protocol import Store
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.web.logs import configure_logging

NODES, PART_POWER = 5, 14
HEAD = (
    "| mode | r | objects | scenario | KB a node | with TCP/IP, estimated | messages | s a round | CPU s | "
    "peak MB | KB local | moved | left | rounds | times what lacked | bare s | stable s before |\n" + "|---" * 17 + "|"
)


def line(found: Measured) -> str:
    """A line of the table."""
    times = found.times_lacking
    return (
        f"| {found.mode} | {found.replicas} | {found.objects:,} | {found.scenario} | {found.kilobytes:,.1f} | "
        f"{found.tcp_kilobytes:,.1f} | {found.messages:,.0f} | {found.delay_s:.2f} | {found.cpu_s:.2f} | "
        f"{found.peak_mb:.1f} | {found.local_kilobytes:,.0f} | {found.moved} | {found.left} | {found.rounds} | "
        f"{'' if times is None else f'{times:.2f}'} | {f'{found.bare_s:.3f}' if found.bare_s else ''} | "
        f"{f'{found.stable_s:.3f}' if found.stable_s else ''} |"
    )


async def bench(arguments: argparse.Namespace, objects: int, replicas: int) -> list[Measured]:
    """All modes on one cluster's stores."""
    hashes = generated_hashes(objects, arguments.part_power) if arguments.generated else {}

    def generated(directory: Path, partitions: Iterable[int]) -> Store:
        return Generated(hashes, partitions)

    found: list[Measured] = []
    make = generated if arguments.generated else native
    async with cluster_of(NODES, replicas, arguments.part_power, make, arguments.directory) as cluster:
        if not arguments.generated:
            began = time.monotonic()
            fill(cluster, objects)
            await warm_up(cluster)
            print(f"<!-- filled in {time.monotonic() - began:.0f} s -->", flush=True)
        for turn, mode in enumerate(arguments.modes):
            only_stable = arguments.generated or mode in arguments.stable
            subject = Subject(cluster, mode, replicas, objects, arguments.working if only_stable else 0, arguments.nice)
            async for measured in scenarios(subject, turn, only_stable):
                found.append(measured)
                print(line(measured), flush=True)
    return found


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="+", default=[1000])
    parser.add_argument("--replicas", type=int, nargs="+", default=[3], choices=range(2, NODES + 1))
    parser.add_argument("--part-power", type=int, default=PART_POWER)
    parser.add_argument("--modes", nargs="+", default=list(ROUND_MODES), choices=list(ROUND_MODES))
    parser.add_argument(
        "--stable", nargs="*", default=[], choices=list(ROUND_MODES), help="of these that scenario alone"
    )
    parser.add_argument("--generated", action="store_true", help="indexes without objects; the stable scenario alone")
    parser.add_argument("--working", type=int, default=0, help="nodes that do rounds where only that is measured")
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness in measured rounds; below 0 (root) on busy machines"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the stores are; by default where temporary files are, on a disk"
    )
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    parser.add_argument("--table", type=Path, help="measure nothing: the table of such a file, the last of each case")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join((HEAD, *map(line, known(arguments.table)))))
        return
    collect_garbage_seldom()
    configure_logging("bench", "error", "console")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n\n{HEAD}")
    every: list[Measured] = []
    for objects in arguments.objects:
        for replicas in arguments.replicas:
            found = uvloop.run(bench(arguments, objects, replicas))
            every += found
            if arguments.json:
                _add(arguments.json, found)
    micro.report("sync", list(reported(every)))


def reported(found: Iterable[Measured]) -> Iterator[micro.Measured]:
    """What is told of each round on the page of all measurements: its bytes and its time."""
    for one in found:
        what = f"{one.mode}, r = {one.replicas}, {one.objects:,} objects, {one.scenario}"
        yield micro.Measured(f"{what}, a node", "KB", (one.kilobytes,))
        yield micro.Measured(f"{what}, a round", "s", (one.delay_s,))


def known(file: Path) -> list[Measured]:
    """What a file of results has, the last of each case, in the order of modes and scenarios."""
    last = {
        (one["objects"], one["replicas"], one["mode"], one["scenario"]): one for one in json.loads(file.read_text())
    }
    modes = list(ROUND_MODES)
    cases = sorted(last, key=lambda case: (case[0], case[1], modes.index(case[2]), SCENARIOS.index(case[3])))
    return [Measured(**last[case]) for case in cases]


def _add(file: Path, found: list[Measured]) -> None:
    before = json.loads(file.read_text()) if file.exists() else []
    file.write_text(json.dumps([*before, *(one.json() for one in found)], indent=1) + "\n")


if __name__ == "__main__":
    main()
