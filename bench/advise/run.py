"""What `swiftlet advise` predicts of processors and disks, beside what a store takes, at three sizes of objects.

    make bench-advise              # or: .venv/bin/python -m bench.advise.run --directory /mnt/disk --runs 5

Starts a store of its own (four object servers, three container servers, two proxy workers), runs `swiftlet bench` on it
with objects of sizes that unit costs were not measured with, and compares the processor time of each service and the
bytes that object servers wrote with what the unit costs say for the operations that were made. Before and after each
run single operations show how much more processor time they take than when unit costs were measured, because of what
else the machine does; predictions count that in. Prints a markdown table; exit code 1 when a sum is off by more than a
quarter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median

from bench.micro import Measured, report
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.advice.costs import SERVICES, UnitCosts, read_costs, shipped
from swiftlet.advice.demand import Demand, demand, mean_cost
from swiftlet.advice.load import Load
from swiftlet.advice.redundancy import copies
from swiftlet.advice.sizes import Sizes, fixed, of_pieces
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import StepResult
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target
from swiftlet.main.commands.advise.measuring import CONTAINERS, REPLICAS, SETTLE_S, LocalStore, measure, read_store
from swiftlet.main.commands.advise.measuring import scenario as single

LIMIT = 0.25
"""How far a prediction may be from what was measured."""
SIZES = {"small": ("10 KB", 6000, 16), "medium": ("300 KB", 1500, 16), "large": ("6 MB", 150, 4)}
"""Size, operations and connections of each run."""
MIX = {"create": 35, "read": 40, "update": 10, "delete": 8, "head": 5, "list": 2}
TRIES = 3
"""So often a step is begun in which operations fail: one may meet a busy machine, a third one meets a broken store."""
REST_S = 10.0
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
            taken = demand_of(step, fixed(size), self.costs)
            ratios.append(sum(self.used(step).values()) / (sum(taken.cpu.values()) * step.points[-1].at_s))
        return geometric_mean(ratios)


def demand_of(step: StepResult, sizes: Sizes, costs: UnitCosts) -> Demand:
    """The demand of a step's operations by unit costs, per second."""
    rates = {operation: found.succeeded / step.points[-1].at_s for operation, found in step.operations.items()}
    return demand(Load(rates, sizes, sizes, 0.0, containers=CONTAINERS), costs, copies(REPLICAS), 1 << 20, REPLICAS)


def rows(name: str, sizes: Sizes, step: StepResult, bench: Bench, pace: float) -> Iterator[Row]:
    """What was predicted and measured, per operation."""
    assert step.usage is not None
    made = {operation: float(found.succeeded) for operation, found in step.operations.items()}
    count = sum(made.values())
    taken, used, each = demand_of(step, sizes, bench.costs), bench.used(step), step.points[-1].at_s / count * 1e6
    for service in SERVICES:
        yield Row(name, f"processor, {service}", taken.cpu[service] * pace * each, used[service] / count * 1e6, "µs")
    total, found = sum(taken.cpu.values()) * pace, sum(used.values())
    yield Row(name, "processor, all", total * each, found / count * 1e6, "µs", decides=True)
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


def compared(cluster: Cluster, costs: UnitCosts, runs: int) -> Iterator[Row]:
    """Rows of all sizes."""
    store = read_store(cluster.ready_file)
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    target = Target(f"{cluster.endpoint}{client.base}", client.token)
    run(scenario("1 KB", 4000, 16), target, Options("warm"))
    bench = Bench(store, target, costs, rest(store.watch()))
    for name, (size, count, connections) in SIZES.items():
        chosen = scenario(size, count, connections)
        sizes = of_pieces(chosen.sizes.pieces())
        several, paces = [], []
        for _ in range(runs):
            # Before and after it: others come and go.
            before, step = bench.pace(), bench.step(chosen, f"b-{name}")
            paces.append(geometric_mean([before, bench.pace()]))
            several.append(list(rows(f"{name}, {size}", sizes, step, bench, paces[-1])))
        say(f"{name}: single operations took {median(paces):.2f} times the processor time of the unit costs")
        yield from middle(several)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where the store is (default: a temporary one)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each size, of which the median counts (default 3)")
    parser.add_argument("--costs", type=Path, help="unit costs in place of those that ship")
    parser.add_argument("--measure", action="store_true", help="measure unit costs anew before")
    arguments = parser.parse_args()
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    costs = shipped() if arguments.costs is None else read_costs(arguments.costs.read_bytes(), str(arguments.costs))
    with tempfile.TemporaryDirectory(prefix="swiftlet-advise-", dir=arguments.directory) as data:
        cluster = start_cluster(Path(data))
        try:
            cluster.wait_until_proved()
            if arguments.measure:
                client = Client(cluster.endpoint, cluster.user, cluster.key)
                target = Target(f"{cluster.endpoint}{client.base}", client.token)
                costs = measure(read_store(cluster.ready_file), target, arguments.runs, say)
            print(f"Unit costs: {json.dumps(dict(costs.measured))}\n", flush=True)
            found = list(compared(cluster, costs, arguments.runs))
            report("advise", [one for row in found for one in row.reported()])
            bad = sum(row.decides and not row.is_good for row in found)
        except OperationsFailError as error:
            raise SystemExit(f"error: {error}") from error
        finally:
            cluster.stop()
    print(f"\n{'All sums are' if not bad else f'{bad} sums are not'} within {LIMIT:.0%}.")
    raise SystemExit(int(bool(bad)))


if __name__ == "__main__":
    main()
