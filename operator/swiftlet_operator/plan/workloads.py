"""StatefulSets with data: their state, and how far they may shrink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftlet_operator.build.site import CONTAINER, DATABASE_DEVICE, STORAGE, Group
from swiftlet_operator.manifests import COMPONENT_LABEL, STATEFUL_SET, ZONE_LABEL, Manifest, labels_of, name_of
from swiftlet_operator.plan.federation import late_members
from swiftlet_operator.plan.revisions import is_held, is_seen, older
from swiftlet_operator.plan.ring_tasks import RingState, allowed_pods
from swiftlet_operator.plan.sync import (
    Published,
    caught_up,
    late_services,
    pod_of,
    pods_with_partitions,
    ready_since_s,
    ring_report,
)
from swiftlet_operator.world import World

_DATA = frozenset({"storage", "container"})


@dataclass(frozen=True, slots=True)
class Domain:
    """The live state of one StatefulSet with data. Only pods that have partitions count, once there are any.

    A StatefulSet that is gone, or was scaled below pods with partitions, counts with these pods as `down`. `down`: pods
    that are not ready. `behind`: ready pods that have not been in sync with the published rings since they became
    ready; `stale`: those of them that have not been in sync with any ring since then; `silent`: those of `behind` that
    don't answer at all. `rolling`: whether pods are being replaced, or are still to be. `held`: whether Kubernetes is
    kept from replacing any further. `outdated`: pods that do not have the StatefulSet's newest template.
    """

    name: str
    component: str
    zone: str | None
    replicas: int
    ready: int
    rolling: bool
    down: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    held: bool = False
    outdated: tuple[str, ...] = ()

    @property
    def moving(self) -> bool:
        """Return whether Kubernetes may take any of its pods down at any moment."""
        return self.rolling and not self.held

    @property
    def trying(self) -> tuple[str, ...]:
        """Return the pods that are not ready though there is no newer template for them."""
        return tuple(pod for pod in self.down if pod not in self.outdated)

    @property
    def whole(self) -> bool:
        """Return whether all its pods are ready and as they should be."""
        return not self.down and not self.rolling


def domains(world: World, states: Sequence[RingState]) -> dict[str, Domain]:
    """Return all StatefulSets with data: those that exist, and those whose pods have partitions."""
    rings = published(states)
    by_pod: dict[str, list[tuple[Published, str]]] = {}
    for ring in rings:
        for device in ring.assigned:
            by_pod.setdefault(pod_of(device), []).append((ring, device))
    live = [one for (kind, _), one in sorted(world.children.items()) if kind == STATEFUL_SET.kind]
    pods = {name_of(pod): pod for pod in world.pods}
    found = (one for one in live if labels_of(one).get(COMPONENT_LABEL) in _DATA)
    there = {name_of(one): _domain(world, one, by_pod, pods) for one in found}
    return there | _missing(by_pod, there)


def _missing(by_pod: Mapping[str, Sequence[tuple[Published, str]]], there: Collection[str]) -> dict[str, Domain]:
    """Return StatefulSets that are gone although their pods have partitions."""
    gone: dict[str, list[str]] = {}
    for pod in sorted(by_pod):
        if (name := pod.rpartition("-")[0]) not in there:
            gone.setdefault(name, []).append(pod)
    return {
        name: Domain(name, _component(by_pod[pods[0]]), None, 0, 0, rolling=False, down=tuple(pods))
        for name, pods in gone.items()
    }


def _component(devices: Sequence[tuple[Published, str]]) -> str:
    return CONTAINER if any(device.endswith(f"/{DATABASE_DEVICE}") for _, device in devices) else STORAGE


def published(states: Iterable[RingState]) -> tuple[Published, ...]:
    """Return the rings that the services have, as far as they are of this cluster's own devices."""
    return tuple(state.published.own for state in states if state.published is not None)


def _domain(
    world: World,
    live: Manifest,
    by_pod: Mapping[str, Sequence[tuple[Published, str]]],
    pods: Mapping[str, Manifest],
) -> Domain:
    status: dict[str, Any] = live.get("status") or {}
    replicas = int(live["spec"].get("replicas") or 0)
    ready = int(status.get("readyReplicas") or 0)
    names = [f"{name_of(live)}-{ordinal}" for ordinal in range(replicas)]
    cut = [pod for pod in sorted(by_pod) if pod.rpartition("-")[0] == name_of(live) and pod not in names]
    since = {name: ready_since_s(pods.get(name)) for name in names}
    away = [name for name in names if since[name] is None]
    # A pod without partitions need not be up: it is empty, drained, or has never been in a ring.
    idle = {name for name in away if by_pod and name not in by_pod}
    down = [name for name in away if name not in idle]
    if not down and ready + len(idle) < replicas:
        # The StatefulSet was read after its pods and may know more.
        down = [f"a pod of {name_of(live)}"]
    old = int(status.get("observedGeneration") or 0) < int(live["metadata"].get("generation") or 0)
    changing = status.get("updateRevision") != status.get("currentRevision")
    updated = int(status.get("updatedReplicas") or 0)
    outdated = [name_of(pod) for pod in older(pods, live).values()] if is_seen(live) else []
    # While the newest template equals the one before, the count of updated pods means nothing; the pods' labels tell.
    changing = (changing and updated + len(idle) < replicas) or any(pod not in idle for pod in outdated)
    late = [
        name for name in names if since[name] is not None and not _is_back(world, by_pod.get(name, ()), since[name])
    ]
    return Domain(
        name=name_of(live),
        component=labels_of(live)[COMPONENT_LABEL],
        zone=labels_of(live).get(ZONE_LABEL),
        replicas=replicas,
        ready=ready,
        rolling=old or changing,
        down=(*down, *cut),
        behind=tuple(late),
        stale=tuple(name for name in late if not _is_back(world, by_pod.get(name, ()), since[name], any_ring=True)),
        silent=tuple(name for name in late if not world.reports.get(name)),
        held=is_held(pods, live),
        outdated=tuple(outdated),
    )


def _is_back(
    world: World, devices: Iterable[tuple[Published, str]], since_s: int | None, *, any_ring: bool = False
) -> bool:
    """Return whether a pod's devices have been in sync since it became ready."""
    since_s = since_s or 0
    return all(
        caught_up(
            ring_report(world, device, ring.ring),
            0 if any_ring else ring.version,
            since_s if any_ring else max(since_s, ring.since_s),
        )
        for ring, device in devices
    )


def replicas_to_keep(
    world: World, groups: Iterable[Group], live: Mapping[str, Domain], states: Sequence[RingState]
) -> dict[str, int]:
    """Return the replicas of groups that would shrink: as many as have a device in some ring, or may still be written
    to.
    """
    unclear = any(state.outcome is None or state.changed for state in states)
    members = {pod_of(name) for state in states if state.outcome is not None for name in state.outcome.present}
    kept = {}
    for group in groups:
        now = live[group.name].replicas if group.name in live else 0
        if now <= group.replicas:
            continue
        going = [group.pod(ordinal) for ordinal in range(group.replicas, now)]
        needed = [ordinal + 1 for ordinal in range(group.replicas, now) if group.pod(ordinal) in members]
        # Before a pod is deleted, a ring without its device must be published, and in use everywhere.
        wait = unclear or bool(awaited_services(world, going, states))
        kept[group.name] = now if wait else max([group.replicas, *needed])
    return {name: count for name, count in kept.items() if count > 0}


def left_over(
    world: World, groups: Iterable[Group], live: Mapping[str, Domain], states: Sequence[RingState]
) -> set[str]:
    """Return StatefulSets that the spec no longer has but that still have a device in some ring, or may have."""
    named = {group.name for group in groups}
    gone = set(live) - named
    if any(state.outcome is None or state.changed for state in states):
        return gone
    members = {pod_of(name) for state in states if state.outcome for name in state.outcome.present}
    return {
        name
        for name in gone
        if any(pod.rpartition("-")[0] == name for pod in members) or awaited_services(world, _pods(live[name]), states)
    }


def _pods(domain: Domain) -> list[str]:
    return [f"{domain.name}-{ordinal}" for ordinal in range(domain.replicas)]


def awaited_services(world: World, going: Collection[str], states: Sequence[RingState]) -> list[str]:
    """Return pods that serve and may still write to pods that go, and members of the federation that have such; none
    when a person allowed those to go.
    """
    if set(going) <= allowed_pods(world):
        return []
    versions = {ring.ring: ring.version for ring in published(states)}
    return [*late_services(world, versions), *late_members(world, versions)]


def leaving_pods(groups: Iterable[Group], live: Mapping[str, Domain]) -> list[str]:
    """Return pods that the spec no longer has."""
    counts = {group.name: group.replicas for group in groups}
    return sorted(
        f"{one.name}-{ordinal}" for one in live.values() for ordinal in range(counts.get(one.name, 0), one.replicas)
    )


def carrying(states: Sequence[RingState]) -> frozenset[str]:
    """Return pods that have partitions."""
    return pods_with_partitions(published(states))
