"""One mode measured: a store under load before, while and after something is broken, and until it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.degrade.modes import Mode, Scene
from bench.degrade.whole import until_whole
from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench import catalogue
from swiftlet.bench.degrade.hand import Acts
from swiftlet.bench.degrade.phases import Way, measured
from swiftlet.bench.results import Result
from swiftlet.bench.runner import Options
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

CONNECTIONS = 8
_LONG = "so-long-that-no-socket-fits-and-the-services-speak-tcp-to-each-other"


def scenario(objects: int, think_s: float = 0.0) -> Scenario:
    """Small objects mostly read, some large ones; `think_s` is the pause of a client between two operations."""
    load = [f"objects={objects}", f"closed.connections={CONNECTIONS}", f"closed.think_s={think_s}"]
    return catalogue.find("degraded", load)


def measure(mode: Mode, directory: Path, seconds: float, objects: int) -> Result:
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


def measure_on(mode: Mode, scene: Scene, seconds: float, objects: int, think_s: float = 0.0) -> Result:
    """Break and mend a running store under load."""
    cluster = scene.cluster
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    target = Target(f"{cluster.endpoint}{client.base}", client.token)
    acts = Acts(
        breaks=lambda: mode.breaks(scene),
        mends=lambda: mode.mends(scene),
        until_whole=lambda over: until_whole(scene.management, over),
        is_task=mode.is_task,
    )
    return under_load(Way(mode.name, mode.what, seconds, acts), target, scenario(objects, think_s))


def under_load(way: Way, target: Target, load: Scenario) -> Result:
    """Load a store while it is broken and mended in one way; its objects are left, as the store itself goes."""
    options = Options(f"degrade-{way.name.partition(',')[0]}", keeps=True)
    return measured(load, target, way, options)
