"""What the disruption budget of pods with data allows while nodes are being emptied. Pure.

At rest one pod of all that have data may be evicted at a time, while all are in sync. When nodes with such pods are
cordoned, their failure domain is opened: all its pods may be evicted, and none of any other domain, until the evicted
ones are back, ready and in sync. A domain is a zone where there are so many zones that none has the majority of a
partition's replicas, and a node otherwise.

Domains open one at a time, and only while everything outside is whole and in sync. The open domain, and the time at
which each node was cordoned, are kept in an annotation of the budget itself, so that both change in one write.

Fault model: a node may be cordoned and forgotten, uncordoned before its pods are back, or gone; a second domain may be
cordoned meanwhile; pods outside may fail while a domain is open, and then no further pod may be evicted until they are
back. An annotation that can't be read counts as missing: what is cordoned is opened anew.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from swiftlet.crd import Fact
from swiftlet_operator.manifests import TOPOLOGY_ZONE, ZONE_LABEL, labels_of, name_of
from swiftlet_operator.plan.cordoned import Cordon, Memory, cordoned, noted, remembered
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.spread import takes_too_many
from swiftlet_operator.plan.sync import pod_of
from swiftlet_operator.plan.workloads import Domain, published
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TYPE = "NodesCordoned"
FORGOTTEN_S = 3600
"""Seconds after which an open domain is closed when none of its pods has left: its cordon counts as forgotten."""
_TOUCHED_S = 300
"""How exactly the time of the last event in an open domain is kept, in seconds."""


@dataclass(frozen=True, slots=True)
class Disruptions:
    """What the budget is to say: pods that may be evicted freely, how many of all others may be away, and the memory.

    `hold` says why no restart and no rebalance may begin; it is empty when they may.
    """

    fact: Fact
    freed: tuple[str, ...] = ()
    allowed: int = 1
    note: str = ""
    hold: str = ""


class _Places:
    """Where pods with data are, and what is wrong with them."""

    def __init__(self, world: World, states: Sequence[RingState], live: Mapping[str, Domain]) -> None:
        self._world = world
        self._live = live
        self._states = states
        rings = published(states)
        self._ring_zones = {pod_of(device): zone for ring in rings for device, zone in ring.zones.items()}
        self.stood = {pod_of(device): node for ring in rings for device, node in ring.nodes.items()}
        self._nodes = {name_of(node): labels_of(node) for node in world.nodes}
        self._pods = {name_of(pod): pod for pod in world.pods}
        self.by_zone = _zones_are_domains(states)

    def zone_of(self, pod: str) -> str | None:
        """Return the zone of a pod: the one that its StatefulSet is bound to, else that in rings, else its node's."""
        domain = self._live.get(pod.rpartition("-")[0])
        if domain is not None and domain.zone is not None:
            return domain.zone
        if pod in self._ring_zones:
            return self._ring_zones[pod]
        found = self._pods.get(pod)
        if found is None:
            return None
        bound = labels_of(found).get(ZONE_LABEL)
        return bound or self._nodes.get(str(found["spec"].get("nodeName")), {}).get(TOPOLOGY_ZONE)

    def domain_of(self, node: str, pods: Iterable[str]) -> str:
        zones = sorted({zone for pod in pods if (zone := self.zone_of(pod))}) if self.by_zone else []
        return f"zone {zones[0]}" if len(zones) == 1 else f"node {node}"

    def pods_of_zone(self, zone: str) -> frozenset[str]:
        """Return all pods that belong to a zone, including those that are away now."""
        every = {f"{one.name}-{ordinal}" for one in self._live.values() for ordinal in range(one.replicas)}
        every |= {pod for one in self._live.values() for pod in one.down if not pod.startswith("a pod of ")}
        return frozenset(pod for pod in every if self.zone_of(pod) == zone)

    def troubled(self, pods: Collection[str] | None = None, *, inside: bool) -> list[str]:
        """Return the pods that are away or behind and the StatefulSets that are being restarted, inside or outside of
        `pods`.
        """
        inner = {pod.rpartition("-")[0] for pod in pods or ()}
        found = []
        for one in self._live.values():
            # One that the StatefulSet alone knows of is where others of it are.
            away = [
                (pod, pod in (pods or ()) or (pod == f"a pod of {one.name}" and one.name in inner)) for pod in one.down
            ]
            away += [(pod, pod in (pods or ())) for pod in one.behind]
            found += [pod for pod, is_inside in away if is_inside == inside]
            if one.rolling and not inside:
                found.append(one.name)
        return sorted(set(found))

    def takes_too_many(self, pods: Collection[str]) -> bool:
        """Return whether some partition has no majority without these pods."""
        return takes_too_many(self._states, lambda device: pod_of(device) in pods)


def _zones_are_domains(states: Sequence[RingState]) -> bool:
    """Return whether a zone may be away: in no ring does it have more replicas of a partition than may be missing."""
    rings = [(state.task.shape, state.published) for state in states if state.published is not None]
    for shape, ring in rings:
        replicas, zones = math.ceil(shape.replicas), len(set(ring.zones.values()))
        if zones < 2 or math.ceil(replicas / zones) > max(1, shape.spare):
            return False
    return bool(rings)


def disruptions(
    world: World, states: Sequence[RingState], live: Mapping[str, Domain], *, has_data: bool
) -> Disruptions:
    """Return the failure domains that may be disrupted now."""
    if not has_data:
        return Disruptions(Fact(TYPE, "False", "NoneCordoned", "there is no data yet"))
    places = _Places(world, states, live)
    maintenance = world.cluster.spec.maintenance
    if maintenance is not None:
        return _by_hand(world, places, live, maintenance.zone)
    memory = _turn(world, places, _seen(world, places))
    rest = _at_rest(live)
    if not memory.nodes:
        return Disruptions(
            Fact(TYPE, "False", "NoneCordoned", "no node with data of this cluster is cordoned"), (), rest
        )
    note = noted(memory)
    if not memory.domain:
        return Disruptions(_forgotten(world, memory), (), rest, note)
    mine = _pods_of(memory, places, memory.domain)
    hold = f"{memory.domain} is being drained ({_nodes_of(memory, memory.domain)})"
    others = places.troubled(mine, inside=False)
    kind, _, _name = memory.domain.partition(" ")
    waiting = _waiting(memory)
    if others:
        message = f"{hold}: no more than one pod may go, for {named(others)} is not whole or not in sync{waiting}"
        return Disruptions(Fact(TYPE, "True", "NotInSync", message), (), rest, note, hold)
    if kind == "node" and places.takes_too_many(mine):
        message = f"{hold}: one pod may go at a time, for the node has the majority of some partitions{waiting}"
        return Disruptions(Fact(TYPE, "True", "OnePodAtATime", message), (), rest, note, hold)
    awaited = places.troubled(mine, inside=True)
    until = f"{named(awaited)} is back and in sync" if awaited else "they have been drained or uncordoned"
    message = f"{hold}: all its pods may be evicted and none elsewhere, until {until}{waiting}"
    return Disruptions(Fact(TYPE, "True", "DomainOpen", message), tuple(sorted(mine)), 0, note, hold)


def _by_hand(world: World, places: _Places, live: Mapping[str, Domain], zone: str) -> Disruptions:
    """Apply spec.maintenance, which takes precedence over the cordons of nodes; the condition Maintenance
    reports it.
    """
    others = [one for one in live.values() if one.zone not in (None, zone)]
    troubled = any(not one.whole or one.stale for one in others)
    freed = () if troubled else tuple(sorted(places.pods_of_zone(zone)))
    if nodes := sorted(cordoned(world)):
        message = f"{named(nodes)} is cordoned; spec.maintenance says that zone {zone} may be drained"
        return Disruptions(Fact(TYPE, "True", "ZoneInMaintenance", message), freed, 0)
    return Disruptions(Fact(TYPE, "False", "NoneCordoned", "no node with data of this cluster is cordoned"), freed, 0)


def _at_rest(live: Mapping[str, Domain]) -> int:
    """Return how many pods of all may be away: none while more than one is already, or while one has yet to
    catch up.
    """
    down = [pod for one in live.values() for pod in one.down]
    gone = any(one.down and one.ready + len(one.down) > one.replicas for one in live.values())
    unclear = gone or len(down) > 1 or any(one.rolling or one.stale for one in live.values())
    return 0 if unclear else 1


def _seen(world: World, places: _Places) -> Memory:
    """Return the nodes that are cordoned now, and those whose pods have not come back."""
    before, now = remembered(world), cordoned(world, places.stood)
    nodes = {}
    for node, pods in now.items():
        known = before.nodes.get(node)
        if known is None:
            nodes[node] = Cordon(world.now_s, places.domain_of(node, pods), pods)
        else:
            nodes[node] = replace(known, pods=known.pods | pods)
    away = set(places.troubled(None, inside=False))
    for node, known in before.nodes.items():
        if node not in nodes and known.pods & away:
            nodes[node] = known
    return replace(before, nodes=nodes)


def _turn(world: World, places: _Places, memory: Memory) -> Memory:
    """Return the domain whose turn it is: it keeps the turn while its pods leave or return, then the one that has
    waited longest gets it.
    """
    domains = {one.domain for one in memory.nodes.values()}
    busy = {one for one in domains if places.troubled(_pods_of(memory, places, one), inside=True)}
    now_s, current = world.now_s, memory.domain
    if current in domains:
        if current in busy:
            touched = now_s if now_s - memory.touched_s >= _TOUCHED_S else memory.touched_s
            return replace(memory, touched_s=touched)
        if now_s - memory.touched_s < FORGOTTEN_S:
            return memory
        memory = _forgot(memory, current)
    waiting = [one for one in domains if one in busy or not _is_forgotten(memory, one)]
    first = min(waiting, key=lambda one: (one not in busy, _since(memory, one), one), default="")
    return replace(memory, domain=first, touched_s=now_s if first else 0)


def _pods_of(memory: Memory, places: _Places, domain: str) -> frozenset[str]:
    kind, _, name = domain.partition(" ")
    found = {pod for one in memory.nodes.values() if one.domain == domain for pod in one.pods}
    return frozenset(found) | (places.pods_of_zone(name) if kind == "zone" else frozenset())


def _forgot(memory: Memory, domain: str) -> Memory:
    nodes = {name: replace(one, forgotten=True) if one.domain == domain else one for name, one in memory.nodes.items()}
    return replace(memory, nodes=nodes, domain="")


def _is_forgotten(memory: Memory, domain: str) -> bool:
    return all(one.forgotten for one in memory.nodes.values() if one.domain == domain)


def _since(memory: Memory, domain: str) -> int:
    return min(one.since_s for one in memory.nodes.values() if one.domain == domain)


def _nodes_of(memory: Memory, domain: str) -> str:
    return named(sorted(name for name, one in memory.nodes.items() if one.domain == domain))


def _waiting(memory: Memory) -> str:
    others = sorted({one.domain for one in memory.nodes.values()} - {memory.domain})
    if not others:
        return ""
    waiting = ", ".join(f"{domain} ({_nodes_of(memory, domain)})" for domain in others)
    return f"; {waiting} waits for {memory.domain}"


def _forgotten(world: World, memory: Memory) -> Fact:
    hours = (world.now_s - min(one.since_s for one in memory.nodes.values())) / 3600
    message = (
        f"{named(sorted(memory.nodes))} has been cordoned for {hours:.0f} hours and nothing was drained, so restarts "
        "and other domains go on; drain it now, one pod at a time at first, or uncordon it"
    )
    return Fact(TYPE, "True", "CordonForgotten", message)
