"""Text for a terminal: tables, the tree of zones, nodes and devices, bars. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from swiftlet_operator.durations import roughly
from swiftlet_operator.lag import Lag, lags
from swiftlet_operator.manifests import named
from swiftlet_operator.plugin.devices import Fullness, Place, fullness, places
from swiftlet_operator.plugin.findings import ERROR, NOTE, WARNING, Finding, findings, why_not_ready
from swiftlet_operator.plugin.picture import (
    POOL_LABEL,
    SERVICES,
    TOPOLOGY_ZONE,
    ZONE_LABEL,
    Object,
    Picture,
    conditions_of,
    is_ready,
    labels_of,
    name_of,
    status_of,
)
from swiftlet_operator.plugin.reasons import STARTING, reasons
from swiftlet_operator.redundancy import left_said, parsed, said, together
from swiftlet_operator.reports import report_of, told_of_regions
from swiftlet_operator.trouble import groups

BAR_CELLS = 10
NONE = "-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(header: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> list[str]:
    """Return columns as wide as they must be; nothing without rows."""
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        return []
    lines.insert(0, list(header))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def bar(part: float) -> str:
    """Return a bar for a share in use: `[####......]  42 %`."""
    filled = min(BAR_CELLS, max(0, round(part * BAR_CELLS)))
    return f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {part:4.0%}"


def size(count: float) -> str:
    """Return a number of bytes with a unit, for people."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if count >= 10 or unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def status(picture: Picture) -> list[str]:
    """Return the state of the whole cluster on a page or two."""
    wrong = [one for one in findings(picture) if one.severity != NOTE]
    worst = f"; {len(wrong)} finding{'s' if len(wrong) != 1 else ''}, see `kubectl swiftlet health`" if wrong else ""
    parts = [
        [f"StorageCluster {picture.namespace}/{picture.name}: {_word(picture.cluster)}{worst}"],
        [f"  endpoint {status_of(picture.cluster).get('endpoint') or NONE}"],
        table(("CONDITION", "STATUS", "REASON", "MESSAGE"), _conditions(picture.cluster), "  "),
        [f"  {line}" for line in not_running(picture)],
        table(("WORKLOAD", "POOL", "ZONE", "READY", "WANTED"), _workloads(picture), "  "),
        table(("RING", "VERSION", "DEVICES", "BALANCE %", "DISPERSION %", "STATE"), _rings(picture), "  "),
        table(("MEMBER", "HEARD", "WHOLE", "LEADER", "RINGS", "IN USE"), _members(picture.cluster), "  "),
        table(("POLICY", "INDEX", "DEFAULT", "KEPT AS", "MAY BE LOST", "STATE"), _policies(picture), "  "),
        table(("USER", "ACCOUNT", "ROLES", "SECRET", "STATE"), _users(picture), "  "),
        [f"  {line}" for line in fragments(picture)],
        table(("REGIONS", "LAG", "RING", "KNOWN TO LACK"), lag_rows(picture), "  "),
        ["  " + line for line in tree(picture)],
        [f"  {line}" for line in moving(picture)],
    ]
    return _joined(parts)


def not_running(picture: Picture) -> list[str]:
    """Return what keeps pods from running, and what the other pods that are not ready are doing."""
    found = reasons(picture)
    lines = []
    for group in groups(found.troubles):
        first = group[0]
        lines += [f"{first.cause}: {first.kind} {named([one.name for one in group])}"]
        lines += [f"  {first.sentence}", f"  to do: {first.advice}"]
    return lines + ([f"on the way: {found.summary}"] if found.summary else [])


def _joined(parts: Iterable[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for index, part in enumerate(part for part in parts if part):
        if index > 1:
            lines.append("")
        lines.extend(part)
    return lines


def _word(one: Object) -> str:
    ready = conditions_of(one).get("Ready")
    if ready is None:
        return "not looked at yet"
    if ready.get("status") == "True":
        return "ready"
    if ready.get("reason") == STARTING:
        return f"starting ({ready.get('message', '')})"
    return f"not ready ({ready.get('reason', '')})"


def _conditions(one: Object) -> list[tuple[Any, ...]]:
    return [
        (type_, fact.get("status"), fact.get("reason"), fact.get("message"))
        for type_, fact in conditions_of(one).items()
    ]


def _workloads(picture: Picture) -> list[tuple[Any, ...]]:
    rows = []
    for one in (*picture.stateful_sets, *picture.deployments):
        labels = labels_of(one)
        wanted = (one.get("spec") or {}).get("replicas") or 0
        ready = status_of(one).get("readyReplicas") or 0
        rows.append((name_of(one), labels.get(POOL_LABEL, NONE), labels.get(ZONE_LABEL, NONE), ready, wanted))
    return sorted(rows)


def _rings(picture: Picture) -> list[tuple[Any, ...]]:
    rows = []
    for one in sorted(picture.ring_objects, key=name_of):
        about = status_of(one)
        ready = conditions_of(one).get("Ready", {})
        state = ready.get("message") or "not looked at yet"
        numbers = (about.get(key, NONE) for key in ("version", "devices", "balance", "dispersion"))
        rows.append((name_of(one), *numbers, state))
    return rows


def _members(one: Object) -> list[tuple[Any, ...]]:
    """Return the other members of the store's federation, with the versions of rings that they have and use."""
    rows = []
    for member in (status_of(one).get("federation") or {}).get("members") or []:
        words = ["yes" if member.get(key) else "no" for key in ("heard", "whole")]
        rings = [_versions(member.get(key) or {}) for key in ("rings", "used")]
        rows.append((member.get("name"), *words, member.get("leader") or NONE, *rings))
    return rows


def _versions(rings: dict[str, Any]) -> str:
    return " ".join(f"{name}:{version}" for name, version in sorted(rings.items())) or NONE


def _policies(picture: Picture) -> list[tuple[Any, ...]]:
    rows = []
    for one in picture.policies:
        about, default = status_of(one), "yes" if one["spec"].get("default") else NONE
        kept = f"{about['keptAs']} ({about.get('bytesPerByte')}x)" if about.get("keptAs") else NONE
        lost = (about.get("mayBeLost") or {}).get("text") or NONE
        rows.append((name_of(one), one["spec"].get("index"), default, kept, lost, _word(one)))
    return rows


def _users(picture: Picture) -> list[tuple[Any, ...]]:
    rows = []
    for one in picture.users:
        spec = one["spec"]
        roles = ",".join(spec.get("roles") or []) or NONE
        secret = status_of(one).get("secretName") or NONE
        rows.append((f"{spec.get('account')}:{spec.get('user')}", spec.get("account"), roles, secret, _word(one)))
    return rows


def tree(picture: Picture) -> list[str]:
    """Return zones, their nodes, and the devices on these."""
    full = fullness(picture)
    by_device: dict[str, list[Place]] = defaultdict(list)
    for place in places(picture):
        by_device[place.device].append(place)
    zones: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for device in sorted({*by_device, *full}):
        zone, node = _where(picture, device, by_device[device])
        zones[zone][node].append(device)
    lines = []
    for zone, nodes in sorted(zones.items()):
        lines.append(f"zone {zone}")
        for node, devices in sorted(nodes.items()):
            lines.append(f"  node {node}")
            rows = [_leaf(device, by_device[device], full.get(device)) for device in devices]
            lines.extend(line.rstrip() for line in table(("",) * 4, rows, "    ")[1:])
    return lines


def _where(picture: Picture, device: str, found: Sequence[Place]) -> tuple[str, str]:
    pod = next((one for one in picture.pods if name_of(one) == device.split("/")[0]), None)
    node = str((pod or {}).get("spec", {}).get("nodeName") or "") or next((p.node for p in found if p.node), NONE)
    zone = next((place.zone for place in found if place.zone), "")
    if not zone:
        live = next((one for one in picture.nodes if name_of(one) == node), None)
        zone = labels_of(live).get(TOPOLOGY_ZONE, NONE) if live is not None else NONE
    return zone, node


def _leaf(device: str, found: Sequence[Place], full: Fullness | None) -> tuple[str, str, str, str]:
    if full is None:
        used = "[no report ]"
    else:
        used = f"{bar(full.part)} of {size(full.capacity_bytes)}"
    states = sorted({f"{place.ring} {place.state}" for place in found})
    same = {place.state for place in found}
    text = same.pop() if len(same) == 1 else "; ".join(states)
    extra = f"{full.state}: {full.reason}" if full is not None and full.state != "serving" else ""
    rows = f"rows pending {full.pending}" if full is not None and full.pending else ""
    return device, used, text, " ".join(part for part in (extra, rows) if part)


def fragments(picture: Picture) -> list[str]:
    """Return where the objects of policies with erasure coding stand, as far as replicators report it."""
    reports = [parsed(report.get("repairs")) for (_, service), report in sorted(picture.reports.items())]
    found = together(report for report in reports if report is not None)
    lines = [f"policy {name}: {said(one)}" for name, one in sorted(found.policies.items())]
    left = left_said(found, picture.now_s)
    return [*lines, left] if left else lines


def _lacking(lag: Lag) -> list[str]:
    """Return what two regions are known to lack, in words."""
    records = [f"{lag.objects} records"] if lag.objects else []
    return [*records, f"about {size(lag.size_bytes)}"] if lag.size_bytes else records


def lag_rows(picture: Picture) -> list[tuple[object, ...]]:
    """Return a row for each pair of regions: how far they are behind each other, and in which ring."""
    answers = [fields for (_, service), fields in sorted(picture.reports.items()) if service == "replicator"]
    found = lags(one for fields in answers for one in told_of_regions(report_of("replicator", fields)))
    return [
        (
            ", ".join(lag.regions),
            "not known yet" if lag.equal_at_s is None else _age(picture.now_s - lag.equal_at_s),
            lag.ring,
            ", ".join(_lacking(lag)) or NONE,
        )
        for lag in found
    ]


def _age(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 120 else roughly(seconds)


def moving(picture: Picture) -> list[str]:
    """Return what is being moved, in a line or two."""
    found = [place for place in places(picture) if place.report is not None]
    busy = [place for place in found if place.left]
    draining = sorted({place.device for place in found if place.weight == 0 and not place.empty})
    lines = []
    if busy:
        left = sum(place.left for place in busy)
        devices = len({place.device for place in busy})
        lines.append(f"on the way: {left} partitions and records, on {devices} devices")
    if draining:
        lines.append(f"being emptied: {', '.join(draining)}")
    return lines


def rings(picture: Picture) -> list[str]:
    """Return every device of every ring."""
    full = fullness(picture)
    lines: list[str] = []
    by_ring: dict[str, list[Place]] = defaultdict(list)
    for place in places(picture):
        by_ring[place.ring].append(place)
    for name, found in by_ring.items():
        ring = picture.rings[name]
        lines += [
            f"ring {name}, version {ring.version}: {ring.partition_count} partitions, {ring.replica_count:g} replicas"
        ]
        header = ("DEVICE", "ZONE", "NODE", "WEIGHT", "PARTITIONS", "SHARE", "FULL", "STATE")
        rows = [_row(place, full.get(place.device)) for place in found]
        lines += [*table(header, rows, "  "), ""]
    lines += [f"ring {name} can't be read: {problem}" for name, problem in sorted(picture.broken_rings.items())]
    return lines or ["no ring has been published yet"]


def _row(place: Place, full: Fullness | None) -> tuple[object, ...]:
    share = f"{place.partitions / place.of:.1%}" if place.of else NONE
    used = bar(full.part) if full is not None else NONE
    failed = f"{full.state} ({full.reason}); " if full is not None and full.state == "failed" else ""
    weight = f"{place.weight:g}"
    return (
        place.device,
        place.zone or NONE,
        place.node or NONE,
        weight,
        place.partitions,
        share,
        used,
        failed + place.state,
    )


def health(picture: Picture, found: Sequence[Finding]) -> list[str]:
    """Return what is wrong first, then every service of every pod."""
    lines = [f"StorageCluster {picture.namespace}/{picture.name}: {_verdict(found)}"]
    lines += [f"  {one.severity:<8} {one.where}: {one.text}" for one in found]
    rows = []
    for pod in sorted(picture.pods, key=name_of):
        for container in pod["spec"].get("containers") or []:
            if container.get("name") in SERVICES:
                rows.append(_service(picture, pod, str(container["name"])))
    return [*lines, "", *table(("POD", "SERVICE", "STATE", "VERSION", "RINGS", "TRANSPORT"), rows, "  ")]


def _verdict(found: Sequence[Finding]) -> str:
    if not found:
        return "nothing is wrong"
    errors, warnings = (sum(one.severity == severity for one in found) for severity in (ERROR, WARNING))
    if not errors and not warnings:
        return "starting, and nothing is wrong"
    return f"{errors} errors, {warnings} warnings"


def _service(picture: Picture, pod: Object, service: str) -> tuple[object, ...]:
    report = picture.reports.get((name_of(pod), service))
    statuses = {one.get("name"): one for one in status_of(pod).get("containerStatuses") or []}
    if service in statuses:
        state = "ready" if statuses[service].get("ready") else "not ready"
    else:
        state = "ready" if is_ready(pod) else why_not_ready(pod)
    if report is None:
        return name_of(pod), service, f"{state}, no report", NONE, NONE, NONE
    versions = _pairs(report.get("rings"))
    return name_of(pod), service, state, report.get("version", NONE), versions, _pairs(report.get("transports"))


def _pairs(value: Any) -> str:
    return (
        ", ".join(f"{key} {one}" for key, one in sorted(value.items())) if isinstance(value, dict) and value else NONE
    )
