"""How full devices are, in levels: a level is reached at its share, and left two hundredths below it. Pure.

Levels are told rather than numbers, so that the status changes only when somebody should look again, and nothing is
written while the cluster is at rest. A device that reports nothing keeps its level.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.crd import Fact
from swiftlet_operator.build.site import CONTAINER, DATABASE_DEVICE, STORAGE
from swiftlet_operator.manifests import COMPONENT_LABEL, labels_of, name_of
from swiftlet_operator.reports import DeviceReport
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

LEVELS = {"NearFull": 0.85, "BackfillFull": 0.90, "Full": 0.95}
"""Used shares from which a device has a level, lowest first."""
SLACK = 0.02
"""How far below its share a device leaves a level."""
NO_MORE = frozenset({"BackfillFull", "Full"})
"""Levels at which a device's weight is not raised."""
MAX_TOLD = 256
"""The largest number of devices in `status.filling`."""


def levels(world: World) -> dict[str, str]:
    """Return the level of every device that has one, by its name in rings."""
    before = world.filling
    found: dict[str, str] = {}
    for pod in world.pods:
        component = labels_of(pod).get(COMPONENT_LABEL)
        service = {STORAGE: "object", CONTAINER: "container"}.get(str(component))
        report = world.report(name_of(pod), service) if service else None
        if report is None:
            found |= {device: level for device, level in before.items() if device.partition("/")[0] == name_of(pod)}
            continue
        for name, device in report.devices.items():
            full_name = name if "/" in name else f"{name_of(pod)}/{name}"
            level = _level(device, before.get(full_name))
            if level is not None:
                found[full_name] = level
    return found


def _level(device: DeviceReport, before: str | None) -> str | None:
    if not device.capacity_bytes or device.free_bytes is None:
        return before
    used = 1 - device.free_bytes / device.capacity_bytes
    order = list(LEVELS)
    held = order[: order.index(before) + 1] if before in LEVELS else []
    reached = [name for name, share in LEVELS.items() if used >= (share - SLACK if name in held else share)]
    return reached[-1] if reached else None


def told(found: Mapping[str, str]) -> dict[str, str]:
    """Return what is kept in the status: the fullest devices first, as many as fit."""
    order = list(LEVELS)
    worst = sorted(found, key=lambda device: (-order.index(found[device]), device))
    return {device: found[device] for device in sorted(worst[:MAX_TOLD])}


def capacity_available(found: Mapping[str, str]) -> Fact:
    """Return the condition that says whether there is room on all devices."""
    by_level = {level: sorted(device for device, one in found.items() if one == level) for level in LEVELS}
    worst = [level for level in LEVELS if by_level[level]]
    if not worst:
        return Fact("CapacityAvailable", "True", "Enough", "no device is nearly full")
    parts = [f"{level}: {named(by_level[level])}" for level in reversed(worst)]
    databases = all(device.endswith(f"/{DATABASE_DEVICE}") for device in found)
    where = "spec.container" if databases else "the pool"
    message = f"{'; '.join(parts)}; raise storage.size or add pods in {where}, or delete objects"
    return Fact("CapacityAvailable", "False", worst[-1], message)
