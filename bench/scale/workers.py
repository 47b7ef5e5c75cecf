"""Measures what operations cost by the number of the proxy's workers: a store of its own, loaded over HTTP."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.scale.curves import Operation, Point
from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.errors import BenchError
from swiftlet.bench.processes import Watch
from swiftlet.bench.results import StepResult
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

SIZE = "10 KiB"
CONNECTIONS = 32
_KINDS = {"put": ({"create": 1}, 0), "get": ({"read": 1}, 2000)}


def scenario(kind: str, seconds: float) -> Scenario:
    """One kind of operation for so long."""
    mix, objects = _KINDS[kind]
    return Scenario.model_validate(
        {
            "title": kind,
            "operations": mix,
            "objects": objects,
            "sizes": {"fixed": SIZE},
            "closed": {"connections": [CONNECTIONS]},
            "warm_up_s": min(1.0, seconds),
            "duration_s": seconds,
        }
    )


def points(counts: list[int], seconds: float, directory: Path) -> Iterator[Point]:
    """Measure a store with each of these numbers of workers."""
    for count in counts:
        with tempfile.TemporaryDirectory(dir=directory, prefix="scale-workers-") as data:
            cluster = start_cluster(Path(data), "--workers", str(count))
            try:
                cluster.wait_until_proved()
                client = Client(cluster.endpoint, cluster.user, cluster.key)
                target = Target(f"{cluster.endpoint}{client.base}", client.token)
                found = []
                for kind in _KINDS:
                    options = Options(prefix=f"scale-{kind}", watch=Watch([cluster.process.pid]))
                    (step,) = run(scenario(kind, seconds), target, options).steps
                    found.append(_operation(kind, step))
            finally:
                cluster.stop()
        yield Point(at={"workers": count}, operations=tuple(found))


def _operation(kind: str, step: StepResult) -> Operation:
    total, usage = step.total, step.usage
    p50_s, p99_s = (total.latency.quantile_s(share) for share in (0.5, 0.99))
    if step.failed or usage is None or p50_s is None or p99_s is None:
        raise BenchError(f"{kind}: {step.failed} operations failed, {total.succeeded} succeeded")
    return Operation(
        operation=kind,
        per_second=total.ended / step.window_s,
        p50_s=p50_s,
        p99_s=p99_s,
        cpu_s=usage.cpu_s / step.all_succeeded,
    )
