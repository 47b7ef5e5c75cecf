"""The input of a diagnosis: the cluster's workloads, their pods and claims, and what is around these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    DEPLOYMENT,
    POOL_LABEL,
    STATEFUL_SET,
    TOPOLOGY_ZONE,
    Manifest,
    labels_of,
    name_of,
)

OVER = frozenset({"Failed", "Succeeded"})
"""Phases of pods that never run again."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read because pods or claims are in trouble: StorageClasses (None: not read) and events."""

    classes: tuple[Manifest, ...] | None = None
    events: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One cluster's workloads, pods and claims at `now_s`, the nodes, and the volumes of claims by their names."""

    now_s: int
    workloads: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()
    claims: Sequence[Manifest] = ()
    nodes: Sequence[Manifest] = ()
    volumes: Mapping[str, Manifest] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)

    def sets(self) -> Iterator[tuple[Manifest, list[str]]]:
        """Yield each StatefulSet with the names of the pods that it should have."""
        for one in self.workloads:
            if one["kind"] == STATEFUL_SET.kind:
                yield one, [f"{name_of(one)}-{ordinal}" for ordinal in range(replicas_of(one))]

    def deployments(self) -> Iterator[Manifest]:
        """Yield the Deployments among the workloads."""
        return (one for one in self.workloads if one["kind"] == DEPLOYMENT.kind)

    def events_of(self, kind: str, name: str, uid: str | None = None) -> list[Manifest]:
        """Return events of an object, the newest last; with `uid` those of earlier objects of the same name are left
        out.
        """
        found = [
            event
            for event in self.evidence.events
            if (about := event.get("involvedObject") or {}).get("kind") == kind
            and about.get("name") == name
            and (uid is None or about.get("uid") in (None, "", uid))
        ]
        return sorted(found, key=event_s)

    def node(self, name: str) -> Manifest | None:
        """Return a node, None when it is missing."""
        return next((node for node in self.nodes if name_of(node) == name), None)

    def zones(self) -> list[str]:
        """Return the zones that nodes are in."""
        return sorted({zone for node in self.nodes if (zone := labels_of(node).get(TOPOLOGY_ZONE))})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the cluster, as its spec has it: a component, and the pool of storage pods."""

    component: str
    pool: str | None = None

    @property
    def field(self) -> str:
        """Return the path of the field in the spec of the StorageCluster."""
        return f"spec.pools[name={self.pool}]" if self.pool else f"spec.{self.component}"


def part_of(manifest: Manifest) -> Part:
    """Return the part that an object with the operator's labels belongs to."""
    labels = labels_of(manifest)
    return Part(labels.get(COMPONENT_LABEL, ""), labels.get(POOL_LABEL))


def replicas_of(workload: Manifest) -> int:
    """Return how many pods a workload should have."""
    return int((workload.get("spec") or {}).get("replicas") or 0)


def pod_of_claim(claim: Manifest) -> str:
    """Return the pod that a StatefulSet's claim belongs to: claim `d0-store-disks-2` belongs to pod store-disks-2."""
    return name_of(claim).partition("-")[2]


def status_of(manifest: Manifest) -> dict[str, Any]:
    """Return `status`, empty when there is none."""
    return manifest.get("status") or {}


def condition(manifest: Manifest, type_: str) -> dict[str, Any]:
    """Return a condition, empty when there is none."""
    found = (one for one in status_of(manifest).get("conditions") or [] if one.get("type") == type_)
    return next(found, {})


def is_ready(pod: Manifest) -> bool:
    """Return whether a pod is ready; one that has ended is not, whatever its conditions say."""
    return status_of(pod).get("phase") not in OVER and condition(pod, "Ready").get("status") == "True"


def moment_s(text: object) -> int:
    """Return a Kubernetes time in seconds since the epoch, 0 for none."""
    try:
        return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) if isinstance(text, str) else 0
    except ValueError:
        return 0


def event_s(event: Manifest) -> int:
    """Return when an event was seen last."""
    series = (event.get("series") or {}).get("lastObservedTime")
    said = series or event.get("lastTimestamp") or event.get("eventTime")
    return moment_s(said or event["metadata"].get("creationTimestamp"))


def age_s(seen: Seen, manifest: Manifest) -> int:
    """Return how old an object is; 0 when it does not say."""
    made_s = moment_s(manifest["metadata"].get("creationTimestamp"))
    return max(0, seen.now_s - made_s) if made_s else 0
