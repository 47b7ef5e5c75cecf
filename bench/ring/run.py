"""Measure rings: quality and cost of five changes, beside OpenStack Swift's ring builder; lookup and memory.

    .venv/bin/python -m bench.ring.run [--part-power 16] [--openstack .cache/bench-ring/swift/bin/python]

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

from bench.micro import Measured, report
from swiftlet.ring import Device, Ring, RingBuilder
from swiftlet.ring import codec as codecs
from swiftlet.ring import report as ring_report

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
    lacking = sum(max(0.0, load.wanted - before[load.device.id]) for load in ring_report(new).devices)
    return max(0, round(lacking) - fresh)


def lines(name: str, steps: list[Step]) -> Iterator[Measured]:
    """What became of each change.

    The changes follow each other; waiting times are taken as over. What is said of the first rebalance is so before the
    others, which go on until nothing moves any more, or to a limit. Needed is what weights alone make necessary (new
    replicas don't count). Dispersion: replicas nearer to each other than necessary. Pairs: the most partitions that
    two devices of different zones share, over the mean, by weight. Our processor time includes the report.
    """
    last: Ring | None = None
    for step in steps:
        first, final = ring_report(step.rings[0]), ring_report(step.rings[-1])
        found: list[tuple[str, str, float]] = [
            ("balance at first", "%", first.balance),
            ("balance in the end", "%", final.balance),
            ("dispersion", "%", first.dispersion),
            ("pairs", "of the mean", first.pair_spread),
            ("first rebalance", "CPU s", step.seconds[0]),
            ("until nothing moves", "rebalances", len(step.rings)),
        ]
        if last is not None:
            total = sum(moved(a, b) for a, b in zip([last, *step.rings], step.rings, strict=False))
            found += [
                ("moved at first", "partitions", moved(last, step.rings[0])),
                ("needed", "partitions", least(last, step.rings[0])),
                ("moved in all", "partitions", total),
            ]
        yield from (Measured(f"{step.title}, {name}, {what}", unit, (value,)) for what, unit, value in found)
        last = step.rings[-1]


def alone(part_power: int) -> Iterator[Measured]:
    """Build, lookup, memory and files of our own, each beside the bar that it is to meet."""
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
    where = f"2^{part_power} partitions, "
    yield Measured(f"{where}first build with its report (bar 5)", "CPU s", (build,))
    yield Measured(f"{where}digest to primaries (bar 5)", "µs", (lookup * 1e6,))
    yield Measured(f"{where}digest to first handoff", "µs", (handoff * 1e6,))
    yield Measured(f"{where}memory of a loaded ring (bar 16)", "MiB", (memory / 2**20,))
    yield Measured(f"{where}chunks of a ring file (bar 900 each)", "kB", tuple(len(one) / 1000 for one in pieces))
    yield Measured(f"{where}reading it", "ms", (load * 1e3,))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part-power", type=int, default=16, help="of the comparison")
    parser.add_argument("--alone-part-power", type=int, default=18, help="of our own numbers")
    parser.add_argument("--openstack", metavar="PYTHON", help="the Python that OpenStack Swift is installed for")
    options = parser.parse_args()
    found = [*alone(options.alone_part_power), *lines("swiftlet", ours(options.part_power))]
    if options.openstack:
        found += lines("OpenStack", theirs(options.part_power, options.openstack))
    report("ring", found)


if __name__ == "__main__":
    main()
