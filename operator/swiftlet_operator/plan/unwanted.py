"""Children of a cluster that are to be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swiftlet_operator.build.names import ring_map
from swiftlet_operator.build.site import PROXY
from swiftlet_operator.manifests import (
    BUDGET,
    CERTIFICATE,
    COMPONENT_LABEL,
    CONFIG_MAP,
    DEPLOYMENT,
    HTTP_ROUTE,
    INGRESS,
    NETWORK_POLICY,
    PROMETHEUS_RULE,
    RING_LABEL,
    SERVICE,
    SERVICE_MONITOR,
    STATEFUL_SET,
    Manifest,
    is_going,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.facts import proxy_pods
from swiftlet_operator.plan.retire import doomed
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.world import World

PRUNED = (
    SERVICE,
    STATEFUL_SET,
    DEPLOYMENT,
    BUDGET,
    NETWORK_POLICY,
    INGRESS,
    SERVICE_MONITOR,
    PROMETHEUS_RULE,
    HTTP_ROUTE,
    CERTIFICATE,
)
"""Kinds of which unwanted children are deleted. Secrets and ConfigMaps are not: they may hold the only copy of
something.
"""


def unwanted_children(
    asked: World,
    world: World,
    wanted: Sequence[Manifest],
    left: Iterable[str],
    states: Sequence[RingState],
) -> tuple[Manifest, ...]:
    """Return unwanted children, and those of retired policies; StatefulSets that are `left` over stay for now."""
    keep = {(kind_of(one).kind, name_of(one)) for one in wanted} | {(STATEFUL_SET.kind, name) for name in left}
    keep |= _still_serving(world, wanted)
    orphans = _orphans(world, keep, states)
    return (*orphans, *(one for one in doomed(asked) if one not in orphans and not is_going(one)))


def _still_serving(world: World, wanted: Sequence[Manifest]) -> set[tuple[str, str]]:
    """Return Deployments of proxies that clients need until each of those that are wanted has a ready pod."""
    coming = {
        name_of(one) for one in wanted if kind_of(one) == DEPLOYMENT and labels_of(one).get(COMPONENT_LABEL) == PROXY
    }
    serving = {name for name, ready in proxy_pods(world, "readyReplicas").items() if ready}
    return set() if coming <= serving else {(DEPLOYMENT.kind, name) for name in serving - coming}


def _orphans(world: World, keep: set[tuple[str, str]], states: Sequence[RingState]) -> tuple[Manifest, ...]:
    """Return children that are ours by owner and label and not wanted any more."""
    uid, cluster = world.cluster.meta.uid, world.cluster.meta.name
    prunable_kinds = {kind.kind for kind in PRUNED}
    chunks = {ring_map(cluster, state.task.ring, i) for state in states for i in range(state.chunks)}
    # The ring of a retired policy is deleted last (`swiftlet_operator.plan.retire`).
    later = {f"object-{index}" for index in world.retired}
    found = []
    for (kind, name), one in sorted(world.children.items()):
        ours = any(owner.get("uid") == uid for owner in one["metadata"].get("ownerReferences") or [])
        old_chunk = kind == CONFIG_MAP.kind and name.startswith(f"{cluster}-ring-") and name not in chunks
        old_chunk = old_chunk and labels_of(one).get(RING_LABEL) not in later
        prunable = kind in prunable_kinds or (old_chunk and all(state.outcome for state in states))
        if ours and prunable and (kind, name) not in keep and not is_going(one):
            found.append(one)
    return tuple(found)
