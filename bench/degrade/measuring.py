"""One mode measured: a store under load before, while and after something is broken, and until it is whole."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.degrade.modes import Mode, Scene
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.results import Failures, Point, StepResult
from swiftlet.bench.runner import Options, Progress, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

PHASES = ("before", "during", "after")
CONNECTIONS = 8
WHOLE_WITHIN_S = 180.0
_POLL_S = 0.25
_LONG = "so-long-that-no-socket-fits-and-the-services-speak-tcp-to-each-other"


@dataclass(frozen=True)
class Phase:
    """One phase, as clients noticed it."""

    name: str
    operations_per_s: float
    p50_s: float
    p99_s: float
    max_s: float
    succeeded: int
    failed: int
    failures: dict[str, str]
    """An example of each kind."""
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Measured:
    """A mode. `whole_s` is from mending on until all replicas were proved equal; None when they weren't in time."""

    mode: str
    what: str
    phases: tuple[Phase, ...]
    whole_s: float | None
    began: str


def scenario(seconds: float, objects: int) -> Scenario:
    """Small objects mostly read, some large ones."""
    return Scenario.model_validate(
        {
            "title": "degraded",
            "containers": 4,
            "objects": objects,
            "sizes": {
                "weighted": [
                    {"weight": 97, "uniform": {"least": "1 KB", "most": "50 KB"}},
                    {"weight": 3, "size": "2 MB"},
                ]
            },
            "operations": {"create": 30, "read": 60, "delete": 5, "head": 5},
            "closed": {"connections": [CONNECTIONS]},
            "warm_up_s": 0,
            "duration_s": seconds,
            "timeout_s": 30,
        }
    )


def measure(mode: Mode, directory: Path, seconds: float, objects: int) -> Measured:
    """Start a store below a directory, break it and mend it under load. NotHereError when this machine can't."""
    with _scene(mode, directory) as scene:
        return measure_on(mode, scene, seconds, objects)


@contextmanager
def _scene(mode: Mode, directory: Path) -> Iterator[Scene]:
    root = directory / mode.name / (_LONG if mode.by_tcp else "")
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        scene = Scene(root / "store", undo)
        mode.prepares(scene)
        scene.running = start_cluster(scene.data, settings=scene.settings)
        undo.callback(scene.running.stop)
        scene.running.wait_until_proved()
        yield scene


def measure_on(mode: Mode, scene: Scene, seconds: float, objects: int) -> Measured:
    """Break and mend a running store under load."""
    cluster = scene.cluster
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    target = Target(f"{cluster.endpoint}{client.base}", client.token)
    hand = Hand(
        breaks=lambda: mode.breaks(scene),
        mends=lambda: mode.mends(scene),
        until_whole=lambda over: until_whole(cluster, over),
    )
    return under_load(mode.name, mode.what, target, hand, seconds, objects)


def under_load(name: str, what: str, target: Target, hand: Hand, seconds: float, objects: int) -> Measured:
    """Load a store while a hand breaks it and mends it."""
    prefix = f"degrade-{name.partition(',')[0]}"
    options = Options(prefix, runs=len(PHASES), report=hand.at, keeps=True)
    try:
        result = run(scenario(seconds, objects), target, options)
    finally:
        hand.end()
    phases = tuple(_phase(phase, step) for phase, step in zip(PHASES, result.steps, strict=True))
    return Measured(name, what, phases, hand.whole_s, result.began)


class Hand:
    """Breaks a store when the second run begins, and mends it when the third does, while the load goes on."""

    def __init__(
        self,
        breaks: Callable[[], None],
        mends: Callable[[], None],
        until_whole: Callable[[threading.Event], float | None],
    ) -> None:
        """`until_whole` waits for all copies after mending; it gives up when it is told that all is over."""
        self._breaks, self._mends, self._until_whole = breaks, mends, until_whole
        self._done = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self.whole_s: float | None = None

    def at(self, progress: Progress) -> None:
        """Do what is due at this progress; called again and again by the run's thread."""
        phase = 2 if progress.what.startswith("run 3") else 1 if progress.what.startswith("run 2") else 0
        if phase > self._done:
            self._done = phase
            self._wait()
            self._thread = threading.Thread(target=self._act, args=(phase,))
            self._thread.start()

    def _act(self, phase: int) -> None:
        try:
            if phase == 1:
                self._breaks()
                return
            self._mends()
            self.whole_s = self._until_whole(self._over)
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait for the end of it. Raises what went wrong."""
        if self._done < 2:
            self._over.set()
        self._wait()


def until_whole(cluster: Cluster, over: threading.Event) -> float | None:
    """The seconds from now until every device has been compared since, with nothing left to do; None: not in time."""
    began, clock = time.time(), time.monotonic()
    while not over.is_set() and time.monotonic() - clock < WHOLE_WITHIN_S:
        if _is_whole(cluster, began):
            return time.monotonic() - clock
        time.sleep(_POLL_S)
    return None


def _is_whole(cluster: Cluster, since: float) -> bool:
    try:
        reports = [_status(cluster, name) for name in ("replicator", "database-replicator")]
        doubts = [cluster.unproved(name) for name in cluster.services if name.startswith("object-")]
    except (OSError, ValueError):
        return False
    return is_whole(reports, doubts, since)


def is_whole(reports: list[dict[str, Any]], doubts: list[list[object]], since: float) -> bool:
    """Whether replicators' reports say that each device was compared since then, and that nothing is left to do."""
    rings = [ring for report in reports for device in report["devices"].values() for ring in device["rings"].values()]
    left = sum(ring[name] for ring in rings for name in ("misplaced", "behind", "unchecked"))
    is_compared = all((ring["syncedAt"] or 0) >= since for ring in rings)
    return bool(rings) and left == 0 and is_compared and all(one == [None] for one in doubts)


def _status(cluster: Cluster, service: str) -> dict[str, Any]:
    with urllib.request.urlopen(cluster.management_url(service) + "/statusz", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _phase(name: str, step: StepResult) -> Phase:
    total = step.total
    failures: dict[str, Failures] = total.failures
    return Phase(
        name=name,
        operations_per_s=total.ended / step.window_s if step.window_s else 0.0,
        p50_s=total.latency.quantile_s(0.5) or 0.0,
        p99_s=total.latency.quantile_s(0.99) or 0.0,
        max_s=total.latency.max_s or 0.0,
        succeeded=total.succeeded,
        failed=total.failed,
        failures={kind: f"{one.count} times, {one.example}" for kind, one in failures.items()},
        points=step.points,
    )
