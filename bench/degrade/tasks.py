"""What is done to a store while clients go on: all of its services are restarted in turn, or a node is added.

Both follow the operator: the next service is restarted when the last one is ready and in sync again, and a ring with a
new device is published for services that run. Other than the operator, which restarts one of several proxies and gives
a new device its weight in four steps, the only proxy of the store on this machine is restarted like all others, and
the new device has its weight at once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bench.degrade.whole import uses, wait_until
from e2e.standalone.cluster import END_WITHIN_S, end_with_us, environment, free_port, is_ready
from swiftlet.bench.degrade.whole import stands, status
from swiftlet.main.commands.standalone.plan import HOST, NATIVE_PORT_OFFSET, DevicePlan
from swiftlet.main.commands.standalone.rings import point_at
from swiftlet.ring.codec import load_builder, save, save_builder

if TYPE_CHECKING:
    from bench.degrade.modes import Scene

NEW_OBJECT, NEW_REPLICATOR, NEW_DEVICE, NEW_ZONE = "object-new", "replicator-new", "new", "z-new"
_HOUR_S = 3600


def upgrades(scene: Scene) -> None:
    """Restart each service by itself, the next one when the last one is ready and in sync again."""
    cluster = scene.cluster
    for service in cluster.services:
        cluster.kill(service, number=signal.SIGTERM)
        cluster.start(service)
        if watched := watched_by(service, scene.management):
            wait_until(partial(stands, watched, time.time()), f"{service} to be in sync")


def watched_by(service: str, urls: Mapping[str, str]) -> dict[str, str]:
    """Return those of the services that tell whether this one is in sync; none when it has no data to care for."""
    if service.startswith("container-") or service == "database-replicator":
        return {name: url for name, url in urls.items() if name == "database-replicator"}
    if service.startswith("object-") or service == "replicator":
        return {name: url for name, url in urls.items() if name == "replicator" or name.startswith("object-")}
    return {}


def rebalances(scene: Scene) -> None:
    """Add a node, publish rings with its device, and wait until all that moved is at its new place."""
    port = _joins(scene)
    began = time.time()
    versions = _publishes(scene.data / "rings", DevicePlan(NEW_DEVICE, NEW_ZONE, port))
    urls = scene.management
    wait_until(lambda: _taken_over(urls, versions), f"all services to use {versions}")
    wait_until(lambda: stands(urls, began, versions), "all that moved to be at its new place")


def _taken_over(urls: Mapping[str, str], versions: Mapping[str, int]) -> bool:
    with suppress(OSError, ValueError):
        return uses([status(url) for url in urls.values()], versions)
    return False


def _joins(scene: Scene) -> int:
    """Start an object server with an empty device, and a replicator for it; the port of the object server."""
    # A service ends with the thread that has started it, and the one that does this task ends with it.
    starter = ThreadPoolExecutor(1)
    scene.undo.callback(starter.shutdown)
    port, replicator_port = free_port(NATIVE_PORT_OFFSET), free_port()
    scene.devices(NEW_DEVICE).mkdir()
    section = {"port": port, "devices": [NEW_DEVICE]}
    _starts(scene, starter, "object", "object-1", NEW_OBJECT, section)
    section = {"port": replicator_port, "devices": [f"{HOST}:{port}/{NEW_DEVICE}"]}
    _starts(scene, starter, "replicator", "replicator", NEW_REPLICATOR, section)
    return port


def _starts(scene: Scene, starter: Executor, kind: str, like: str, name: str, section: Mapping[str, Any]) -> None:
    """Start one more service, with the settings of one that runs except for these, and wait until it is ready."""
    settings = yaml.safe_load(scene.cluster.settings_file(like).read_text())
    settings[kind] |= section
    config, log = scene.data / "etc" / f"{name}.yaml", scene.data / "log" / f"{name}.log"
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "swiftlet.main", kind, "--config", str(config), *end_with_us()]
    with log.open("ab") as file:
        known = {**environment(), **scene.cluster.settings}
        process = starter.submit(subprocess.Popen, command, stdout=file, stderr=file, env=known).result()
    scene.undo.callback(_ends, name, process)
    url = f"http://{HOST}:{section['port']}"

    def has_begun() -> bool:
        assert process.poll() is None, f"{name} ended with {process.returncode}; see {log}"
        return is_ready(url)

    wait_until(has_begun, f"{name} to be ready; see {log}")
    scene.added[name] = url


def _ends(name: str, process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, f"{name} ended by itself with {process.returncode}"
    process.terminate()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _publishes(directory: Path, device: DevicePlan) -> dict[str, int]:
    """Add a device to all rings of objects; their new versions by name. All replicators have to be done before."""
    versions = {}
    for file in sorted(directory.glob("object-*.builder")):
        builder = load_builder(file)
        point_at(builder, [device])
        builder.rebalance(int(time.time() // _HOUR_S), ignore_min_part_hours=True)
        save_builder(builder, file)
        save(builder.ring, file.with_suffix(".ring"))
        versions[file.stem] = builder.version
    return versions
