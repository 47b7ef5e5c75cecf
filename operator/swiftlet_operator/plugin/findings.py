"""What is wrong with a cluster, worst first. Pure.

A finding is something that needs action. What is merely going on (a rebalance, a device that is filling up again) is no
finding as long as the services report progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from swiftlet_operator.manifests import named
from swiftlet_operator.plugin.devices import FULL_PARTS, fullness, places
from swiftlet_operator.plugin.picture import Object, Picture, conditions_of, name_of, status_of
from swiftlet_operator.plugin.reasons import STARTING, is_starting, reasons
from swiftlet_operator.trouble import groups

ERROR, WARNING, NOTE = "ERROR", "WARNING", "NOTE"
_ORDER = (ERROR, WARNING, NOTE)
_BAD_WHEN_TRUE = frozenset({"Degraded", "ScaleInBlocked", "DeletionBlocked", "Maintenance", "NodesCordoned"})
_FINE = frozenset(
    {
        *("NotWanted", "NotUsed", "NotObserved", "NoneCordoned", "DomainOpen"),
        *("Draining", "Complete", "Balanced", "Rebalancing", "RollingOut"),
        STARTING,
    }
)
"""Reasons that ask for no action, whatever the status."""
_SERIOUS = frozenset({"Ready", "SpecValid", "StorageAvailable", "ContainersAvailable", "ProxiesAvailable"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something wrong: how bad, where, and what. A note needs no action: a pod that only needs time."""

    severity: str
    where: str
    text: str


def findings(picture: Picture) -> list[Finding]:
    """Return all findings, errors before warnings, and notes last."""
    found = [
        *_of_conditions(picture),
        *_of_objects(picture),
        *_of_pods(picture),
        *_of_devices(picture),
        *_of_rings(picture),
        *_of_keys(picture),
        *(Finding(WARNING, "kubectl", failure) for failure in picture.failures),
    ]
    return sorted(dict.fromkeys(found), key=lambda one: _ORDER.index(one.severity))


def _of_conditions(picture: Picture) -> Iterator[Finding]:
    where = f"StorageCluster {picture.name}"
    conditions = conditions_of(picture.cluster)
    if not conditions:
        yield Finding(
            ERROR, where, "the operator has never looked at it; is it running, and does it watch this namespace?"
        )
    deleting = picture.cluster["metadata"].get("deletionTimestamp") is not None
    for type_, fact in conditions.items():
        status, reason = fact.get("status"), str(fact.get("reason") or "")
        # PodsHealthy has what is found here about pods, by the same code and some seconds earlier.
        if reason in _FINE or type_ == "PodsHealthy" or (type_ == "DeletionBlocked" and not deleting):
            continue
        if status == ("True" if type_ in _BAD_WHEN_TRUE else "False"):
            severity = ERROR if type_ in _SERIOUS else WARNING
            yield Finding(severity, where, f"{type_} is {status} ({reason}): {fact.get('message', '')}")
    generation = picture.cluster["metadata"].get("generation")
    if conditions and status_of(picture.cluster).get("observedGeneration") != generation:
        yield Finding(WARNING, where, "the operator has not looked at the last change yet")


def _of_objects(picture: Picture) -> Iterator[Finding]:
    for one in (*picture.ring_objects, *picture.policies, *picture.quotas, *picture.users):
        ready = conditions_of(one).get("Ready")
        if ready is not None and ready.get("status") == "False":
            waits = ready.get("reason") == "WaitingForDevices" and is_starting(picture)
            yield Finding(
                NOTE if waits else WARNING,
                f"{one['kind']} {name_of(one)}",
                f"{ready.get('reason')}: {ready.get('message', '')}",
            )


def _of_pods(picture: Picture) -> Iterator[Finding]:
    found = reasons(picture)
    for group in groups(found.troubles):
        first = group[0]
        where = f"{first.kind} {named([one.name for one in group])}"
        yield Finding(ERROR, where, f"{first.cause}: {first.sentence}. To do: {first.advice}")
    told = {one.name for one in found.troubles}
    waits = {one.name for one in found.on_way}
    usual = NOTE if is_starting(picture) else ERROR
    wanted = [(one, status_of(one).get("readyReplicas") or 0) for one in (*picture.stateful_sets, *picture.deployments)]
    for one, ready in wanted:
        replicas = (one.get("spec") or {}).get("replicas") or 0
        if ready < replicas:
            yield Finding(usual, f"{one['kind']} {name_of(one)}", f"{ready} of {replicas} pods are ready")
    for pod in picture.pods:
        if name_of(pod) in waits - told:
            yield Finding(usual, f"Pod {name_of(pod)}", why_not_ready(pod))
    for (name, service), why in sorted(picture.silent.items()):
        severity = NOTE if usual == NOTE else WARNING
        yield Finding(severity, f"Pod {name}", f"{service} does not report: {why}")


def why_not_ready(pod: Object) -> str:
    """Return what Kubernetes says about a pod that is not ready."""
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being ended"
    scheduled = conditions_of(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"it has no node: {str(scheduled.get('message', '')).partition(' preemption: ')[0]}"
    status = status_of(pod)
    for container in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if about := state.get(kind):
                text = (
                    f"{container.get('name')} is {kind}: {about.get('reason', '')} {about.get('message', '')}".strip()
                )
                return f"{text} ({container.get('restartCount', 0)} restarts)"
    late = [str(one.get("name")) for one in status.get("containerStatuses") or [] if not one.get("ready")]
    return f"not ready: {', '.join(late) or status.get('phase', 'unknown')}; see its /readyz, events and logs"


def _of_devices(picture: Picture) -> Iterator[Finding]:
    for one in fullness(picture).values():
        where = f"Device {one.device}"
        if one.state not in ("serving", "unknown"):
            yield Finding(
                ERROR, where, f"{one.state}: {one.reason or 'no reason given'}; drain it: kubectl swiftlet drain"
            )
        if one.part >= FULL_PARTS[-1]:
            severity = ERROR if one.part >= FULL_PARTS[0] else WARNING
            yield Finding(severity, where, f"{one.part:.0%} full; add pods or grow the volumes")
    for place in places(picture):
        # Silent pods are already named; so are those that are not ready.
        reports = (place.device.split("/")[0], "replicator") in picture.reports
        if place.report is None and reports and place.partitions:
            yield Finding(WARNING, f"Device {place.device}", f"its pod says nothing about it in ring {place.ring}")


def _of_rings(picture: Picture) -> Iterator[Finding]:
    for name, problem in sorted(picture.broken_rings.items()):
        yield Finding(ERROR, f"Ring {name}", f"the published ring can't be read: {problem}")
    for (pod, service), report in sorted(picture.reports.items()):
        used = report.get("rings")
        for name, version in (used if isinstance(used, dict) else {}).items():
            ring = picture.rings.get(name)
            if ring is not None and isinstance(version, int) and version < ring.version:
                text = f"{service} uses version {version} of ring {name}, {ring.version} is published"
                yield Finding(WARNING, f"Pod {pod}", text)


def _of_keys(picture: Picture) -> Iterator[Finding]:
    """Yield findings about services that share no cluster key, and so refuse each other."""
    loaded: dict[str, frozenset[str]] = {}
    for (pod, service), report in sorted(picture.reports.items()):
        keys = report.get("keys")
        if isinstance(keys, list):
            loaded[f"{pod} ({service})"] = frozenset(str(key) for key in keys)
    common = frozenset.intersection(*loaded.values()) if loaded else frozenset()
    if loaded and not common:
        groups = sorted({", ".join(sorted(keys)) or "none" for keys in loaded.values()})
        text = f"there is no key that all services have: {'; '.join(groups)}; they refuse each other"
        yield Finding(ERROR, "Cluster keys", text)


def worst(found: Iterable[Finding]) -> int:
    """Return the exit code: 1 when there is anything but notes."""
    return 1 if any(one.severity != NOTE for one in found) else 0
