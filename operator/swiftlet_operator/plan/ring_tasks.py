"""From a world to the rings' tasks, and from live ConfigMaps to what was saved of a ring."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet.crd import Pool
from swiftlet.ring import RingError
from swiftlet.ring.codec import chunk_count
from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.ring_maps import MOVED, REBALANCED_AT, SURPLUS
from swiftlet_operator.build.site import (
    CONTAINER_PORT,
    DATABASE_DEVICE,
    OBJECT_PORT,
    Group,
    Policy,
    container_groups,
    groups_of_pool,
)
from swiftlet_operator.build.storage import devices_of
from swiftlet_operator.checks import policies_of, pools_of, replicas_of
from swiftlet_operator.manifests import (
    ALLOW_SCALE_IN,
    CONFIG_MAP,
    TOPOLOGY_ZONE,
    Manifest,
    annotations_of,
    labels_of,
)
from swiftlet_operator.problems import BrokenState
from swiftlet_operator.rings import Outcome, Saved, Shape, Task, Wanted, advance, rebuilt, ring_of, unite
from swiftlet_operator.world import World

PATIENCE_S = 300
"""After this time a first ring does without the pods that can't be scheduled."""
NO_ZONE = "default"
"""Zone of nodes that have no label for it."""


@dataclass(frozen=True, slots=True)
class RingState:
    """A ring's task, what was saved of it, and what became of it; `problem` when it can't be touched."""

    task: Task
    chunks: int
    before: Saved | None
    outcome: Outcome | None
    problem: str = ""

    @property
    def changed(self) -> bool:
        """Whether there is something new to save."""
        return self.outcome is not None and self.outcome.saved is not self.before


def ring_states(world: World) -> list[RingState]:
    """All rings of the cluster, each moved one step on if that is possible now."""
    tasks = [_database_task(world, ring) for ring in ("account", "container")]
    tasks += [_object_task(world, policy) for policy in policies_of(world)]
    return [_state(world, task) for task in tasks]


def _state(world: World, task: Task) -> RingState:
    expected = chunk_count(task.shape.part_power, task.shape.replicas)
    before = None
    try:
        before = saved(world, task)
        outcome = advance(task, before, world.now_s)
        return RingState(task, len(outcome.chunks) or expected, before, outcome)
    except (BrokenState, RingError) as error:
        return RingState(task, expected, before, None, str(error))


def _shape(world: World, ring: str, policy: Policy | None) -> Shape:
    found = next((one.spec for one in world.ring_objects if one.spec.ring_name == ring), None)
    spec = found or world.cluster.spec.rings
    return Shape(spec.part_power, replicas_of(world, ring, policy), spec.min_part_hours, spec.overload)


def _task(world: World, ring: str, policy: Policy | None, wanted: Sequence[Wanted]) -> Task:
    allowed = annotations_of_cluster(world).get(ALLOW_SCALE_IN, "")
    pods = {name.strip() for name in allowed.split(",") if name.strip()}
    named = {device for device in _devices_of_builder(world, ring) if device.split("/")[0] in pods}
    return Task(
        ring=ring,
        shape=_shape(world, ring, policy),
        wanted=tuple(wanted),
        empty=frozenset(named),
        hurry=world.now_s - world.created_s > PATIENCE_S,
    )


def annotations_of_cluster(world: World) -> dict[str, str]:
    """The cluster's annotations."""
    return dict(world.cluster.meta.annotations)


def _devices_of_builder(world: World, ring: str) -> list[str]:
    """Names of devices that may be in a ring: those of all pods that there are volumes for."""
    kind = DATABASE_DEVICE if ring in ("account", "container") else None
    names = []
    for claim in world.claims:
        device, _, pod = claim["metadata"]["name"].partition("-")
        if kind is None or device == kind:
            names.append(f"{pod}/{device}")
    return names


def _object_task(world: World, policy: Policy) -> Task:
    wanted = [
        device
        for pool in pools_of(world, policy)
        for group in groups_of_pool(world.cluster.meta.name, pool)
        for ordinal in range(group.replicas)
        for device in _pool_devices(world, pool, group, ordinal)
    ]
    return _task(world, f"object-{policy.index}", policy, wanted)


def _pool_devices(world: World, pool: Pool, group: Group, ordinal: int) -> list[Wanted]:
    return [
        _device(world, group, ordinal, name, OBJECT_PORT, pool.region, pool.device_weight) for name in devices_of(pool)
    ]


def _database_task(world: World, ring: str) -> Task:
    spec = world.cluster.spec
    weight = spec.container.storage.size_bytes / 1024**3
    wanted = [
        _device(world, group, ordinal, DATABASE_DEVICE, CONTAINER_PORT, "default", weight)
        for group in container_groups(world.cluster.meta.name, spec)
        for ordinal in range(group.replicas)
    ]
    return _task(world, ring, None, wanted)


def _device(world: World, group: Group, ordinal: int, device: str, port: int, region: str, weight: float) -> Wanted:
    pod = group.pod(ordinal)
    meta = world.cluster.meta
    zone, node = _place(world, group, world.pod(pod))
    return Wanted(
        name=f"{pod}/{device}",
        host=f"{pod}.{meta.name}-{group.component}.{meta.namespace}.svc",
        port=port,
        device=device,
        region=region,
        weight=weight,
        zone=zone,
        node=node,
    )


def _place(world: World, group: Group, pod: Manifest | None) -> tuple[str | None, str | None]:
    """Zone and node of a pod, None while it has never been scheduled or its node is not known."""
    name = pod["spec"].get("nodeName") if pod is not None else None
    node = world.node(name) if name else None
    if node is None:
        return None, None
    return group.zone or labels_of(node).get(TOPOLOGY_ZONE, NO_ZONE), name


def saved(world: World, task: Task) -> Saved | None:
    """What the live ConfigMaps hold of a ring; BrokenState when they hold something that can't be used."""
    pieces, first = _binary(world, task.ring, builder_map, "piece")
    data = unite(pieces)
    if data is not None and first is not None:
        notes = annotations_of(first)
        return Saved(data, _number(notes, REBALANCED_AT), _number(notes, MOVED), _number(notes, SURPLUS))
    chunks, _ = _binary(world, task.ring, ring_map, "chunk")
    ring = ring_of(chunks) if chunks else None
    if ring is not None:
        return rebuilt(ring, task.shape, world.now_s)
    if pieces or chunks:
        raise BrokenState(
            f"neither the builder nor the ring {task.ring} can be read from its ConfigMaps; restore them from a backup"
        )
    return None


def _binary(
    world: World, ring: str, name: Callable[[str, str, int], str], key: str
) -> tuple[list[bytes], Manifest | None]:
    """The contents of a ring's ConfigMaps in order, and the first of them."""
    found: list[bytes] = []
    first = None
    while (live := world.child(CONFIG_MAP, name(world.cluster.meta.name, ring, len(found)))) is not None:
        first = first or live
        try:
            found.append(base64.b64decode((live.get("binaryData") or {}).get(key, ""), validate=True))
        except binascii.Error:
            found.append(b"")
    return found, first


def _number(notes: dict[str, str], name: str) -> int:
    text = notes.get(name, "")
    return int(text) if text.isdigit() else 0
