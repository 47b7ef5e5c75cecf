"""Whether it is safe to go on, by the pods' own reports. Pure.

Fault model: a pod that reports nothing, or nothing of a device or ring, counts as behind. Nothing here makes up for a
missing report; callers may leave such a device out because a person named it or its node is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from swiftlet_operator.build.site import CONTAINER, DATABASE_DEVICE, METADATA, PROXY, STORAGE
from swiftlet_operator.manifests import COMPONENT_LABEL, Manifest, labels_of, name_of
from swiftlet_operator.reports import SERVICES, SERVING, DeviceReport, RingReport
from swiftlet_operator.world import World

_ROUTING = frozenset({STORAGE, CONTAINER, PROXY, METADATA})
"""Components whose pods use rings."""
_OVER = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class Published:
    """A ring as the services should have it: its version, since when, who has partitions, and where devices were.

    `foreign` are devices of other members of a federation, `regions` those of all devices where there is one.
    """

    ring: str
    version: int
    since_s: int
    assigned: frozenset[str]
    zones: Mapping[str, str]
    nodes: Mapping[str, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    regions: Mapping[str, str] = field(default_factory=dict)

    @property
    def own(self) -> Published:
        """The ring as far as it is of this cluster's devices."""
        if not self.regions:
            return self
        nodes = {name: node.rpartition("/")[2] for name, node in self.nodes.items() if name not in self.foreign}
        zones = {name: zone for name, zone in self.zones.items() if name not in self.foreign}
        return replace(self, assigned=self.assigned - self.foreign, zones=zones, nodes=nodes, foreign=frozenset())


def pod_of(device: str) -> str:
    """Return the pod of a device, by the device's name in rings."""
    return device.partition("/")[0]


def ring_report(world: World, device: str, ring: str) -> RingReport | None:
    """Return the report of a device's replicator about the device in a ring."""
    report = world.report(pod_of(device), "replicator")
    found = report and report.devices.get(device)
    return found.rings.get(ring) if found else None


def device_report(world: World, device: str) -> DeviceReport | None:
    """Return the report of a device's server about the device."""
    pod, _, name = device.partition("/")
    report = world.report(pod, "container" if name == DATABASE_DEVICE else "object")
    return report.devices.get(name) if report is not None else None


def in_order(report: RingReport | None, version: int, since_s: float) -> bool:
    """Return whether the last round found nothing to do with this ring or a newer one, and began at
    `since_s` or later.
    """
    if report is None or report.synced_at_s is None:
        return False
    clean = report.misplaced == report.behind == report.unchecked == 0
    return clean and report.ring_version >= version and report.synced_at_s >= since_s


def caught_up(report: RingReport | None, version: int, since_s: float) -> bool:
    """Return whether the device has been in sync with this ring at some time since then, even if peers failed later."""
    if report is None or report.synced_at_s is None:
        return False
    return report.ring_version >= version and report.synced_at_s >= since_s


def has_all(report: RingReport | None, version: int) -> bool:
    """Return whether the device lacks nothing that its reachable peers have."""
    return report is not None and report.ring_version >= version and report.behind == 0


def is_empty(world: World, device: str, ring: str, version: int) -> bool:
    """Return whether a device reports that it holds nothing of a ring, after a round with this version or a
    newer one.
    """
    report = ring_report(world, device, ring)
    return report is not None and report.held == 0 and report.ring_version >= version


def owes_no_rows(world: World, device: str) -> bool:
    """Return whether no row on the device waits for a container server; devices with databases never have any."""
    if device.endswith(f"/{DATABASE_DEVICE}"):
        return True
    report = device_report(world, device)
    return report is not None and report.pending == 0


def serves(world: World, device: str) -> bool:
    """Return whether the device's server reports that it serves."""
    report = device_report(world, device)
    return report is not None and report.state == SERVING


def is_named(device: str, names: Collection[str]) -> bool:
    """Return whether the device is among names of devices and pods."""
    return device in names or pod_of(device) in names


def behind(
    world: World,
    published: Published,
    *,
    leaving: Collection[str],
    excused: Collection[str],
) -> tuple[str, ...]:
    """Return devices for which the next rebalance of a ring has to wait, those without a report first.

    `excused` are devices that nobody waits for: named by a person, or their volumes are gone. Devices that leave the
    ring and do not serve are not waited for either. While such a device has partitions its peers can't compare all of
    theirs; then it is enough that they lack nothing of what can be reached, as a partition moves one replica at a time.
    """
    away = {
        device for device in published.zones if device in excused or (device in leaving and not serves(world, device))
    }
    reports = {device: ring_report(world, device, published.ring) for device in published.zones if device not in away}
    alone = any(
        device in published.assigned
        and not in_order(ring_report(world, device, published.ring), published.version, published.since_s)
        for device in away
    )
    late = [
        device
        for device, report in reports.items()
        if not (has_all(report, published.version) if alone else in_order(report, published.version, published.since_s))
    ]
    return tuple(sorted(late, key=lambda device: (reports[device] is not None, device)))


def late_services(world: World, versions: Mapping[str, int]) -> list[str]:
    """Return pods that serve and may still use an older version of some ring, or don't report it."""
    return sorted(
        name_of(pod)
        for pod in world.pods
        if labels_of(pod).get(COMPONENT_LABEL) in _ROUTING and is_ready(pod) and not _uses(world, pod, versions)
    )


def oldest_used(world: World) -> dict[str, int] | None:
    """Return the oldest version of each ring that a serving pod uses; None while one of them does not say."""
    found: dict[str, int] = {}
    for pod in world.pods:
        if labels_of(pod).get(COMPONENT_LABEL) not in _ROUTING or not is_ready(pod):
            continue
        if not _uses(world, pod, {}):
            return None
        for report in world.reports[name_of(pod)].values():
            for ring, version in report.rings.items():
                found[ring] = min(version, found.get(ring, version))
    return found


def _uses(world: World, pod: Manifest, versions: Mapping[str, int]) -> bool:
    reports = world.reports.get(name_of(pod), {})
    asked = {container["name"] for container in pod["spec"].get("containers") or []} & SERVICES
    if not reports or not asked <= reports.keys():
        return False
    return all(version >= versions.get(ring, 0) for one in reports.values() for ring, version in one.rings.items())


def is_ready(pod: Manifest | None) -> bool:
    """Return whether a pod is ready."""
    return ready_since_s(pod) is not None


def ready_since_s(pod: Manifest | None) -> int | None:
    """Return since when a pod has been ready; None when it is not. An evicted pod is not ready, whatever its conditions
    say.
    """
    status = (pod or {}).get("status") or {}
    if status.get("phase") in _OVER:
        return None
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return None


def seconds(moment: str | None) -> int:
    """Return a Kubernetes time as seconds since the epoch, 0 for none."""
    return int(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()) if moment else 0


def pods_with_partitions(rings: Iterable[Published]) -> frozenset[str]:
    """Return the pods that have partitions in some published ring."""
    return frozenset(pod_of(device) for ring in rings for device in ring.assigned)
