"""Measure rings: quality and cost of five changes, beside OpenStack Swift's ring builder; lookup and memory.

    python bench/ring/run.py [--part-power 16] [--openstack .cache/bench-ring/swift/bin/python] > bench/ring/RESULTS.md

The other builder is run by the Python given with `--openstack`, in a virtual environment that has `swift` from PyPI
(which needs the Debian package liberasurecode-dev); without it only our own numbers are printed. Both results
are measured by the same code, from their assignment tables. Times are CPU seconds of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftlet.ring import Device, Ring, RingBuilder, report
from swiftlet.ring import codec as codecs

_ZONES, _NODES, _DEVICES = 4, 4, 4
_WEIGHT = 100.0
_OVERLOAD = 0.1
_REPLICAS = 3.0
_MAX_REBALANCES = 6
"""Rebalances after one change at most, until one moves nothing."""
_HOUR = 480_000

_Values = tuple[float, ...]
_FIRST: list[tuple[str, _Values]] = [
    ("add", (z, n, d, _WEIGHT)) for z in range(_ZONES) for n in range(_NODES) for d in range(_DEVICES)
]
_STEPS: list[tuple[str, list[tuple[str, _Values]]]] = [
    ("first build", _FIRST),
    ("add device", [("add", (0, 0, _DEVICES, _WEIGHT))]),
    ("remove device", [("remove", (5,))]),
    ("add zone", [("add", (_ZONES, n, d, _WEIGHT)) for n in range(_NODES) for d in range(_DEVICES)]),
    ("change weight", [("weight", (20, _WEIGHT * 1.5))]),
    ("change replica count", [("replicas", (_REPLICAS + 0.5,))]),
]
"""What both builders go through: (title, actions): add(zone, node, device, weight), remove(id), weight(id, weight),
replicas(number). Both number devices as they are added, up to the removal."""

_REPEAT = """    python -m venv .cache/bench-ring/swift && .cache/bench-ring/swift/bin/pip install swift
    python bench/ring/run.py --openstack .cache/bench-ring/swift/bin/python > bench/ring/RESULTS.md"""

_EXPLANATION = """\
The changes follow each other; waiting times are taken as over. `moved` to `CPU s` are of the first rebalance
after a change; `needed` is what weights alone make necessary (new replicas don't count). `rebalances` and `moved
in all` go on until nothing moves any more, or to a limit. `dispersion`: replicas nearer to each other than
necessary. `pairs`: the most partitions that two devices of different zones share, over the mean, by weight. Our
CPU seconds include the report.

| change | builder | moved | needed | balance % | dispersion % | pairs | CPU s | rebalances | moved in all | balance % |
|---|---|---|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Step:
    """A change and the rings that came of it, one per rebalance, with the CPU seconds each took."""

    title: str
    rings: list[Ring]
    seconds: list[float]


def ours(part_power: int) -> list[Step]:
    """Our builder's way through the scenario."""
    builder = RingBuilder(part_power, _REPLICAS, 1, _OVERLOAD, seed=7)
    result: list[Step] = []
    for title, actions in _STEPS:
        for kind, values in actions:
            _apply(builder, kind, values)
        step = Step(title, [], [])
        for _ in range(_MAX_REBALANCES):
            begin = time.process_time()
            done = builder.rebalance(_HOUR, ignore_min_part_hours=True)
            step.seconds.append(time.process_time() - begin)
            step.rings.append(builder.ring)
            if not done.moved + done.assigned or not result:
                break
        result.append(step)
    return result


def _apply(builder: RingBuilder, kind: str, values: _Values) -> None:
    if kind == "add":
        zone, node, device, weight = values
        builder.add_device(
            host=f"10.0.{zone}.{node}", port=6200, device=f"d{device}", region="1", zone=str(zone), weight=weight
        )
    elif kind == "remove":
        builder.remove_device(int(values[0]))
    elif kind == "weight":
        builder.set_weight(int(values[0]), values[1])
    else:
        builder.set_replicas(values[0])


def theirs(part_power: int, python: str) -> list[Step]:
    """The other builder's way through the scenario, its tables read as rings of ours."""
    plan = {
        "part_power": part_power,
        "replicas": _REPLICAS,
        "overload": _OVERLOAD,
        "max_rebalances": _MAX_REBALANCES,
        "steps": _STEPS,
    }
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "scenario.json").write_text(json.dumps(plan))
        script = Path(__file__).with_name("openstack.py")
        subprocess.run([python, str(script), directory], check=True, stdout=sys.stderr)
        steps = json.loads(Path(directory, "steps.json").read_text())
        with Path(directory, "tables.bin").open("rb") as tables:
            return [_read_step(step, part_power, tables.read) for step in steps]


def _read_step(step: dict[str, Any], part_power: int, read: Callable[[int], bytes]) -> Step:
    rings = []
    for run in step["runs"]:
        rows = []
        for length in run["rows"]:
            row = array("H")
            row.frombytes(read(2 * length))
            rows.append(row)
        replicas = sum(run["rows"]) / (1 << part_power)
        rings.append(Ring(1, part_power, replicas, [_device(item) for item in run["devices"]], rows))
    return Step(step["title"], rings, [run["cpu_s"] for run in step["runs"]])


def _device(item: dict[str, Any] | None) -> Device | None:
    if item is None:
        return None
    return Device(
        id=item["id"],
        name=f"{item['ip']}/{item['device']}",
        host=item["ip"],
        port=item["port"],
        device=item["device"],
        region=str(item["region"]),
        zone=str(item["zone"]),
        node=item["ip"],
        weight=float(item["weight"]),
    )


def moved(old: Ring, new: Ring) -> int:
    """Replicas that are where they were not before, of those that there were before."""
    count = 0
    for partition in range(old.partition_count):
        before = {device.id for device in old.primaries(partition)}
        now = {device.id for device in new.primaries(partition)}
        count += max(0, len(now - before) - max(0, len(now) - len(before)))
    return count


def least(old: Ring, new: Ring) -> int:
    """Replicas that had to move for every device to hold its weighted share (new replicas left out)."""
    before = {device.id: 0 for device in new.devices if device is not None}
    for row in old.rows:
        for id_ in row:
            before[id_] = before.get(id_, 0) + 1
    fresh = max(0, sum(len(row) for row in new.rows) - sum(len(row) for row in old.rows))
    lacking = sum(max(0.0, load.wanted - before[load.device.id]) for load in report(new).devices)
    return max(0, round(lacking) - fresh)


def lines(name: str, steps: list[Step]) -> Iterator[str]:
    """Rows of the markdown table."""
    last: Ring | None = None
    for step in steps:
        first, final = report(step.rings[0]), report(step.rings[-1])
        if last is None:
            first_moved, needed, total = "-", "-", "-"
        else:
            first_moved, needed = str(moved(last, step.rings[0])), str(least(last, step.rings[0]))
            total = str(sum(moved(a, b) for a, b in zip([last, *step.rings], step.rings, strict=False)))
        yield (
            f"| {step.title} | {name} | {first_moved} | {needed} | {first.balance:.2f} | {first.dispersion:.2f} "
            f"| {first.pair_spread:.3f} | {step.seconds[0]:.2f} | {len(step.rings)} | {total} | {final.balance:.2f} |"
        )
        last = step.rings[-1]


def alone(part_power: int) -> Iterator[str]:
    """Our own bars: build, lookup, memory, files."""
    builder = RingBuilder(part_power, _REPLICAS, 1)
    for kind, values in _FIRST:
        _apply(builder, kind, values)
    begin = time.process_time()
    builder.rebalance(_HOUR)
    build = time.process_time() - begin
    data = codecs.encode(builder.ring)
    begin = time.process_time()
    ring = codecs.decode(data)
    load = time.process_time() - begin
    del ring
    tracemalloc.start()
    ring = codecs.decode(data)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    digests = [os.urandom(16) for _ in range(200_000)]
    begin = time.process_time()
    for digest in digests:
        ring.primaries(ring.partition_of(digest))
    lookup = (time.process_time() - begin) / len(digests)
    begin = time.process_time()
    for digest in digests[:20_000]:
        next(ring.handoffs(ring.partition_of(digest)))
    handoff = (time.process_time() - begin) / 20_000
    pieces = codecs.chunks(ring)
    yield "| what | measured | bar |"
    yield "|---|---|---|"
    yield f"| first build, with its report | {build:.2f} s CPU | 5 s |"
    yield f"| digest to primaries | {lookup * 1e6:.2f} µs | 5 µs |"
    yield f"| digest to first handoff | {handoff * 1e6:.2f} µs | |"
    yield f"| memory of a loaded ring | {memory / 2**20:.2f} MiB | 16 MiB |"
    yield f"| ring file | {len(data) / 1000:.0f} kB in {len(pieces)} chunks | 900 kB a chunk |"
    yield f"| reading it | {load * 1e3:.0f} ms | |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part-power", type=int, default=16, help="of the comparison")
    parser.add_argument("--alone-part-power", type=int, default=18, help="of our own numbers")
    parser.add_argument("--openstack", metavar="PYTHON", help="the Python that OpenStack Swift is installed for")
    options = parser.parse_args()
    print("# Rings: quality and cost\n\nRepeat with\n")
    print(_REPEAT)
    shape = f"{_REPLICAS:g} replicas, {len(_FIRST)} devices in {_ZONES} zones x {_NODES} nodes"
    print(f"\n## Our own bars\n\n2^{options.alone_part_power} partitions, {shape}.\n")
    print("\n".join(alone(options.alone_part_power)))
    print(f"\n## Five changes\n\n2^{options.part_power} partitions, {shape}, overload {_OVERLOAD:g}.\n{_EXPLANATION}")
    columns = [list(lines("swiftlet", ours(options.part_power)))]
    if options.openstack:
        columns.append(list(lines("OpenStack", theirs(options.part_power, options.openstack))))
    for rows in zip(*columns, strict=True):
        print("\n".join(rows))


if __name__ == "__main__":
    main()
