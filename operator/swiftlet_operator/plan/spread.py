"""What the loss of one node, zone or region would take away: the condition `ReplicasSpread`.

A ring spreads replicas over the zones and nodes of its devices, but pods may be elsewhere by now, or all on one node.
So each ring's table is checked against the places where the pods are. A node must not have the last replica of any
partition, nor the majority. Of zones and regions as much is required as their number allows: with two zones one of them
has the majority of three replicas, which is reported without being a fault.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from swiftlet.crd import Fact
from swiftlet_operator.manifests import TOPOLOGY_REGION, TOPOLOGY_ZONE, labels_of, name_of
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.sync import pod_of
from swiftlet_operator.rings import combinations
from swiftlet_operator.world import World

TYPE = "ReplicasSpread"
_REMEMBERED = 64
"""For how many rings, times three kinds of places, the last result is kept."""
_ADVICE = {
    "node": "add nodes, or free them for its pods (nodeSelector, tolerations), then delete a pod of that node; "
    "spec.placement: required lets no two pods of a pool share a node",
    "zone": "name more zones in the pools' and the container servers' zones",
    "region": "give a pool in another region more weight",
}


@dataclass(frozen=True, slots=True)
class _Loss:
    """The loss that one place causes in a ring: partitions left without a replica, and those left without a
    majority.
    """

    place: str
    ring: str
    partitions: int
    emptied: int
    outvoted: int


def replicas_spread(world: World, states: Sequence[RingState]) -> Fact:
    """Return whether every partition stays readable and writable after the loss of any one place."""
    rings = [state for state in states if state.before is not None and not state.problem]
    if not rings:
        return Fact(TYPE, "Unknown", "NotObserved", "there is no ring yet")
    asides = []
    for level, place_of in _levels(world).items():
        losses = [loss for state in rings for loss in _losses(state, place_of)]
        worst = max(losses, key=lambda one: (one.emptied, one.outvoted, one.ring, one.place), default=None)
        if worst is None:
            continue
        names = {place_of(device) for state in rings for device in _devices(state)}
        if level == "node" or _avoidable(worst, rings, len(names)):
            reason = f"One{level.capitalize()}TakesAll" if worst.emptied else f"One{level.capitalize()}TakesMajority"
            return Fact(TYPE, "False", reason, f"{_said(level, worst)}: {_ADVICE[level]}")
        asides.append(_said(level, worst))
    more = f"; {'; '.join(asides)}" if asides else ""
    return Fact(TYPE, "True", "Spread", f"no node has the majority of any partition's replicas{more}")


def takes_too_many(states: Sequence[RingState], is_away: Callable[[str], bool]) -> bool:
    """Return whether some partition has no majority without the devices that are away; one replica may always be."""
    return any(
        sum(map(is_away, devices)) > max(1, _spare(len(devices)))
        for state in states
        if state.before is not None and not state.problem
        for devices in combinations(state.task.ring, state.before.builder)
    )


def _said(level: str, loss: _Loss) -> str:
    what = f"all replicas of {loss.emptied}" if loss.emptied else f"the majority of the replicas of {loss.outvoted}"
    return f"{level} {loss.place} has {what} of {loss.partitions} partitions of ring {loss.ring}"


def _avoidable(loss: _Loss, rings: Sequence[RingState], places: int) -> bool:
    """Return whether with so many places none would have to take as much."""
    if places < 2:
        return False
    replicas = next(state.task.shape.replicas for state in rings if state.task.ring == loss.ring)
    spare = _spare(math.ceil(replicas))
    return bool(loss.emptied) or (spare > 0 and places * spare >= replicas)


def _spare(replicas: int) -> int:
    """Return how many replicas may be lost while a majority is left."""
    return (replicas - 1) // 2


def _levels(world: World) -> dict[str, Callable[[str], str]]:
    """Return functions that tell where a device is, by kind of place. A pod without a node shares its place with no
    other.
    """
    nodes = {name_of(pod): str(pod["spec"].get("nodeName") or name_of(pod)) for pod in world.pods}
    labels = {name_of(node): labels_of(node) for node in world.nodes}

    def node_of(device: str) -> str:
        return nodes.get(pod_of(device), pod_of(device))

    def labelled(label: str) -> Callable[[str], str]:
        return lambda device: labels.get(node_of(device), {}).get(label) or "without a name"

    found: dict[str, Callable[[str], str]] = {"node": node_of}
    for level, label in (("zone", TOPOLOGY_ZONE), ("region", TOPOLOGY_REGION)):
        if any(label in one for one in labels.values()):
            found[level] = labelled(label)
    return found


def _devices(state: RingState) -> frozenset[str]:
    return state.published.assigned if state.published is not None else frozenset()


def _losses(state: RingState, place_of: Callable[[str], str]) -> Iterator[_Loss]:
    assert state.before is not None
    places = tuple(sorted((device, place_of(device)) for device in _devices(state)))
    return iter(_taken(state.task.ring, state.before.builder, places))


@lru_cache(maxsize=_REMEMBERED)
def _taken(ring: str, builder: bytes, places: tuple[tuple[str, str], ...]) -> tuple[_Loss, ...]:
    """Return what each place takes away, where that is anything; kept, as a cluster at rest is looked at often."""
    where: Mapping[str, str] = dict(places)
    emptied: Counter[str] = Counter()
    outvoted: Counter[str] = Counter()
    table = combinations(ring, builder)
    for devices, partitions in table.items():
        there = Counter(where[device] for device in devices)
        for place, count in there.items():
            if count == len(devices):
                emptied[place] += partitions
            elif count > _spare(len(devices)):
                outvoted[place] += partitions
    total = sum(table.values())
    return tuple(_Loss(one, ring, total, emptied[one], outvoted[one]) for one in sorted(emptied | outvoted))
