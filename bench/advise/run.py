"""What `swiftlet advise` predicts of processors and disks, beside what a store takes, at three sizes of objects.

    make bench-advise              # or: .venv/bin/python -m bench.advise.run --directory /mnt/disk --runs 5

Starts a store of its own (four object servers, three container servers, two proxy workers), runs `swiftlet bench` on it
with objects of sizes that unit costs were not measured with, and compares the processor time of each service and the
bytes that object servers wrote with what the unit costs say for the operations that were made; then the same with a
store whose objects have erasure coding, and what it takes to make a lost device's fragments anew. Before and after each
run single operations show how much more processor time they take than when unit costs were measured, because of what
else the machine does; predictions count that in. Prints a markdown table; exit code 1 when a sum is off by more than a
quarter.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median

from bench.degrade.whole import wait_until
from bench.micro import Measured, report
from bench.peers.processes import family_of, seconds_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.advice.costs import SERVICES, UnitCosts, document, read_costs, shipped
from swiftlet.advice.demand import Demand, demand, mean_cost
from swiftlet.advice.load import Load
from swiftlet.advice.redundancy import Redundancy, coded, copies
from swiftlet.advice.sizes import Sizes, fixed, of_pieces
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import StepResult
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target
from swiftlet.main.commands.advise.measuring import (
    CONTAINERS,
    REPLICAS,
    SETTLE_S,
    LocalStore,
    measure,
    measure_coded,
    read_store,
)
from swiftlet.main.commands.advise.measuring import scenario as single

LIMIT = 0.25
"""How far a prediction may be from what was measured."""
SIZES = {"small": ("10 KB", 6000, 16), "medium": ("300 KB", 1500, 16), "large": ("6 MB", 150, 4)}
"""Size, operations and connections of each run."""
MIX = {"create": 35, "read": 40, "update": 10, "delete": 8, "head": 5, "list": 2}
TRIES = 3
"""So often a step is begun in which operations fail: one may meet a busy machine, a third one meets a broken store."""
REST_S = 10.0
DATA, PARITY = 4, 2
"""Fragments of objects with erasure coding: the store has a device for each."""
REBUILT, REBUILT_SIZE = 60, "16 MB"
"""Objects whose fragments are made anew."""
LOSSES = 3
"""So often a device is lost, of which the median counts."""
BACK = 0.98
"""The share of a device's bytes that is back when the rest is on its way."""
SINGLE = {"create": (64_000, 2000), "read": (64_000, 4000)}
"""Operations of which the unit cost was measured just so, with the size and how many of them."""


class OperationsFailError(Exception):
    """Operations failed at every try, so that what the store takes for one that succeeds can't be told."""

    def __init__(self, title: str, step: StepResult) -> None:
        """Say what failed, with an example of each kind, as of the last step."""
        kinds = "; ".join(
            f"{kind}: {one.count}, for example {one.example}" for kind, one in step.total.failures.items()
        )
        super().__init__(
            f"{title}: operations failed in each of {TRIES} tries, in the last one {step.failed} "
            f"({kinds}); look at the logs of the store, which says why"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of one size, of an operation."""

    size: str
    what: str
    predicted: float
    measured: float
    unit: str
    decides: bool = False

    @property
    def error(self) -> float:
        """By how much the prediction is more than what was measured, as a share."""
        return self.predicted / self.measured - 1 if self.measured else float("inf")

    @property
    def is_good(self) -> bool:
        """Whether it is near enough."""
        return abs(self.error) <= LIMIT

    def reported(self) -> Iterator[Measured]:
        """Both, and the error where there is one; sums, which decide, say whether they are near enough."""
        what = f"{self.size}, {self.what}"
        yield Measured(f"{what}, measured", self.unit, (self.measured,))
        yield Measured(f"{what}, predicted", self.unit, (self.predicted,))
        if self.measured:
            verdict = (" (near enough)" if self.is_good else " (**too far**)") if self.decides else ""
            yield Measured(f"{what}, predicted beyond measured{verdict}", "%", (self.error * 100,))


def scenario(size: str, count: int, connections: int) -> Scenario:
    """All operations on objects around a size."""
    return Scenario.model_validate(
        {
            "title": f"all operations, {size}",
            "containers": CONTAINERS,
            "objects": count // 2,
            "sizes": {"fixed": size},
            "operations": MIX,
            "closed": {"connections": connections},
            "warm_up_s": 0,
            "count": count,
        }
    )


def stored(size: str, count: int) -> Scenario:
    """So many objects that are put one after the other."""
    return Scenario.model_validate(
        {
            "title": f"{count} objects of {size}",
            "sizes": {"fixed": size},
            "operations": {"create": 1},
            "closed": {"connections": 1},
            "warm_up_s": 0,
            "count": count,
        }
    )


def rest(watch: Watch) -> dict[str, float]:
    """The processors that each service takes without any load."""
    watch.begin()
    time.sleep(REST_S)
    return {name: part.cpu_s / REST_S for name, part in watch.usage().parts.items()}


@dataclass(frozen=True, slots=True)
class Bench:
    """A store that is measured."""

    store: LocalStore
    target: Target
    costs: UnitCosts
    idle: dict[str, float]
    redundancy: Redundancy = field(default_factory=lambda: copies(REPLICAS))

    def step(self, chosen: Scenario, prefix: str) -> StepResult:
        """A step in which nothing failed. OperationsFailError when operations failed `TRIES` times."""
        for tried in range(1, TRIES + 1):
            options = Options(prefix, watch=self.store.watch(), settle_s=SETTLE_S)
            (step,) = run(chosen, self.target, options).steps
            if not step.failed:
                return step
            say(f"{chosen.title}: {step.failed} operations failed ({tried} of {TRIES} tries)")
        raise OperationsFailError(chosen.title, step)

    def used(self, step: StepResult) -> dict[str, float]:
        """The processor time of each service beyond what it takes at rest."""
        assert step.usage is not None
        seconds, parts = step.points[-1].at_s + SETTLE_S, step.usage.parts
        return {service: max(0.0, parts[service].cpu_s - self.idle[service] * seconds) for service in SERVICES}

    def pace(self) -> float:
        """How many times the processor time of their unit costs single operations take here and now.

        What else runs on a machine changes what an operation takes, by its caches and by how many writes share a sync.
        """
        ratios = []
        for operation, (size, count) in SINGLE.items():
            step = self.step(single(operation, size, count), "pace")
            taken = self.demand_of(step, fixed(size))
            ratios.append(sum(self.used(step).values()) / (sum(taken.cpu.values()) * step.points[-1].at_s))
        return geometric_mean(ratios)

    def demand_of(self, step: StepResult, sizes: Sizes) -> Demand:
        """The demand of a step's operations by unit costs, per second."""
        rates = {operation: found.succeeded / step.points[-1].at_s for operation, found in step.operations.items()}
        load = Load(rates, sizes, sizes, 0.0, containers=CONTAINERS)
        return demand(load, self.costs, self.redundancy, 1 << 20, REPLICAS)


def rows(name: str, sizes: Sizes, step: StepResult, bench: Bench, pace: float) -> Iterator[Row]:
    """What was predicted and measured, per operation."""
    assert step.usage is not None
    made = {operation: float(found.succeeded) for operation, found in step.operations.items()}
    count = sum(made.values())
    taken, used, each = bench.demand_of(step, sizes), bench.used(step), step.points[-1].at_s / count * 1e6
    for service in SERVICES:
        yield Row(name, f"processor, {service}", taken.cpu[service] * pace * each, used[service] / count * 1e6, "µs")
    total, found = sum(taken.cpu.values()) * pace, sum(used.values())
    yield Row(name, "processor, all", total * each, found / count * 1e6, "µs", decides=True)
    if bench.redundancy.is_coded:
        # Small ones are kept as copies before they are packed, so that what is written is another question.
        return
    written = sum(
        made.get(operation, 0.0) * REPLICAS * mean_cost(bench.costs.written_bytes["object"][operation], sizes)
        for operation in ("create", "update", "delete")
    )
    wrote = step.usage.parts["object"].written_bytes or 0
    yield Row(name, "written, object", written / count / 1000, wrote / count / 1000, "KB", decides=True)


def middle(several: list[list[Row]]) -> Iterator[Row]:
    """The medians of several runs."""
    for same in zip(*several, strict=True):
        first = same[0]
        predicted, measured = (median(getattr(one, name) for one in same) for name in ("predicted", "measured"))
        yield Row(first.size, first.what, predicted, measured, first.unit, first.decides)


def compared(cluster: Cluster, costs: UnitCosts, runs: int, redundancy: Redundancy) -> Iterator[Row]:
    """Rows of all sizes."""
    prefix = f"{coded_name(redundancy)}, " if redundancy.is_coded else ""
    store = read_store(cluster.ready_file)
    target = target_of(cluster)
    run(scenario("1 KB", 4000, 16), target, Options("warm"))
    bench = Bench(store, target, costs, rest(store.watch()), redundancy)
    for name, (size, count, connections) in SIZES.items():
        chosen = scenario(size, count, connections)
        sizes = of_pieces(chosen.sizes.pieces())
        several, paces = [], []
        for _ in range(runs):
            # Before and after it: others come and go.
            before, step = bench.pace(), bench.step(chosen, f"b-{name}")
            paces.append(geometric_mean([before, bench.pace()]))
            several.append(list(rows(f"{prefix}{name}, {size}", sizes, step, bench, paces[-1])))
        say(f"{prefix}{name}: single operations took {median(paces):.2f} times the processor time of the unit costs")
        yield from middle(several)


def coded_name(redundancy: Redundancy) -> str:
    """The usual name of an erasure coding."""
    return f"{redundancy.data}+{redundancy.pieces - redundancy.data:g}"


@contextmanager
def started(directory: Path | None, redundancy: Redundancy) -> Iterator[Cluster]:
    """A store of its own, in which all devices are proved."""
    options = ("--policies", f"coded={coded_name(redundancy)},usual") if redundancy.is_coded else ()
    with tempfile.TemporaryDirectory(prefix="swiftlet-advise-", dir=directory) as data:
        cluster = start_cluster(Path(data), *options)
        try:
            cluster.wait_until_proved()
            yield cluster
        finally:
            cluster.stop()


def target_of(cluster: Cluster) -> Target:
    """The account of the store's user, with a token."""
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    return Target(f"{cluster.endpoint}{client.base}", client.token)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def measured_anew(
    cluster: Cluster, costs: UnitCosts, redundancy: Redundancy, arguments: argparse.Namespace
) -> UnitCosts:
    """The same unit costs, but for those of objects that are kept so."""
    store, target = read_store(cluster.ready_file), target_of(cluster)
    if redundancy.is_coded:
        found = measure_coded(store, target, DATA, PARITY, arguments.runs, say)
        return replace(costs, coded=replace(found, rebuild_s=rebuild_s(arguments.directory)))
    return replace(measure(store, target, arguments.runs, say), coded=costs.coded)


def rebuilt(directory: Path | None, costs: UnitCosts) -> Iterator[Row]:
    """What a fragment takes that is made anew, with what was predicted of it."""
    assert costs.coded is not None
    name = f"{DATA}+{PARITY}, a lost device"
    yield Row(name, "processor of a MB made anew", costs.coded.rebuild_s * 1e12, rebuild_s(directory) * 1e12, "µs")


def rebuild_s(directory: Path | None) -> float:
    """The processor seconds of all services for each byte of a device that is made anew after it was lost.

    The store is one of its own: tombstones of what was deleted in a used one would be made anew as well.
    """
    with started(directory, coded(DATA, PARITY)) as cluster:
        return _rebuild_s(cluster)


def _rebuild_s(cluster: Cluster) -> float:
    device = cluster.data / "devices" / "d1"
    before = used_bytes(device)
    run(stored(REBUILT_SIZE, REBUILT), target_of(cluster), Options("rebuilt", keeps=True))
    had = used_bytes(device) - before
    began_s = _seconds(cluster)
    time.sleep(REST_S)
    idle = (_seconds(cluster) - began_s) / REST_S
    found = []
    for _ in range(LOSSES):
        # The same without a loss: services start, and compare what they have.
        alone, lost = (until_whole(cluster, device, idle, is_lost=is_lost, wanted=had) for is_lost in (False, True))
        found.append(lost - alone)
    say(f"a device of {had / 1e6:.0f} MB made anew: {', '.join(f'{one:.2f} s' for one in found)}")
    return max(0.0, median(found)) / had


def until_whole(cluster: Cluster, device: Path, idle: float, *, is_lost: bool, wanted: int) -> float:
    """The processor seconds of all processes from when a device comes back until it has what it had, beyond `idle`
    processors.
    """
    ended = {"replicator", "object-1"}
    cluster.kill(*ended)
    # Whoever waits for a process counts what that has taken, from then on.
    wait_until(lambda: not ended & cluster.pids.keys(), "killed services to be waited for")
    if is_lost:
        for one in device.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    before_s, began_s = _seconds(cluster), time.monotonic()
    cluster.start(*ended)
    wait_until(lambda: used_bytes(device) >= wanted * BACK, "the device to have what it had")
    servers = [name for name in cluster.services if name.startswith("object-")]
    # Asked seldom, as answering takes processor time as well.
    wait_until(lambda: all(cluster.unproved(name) == [None] for name in servers), "all devices to be proved")
    return _seconds(cluster) - before_s - idle * (time.monotonic() - began_s)


def _seconds(cluster: Cluster) -> float:
    return sum(seconds_of(one) for one in family_of(cluster.process.pid))


def used_bytes(folder: Path) -> int:
    """The bytes of disk that files below a folder take."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where the store is (default: a temporary one)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each size, of which the median counts (default 3)")
    parser.add_argument("--costs", type=Path, help="unit costs in place of those that ship")
    parser.add_argument("--measure", action="store_true", help="measure unit costs anew before")
    parser.add_argument(
        "--only", choices=["copies", "coded"], help="objects that are kept so (default: first the one, then the other)"
    )
    arguments = parser.parse_args()
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    costs = shipped() if arguments.costs is None else read_costs(arguments.costs.read_bytes(), str(arguments.costs))
    kinds = {"copies": copies(REPLICAS), "coded": coded(DATA, PARITY)}
    bad = 0
    try:
        for kind in [arguments.only] if arguments.only else kinds:
            if kind == "coded" and costs.coded is None and not arguments.measure:
                say("these unit costs have none of objects with erasure coding; --measure measures them")
                continue
            with started(arguments.directory, kinds[kind]) as cluster:
                if arguments.measure:
                    costs = measured_anew(cluster, costs, kinds[kind], arguments)
                    # What was measured is there though the rest may be ended: all of it takes more than half an hour.
                    print(f"Unit costs: {json.dumps(document(costs))}\n", flush=True)
                found = list(compared(cluster, costs, arguments.runs, kinds[kind]))
            # Each kind by itself: measuring both takes longer than half an hour, and the second may be ended.
            if kind == "coded":
                found += rebuilt(arguments.directory, costs)
                report("advise-coded", [one for row in found for one in row.reported()])
            else:
                report("advise", [one for row in found for one in row.reported()])
            bad += sum(row.decides and not row.is_good for row in found)
    except OperationsFailError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"\n{'All sums are' if not bad else f'{bad} sums are not'} within {LIMIT:.0%}.")
    raise SystemExit(int(bool(bad)))


if __name__ == "__main__":
    main()
