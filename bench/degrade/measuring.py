"""One mode measured: a store under load before, while and after something is broken, and until it is whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.degrade.modes import Mode, Scene
from bench.degrade.whole import until_whole
from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench import catalogue
from swiftlet.bench.results import Failures, Point, StepResult
from swiftlet.bench.runner import Options, Progress, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

PHASES = ("before", "during", "after")
CONNECTIONS = 8
TASK_WITHIN_S = 3600.0
"""The longest phase of a mode whose second phase lasts as long as its task."""
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
    lasted_s: float


@dataclass(frozen=True)
class Measured:
    """A mode. `whole_s` is from mending on until all replicas were proved equal; None when they weren't in time.

    For a task it is from its begin on.
    """

    mode: str
    what: str
    phases: tuple[Phase, ...]
    whole_s: float | None
    began: str
    is_task: bool = False


def scenario(seconds: float, objects: int) -> Scenario:
    """Small objects mostly read, some large ones."""
    changes = [f"duration_s={seconds}", f"objects={objects}", f"closed.connections={CONNECTIONS}"]
    return catalogue.find("degraded", changes)


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
        until_whole=lambda over: until_whole(scene.management, over),
        is_task=mode.is_task,
    )
    return under_load(mode.name, mode.what, target, hand, seconds, objects)


def under_load(name: str, what: str, target: Target, hand: Hand, seconds: float, objects: int) -> Measured:
    """Load a store while a hand breaks it and mends it."""
    prefix = f"degrade-{name.partition(',')[0]}"
    options = Options(prefix, runs=len(PHASES), report=hand.at, keeps=True)
    if hand.is_task:
        options = replace(options, suffices=lambda progress: progress.seconds >= seconds and hand.rests)
    try:
        result = run(scenario(TASK_WITHIN_S if hand.is_task else seconds, objects), target, options)
    finally:
        hand.end()
    phases = tuple(_phase(phase, step) for phase, step in zip(PHASES, result.steps, strict=True))
    return Measured(name, what, phases, hand.whole_s, result.began, hand.is_task)


class Hand:
    """Breaks a store when the second run begins, and mends it when the third does, while the load goes on.

    A task is what ends by itself: nothing is mended after it, and the store is to be whole when it ends.
    """

    def __init__(
        self,
        breaks: Callable[[], None],
        mends: Callable[[], None],
        until_whole: Callable[[threading.Event], float | None],
        is_task: bool = False,
    ) -> None:
        """`until_whole` waits for all copies after mending; it gives up when it is told that all is over."""
        self._breaks, self._mends, self._until_whole = breaks, mends, until_whole
        self.is_task = is_task
        self._done = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self.whole_s: float | None = None

    @property
    def rests(self) -> bool:
        """Whether nothing that it has begun is under way."""
        return self._thread is None or not self._thread.is_alive()

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
            if self.is_task:
                self._does(phase)
            elif phase == 1:
                self._breaks()
            else:
                self._mends()
                self.whole_s = self._until_whole(self._over)
        except BaseException as error:
            self._error = error

    def _does(self, phase: int) -> None:
        if phase == 1:
            began = time.monotonic()
            self._breaks()
            self.whole_s = time.monotonic() - began

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
        lasted_s=step.window_s,
    )
