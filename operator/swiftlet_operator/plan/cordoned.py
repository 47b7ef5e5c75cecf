"""Which nodes are being emptied, and what the disruption budget of pods with data remembers of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftlet_operator.build.names import data_budget
from swiftlet_operator.build.site import CONTAINER, STORAGE
from swiftlet_operator.manifests import BUDGET, COMPONENT_LABEL, CORDONS, Manifest, annotations_of, labels_of, name_of
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

LEAVING = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
    }
)
"""Taints of nodes that are about to be emptied."""
_DATA = frozenset({STORAGE, CONTAINER})


@dataclass(frozen=True, slots=True)
class Cordon:
    """A node that pods with data are to leave: since when, its failure domain, and the pods that were on it.

    `forgotten`: the domain was open, and no pod left.
    """

    since_s: int
    domain: str
    pods: frozenset[str]
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What the budget's annotation says: nodes, the domain whose turn it is, and when something last happened there."""

    nodes: Mapping[str, Cordon]
    domain: str = ""
    touched_s: int = 0


def is_leaving(node: Manifest) -> bool:
    """Return whether somebody is about to empty the node."""
    spec = node.get("spec") or {}
    return bool(spec.get("unschedulable")) or any(taint.get("key") in LEAVING for taint in spec.get("taints") or [])


def remembered(world: World) -> Memory:
    """Return the cordons that an annotation of the live budget records; empty when it cannot be read."""
    live = world.child(BUDGET, data_budget(world.cluster.meta.name))
    try:
        said = json.loads(annotations_of(live or {"metadata": {}}).get(CORDONS) or "{}")
        nodes = {
            str(name): Cordon(int(one["since"]), str(one["domain"]), frozenset(one["pods"]), bool(one.get("forgotten")))
            for name, one in said.get("nodes", {}).items()
        }
        return Memory(nodes, str(said.get("domain") or ""), int(said.get("touched") or 0))
    except (ValueError, LookupError, TypeError, AttributeError):
        return Memory({})


def noted(memory: Memory) -> str:
    if not memory.nodes:
        return ""
    nodes = {
        name: {"since": one.since_s, "domain": one.domain, "pods": sorted(one.pods)}
        | ({"forgotten": True} if one.forgotten else {})
        for name, one in sorted(memory.nodes.items())
    }
    said: dict[str, Any] = {"nodes": nodes}
    if memory.domain:
        said |= {"domain": memory.domain, "touched": memory.touched_s}
    return json.dumps(said, separators=(",", ":"))


def holds_rebalances(world: World) -> str:
    """Return why no partition may begin to move because of nodes; empty when none of them forbids it."""
    memory = remembered(world)
    fresh = [
        node
        for node in cordoned(world)
        if node not in memory.nodes or not memory.nodes[node].forgotten or memory.nodes[node].domain == memory.domain
    ]
    if memory.domain:
        return f"{memory.domain} is open for a drain"
    return f"{named(sorted(fresh))} is cordoned" if fresh else ""


def cordoned(world: World, stood: Mapping[str, str] | None = None) -> dict[str, frozenset[str]]:
    """Return the cordoned nodes that have pods with data, and those pods.

    `stood` has the last known nodes of pods that have none now: they may have been evicted already.
    """
    leaving = {name_of(node) for node in world.nodes if is_leaving(node)}
    found: dict[str, set[str]] = {}
    for pod in world.pods:
        node = pod["spec"].get("nodeName") or (stood or {}).get(name_of(pod))
        if node in leaving and labels_of(pod).get(COMPONENT_LABEL) in _DATA and not _is_over(pod):
            found.setdefault(str(node), set()).add(name_of(pod))
    return {node: frozenset(pods) for node, pods in found.items()}


def _is_over(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
