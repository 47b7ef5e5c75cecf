"""What is broken of a store over two regions with erasure coding, for each alert that only such a store has.

Each region has a replicator of its own, as the pods of each node have: one that can't ask a device of its own counts
nothing.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e2e.monitoring.modes import Act, AlertMode, Store, both, client_of, ends, starts
from e2e.standalone.cluster import end_with_us, environment, free_port
from swiftlet.main.commands.standalone.plan import HOST, REPLICAS
from swiftlet.main.commands.standalone.rings import PART_POWER
from swiftlet.main.ring_names import object_ring
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save_builder

POLICIES = "usual,coded=4+2"
DEVICES = 7
"""One more than a coded object has fragments."""
HERE, THERE = "here", "there"
REGIONS = {f"d{number}": THERE if number > DEVICES - 2 else HERE for number in range(1, DEVICES + 1)}
AWAY = ("object-6", "object-7")
"""The object servers of the other region: as many as a coded object may lose."""
LOST = ("object-1", "object-2", "object-3")
"""More than a coded object may lose."""
OBJECTS = 60
_OBJECT = bytes(range(256)) * 1200


def write_regions(data: Path) -> None:
    """Write the builder of a new store's first ring, whose devices are in two regions; its start adds their ports."""
    rings = data / "rings"
    rings.mkdir(parents=True)
    name = object_ring(0)
    builder = RingBuilder(PART_POWER, REPLICAS, min_part_hours=1)
    for number, (device, region) in enumerate(REGIONS.items(), 1):
        place = {"zone": f"z{number}", "node": f"node-{device}", "region": region}
        builder.add_device(name=device, host=HOST, port=number, device=device, weight=100.0, **place)
    save_builder(builder, rings / f"{name}.builder")


def fill(scene: Store) -> None:
    """Write objects with copies, and with erasure coding."""
    client = client_of(scene)
    for policy in ("usual", "coded"):
        assert client.call("PUT", policy, {"X-Storage-Policy": policy}).status == 201
        for number in range(OBJECTS):
            assert client.call("PUT", f"{policy}/{number}", body=_OBJECT).status == 201


def divide_replicators(scene: Store, folder: Path) -> str:
    """Have the replicator look after the devices here alone, and start another one there; its URL."""
    cluster, port = scene.cluster, free_port()
    file = cluster.settings_file("replicator")
    settings = yaml.safe_load(file.read_text())
    devices = settings["replicator"]["devices"]
    here, there = ([one for one in devices if REGIONS[one.rpartition("/")[2]] == region] for region in (HERE, THERE))
    config = folder / "there.yaml"
    section = {**settings["replicator"], "devices": there, "port": port}
    config.write_text(yaml.safe_dump({**settings, "replicator": section}))
    cluster.kill("replicator")
    cluster.set("replicator", replicator={"devices": here})
    cluster.start("replicator")
    command = [sys.executable, "-m", "swiftlet.main", "replicator", "--config", str(config), *end_with_us()]
    with (folder / "there.log").open("wb") as log:
        scene.there = subprocess.Popen(command, stdout=log, stderr=log, env={**environment(), **scene.settings})
    scene.undo.callback(scene.there.wait)
    scene.undo.callback(scene.there.kill)
    scene.added["there"] = f"http://{HOST}:{port}"
    return scene.added["there"]


def report_of(url: str) -> dict[str, Any]:
    """A replicator's status report; one that has ended no round yet has not said anything."""
    try:
        with urllib.request.urlopen(url + "/statusz", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
    except OSError:
        return {"devices": {}, "repairs": None}
    return found


def _here(scene: Store) -> dict[str, Any]:
    return report_of(scene.cluster.management_url("replicator"))


def _freezes(scene: Store) -> None:
    assert scene.there is not None
    scene.there.send_signal(signal.SIGSTOP)


def _goes_on(scene: Store) -> None:
    assert scene.there is not None
    scene.there.send_signal(signal.SIGCONT)


def equal_since(scene: Store) -> float:
    """What was written before this time is in both regions; 0 when that is not known."""
    standings = [
        region["equalAt"]
        for device in _here(scene)["devices"].values()
        for region in device["rings"].get(object_ring(0), {}).get("regions", {}).values()
    ]
    return min((one or 0.0 for one in standings), default=0.0)


def _redundancy(report: dict[str, Any]) -> set[str]:
    """The fragments of the least redundant objects of partitions of the coded policy, in the last whole round."""
    found = ((report["repairs"] or {}).get("redundancy") or {}).get("coded") or {"partitions": {}}
    return {name for name, count in found["partitions"].items() if count}


def is_whole(scene: Store) -> bool:
    """Whether all coded objects have all of their fragments, and nothing is left to repair."""
    reports = (_here(scene), report_of(scene.added["there"]))
    known: set[str] = set().union(*map(_redundancy, reports))
    return known == {"6"} and all(one["repairs"] and one["repairs"]["left"] == 0 for one in reports)


def _lacks(*names: str) -> Callable[[Store], bool]:
    """Whether some partition has a coded object with so few fragments."""
    return lambda scene: bool(_redundancy(_here(scene)) & set(names))


def _writes_more(scene: Store) -> None:
    """Objects of which the region that is away gets nothing yet."""
    client = client_of(scene)
    for number in range(OBJECTS):
        assert client.call("PUT", f"usual/more-{number}", body=_OBJECT).status == 201


def _loses_disks(*services: str) -> Act:
    """Start object servers with empty disks; what they had is kept aside."""

    def act(scene: Store) -> None:
        scene.cluster.kill(*services)
        for place in _disks(scene, services):
            place.rename(place.with_name(f"lost-{place.name}"))
            place.mkdir()
        scene.cluster.start(*services)

    return act


def _finds_disks(*services: str) -> Act:
    """Start object servers with the disks that they had."""

    def act(scene: Store) -> None:
        scene.cluster.kill(*services)
        for place in _disks(scene, services):
            place.rename(place.with_name(f"empty-{place.name}"))
            place.with_name(f"lost-{place.name}").rename(place)
        scene.cluster.start(*services)

    return act


def _disks(scene: Store, services: tuple[str, ...]) -> list[Path]:
    return [scene.devices(f"d{service.removeprefix('object-')}") for service in services]


def _repairs_nothing(scene: Store) -> bool:
    """Whether the last round has left something and repaired nothing: what could be rebuilt has been."""
    repairs = _here(scene)["repairs"]
    return _lacks("short")(scene) and repairs["left"] > 0 and repairs["rebuilt"] + repairs["told"] == 0


class _Since:
    """The time until which both regions had the same when one of them went away."""

    def __init__(self) -> None:
        self._equal_s = 0.0

    def note(self, scene: Store) -> None:
        self._equal_s = equal_since(scene)

    def is_past(self, scene: Store) -> bool:
        """Whether all written while it was away is in both regions."""
        return equal_since(scene) > self._equal_s and is_whole(scene)


_SINCE = _Since()
WIDE_MODES = (
    AlertMode(
        "a region",
        ("SwiftletRegionsBehind", "SwiftletFragmentsShort"),
        both(_freezes, ends(*AWAY), _writes_more, _SINCE.note),
        both(starts(*AWAY), _goes_on),
        28,
        8,
        minute_s=2.5,
        shows=_lacks("4"),
        is_over=_SINCE.is_past,
    ),
    AlertMode(
        "lost disks",
        ("SwiftletFragmentsShort", "SwiftletRepairStands"),
        _loses_disks(*LOST),
        _finds_disks(*LOST),
        60,
        60,
        minute_s=0.3,
        shows=_repairs_nothing,
        is_over=is_whole,
    ),
)
