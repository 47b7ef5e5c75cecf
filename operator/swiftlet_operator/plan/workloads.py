"""Which StatefulSets may change now: one failure domain at a time, and never smaller than what still holds data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from swiftlet_operator.build.site import Group
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    GROUP,
    POOL_LABEL,
    STATEFUL_SET,
    ZONE_LABEL,
    Manifest,
    annotations_of,
    digest_of,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.world import World

TEMPLATE = f"{GROUP}/template"
"""Annotation on StatefulSets: the digest of the pod template that was applied; another one means a restart."""
SETTLE_S = 120
"""Pods that have been ready for so long are taken to have caught up with their peers: others may restart."""
_DATA = frozenset({"storage", "container"})


@dataclass(frozen=True, slots=True)
class Domain:
    """The live state of one StatefulSet with data."""

    name: str
    component: str
    replicas: int
    ready: int
    rolling: bool
    settled: bool

    @property
    def whole(self) -> bool:
        """Whether all its pods are ready and as they should be."""
        return self.ready >= self.replicas and not self.rolling


def domains(world: World) -> dict[str, Domain]:
    """All live StatefulSets with data."""
    live = [one for (kind, _), one in sorted(world.children.items()) if kind == STATEFUL_SET.kind]
    return {name_of(one): _domain(world, one) for one in live if labels_of(one).get(COMPONENT_LABEL) in _DATA}


def _domain(world: World, live: Manifest) -> Domain:
    status: dict[str, Any] = live.get("status") or {}
    replicas = int(live["spec"].get("replicas") or 0)
    old = int(status.get("observedGeneration") or 0) < int(live["metadata"].get("generation") or 0)
    behind = status.get("updateRevision") != status.get("currentRevision")
    rolling = old or (behind and int(status.get("updatedReplicas") or 0) < replicas)
    pods = [f"{name_of(live)}-{ordinal}" for ordinal in range(replicas)]
    return Domain(
        name=name_of(live),
        component=labels_of(live)[COMPONENT_LABEL],
        replicas=replicas,
        ready=int(status.get("readyReplicas") or 0),
        rolling=rolling,
        settled=all(_long_ready(world, name) for name in pods),
    )


def _long_ready(world: World, name: str) -> bool:
    pod = world.pod(name)
    for condition in ((pod or {}).get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return world.now_s - seconds(condition.get("lastTransitionTime")) >= SETTLE_S
    return False


def seconds(moment: str | None) -> int:
    """A Kubernetes time as seconds since the epoch, 0 for none."""
    return int(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()) if moment else 0


def replicas_to_keep(
    groups: Iterable[Group], live: Mapping[str, Domain], states: Sequence[RingState]
) -> dict[str, int]:
    """Replicas of groups that would shrink: as many as still have a device in some ring."""
    unclear = any(state.outcome is None or state.changed for state in states)
    devices = {name for state in states if state.outcome is not None for name in state.outcome.present}
    pods = {name.split("/")[0] for name in devices}
    kept = {}
    for group in groups:
        now = live[group.name].replicas if group.name in live else 0
        if now <= group.replicas:
            continue
        needed = [ordinal + 1 for ordinal in range(group.replicas, now) if group.pod(ordinal) in pods]
        # A ring without the device must have been published before its pod goes.
        kept[group.name] = now if unclear else max([group.replicas, *needed])
    return {name: count for name, count in kept.items() if count > 0}


def left_over(groups: Iterable[Group], live: Mapping[str, Domain], states: Sequence[RingState]) -> set[str]:
    """StatefulSets that the spec does not have any more but that still have a device in some ring."""
    named = {group.name for group in groups}
    if any(state.outcome is None or state.changed for state in states):
        return set(live) - named
    pods = {name.split("/")[0] for state in states if state.outcome for name in state.outcome.present}
    return {name for name in live if name not in named and any(pod.rpartition("-")[0] == name for pod in pods)}


def frozen(live: Mapping[str, Domain], groups: Iterable[Group], has_data: bool) -> frozenset[str]:
    """Groups whose budget allows nothing: all others of a component of which one domain is not whole."""
    if not has_data:
        return frozenset()
    found = set()
    for group in groups:
        others = [one for one in live.values() if one.component == group.component and one.name != group.name]
        if any(not one.whole for one in others):
            found.add(group.name)
    return frozenset(found)


def stamped(manifest: Manifest) -> Manifest:
    """A StatefulSet with the digest of its pod template, other manifests as they are."""
    if kind_of(manifest) != STATEFUL_SET:
        return manifest
    metadata = manifest["metadata"]
    notes = {**annotations_of(manifest), TEMPLATE: digest_of(manifest["spec"]["template"])}
    return {**manifest, "metadata": {**metadata, "annotations": notes}}


def held_back(world: World, wanted: Sequence[Manifest], live: Mapping[str, Domain], has_data: bool) -> dict[str, str]:
    """StatefulSets with data whose pods must not restart now, and why."""
    sets = [one for one in wanted if kind_of(one) == STATEFUL_SET and name_of(one) in live]
    changed = [name_of(one) for one in sets if _restarts(world, one)]
    if not has_data or not changed:
        return {}
    busy = [one for one in live.values() if not (one.whole and one.settled)]
    # A domain that is in trouble anyway may change: that may be its cure.
    broken = [one.name for one in busy if not one.whole and one.name in changed]
    turn = broken[0] if broken else (changed[0] if not busy else None)
    reason = f"{', '.join(sorted(one.name for one in busy))} is not back in sync" if busy else f"{turn} goes first"
    return {name: reason for name in changed if name != turn}


def _restarts(world: World, wanted: Manifest) -> bool:
    live = world.child(STATEFUL_SET, name_of(wanted))
    return live is not None and annotations_of(live).get(TEMPLATE) != annotations_of(wanted).get(TEMPLATE)


def with_live_templates(world: World, manifest: Manifest) -> Manifest:
    """A StatefulSet with the volume sizes that it was made with: they can't change, the volumes are grown instead."""
    live = world.child(STATEFUL_SET, name_of(manifest)) if kind_of(manifest) == STATEFUL_SET else None
    templates = live["spec"].get("volumeClaimTemplates") or [] if live is not None else []
    made = {claim["metadata"]["name"]: claim for claim in templates}
    if not made or "volumeClaimTemplates" not in manifest["spec"]:
        return manifest
    claims = [
        {**claim, "spec": _sized(claim["spec"], made[claim["metadata"]["name"]]["spec"])}
        if claim["metadata"]["name"] in made
        else claim
        for claim in manifest["spec"]["volumeClaimTemplates"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "volumeClaimTemplates": claims}}


def _sized(spec: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    size = made["resources"]["requests"]["storage"]
    return {**spec, "resources": {"requests": {"storage": size}}}


def group_of_claim(claim: Manifest) -> tuple[str | None, str | None, str | None]:
    """Component, pool and zone of a volume."""
    labels = labels_of(claim)
    return labels.get(COMPONENT_LABEL), labels.get(POOL_LABEL), labels.get(ZONE_LABEL)
