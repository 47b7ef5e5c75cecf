"""Devices as the rings have them and as their pods report them: how full, how far along, what is being moved. Pure.

The fields of the reports, and what in sync and empty mean, are in docs/design/2026-11-21-lifecycle.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftlet.ring import Ring
from swiftlet_operator.plugin.picture import Object, Picture

FULL_PARTS = (0.95, 0.90, 0.85)
"""Shares of use from which a device counts as full, too full to be filled up, and nearly full."""


@dataclass(frozen=True, slots=True)
class Place:
    """A device in one ring. `report` is what the pod reports about it there, None without a report. `member` is the
    other member of the federation that has the device, if another one has it.
    """

    ring: str
    version: int
    device: str
    region: str
    zone: str
    node: str
    weight: float
    partitions: int
    of: int
    report: Object | None
    pending: int
    member: str = ""

    @property
    def empty(self) -> bool:
        """Return whether the device is known to hold nothing of this ring, and has no partitions there."""
        return self.partitions == 0 and self._current and _count(self.report, "held") == 0 and self.pending == 0

    @property
    def in_sync(self) -> bool:
        """Return whether the last round, with this ring, left nothing to do."""
        return self._current and self.left == 0 and bool(self.report and self.report.get("syncedAt"))

    @property
    def left(self) -> int:
        """Return the number of partitions to be moved home or not compared yet, plus records to be fetched."""
        return sum(_count(self.report, name) for name in ("misplaced", "behind", "unchecked"))

    @property
    def _current(self) -> bool:
        return self.report is not None and _count(self.report, "ringVersion") >= self.version

    @property
    def state(self) -> str:
        """Return the device's state in a few words."""
        if self.report is None:
            return f"of member {self.member}" if self.member else "no report"
        if self.empty:
            return "empty"
        parts = [
            f"{_count(self.report, name)} {text}"
            for name, text in (("behind", "behind"), ("misplaced", "to move"), ("unchecked", "unchecked"))
            if _count(self.report, name)
        ]
        if not self._current:
            parts.append(f"on ring {_count(self.report, 'ringVersion')}")
        if parts:
            return ", ".join(parts)
        return "in sync" if self.in_sync else "not compared yet"


@dataclass(frozen=True, slots=True)
class Fullness:
    """A device as its own server reports it; `pending` counts rows that wait for a container server."""

    device: str
    capacity_bytes: int
    free_bytes: int
    state: str
    reason: str
    pending: int

    @property
    def part(self) -> float:
        """Return the share in use, 0 to 1."""
        return 1 - self.free_bytes / self.capacity_bytes if self.capacity_bytes > 0 else 0.0


def places(picture: Picture) -> list[Place]:
    """Return every device of every ring, and those that report something of a ring that no longer has them."""
    full = fullness(picture)
    found = []
    for name, ring in sorted(picture.rings.items()):
        seen = set()
        shares = _shares(ring)
        total = sum(shares.values())
        for device in ring.devices:
            if device is None:
                continue
            seen.add(device.name)
            report = _report(picture, device.name, name)
            pending = full[device.name].pending if device.name in full else 0
            place = (name, ring.version, device.name, device.region, device.zone, device.node, device.weight)
            member = _other_member(picture, device.node)
            found.append(Place(*place, shares[device.id], total, report, pending, member))
        for left, report in sorted(_reports_of(picture, name).items()):
            if left not in seen:
                pending = full[left].pending if left in full else 0
                found.append(Place(name, ring.version, left, "", "", "", 0.0, 0, total, report, pending))
    return found


def _other_member(picture: Picture, node: str) -> str:
    """Return which other member of a federation has a device on this node; empty when it is this cluster's own."""
    federation = (picture.cluster.get("spec") or {}).get("federation") or {}
    member, slash, _ = node.partition("/")
    return member if slash and federation and member != federation.get("member") else ""


def fullness(picture: Picture) -> dict[str, Fullness]:
    """Return devices by `<pod>/<device>`, as their own servers report them."""
    found = {}
    for (pod, service), report in picture.reports.items():
        if service not in ("object", "container"):
            continue
        for name, one in _mapping(report.get("devices")).items():
            found[f"{pod}/{name}"] = Fullness(
                f"{pod}/{name}",
                _count(one, "capacityBytes"),
                _count(one, "freeBytes"),
                str(one.get("state") or "unknown"),
                str(one.get("reason") or ""),
                _count(one, "pending"),
            )
    return found


def _shares(ring: Ring) -> Counter[int]:
    shares: Counter[int] = Counter()
    for row in ring.rows:
        shares.update(row)
    return shares


def _report(picture: Picture, device: str, ring: str) -> Object | None:
    return _reports_of(picture, ring, device.split("/")[0]).get(device)


def _reports_of(picture: Picture, ring: str, pod: str | None = None) -> dict[str, Object]:
    """Return the replicators' reports about a ring, by `<pod>/<device>`."""
    found = {}
    for (name, one), report in sorted(picture.reports.items()):
        if one != "replicator" or (pod is not None and name != pod):
            continue
        for device, facts in _mapping(report.get("devices")).items():
            about = _mapping(facts.get("rings")).get(ring)
            if about is not None:
                found[device] = about
    return found


def _mapping(value: Any) -> Mapping[str, Object]:
    """Return `value` when it is a mapping of mappings; otherwise an empty one, as it was damaged on its way."""
    return {key: one for key, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _count(report: Mapping[str, Any] | None, name: str) -> int:
    value = (report or {}).get(name)
    return int(value) if isinstance(value, int | float) else 0
