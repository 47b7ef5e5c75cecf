"""Full passes of both replicators over the same number of objects: bytes on the wire, time, processor time.

Scenarios, each on the data that the one before left: `stable`; a node that is `down` (its connections are refused); a
node that is `unreachable` (packets to it vanish). Nodes do their passes one after the other. A pass whose hashes are
not made yet is run before and not counted.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.micro import Measured
from bench.peers.openstack import OpenStack
from bench.peers.ours import Swiftlet
from bench.peers.wire import Pass, Wire

NODES, REPLICAS, PART_POWER, SIZE = 5, 3, 14, 100
SYSTEMS: dict[str, type[OpenStack] | type[Swiftlet]] = {"swiftlet": Swiftlet, "OpenStack": OpenStack}
HEAD = (
    "| objects | scenario | system | KB a node, TCP/IP with it | without | packets | s a pass | of it the round | "
    "CPU s, all processes | moved | not compared |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """Means over the nodes that did a pass."""

    objects: int
    scenario: str
    system: str
    kilobytes: float
    payload: float
    packets: float
    seconds: float
    round_s: float
    cpu_s: float
    moved: float
    failed: float

    def __str__(self) -> str:
        """A line of the table."""
        return (
            f"| {self.objects:,} | {self.scenario} | {self.system} | {self.kilobytes:,.1f} | {self.payload:,.1f} | "
            f"{self.packets:,.0f} | {self.seconds:.1f} | {self.round_s:.2f} | {self.cpu_s:.1f} | {self.moved:.0f} | "
            f"{self.failed:,.0f} |"
        )


@dataclass(frozen=True)
class Plan:
    """What is measured: passes of the first `working` nodes; `unreachable` is that scenario's number of nodes."""

    objects: int
    working: int
    unreachable: int


def measure(plan: Plan, wire: Wire) -> Iterable[Row]:
    """All rows of both systems."""
    for system in SYSTEMS:
        with _cluster(system, plan.objects) as cluster:
            working = range(plan.working)
            for node in working:
                cluster.one_pass(node, wire)
            passes = [cluster.one_pass(node, wire) for node in working]
            yield _row(plan.objects, "stable", passes, system)
            away = NODES - 1
            if plan.unreachable:
                wire.cut(away)
                passes = [cluster.one_pass(node, wire) for node in range(plan.unreachable)]
                wire.mend()
                yield _row(plan.objects, "a node unreachable", passes, system)
            cluster.kill_node(away)
            passes = [cluster.one_pass(node, wire) for node in working]
            yield _row(plan.objects, "a node down", passes, system)


@contextmanager
def _cluster(system: str, objects: int) -> Iterator[OpenStack | Swiftlet]:
    """One that runs and holds the objects, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-peers-") as directory:
        cluster = SYSTEMS[system](Path(directory) / system, NODES, REPLICAS, PART_POWER)
        cluster.load(0, objects, SIZE, REPLICAS)
        cluster.start_storage()
        try:
            yield cluster
        finally:
            cluster.stop()


def _row(objects: int, scenario: str, passes: list[Pass], system: str) -> Row:
    mean = statistics.mean
    return Row(
        objects,
        scenario,
        system,
        mean(one.others.bytes for one in passes) / 1000,
        mean(one.others.payload for one in passes) / 1000,
        mean(one.others.packets for one in passes),
        mean(one.seconds for one in passes),
        mean(one.round_s for one in passes),
        mean(one.cpu_s for one in passes),
        mean(one.moved for one in passes),
        mean(one.failed for one in passes),
    )


def reported(rows: Iterable[Row]) -> Iterator[Measured]:
    """What is told of each pass on the page of all measurements."""
    for row in rows:
        what = f"{row.objects:,} objects, {row.scenario}, {row.system}"
        yield Measured(f"{what}, TCP/IP with it", "KB", (row.kilobytes,))
        yield Measured(f"{what}, the round", "s", (row.round_s,))
        yield Measured(f"{what}, processor time", "s", (row.cpu_s,))


def ratios(rows: list[Row]) -> Iterable[str]:
    """OpenStack's figures as multiples of ours."""
    yield "| objects | scenario | bytes | time, start of Python included | the round alone | CPU |"
    yield "|---|---|---|---|---|---|"
    ours = {(row.objects, row.scenario): row for row in rows if row.system == "swiftlet"}
    for row in rows:
        other = ours.get((row.objects, row.scenario))
        if row.system == "swiftlet" or other is None:
            continue
        pairs = (
            (row.kilobytes, other.kilobytes),
            (row.seconds, other.seconds),
            (row.round_s, other.round_s),
            (row.cpu_s, other.cpu_s),
        )
        times = " | ".join(f"{theirs / mine:,.1f} x" for theirs, mine in pairs)
        yield f"| {row.objects:,} | {row.scenario} | {times} |"
