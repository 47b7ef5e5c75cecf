"""The decision: from a world to all that is to be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from swiftlet.crd import Fact, quantity_bytes
from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.build import Group, Site, build
from swiftlet_operator.build.names import ring_map
from swiftlet_operator.build.ring_maps import build_builder_maps, build_ring_maps, build_ring_object
from swiftlet_operator.build.secrets import build_keys, build_users, credentials_name, endpoint
from swiftlet_operator.build.site import CONTAINER, STORAGE, all_groups
from swiftlet_operator.checks import Verdict, check, offers, policies_of, replicas_of
from swiftlet_operator.manifests import (
    BUDGET,
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    FINALIZER,
    NETWORK_POLICY,
    POLICY,
    PROMETHEUS_RULE,
    PVC,
    QUOTA,
    RING,
    SECRET,
    SERVICE,
    SERVICE_MONITOR,
    STATEFUL_SET,
    USER,
    Kind,
    Manifest,
    kind_of,
    name_of,
)
from swiftlet_operator.plan import facts as say
from swiftlet_operator.plan.access import access
from swiftlet_operator.plan.actions import Actions, Event, Fresh, Patch, StatusOf
from swiftlet_operator.plan.deletion import blocked, farewell
from swiftlet_operator.plan.ring_tasks import RingState, ring_states
from swiftlet_operator.plan.workloads import (
    Domain,
    domains,
    frozen,
    group_of_claim,
    held_back,
    left_over,
    replicas_to_keep,
    stamped,
    with_live_templates,
)
from swiftlet_operator.rings import split
from swiftlet_operator.world import Defaults, World

LOOK_AGAIN_S = 300.0
"""Without any event the cluster is looked at after this time."""
BUSY_S = 15.0
"""While pods are restarted or rings wait for pods: readiness in other places changes without an event."""
PRUNED = (SERVICE, STATEFUL_SET, DEPLOYMENT, BUDGET, NETWORK_POLICY, SERVICE_MONITOR, PROMETHEUS_RULE)
"""Kinds of which a child that nobody wants is deleted. Secrets and ConfigMaps may hold the only copy of something."""


def decide(world: World, defaults: Defaults, fresh: Fresh) -> Actions:
    """All that is to be done now."""
    going = blocked(world)
    if world.cluster.meta.deleting and not going.is_true:
        return farewell(world)
    verdicts = check(world)
    valid = say.spec_valid(verdicts)
    live = domains(world)
    if not valid.is_true or world.cluster.spec.paused:
        rest = [valid, say.progressing(world, {}, live), say.degraded(live), going, *_unknown()]
        return Actions(
            patch=_finalizer(world),
            status=(_cluster_status(world, rest), *_statuses(world, verdicts, [])),
            events=_events(world, rest),
            again_in_s=LOOK_AGAIN_S,
        )
    states = ring_states(world)
    return _make_true(world, defaults, fresh, verdicts, states, live, [valid, going])


def _make_true(
    world: World,
    defaults: Defaults,
    fresh: Fresh,
    verdicts: Sequence[Verdict],
    states: Sequence[RingState],
    live: dict[str, Domain],
    known: Sequence[Fact],
) -> Actions:
    groups = all_groups(world.cluster.meta.name, world.cluster.spec)
    has_data = any(state.before is not None for state in states)
    site = _site(world, defaults, groups, live, states, has_data)
    keys = [] if world.child(SECRET, site.child("keys")) else [build_keys(site, fresh.token(), fresh.token())]
    credentials, logins = access(world, site, fresh, verdicts)
    ring_objects = _missing_rings(world, site, states)
    wanted = [stamped(with_live_templates(world, one)) for one in build(site)]
    held = held_back(world, wanted, live, has_data)
    applied = [one for one in wanted if not (kind_of(one) == STATEFUL_SET and name_of(one) in held)]
    facts = [*known, *_facts(world, site, states, live, held)]
    keep = {(kind_of(one).kind, name_of(one)) for one in wanted}
    keep |= {(kind.kind, name) for name in left_over(groups, live, states) for kind in (STATEFUL_SET, BUDGET)}
    return Actions(
        first=tuple(keys),
        create=(*credentials, *ring_objects),
        apply=((build_users(site, logins),), *(_ring_chain(site, state) for state in states), *((m,) for m in applied)),
        patch=(*_finalizer(world), *_growth(world, groups)),
        delete=_orphans(world, site, keep, states),
        status=(_cluster_status(world, facts, site, states), *_statuses(world, verdicts, states)),
        events=_events(world, facts),
        again_in_s=_again(states, held, facts),
    )


def _site(
    world: World,
    defaults: Defaults,
    groups: Sequence[Group],
    live: dict[str, Domain],
    states: Sequence[RingState],
    has_data: bool,
) -> Site:
    spec = world.cluster.spec
    return Site(
        cluster=world.cluster,
        image=spec.image or defaults.image,
        redis_image=spec.redis.image or defaults.redis_image,
        policies=policies_of(world),
        ring_chunks={state.task.ring: state.chunks for state in states},
        replicas=replicas_to_keep(groups, live, states),
        frozen=frozen(live, groups, has_data),
        rdma_pools=_rdma_pools(world),
        has_monitoring=world.has_monitoring,
    )


def _rdma_pools(world: World) -> frozenset[str]:
    """Pools whose pods ask for RDMA: those that must, and those that may where all their nodes offer it."""
    found = set()
    for pool in world.cluster.spec.pools:
        rdma = world.cluster.spec.rdma_of(pool)
        if not rdma.wanted:
            continue
        selected = [
            node
            for node in world.nodes
            if {**pool.node_selector, **rdma.node_selector}.items() <= (node["metadata"].get("labels") or {}).items()
        ]
        if rdma.mode == "required" or (selected and all(offers(node, rdma) for node in selected)):
            found.add(pool.name)
    return frozenset(found)


def _missing_rings(world: World, site: Site, states: Sequence[RingState]) -> list[Manifest]:
    made = {one.spec.ring_name for one in world.ring_objects}
    policies = {f"object-{policy.index}": policy for policy in site.policies}
    return [
        build_ring_object(site, ring, replicas_of(world, ring, policies.get(ring)))
        for ring in (state.task.ring for state in states)
        if ring not in made
    ]


def _ring_chain(site: Site, state: RingState) -> tuple[Manifest, ...]:
    """The builder before the ring: a ring that no builder remembers could not be continued."""
    outcome = state.outcome
    if outcome is None or outcome.saved is None:
        return ()
    saved = outcome.saved
    builders = build_builder_maps(
        site, outcome.ring, split(saved.builder), saved.rebalanced_at_s, saved.moved, saved.surplus
    )
    return (*builders, *build_ring_maps(site, outcome.ring, outcome.version, outcome.chunks))


def _facts(
    world: World, site: Site, states: Sequence[RingState], live: dict[str, Domain], held: dict[str, str]
) -> list[Fact]:
    objects = [state for state in states if state.task.ring.startswith("object-")]
    databases = [state for state in states if state not in objects]
    return [
        say.rings_balanced(states),
        say.available("StorageAvailable", STORAGE, live, objects, min(s.task.shape.replicas for s in objects)),
        say.available("ContainersAvailable", CONTAINER, live, databases, min(s.task.shape.replicas for s in databases)),
        say.proxies_available(world, live),
        say.progressing(world, held, live),
        say.degraded(live),
        say.scale_in_blocked(states),
        say.rdma_available(world, site.rdma_pools),
    ]


def _unknown() -> list[Fact]:
    """What is not looked at while nothing may be changed."""
    message = "not looked at while the spec is invalid or paused"
    types = ("RingsBalanced", "StorageAvailable", "ContainersAvailable", "ProxiesAvailable", "ScaleInBlocked")
    return [Fact(type_, "Unknown", "NotObserved", message) for type_ in (*types, "RDMAAvailable")]


def _finalizer(world: World) -> tuple[Patch, ...]:
    meta = world.cluster.meta
    if FINALIZER in meta.finalizers or meta.deleting:
        return ()
    change = {"resourceVersion": world.resource_version, "finalizers": [*meta.finalizers, FINALIZER]}
    return (Patch(CLUSTER, meta.name, {"metadata": change}),)


def _growth(world: World, groups: Sequence[Group]) -> list[Patch]:
    """Volumes that are smaller than their pool says now."""
    spec = world.cluster.spec
    sizes: dict[tuple[str | None, str | None], str] = {
        (STORAGE, pool.name): pool.storage.size for pool in spec.pools
    } | {(CONTAINER, None): spec.container.storage.size}
    patches = []
    for claim in world.claims:
        component, pool, _ = group_of_claim(claim)
        size = sizes.get((component, pool))
        if size is None:
            continue
        asked = claim["spec"]["resources"]["requests"]["storage"]
        if quantity_bytes(asked) < quantity_bytes(size):
            change = {"spec": {"resources": {"requests": {"storage": size}}}}
            patches.append(Patch(PVC, name_of(claim), change))
    return patches


def _orphans(world: World, site: Site, keep: set[tuple[str, str]], states: Sequence[RingState]) -> tuple[Manifest, ...]:
    """Children that nobody wants any more: ours by owner and label."""
    uid = world.cluster.meta.uid
    prunable_kinds = {kind.kind for kind in PRUNED}
    chunks = {ring_map(site.name, state.task.ring, i) for state in states for i in range(state.chunks)}
    found = []
    for (kind, name), one in sorted(world.children.items()):
        ours = any(owner.get("uid") == uid for owner in one["metadata"].get("ownerReferences") or [])
        old_chunk = kind == CONFIG_MAP.kind and name.startswith(f"{site.name}-ring-") and name not in chunks
        prunable = kind in prunable_kinds or (old_chunk and all(state.outcome for state in states))
        if ours and prunable and (kind, name) not in keep and not one["metadata"].get("deletionTimestamp"):
            found.append(one)
    return tuple(found)


def _again(states: Iterable[RingState], held: dict[str, str], facts: Iterable[Fact]) -> float:
    times = [LOOK_AGAIN_S]
    times += [state.outcome.again_in_s for state in states if state.outcome and state.outcome.again_in_s is not None]
    if held or any(fact.type == "Ready" and not fact.is_true for fact in [*facts, say.ready(list(facts))]):
        times.append(BUSY_S)
    return max(1.0, min(times))


def _cluster_status(
    world: World, facts: Sequence[Fact], site: Site | None = None, states: Sequence[RingState] = ()
) -> StatusOf:
    fields: dict[str, object] = {"observedGeneration": world.cluster.meta.generation}
    if site is not None:
        fields["endpoint"] = endpoint(site)
        fields["zones"] = sorted({zone for state in states if state.outcome for zone in state.outcome.zones})
    meta = world.cluster.meta
    return StatusOf(CLUSTER, meta.name, meta.generation, (say.ready(facts), *facts), fields)


def _statuses(world: World, verdicts: Sequence[Verdict], states: Sequence[RingState]) -> list[StatusOf]:
    """What the objects around the cluster are told."""
    wrong = {(one.kind, one.name): one for one in reversed(verdicts) if one.violated}
    outcomes = {state.task.ring: state for state in states}
    found = []
    for kind, resources in ((POLICY, world.policies), (QUOTA, world.quotas)):
        for one in resources:
            found.append(_simple(kind, one.meta.name, one.meta.generation, wrong, {}))
    for user in world.users:
        fields: dict[str, object] = {"secretName": credentials_name(user)}
        found.append(_simple(USER, user.meta.name, user.meta.generation, wrong, fields))
    for ring in world.ring_objects:
        state = outcomes.get(ring.spec.ring_name)
        if state is not None:
            found.append(_ring_status(world, ring.meta.name, ring.meta.generation, state))
        else:
            found.append(_simple(RING, ring.meta.name, ring.meta.generation, wrong, {}))
    for broken in world.unreadable:
        generation = int(broken.manifest["metadata"].get("generation") or 0)
        found.append(_simple(broken.kind, name_of(broken.manifest), generation, wrong, {}))
    return found


def _simple(
    kind: Kind, name: str, generation: int, wrong: dict[tuple[str, str], Verdict], fields: dict[str, object]
) -> StatusOf:
    verdict = wrong.get((kind.kind, name))
    if verdict is not None:
        fact = Fact("Ready", "False", verdict.reason, verdict.message)
    else:
        fact = Fact("Ready", "True", "Accepted", "part of the cluster")
    return StatusOf(kind, name, generation, (fact,), fields)


def _ring_status(world: World, name: str, generation: int, state: RingState) -> StatusOf:
    outcome = state.outcome
    if outcome is None:
        return StatusOf(RING, name, generation, (Fact("Ready", "False", "BuilderUnreadable", state.problem),))
    if outcome.saved is None:
        reason, message = outcome.refused or ("WaitingForDevices", outcome.waiting or "there is no ring yet")
        return StatusOf(RING, name, generation, (Fact("Ready", "False", reason, message),))
    problem = outcome.refused
    fact = Fact("Ready", "True", *(problem or ("Published", outcome.waiting or "the services have the ring")))
    moment = datetime.fromtimestamp(outcome.saved.rebalanced_at_s, UTC)
    maps = [ring_map(world.cluster.meta.name, outcome.ring, index) for index in range(state.chunks)]
    fields = {
        "version": outcome.version,
        "devices": outcome.devices,
        "balance": round(outcome.balance, 2),
        "dispersion": round(outcome.dispersion, 2),
        "moved": outcome.saved.moved,
        "lastRebalance": rfc3339(moment),
        "configMaps": maps,
    }
    return StatusOf(RING, name, generation, (fact,), fields)


def _events(world: World, facts: Sequence[Fact]) -> tuple[Event, ...]:
    """An event for each condition whose status or reason is news; on the first visit only a wrong spec."""
    before = {one.type: (one.status, one.reason) for one in world.cluster.conditions}
    found = []
    for fact in (say.ready(facts), *facts):
        old = before.get(fact.type)
        if fact.status == "Unknown" or old == (fact.status, fact.reason):
            continue
        bad = fact.is_true == (fact.type in {"Degraded", "ScaleInBlocked", "DeletionBlocked"})
        if old is None and not (bad and fact.type == "SpecValid"):
            continue
        message = f"{fact.type} is {fact.status}: {fact.message}"
        found.append(Event("Warning" if bad else "Normal", fact.reason, message))
    return tuple(found)
