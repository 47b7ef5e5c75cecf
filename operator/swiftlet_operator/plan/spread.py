"""What the loss of one node, zone or region would take away: the condition `ReplicasSpread`.

A ring spreads replicas over the zones and nodes of its devices, but pods may be elsewhere by now, or all on one node.
So each ring's table is checked against the places where the pods are. A node must not have the last replica of any
partition, nor the majority. Of zones and regions as much is required as their number allows: with two zones one of them
has the majority of three replicas, which is reported without being a fault.

With erasure coding no node may have more fragments of an object than parity restores. That the others acknowledge
writes by themselves is required as far as the number of nodes allows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from swiftlet.crd import Fact
from swiftlet.ring.model import Coding
from swiftlet_operator.manifests import TOPOLOGY_REGION, TOPOLOGY_ZONE, labels_of, name_of
from swiftlet_operator.plan.federation import node_name
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.sync import pod_of
from swiftlet_operator.rings import combinations, spare
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
    """The loss that one place causes in a ring: partitions left without a replica, or with fewer fragments than it
    takes to read, and those left without a quorum.
    """

    place: str
    ring: str
    partitions: int
    emptied: int
    outvoted: int
    coding: Coding | None = None


def replicas_spread(world: World, states: Sequence[RingState]) -> Fact:
    """Return whether every partition stays readable and writable after the loss of any one place."""
    rings = [state for state in states if state.before is not None and not state.problem]
    if not rings:
        return Fact(TYPE, "Unknown", "NotObserved", "there is no ring yet")
    asides = []
    for level, place_of in kinds_of_places(world, states).items():
        losses = [loss for state in rings for loss in _losses(state, place_of)]
        names = {place_of(device) for state in rings for device in _devices(state)}
        faults = [loss for loss in losses if _is_fault(level, loss, rings, len(names))]
        worst = max(faults or losses, key=lambda one: (one.emptied, one.outvoted, one.ring, one.place), default=None)
        if worst is None:
            continue
        if faults:
            reason = f"One{level.capitalize()}TakesAll" if worst.emptied else f"One{level.capitalize()}TakesMajority"
            return Fact(TYPE, "False", reason, f"{_said(level, worst)}: {_ADVICE[level]}")
        asides.append(_said(level, worst))
    more = f"; {'; '.join(asides)}" if asides else ""
    coded = ", or more fragments than may be lost" if any(state.task.shape.coding for state in rings) else ""
    return Fact(TYPE, "True", "Spread", f"no node has the majority of any partition's replicas{coded}{more}")


def may_be_lost(state: RingState, place_of: Callable[[str], str]) -> int:
    """Return how many places may be lost at once, whichever they are, while all objects of a ring stay readable."""
    assert state.before is not None
    table = combinations(state.task.ring, state.before.builder)
    return min((_survived(map(place_of, devices), state.task.shape.losable) for devices in table), default=0)


def _survived(places: Iterable[str], losable: int) -> int:
    """Return how many of these places, those with most replicas first, have no more than may be lost."""
    lost = found = 0
    for _, count in Counter(places).most_common():
        lost += count
        if lost > losable:
            return found
        found += 1
    return found


def is_served(state: RingState, is_away: Callable[[str], bool], more: int = 0) -> bool:
    """Return whether objects with erasure coding are read and written without the devices that are away, and `more`
    that may be any: every partition has fragments enough, and there are devices enough for a write.
    """
    coding = state.task.shape.coding
    if coding is None or state.before is None or state.published is None:
        return True
    table = combinations(state.task.ring, state.before.builder)
    there = sum(not is_away(device) for device in state.published.assigned) - more
    readable = all(sum(map(is_away, devices)) + more <= coding.parity for devices in table)
    return readable and there >= coding.quorum


def takes_too_many(states: Sequence[RingState], is_away: Callable[[str], bool]) -> bool:
    """Return whether some partition has no quorum without the devices that are away; one replica may always be."""
    return any(
        sum(map(is_away, devices)) > max(1, spare(len(devices), state.task.shape.coding))
        for state in states
        if state.before is not None and not state.problem
        for devices in combinations(state.task.ring, state.before.builder)
    )


def _said(level: str, loss: _Loss) -> str:
    if loss.coding is None:
        what = f"all replicas of {loss.emptied}" if loss.emptied else f"the majority of the replicas of {loss.outvoted}"
    elif loss.emptied:
        what = (
            f"more than {loss.coding.parity} fragments, the most that may be lost with {loss.coding}, of {loss.emptied}"
        )
    else:
        what = f"so many fragments that writes need stand-ins without it, of {loss.outvoted}"
    return f"{level} {loss.place} has {what} of {loss.partitions} partitions of ring {loss.ring}"


def _is_fault(level: str, loss: _Loss, rings: Sequence[RingState], places: int) -> bool:
    if level == "node" and (loss.coding is None or loss.emptied):
        return True
    return _avoidable(loss, rings, places)


def _avoidable(loss: _Loss, rings: Sequence[RingState], places: int) -> bool:
    """Return whether with so many places none would have to take as much."""
    if places < 2:
        return False
    shape = next(state.task.shape for state in rings if state.task.ring == loss.ring)
    if loss.emptied and loss.coding is not None:
        return places * shape.losable >= shape.replicas
    return bool(loss.emptied) or (shape.spare > 0 and places * shape.spare >= shape.replicas)


def kinds_of_places(world: World, states: Iterable[RingState]) -> dict[str, Callable[[str], str]]:
    """Return functions that tell where a device is, by kind of place. A pod without a node shares its place with no
    other. Devices of other members of a federation are where the rings say.
    """
    if world.cluster.spec.federation is not None:
        return _places_of_members(world, states)
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


def _places_of_members(world: World, states: Iterable[RingState]) -> dict[str, Callable[[str], str]]:
    nodes: dict[str, str] = {}
    zones: dict[str, str] = {}
    regions: dict[str, str] = {}
    for ring in (state.published for state in states):
        if ring is not None:
            nodes |= ring.nodes
            zones |= {name: f"{ring.regions[name]}/{zone}" for name, zone in ring.zones.items()}
            regions |= ring.regions
    live = {name_of(pod): pod["spec"].get("nodeName") for pod in world.pods}

    def node_of(device: str) -> str:
        node = live.get(pod_of(device))
        return node_name(world, node) if node else nodes.get(device, pod_of(device))

    return {"node": node_of, "zone": lambda one: zones.get(one, one), "region": lambda one: regions.get(one, one)}


def _devices(state: RingState) -> frozenset[str]:
    return state.published.assigned if state.published is not None else frozenset()


def _losses(state: RingState, place_of: Callable[[str], str]) -> Iterator[_Loss]:
    assert state.before is not None
    places = tuple(sorted((device, place_of(device)) for device in _devices(state)))
    return iter(_taken(state.task.ring, state.before.builder, places, state.task.shape.coding))


@lru_cache(maxsize=_REMEMBERED)
def _taken(ring: str, builder: bytes, places: tuple[tuple[str, str], ...], coding: Coding | None) -> tuple[_Loss, ...]:
    """Return what each place takes away, where that is anything; kept, as a cluster at rest is looked at often."""
    where: Mapping[str, str] = dict(places)
    emptied: Counter[str] = Counter()
    outvoted: Counter[str] = Counter()
    table = combinations(ring, builder)
    for devices, partitions in table.items():
        there = Counter(where[device] for device in devices)
        for place, count in there.items():
            if count == len(devices) or (coding is not None and count > coding.parity):
                emptied[place] += partitions
            elif count > spare(len(devices), coding):
                outvoted[place] += partitions
    total = sum(table.values())
    return tuple(_Loss(one, ring, total, emptied[one], outvoted[one], coding) for one in sorted(emptied | outvoted))
