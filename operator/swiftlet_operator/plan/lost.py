"""Pods whose node is gone for good: what is deleted so that their StatefulSets make them anew. Pure.

Fault model: a node that is only down, or comes back within the time, costs nothing: its Node object stays or returns,
and the mark on the claims is removed. Volumes that belong to a zone rather than to a node are not lost with a node.
When the API server shows no node at all, nothing counts as lost. Only one failure domain is ever replaced at a time:
while another is incomplete or behind, deleting could remove the last copy, so a person decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    NODE_LOST_SINCE,
    PVC,
    STATEFUL_SET,
    ZONE_LABEL,
    Manifest,
    annotations_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.federation import others_troubled
from swiftlet_operator.plan.sync import Published, has_all, is_ready, pod_of, ring_report, seconds
from swiftlet_operator.rings import named
from swiftlet_operator.trouble.places import fits, names_a_node, terms_of
from swiftlet_operator.world import World

UNCLAIMED_S = 60
"""Seconds after which a pod that waits for a missing claim is deleted, as only a new pod gets a new claim."""
_DATA = frozenset({"storage", "container"})


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod on a node that is gone, or whose volumes are on one, since `since_s`.

    `claims` are all of the pod's claims, `doomed` those whose volumes are lost with the node.
    """

    pod: str
    manifest: Manifest | None
    since_s: int
    claims: tuple[Manifest, ...]
    doomed: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Replacing:
    """What is done about lost nodes: marks on claims, claims to delete, pods to delete at once, and what is
    reported.
    """

    lost: tuple[Lost, ...] = ()
    marks: tuple[Patch, ...] = ()
    delete: tuple[Manifest, ...] = ()
    force: tuple[Manifest, ...] = ()
    message: str = ""
    again_in_s: float | None = None


def lost_pods(world: World) -> tuple[Lost, ...]:
    """Return all pods with data whose node or volumes are gone."""
    if not world.nodes:
        return ()
    claims: dict[str, list[Manifest]] = {}
    for claim in world.claims:
        claims.setdefault(name_of(claim).partition("-")[2], []).append(claim)
    pods = {name_of(pod): pod for pod in world.pods}
    nodes = {name_of(node) for node in world.nodes}
    found = []
    for pod in sorted(_wanted(world.children.values())):
        manifest = pods.get(pod)
        if manifest is not None and manifest["spec"].get("nodeName") in nodes:
            continue
        lost = _lost(world, pod, manifest, claims.get(pod, []))
        if lost is not None:
            found.append(lost)
    return tuple(found)


def _lost(world: World, pod: str, manifest: Manifest | None, claims: Sequence[Manifest]) -> Lost | None:
    """Return the loss of a pod that is on no existing node, if it or its volumes were on one that is gone."""
    node = manifest["spec"].get("nodeName") if manifest is not None else None
    doomed = tuple(claim for claim in claims if _stands_on_lost_node(world, claim))
    if not node and not doomed:
        return None
    marks = [seconds(annotations_of(claim).get(NODE_LOST_SINCE)) for claim in claims]
    since_s = min([mark for mark in marks if mark], default=world.now_s)
    return Lost(pod, manifest, since_s, tuple(claims), doomed)


def replacing(world: World, rings: Sequence[Published]) -> Replacing:
    """Return what to do now about pods whose node is gone."""
    lost = lost_pods(world)
    marks = _marks(world, lost)
    unclaimed = _unclaimed(world)
    patience_s = world.cluster.spec.replace_lost_nodes_after_seconds
    if not lost:
        return Replacing(marks=marks, force=unclaimed)
    names = [one.pod for one in lost]
    first = f"the node of {named(names)} is gone"
    if world.cluster.spec.maintenance is not None:
        return Replacing(lost, marks, force=unclaimed, message=f"{first}; nothing is replaced during maintenance")
    if patience_s == 0:
        message = f"{first}; spec.replaceLostNodesAfterSeconds is 0, so delete their claims and pods yourself"
        return Replacing(lost, marks, force=unclaimed, message=message)
    due = [one for one in lost if one.since_s + patience_s <= world.now_s]
    # Pods whose volumes are elsewhere lose nothing, but a StatefulSet waits until the lost node confirms their end.
    force = (*(one.manifest for one in due if one.manifest is not None and not one.doomed), *unclaimed)
    if not due:
        at_s = min(one.since_s for one in lost) + patience_s
        when = rfc3339(datetime.fromtimestamp(at_s, UTC))
        message = f"{first}; unless it returns they are made anew after {when}"
        return Replacing(lost, marks, force=unclaimed, message=message, again_in_s=float(at_s - world.now_s))
    doomed = [one for one in due if one.doomed]
    if doomed and (against := _against(world, rings, lost)):
        message = f"{first}; they are not made anew because {against}"
        return Replacing(lost, marks, force=force, message=message)
    claims = [(one, claim) for one in doomed for claim in one.doomed if not claim["metadata"].get("deletionTimestamp")]
    # A new pod that waits for the deletion of the old claim is left alone.
    with_pods = {one.pod for one, _ in claims} | {one.pod for one in doomed if _is_scheduled(one)}
    force += tuple(one.manifest for one in doomed if one.manifest is not None and one.pod in with_pods)
    message = f"{first}; they are being made anew elsewhere"
    return Replacing(lost, marks, tuple(claim for _, claim in claims), force, message)


def _is_scheduled(lost: Lost) -> bool:
    return lost.manifest is not None and bool(lost.manifest["spec"].get("nodeName"))


def _against(world: World, rings: Iterable[Published], lost: Sequence[Lost]) -> str:
    """Return why nothing may be replaced now; empty when nothing forbids it."""
    if troubled := others_troubled(world):
        return troubled
    rings = tuple(rings)
    domains = {pod_of(device): zone for ring in rings for device, zone in ring.zones.items()}
    mine = {_domain(world, one, domains) for one in lost}
    if len(mine) > 1:
        return f"nodes of several failure domains are gone ({named(sorted(mine))}): see which can be brought back first"
    gone = {one.pod for one in lost}
    late = set()
    for ring in rings:
        for device in ring.assigned:
            pod = pod_of(device)
            if pod in gone or domains[pod] in mine:
                continue
            report = ring_report(world, device, ring.ring)
            if not is_ready(world.pod(pod)) or not has_all(report, ring.version):
                late.add(pod)
    return f"{named(sorted(late))} in another failure domain is not ready or not in sync" if late else ""


def _domain(world: World, lost: Lost, domains: Mapping[str, str]) -> str:
    """Return the zone of a lost pod; the pod's own name when the zone is not known."""
    labels = labels_of(lost.manifest) if lost.manifest is not None else {}
    return labels.get(ZONE_LABEL) or domains.get(lost.pod) or lost.pod


def _marks(world: World, lost: Sequence[Lost]) -> tuple[Patch, ...]:
    """Return patches that record the time of the loss on the claims, where it outlives the operator, or remove it when
    the node is back.
    """
    marked = {name_of(claim): one.since_s for one in lost for claim in one.claims}
    patches = []
    for claim in world.claims:
        name = name_of(claim)
        wanted = rfc3339(datetime.fromtimestamp(marked[name], UTC)) if name in marked else None
        if annotations_of(claim).get(NODE_LOST_SINCE) != wanted:
            patches.append(Patch(PVC, name, {"metadata": {"annotations": {NODE_LOST_SINCE: wanted}}}))
    return tuple(patches)


def _unclaimed(world: World) -> tuple[Manifest, ...]:
    """Return pods that can never be scheduled because one of their claims is gone."""
    claims = {name_of(claim) for claim in world.claims}
    found = []
    for pod in world.pods:
        owner = world.child(STATEFUL_SET, name_of(pod).rpartition("-")[0])
        if not _has_data(pod) or owner is None or pod["spec"].get("nodeName"):
            continue
        age_s = world.now_s - seconds(pod["metadata"].get("creationTimestamp"))
        templates = owner["spec"].get("volumeClaimTemplates") or []
        if age_s >= UNCLAIMED_S and any(f"{name_of(one)}-{name_of(pod)}" not in claims for one in templates):
            found.append(pod)
    return tuple(found)


def _has_data(pod: Manifest) -> bool:
    return labels_of(pod).get(COMPONENT_LABEL) in _DATA


def needs_volumes(children: Iterable[Manifest], pods: Iterable[Manifest], nodes: Collection[str]) -> set[str]:
    """Return the pods with data that have no existing node: only their volumes are looked at."""
    where = {name_of(pod): pod["spec"].get("nodeName") for pod in pods}
    return {pod for pod in _wanted(children) if where.get(pod) not in nodes}


def _wanted(children: Iterable[Manifest]) -> set[str]:
    """Return the names of the pods that StatefulSets with data should have."""
    return {
        f"{name_of(one)}-{ordinal}"
        for one in children
        if one["kind"] == STATEFUL_SET.kind and _has_data(one)
        for ordinal in range(int(one["spec"].get("replicas") or 0))
    }


def _stands_on_lost_node(world: World, claim: Manifest) -> bool:
    volume = world.volumes.get(str(claim["spec"].get("volumeName") or ""))
    if volume is None:
        return False
    terms = terms_of(volume)
    bound = bool(terms) and all(names_a_node(term) for term in terms)
    return bound and not any(fits(node, term) for term in terms for node in world.nodes)
