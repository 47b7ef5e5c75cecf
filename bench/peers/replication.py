"""Full passes of both replicators over the same number of objects: bytes on the wire, time, processor time.

Scenarios, each on the data that the one before left: `stable`; `stable, running`; a node that is `down` (its
connections are refused); a node that is `unreachable` (packets to it vanish). Nodes do their passes one after the
other. Each pass is a new process, but for `running`: there the replicator of one node goes on, as in production, and
counted is all that passes from the end of a pass to the end of the next one, the pause between both included. A pass
whose hashes are not made yet, or that opens connections, is done before and not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.micro import Measured
from bench.peers.openstack import OpenStack
from bench.peers.ours import Swiftlet
from bench.peers.wire import Pass, Traffic, Wire

NODES, REPLICAS, PART_POWER, SIZE = 5, 3, 14, 100
MANY_PART_POWER = 18
STABLE, RUNNING = "stable", "stable, running"
RUNNING_MANY = f"{RUNNING}, 2^{MANY_PART_POWER} partitions"
BAR = 10_000
"""So many times fewer bytes than OpenStack Swift's a pass over 30,000 objects has to take."""
_BEFORE = 2
"""Passes of a replicator that has just been started: one opens connections, and one sees that all is as it was."""
_PASS_WITHIN_S = 300.0
_LOOK_S = 0.25
SYSTEMS: dict[str, type[OpenStack] | type[Swiftlet]] = {"swiftlet": Swiftlet, "OpenStack": OpenStack}
HEAD = (
    "| objects | scenario | system | KB a node, TCP/IP with it | without | packets | s a pass | of it the round | "
    "CPU s, all processes | moved | not compared |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Row:
    """The passes of a system in one scenario; what it tells of them are means."""

    objects: int
    scenario: str
    system: str
    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        """A line of the table."""
        return (
            f"| {self.objects:,} | {self.scenario} | {self.system} | {self.kilobytes:,.2f} | {self.payload:,.2f} | "
            f"{self.mean(_packets):,.0f} | {self.seconds:.1f} | {self.round_s:.2f} | {self.cpu_s:.1f} | "
            f"{self.mean(_moved):.0f} | {self.mean(_failed):,.0f} |"
        )

    def mean(self, value: Callable[[Pass], float]) -> float:
        return statistics.mean(map(value, self.passes))

    @property
    def kilobytes(self) -> float:
        """Between a node and the others."""
        return self.mean(_kilobytes)

    @property
    def payload(self) -> float:
        """Kilobytes without the headers of IP and TCP."""
        return self.mean(lambda one: one.others.payload / 1000)

    @property
    def seconds(self) -> float:
        return self.mean(lambda one: one.seconds)

    @property
    def round_s(self) -> float:
        """Seconds as the replicator reports them."""
        return self.mean(_round_s)

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all processes."""
        return self.mean(_cpu_s)


def _kilobytes(one: Pass) -> float:
    return one.others.bytes / 1000


def _packets(one: Pass) -> float:
    return one.others.packets


def _round_s(one: Pass) -> float:
    return one.round_s


def _cpu_s(one: Pass) -> float:
    return one.cpu_s


def _moved(one: Pass) -> float:
    return one.moved


def _failed(one: Pass) -> float:
    return one.failed


@dataclass(frozen=True)
class Plan:
    """What is measured: passes of the first `working` nodes; `unreachable` is that scenario's number of nodes, and
    `rounds` how many passes of a running replicator are counted.
    """

    objects: int
    working: int
    unreachable: int
    rounds: int = 3


def measure(plan: Plan, wire: Wire) -> Iterable[Row]:
    """All rows of both systems."""
    for system in SYSTEMS:
        with _cluster(system, plan.objects, PART_POWER) as cluster:
            working = range(plan.working)
            for node in working:
                cluster.one_pass(node, wire)
            passes = [cluster.one_pass(node, wire) for node in working]
            yield _row(plan.objects, STABLE, passes, system)
            if plan.rounds:
                yield _row(plan.objects, RUNNING, _running(cluster, plan.rounds, wire), system)
            away = NODES - 1
            if plan.unreachable:
                wire.cut(away)
                passes = [cluster.one_pass(node, wire) for node in range(plan.unreachable)]
                wire.mend()
                yield _row(plan.objects, "a node unreachable", passes, system)
            cluster.kill_node(away)
            passes = [cluster.one_pass(node, wire) for node in working]
            yield _row(plan.objects, "a node down", passes, system)
    if plan.rounds:
        with _cluster("swiftlet", plan.objects, MANY_PART_POWER) as cluster:
            yield _row(plan.objects, RUNNING_MANY, _running(cluster, plan.rounds, wire), "swiftlet")


def _running(cluster: OpenStack | Swiftlet, rounds: int, wire: Wire) -> list[Pass]:
    """Passes of the first node's replicator, which goes on."""
    node = 0
    cluster.start_replicator(node)
    try:
        for _ in range(_BEFORE):
            _next_pass(cluster, node, wire)
        return [_next_pass(cluster, node, wire) for _ in range(rounds)]
    finally:
        cluster.stop_replicator(node)


def _next_pass(cluster: OpenStack | Swiftlet, node: int, wire: Wire) -> Pass:
    """Wait for the end of a pass more, and return what passed since the end of the one before."""
    before, began, cpu_s = cluster.ended(node), time.monotonic(), cluster.cpu_s()
    wire.take()
    deadline = began + _PASS_WITHIN_S
    while (ended := cluster.ended(node)).number == before.number:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no pass has ended in {_PASS_WITHIN_S:.0f} s")
        time.sleep(_LOOK_S)
    if ended.number > before.number + 1:
        raise RuntimeError(f"{ended.number - before.number} passes ended within {_LOOK_S} s")
    # What acknowledges the last packets of a pass belongs to it.
    time.sleep(_LOOK_S)
    traffic = wire.take()
    local = traffic.pop(node)
    seconds, cpu_s = time.monotonic() - began, cluster.cpu_s() - cpu_s
    return Pass(sum(traffic, Traffic(0, 0)), local, seconds, ended.round_s, cpu_s, ended.moved, ended.failed)


@contextmanager
def _cluster(system: str, objects: int, part_power: int) -> Iterator[OpenStack | Swiftlet]:
    """One that runs and holds the objects, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-peers-") as directory:
        cluster = SYSTEMS[system](Path(directory) / system, NODES, REPLICAS, part_power)
        cluster.load(0, objects, SIZE, REPLICAS)
        cluster.start_storage()
        try:
            yield cluster
        finally:
            cluster.stop()


def _row(objects: int, scenario: str, passes: Iterable[Pass], system: str) -> Row:
    return Row(objects, scenario, system, tuple(passes))


def reported(rows: Sequence[Row]) -> Iterator[Measured]:
    """What is told of each pass on the page of all measurements."""
    for row in rows:
        what = f"{row.objects:,} objects, {row.scenario}, {row.system}"
        yield Measured(f"{what}, TCP/IP with it", "KB", tuple(map(_kilobytes, row.passes)))
        if "running" in row.scenario:
            payload = tuple(one.others.payload / 1000 for one in row.passes)
            yield Measured(f"{what}, without TCP/IP", "KB", payload)
        yield Measured(f"{what}, the round", "s", tuple(map(_round_s, row.passes)))
        yield Measured(f"{what}, processor time", "s", tuple(map(_cpu_s, row.passes)))
    for row, other in _pairs(rows):
        bar = f" (bar {BAR:,})" if row.scenario == RUNNING else ""
        what = f"{row.objects:,} objects, {row.scenario}, OpenStack's bytes to ours{bar}"
        yield Measured(what, "times", (row.kilobytes / other.kilobytes,))


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Each row of OpenStack's, and ours of the same scenario."""
    ours = {(row.objects, row.scenario): row for row in rows if row.system == "swiftlet"}
    for row in rows:
        other = ours.get((row.objects, row.scenario))
        if row.system != "swiftlet" and other is not None:
            yield row, other


def ratios(rows: Sequence[Row]) -> Iterable[str]:
    """OpenStack's figures as multiples of ours."""
    yield "| objects | scenario | bytes | time, start of Python included | the round alone | CPU |"
    yield "|---|---|---|---|---|---|"
    for row, other in _pairs(rows):
        pairs = (
            (row.kilobytes, other.kilobytes),
            (row.seconds, other.seconds),
            (row.round_s, other.round_s),
            (row.cpu_s, other.cpu_s),
        )
        times = " | ".join(f"{theirs / mine:,.1f} x" for theirs, mine in pairs)
        yield f"| {row.objects:,} | {row.scenario} | {times} |"
