"""The tasks of rings, made from a world, and the result of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from swiftlet.crd import Pool, Storage, parse_quantity
from swiftlet.crd.cluster import GIB
from swiftlet.crd.federation import host_of
from swiftlet.ring import RingError
from swiftlet.ring.codec import chunk_count
from swiftlet_operator.build.site import (
    CONTAINER_PORT,
    DATABASE_DEVICE,
    DEFAULT_REGION,
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
    RING,
    TOPOLOGY_REGION,
    TOPOLOGY_ZONE,
    Manifest,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.capacity import NO_MORE, levels
from swiftlet_operator.plan.federation import chunks_said, follows, foreign, held, node_name, with_members
from swiftlet_operator.plan.kept_rings import followed, saved, unheard
from swiftlet_operator.plan.lost import lost_pods
from swiftlet_operator.plan.sync import Published, behind, is_empty, is_named, owes_no_rows
from swiftlet_operator.problems import BrokenState
from swiftlet_operator.rings import (
    Outcome,
    Rebalance,
    Rebalancer,
    Saved,
    Shape,
    Task,
    Wanted,
    advance,
    known,
    look,
)
from swiftlet_operator.world import World

PATIENCE_S = 300
"""Seconds after which a first ring is laid out without the pods that can't be scheduled."""
NO_ZONE = "default"
"""The zone of nodes that have no label for it."""


@dataclass(frozen=True, slots=True)
class RingState:
    """A ring's task, what was saved of it, and the result; `problem` says why it can't be changed.

    `published` is the ring as the services have it, None before there is one. `newest` is the leader's ring where
    another member of the federation builds it.
    """

    task: Task
    chunks: int
    before: Saved | None
    outcome: Outcome | None
    problem: str = ""
    published: Published | None = None
    newest: Saved | None = None

    @property
    def changed(self) -> bool:
        """Return whether there is something new to save."""
        return self.outcome is not None and self.outcome.saved is not self.before


def ring_states(
    world: World, *, hands_off: bool = False, rebalance: Rebalancer = Rebalance.run, draining: str = ""
) -> list[RingState]:
    """Return all rings of the cluster, each one step further if that is possible now and `hands_off` is not set.

    `draining` says why nothing may begin to move; it is empty when it may.
    """
    drafts = [_draft(world, task) for task in _tasks(world)]
    if follows(world):
        return [_step(draft, lambda task, _, newest=draft.newest: look(task, newest)) for draft in drafts]  # type: ignore[misc]
    if hands_off:
        return [_step(draft, lambda task, before: look(task, before)) for draft in drafts]
    return [
        _step(
            _judged(world, draft, drafts, draining), lambda task, before: advance(task, before, world.now_s, rebalance)
        )
        for draft in drafts
    ]


def _tasks(world: World) -> list[Task]:
    found = _Devices(world)
    tasks = [_database_task(found, ring) for ring in ("account", "container")]
    return tasks + [_object_task(found, policy) for policy in policies_of(world)]


def _draft(world: World, task: Task) -> RingState:
    """Return a ring's task and what was saved of it."""
    expected = chunks_said(world, task.ring) or chunk_count(task.shape.part_power, task.shape.replicas)
    before = newest = None
    try:
        if follows(world):
            before, newest = followed(world, task)
        else:
            before = saved(world, task)
        facts = known(task.ring, before) if before is not None else None
    except (BrokenState, RingError) as error:
        return RingState(task, expected, before, None, str(error))
    task = with_members(world, task, facts)
    if before is None or facts is None:
        return RingState(task, expected, None, None, newest=newest)
    if follows(world):
        task = replace(task, shape=replace(task.shape, part_power=facts.part_power, replicas=facts.replicas))
        expected = chunk_count(task.shape.part_power, task.shape.replicas)
    elif not _is_asked(world, task.ring):
        # Defaults apply only to rings that are yet to be made.
        task = replace(task, shape=replace(task.shape, part_power=facts.part_power))
        expected = chunk_count(task.shape.part_power, task.shape.replicas)
    published = Published(
        task.ring,
        facts.version,
        before.rebalanced_at_s,
        facts.assigned,
        facts.zones,
        facts.nodes,
        foreign(world, facts),
        {} if world.cluster.spec.federation is None else {one.name: one.region for one in facts.devices},
    )
    return RingState(task, expected, before, None, published=published, newest=newest)


def _is_asked(world: World, ring: str) -> bool:
    """Return whether there is a Ring object for the ring now."""
    return any(one.spec.ring_name == ring and (RING.kind, one.meta.name) in world.own for one in world.ring_objects)


def _step(draft: RingState, how: Callable[[Task, Saved | None], Outcome]) -> RingState:
    if draft.problem:
        return draft
    try:
        outcome = how(draft.task, draft.before)
    except (BrokenState, RingError) as error:
        return replace(draft, problem=str(error))
    return replace(draft, chunks=len(outcome.chunks) or draft.chunks, outcome=outcome)


def _judged(world: World, draft: RingState, all_drafts: Sequence[RingState], draining: str) -> RingState:
    """Return the state with what the pods' reports say about the ring's devices."""
    published = draft.published
    maintenance = world.cluster.spec.maintenance
    hold = f"zone {maintenance.zone} is in maintenance" if maintenance is not None else ""
    if world.cluster.spec.federation is not None and not draft.problem:
        kept = look(draft.task, draft.before)
        hold = hold or held(world, draft.task, kept.version, kept.content)
    if published is None:
        return replace(draft, task=replace(draft.task, hold=hold or unheard(world)))
    hold = hold or draining
    leaving = _leaving(draft)
    allowed = allowed_pods(world)
    empty = {
        device for device in leaving if is_named(device, allowed) or _is_empty_everywhere(world, device, all_drafts)
    }
    idle = {one.name for one in draft.task.wanted if one.weight == 0}
    gone = {one.pod for one in lost_pods(world)}
    excused = {
        device
        for device in published.zones
        if is_named(device, allowed | gone | set(world.cluster.spec.drain)) or device in empty
    }
    late = behind(world, published, leaving=leaving | idle, excused=excused)
    return replace(draft, task=replace(draft.task, empty=frozenset(empty), behind=late, hold=hold))


def _leaving(draft: RingState) -> set[str]:
    """Return the devices of a ring that should not be in it."""
    return set(draft.published.zones) - {one.name for one in draft.task.wanted} if draft.published else set()


def _is_empty_everywhere(world: World, device: str, drafts: Sequence[RingState]) -> bool:
    """Return whether a device holds nothing of any ring that it has to leave, nor pending rows if it leaves all of
    them.
    """
    leaves = [one.published for one in drafts if one.published is not None and device in _leaving(one)]
    stays = any(one.name == device for draft in drafts for one in draft.task.wanted)
    if any(draft.problem for draft in drafts):
        return False
    return all(is_empty(world, device, ring.ring, ring.version) for ring in leaves) and (
        stays or owes_no_rows(world, device)
    )


def allowed_pods(world: World) -> frozenset[str]:
    """Return the pods that may go although they were not reported empty, because a person allowed it."""
    allowed = world.cluster.meta.annotations.get(ALLOW_SCALE_IN, "")
    return frozenset(name.strip() for name in allowed.split(",") if name.strip())


def _shape(world: World, ring: str, policy: Policy | None) -> Shape:
    found = next((one.spec for one in world.ring_objects if one.spec.ring_name == ring), None)
    spec = found or world.cluster.spec.rings
    replicas, coding = replicas_of(world, ring, policy), None if policy is None else policy.coding
    return Shape(spec.part_power, replicas, spec.min_part_hours, spec.overload, coding)


def _task(world: World, ring: str, policy: Policy | None, wanted: Sequence[Wanted]) -> Task:
    return Task(
        ring=ring,
        shape=_shape(world, ring, policy),
        wanted=tuple(wanted),
        hurry=world.now_s - world.created_s > PATIENCE_S,
    )


def _object_task(found: _Devices, policy: Policy) -> Task:
    world = found.world
    wanted = [
        device
        for pool in pools_of(world, policy)
        for group in groups_of_pool(world.cluster.meta.name, pool)
        for ordinal in range(group.replicas)
        for device in _pool_devices(found, pool, group, ordinal)
    ]
    return _task(world, f"object-{policy.index}", policy, wanted)


def _pool_devices(found: _Devices, pool: Pool, group: Group, ordinal: int) -> list[Wanted]:
    wanted = []
    for name in devices_of(pool):
        weight = found.size_gib(group, ordinal, name, pool.storage) if pool.weight is None else pool.weight
        wanted.append(found.wanted(group, ordinal, name, OBJECT_PORT, pool.region, weight))
    return wanted


def _database_task(found: _Devices, ring: str) -> Task:
    spec = found.world.cluster.spec
    wanted = []
    for group in container_groups(found.world.cluster.meta.name, spec):
        for ordinal in range(group.replicas):
            weight = found.size_gib(group, ordinal, DATABASE_DEVICE, spec.container.storage)
            wanted.append(found.wanted(group, ordinal, DATABASE_DEVICE, CONTAINER_PORT, None, weight))
    return _task(found.world, ring, None, wanted)


class _Devices:
    """Looks up in a world what a ring needs to know of each device."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._pods = {name_of(pod): pod for pod in world.pods}
        self._levels = levels(world)
        self._claims = {name_of(one): one["spec"]["resources"]["requests"]["storage"] for one in world.claims}

    def size_gib(self, group: Group, ordinal: int, device: str, storage: Storage) -> float:
        """Return a device's size in GiB: its pool's, or its claim's while that has not grown yet."""
        asked = self._claims.get(f"{device}-{group.pod(ordinal)}")
        sizes = [storage.size, *([asked] if asked is not None else [])]
        return min(float(parse_quantity(size) / GIB) for size in sizes)

    def wanted(self, group: Group, ordinal: int, device: str, port: int, region: str | None, weight: float) -> Wanted:
        """Return a device that should take part; its region is that of its node if None is given."""
        pod, meta = group.pod(ordinal), self.world.cluster.meta
        name = f"{pod}/{device}"
        node = _node_of(self.world, self._pods.get(pod))
        zone = None if node is None else group.zone or labels_of(node).get(TOPOLOGY_ZONE, NO_ZONE)
        return Wanted(
            name=name,
            host=host_of(self.world.cluster.spec.federation, pod, f"{meta.name}-{group.component}", meta.namespace),
            port=port,
            device=device,
            region=region or _region_of(self.world, node),
            weight=0.0 if is_named(name, self.world.cluster.spec.drain) else weight,
            zone=zone,
            node=None if node is None else node_name(self.world, name_of(node)),
            full=self._levels.get(name) in NO_MORE,
        )


def _node_of(world: World, pod: Manifest | None) -> Manifest | None:
    """Return the node of a pod; None while it has never been scheduled or its node is not known."""
    name = pod["spec"].get("nodeName") if pod is not None else None
    return world.node(name) if name else None


def _region_of(world: World, node: Manifest | None) -> str:
    """Return the region of a node, if pools have named it: databases stand near the proxies of that region then."""
    told = "" if node is None else labels_of(node).get(TOPOLOGY_REGION, "")
    regions = {pool.region for pool in world.cluster.spec.pools}
    if world.cluster.spec.federation is not None and len(regions) == 1:
        # A member is mostly a region of its own, whether or not its nodes say so.
        return next(iter(regions))
    return told if told in regions else DEFAULT_REGION
