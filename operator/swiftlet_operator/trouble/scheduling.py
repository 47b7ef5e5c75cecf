"""Pods without a node: what the scheduler says, and which field it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swiftlet_operator.manifests import TOPOLOGY_ZONE, Manifest, labels_of, name_of, named
from swiftlet_operator.trouble.places import fits, names_a_node, terms_of, wanted_labels, zone_wanted
from swiftlet_operator.trouble.seen import Part, Seen, part_of, pod_of_claim
from swiftlet_operator.trouble.words import Trouble, sentence

_TAINT = re.compile(r"untolerated taint(?:\(s\))?(?: \{([^}:]*)[^}]*\})?")
_STATES = "node.kubernetes.io/"
"""Prefix of taints that describe a node's state: tolerating them would not help."""
_CONTROL_PLANE = "node-role.kubernetes.io/"
"""Prefix of taints of machines that are not meant for a store: what is lacking are other nodes."""
_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]*\w)")
_UNBOUND = "unbound immediate PersistentVolumeClaims"


def trouble_of_place(pod: Manifest, message: str, seen: Seen) -> Trouble | None:
    """Return what keeps a pod from every node; None while it only waits for its volume, whose claim has its own
    trouble.
    """
    part = part_of(pod)
    # This is checked first: where no node suits both, no node matches the pod's own zone either.
    if found := _of_volume(pod, part, message, seen):
        return found
    zone = zone_wanted(pod)
    if zone is not None and seen.nodes and zone not in seen.zones():
        zones = f"those are {named(seen.zones())}" if seen.zones() else "no node has this label at all"
        advice = f"name zones that nodes have in {part.field}.zones ({zones}), or label nodes {TOPOLOGY_ZONE}={zone}"
        text = f"no node is in zone {zone}; the scheduler says: {message}"
        return _trouble("NoSuchZone", part, pod, text, advice)
    if _UNBOUND in message or not message:
        return None
    return _trouble("Unschedulable", part, pod, message, "; or ".join(_advice(message, part, pod)))


def _trouble(cause: str, part: Part, pod: Manifest, text: str, advice: str) -> Trouble:
    # The part about preemption is left out: it only repeats the number of nodes.
    return Trouble(cause, part, "Pod", name_of(pod), sentence(text.partition(" preemption: ")[0]), advice)


def _advice(message: str, part: Part, pod: Manifest) -> Iterator[str]:
    """Return the advice for the scheduler's reasons."""
    found = False
    for advice in (*_about_room(message, part), *_about_places(message, part, pod)):
        found = True
        yield advice
    if not found and _CONTROL_PLANE in message:
        yield f"add nodes, or let pods stand on those of the control plane by {part.field}.tolerations"
    elif not found:
        yield f"add nodes that fit, or change {part.field}"


def _about_room(message: str, part: Part) -> Iterator[str]:
    lacking = sorted(set(_INSUFFICIENT.findall(message)))
    if devices := [one for one in lacking if "/" in one]:
        yield f"see that nodes offer {named(devices)}, or change {part.field}.rdma"
    if room := [one for one in lacking if "/" not in one]:
        yield f"lower {part.field}.resources (requests of {named(room)}), or add nodes"
    if "Too many pods" in message:
        yield "add nodes"
    if "max volume count" in message:
        yield "add nodes, for these can attach no more volumes"


def _about_places(message: str, part: Part, pod: Manifest) -> Iterator[str]:
    if "node affinity/selector" in message:
        selected = pod["spec"].get("nodeSelector") or {}
        labels = ", ".join(f"{key}={value}" for key, value in sorted(selected.items()))
        where = "nodeSelector" if selected else "zones"
        yield f"change {part.field}.{where}, or label nodes{f' {labels}' if labels else ''}"
    if "anti-affinity" in message:
        yield "add nodes, or set spec.placement to preferred"
    yield from _about_taints(message, part)


def _about_taints(message: str, part: Part) -> Iterator[str]:
    taints = set(_TAINT.findall(message))
    states = {taint.partition("/")[2] for taint in taints if taint.startswith(_STATES)}
    if "were unschedulable" in message or "unschedulable" in states:
        yield "uncordon nodes"
    if lacking := sorted(one.removesuffix("-pressure") for one in states if one.endswith("-pressure")):
        yield f"free {' and '.join(lacking)} on the nodes that say so"
    if states & {"not-ready", "unreachable", "network-unavailable"}:
        yield "bring back the nodes that are not ready"
    if chosen := sorted(taint for taint in taints if not taint.startswith((_STATES, _CONTROL_PLANE))):
        named_taints = f"the taint {named(chosen)}" if chosen != [""] else "the taint"
        yield f"add {named_taints} to {part.field}.tolerations, or remove it from nodes"


def _of_volume(pod: Manifest, part: Part, message: str, seen: Seen) -> Trouble | None:
    """Return the trouble of a pod whose volume is where no node may be used, or where the pod may not be."""
    for claim in seen.claims:
        volume = seen.volumes.get(str(claim["spec"].get("volumeName") or ""))
        if pod_of_claim(claim) != name_of(pod) or volume is None or not (terms := terms_of(volume)):
            continue
        near = [node for node in seen.nodes if any(fits(node, term) for term in terms)]
        if not near and any(map(names_a_node, terms)):
            advice = "bring the node back; spec.replaceLostNodesAfterSeconds says when the pod is made anew elsewhere"
            text = f"the node of the volume of claim {name_of(claim)} is not there; the scheduler says: {message}"
            return _trouble("NodeLost", part, pod, text, advice)
        if found := _relabelled(pod, part, message, claim, volume, near):
            return found
    return None


def _relabelled(
    pod: Manifest, part: Part, message: str, claim: Manifest, volume: Manifest, near: list[Manifest]
) -> Trouble | None:
    wanted = wanted_labels(terms_of(volume))
    zone = zone_wanted(pod)
    if not near:
        label = next((f"{key}={value}" for key, value in sorted(wanted.items())), "what the volume asks for")
        text = f"the volume of claim {name_of(claim)} is where nodes have {label}, and no node has that now"
        which = "the node that had it"
    elif zone is not None and not any(labels_of(node).get(TOPOLOGY_ZONE) == zone for node in near):
        label = f"{TOPOLOGY_ZONE}={zone}"
        now = labels_of(near[0]).get(TOPOLOGY_ZONE)
        which = name_of(near[0])
        text = f"the pod must be in zone {zone}, but node {which} with the volume of claim {name_of(claim)} is in "
        text += f"zone {now} now" if now else "no zone now"
    else:
        return None
    advice = (
        f"label {which} {label} again, or delete claim {name_of(claim)} and the pod, so that it fills from its peers "
        "elsewhere (one pod at a time)"
    )
    return _trouble("NodeRelabelled", part, pod, f"{text}; the scheduler says: {message}", advice)
