"""The decision: from a world to all that is to be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from swiftlet.crd import Fact
from swiftlet_operator.build import Group, Policy, Site, build
from swiftlet_operator.build.accepted import build_accepted
from swiftlet_operator.build.certificate import build_certificate
from swiftlet_operator.build.redis import build_redis_secret
from swiftlet_operator.build.ring_maps import build_builder_maps, build_ring_maps, build_ring_object
from swiftlet_operator.build.secrets import build_keys, build_users
from swiftlet_operator.build.site import CONTAINER, METADATA, STORAGE, all_groups
from swiftlet_operator.checks import Verdict, check, policies_of, replicas_of
from swiftlet_operator.keys import are_lost, keys_of, made_again
from swiftlet_operator.manifests import (
    CLUSTER,
    FINALIZER,
    RING,
    USER,
    Manifest,
)
from swiftlet_operator.plan import facts as say
from swiftlet_operator.plan.accepted import Basis, basis
from swiftlet_operator.plan.access import access, moved, quotas
from swiftlet_operator.plan.actions import Actions, Fresh, Patch
from swiftlet_operator.plan.again import again, while_waiting
from swiftlet_operator.plan.capacity import capacity_available, levels
from swiftlet_operator.plan.certificate import certificate_ready
from swiftlet_operator.plan.cordoned import holds_rebalances
from swiftlet_operator.plan.cordons import Disruptions, disruptions
from swiftlet_operator.plan.deletion import blocked, farewell
from swiftlet_operator.plan.encryption import encryption_mode, transport_encrypted
from swiftlet_operator.plan.exposure import api_exposed
from swiftlet_operator.plan.federation import follows
from swiftlet_operator.plan.fragments import fragments_whole
from swiftlet_operator.plan.guard import is_guarded, let_go, unguarded
from swiftlet_operator.plan.kept_keys import copied, mended
from swiftlet_operator.plan.keys import KeyPlan, rotation
from swiftlet_operator.plan.lost import replacing
from swiftlet_operator.plan.membership import build_statement, disrupted, federated_turn, federation_ready
from swiftlet_operator.plan.policy_use import policies_retired
from swiftlet_operator.plan.redis import failure_table_shared, redis_digest, redis_password
from swiftlet_operator.plan.regions_equal import regions_equal
from swiftlet_operator.plan.retire import guards, released, retired
from swiftlet_operator.plan.ring_tasks import RingState, ring_states
from swiftlet_operator.plan.sealed_keys import keys_sealed, sealed
from swiftlet_operator.plan.served import live_logins, logins_of
from swiftlet_operator.plan.spread import replicas_spread
from swiftlet_operator.plan.tell import ALL_WAIT, cluster_status, events, statuses
from swiftlet_operator.plan.trouble import Why, explained, explained_degraded, pods_healthy, serves_api, why
from swiftlet_operator.plan.unwanted import unwanted_children
from swiftlet_operator.plan.upgrades import Turn, alone, progressing
from swiftlet_operator.plan.volumes import growth, volumes_resized
from swiftlet_operator.plan.workload_changes import workload_changes
from swiftlet_operator.plan.workloads import Domain, domains, left_over, published, replicas_to_keep
from swiftlet_operator.rings import Rebalance, Rebalancer, split
from swiftlet_operator.world import Defaults, World


def decide(
    world: World, defaults: Defaults, fresh: Fresh, rebalance: Rebalancer = Rebalance.run, turn: Turn = alone
) -> Actions:
    """Return all that is to be done now; a ring whose `rebalance` is not known yet stays as it is.

    `turn` asks for the cluster's turn among all clusters, for restarts.
    """
    going = blocked(world)
    if world.cluster.meta.deleting and not going.is_true:
        return farewell(world)
    if not world.cluster.spec.paused:
        world = replace(world, retired=retired(world))
    verdicts = check(world)
    base = basis(world, verdicts)
    if base is None or world.cluster.spec.paused:
        turn(False, False, False)
        return _hands_off(world, verdicts, [say.spec_valid(verdicts), going, *_outside(world)])
    if CLUSTER in base.kept:
        # Users have what the spec in force allows.
        verdicts = [one for one in verdicts if one.kind != USER.kind]
        verdicts += [one for one in check(base.world) if one.kind == USER.kind]
    draining = holds_rebalances(base.world)
    states = ring_states(base.world, hands_off=base.secrets_wrong, rebalance=rebalance, draining=draining)
    live = domains(base.world, states)
    known = [say.spec_valid(verdicts, base.message), going, *_outside(world)]
    return _make_true(world, base, defaults, fresh, verdicts, states, live, known, turn)


def _hands_off(world: World, verdicts: Sequence[Verdict], known: Sequence[Fact]) -> Actions:
    """Return actions that only report the state; nothing is changed."""
    states = ring_states(world, hands_off=True)
    live = domains(world, states)
    reasons = why(world, is_valid=False)
    facts = [*known, *_serving(world, states, live, reasons), say.progressing(world, {}, live), policies_retired(world)]
    facts += [federation_ready(world, states), *_unknown()]
    return Actions(
        patch=(*_finalizer(world), *(() if world.cluster.spec.paused else released(world))),
        status=(
            cluster_status(world, facts),
            *statuses(world, verdicts, states, live_logins(world), waiting=ALL_WAIT),
        ),
        events=events(world, facts),
        again_in_s=while_waiting(facts),
    )


def _make_true(
    asked: World,
    base: Basis,
    defaults: Defaults,
    fresh: Fresh,
    verdicts: Sequence[Verdict],
    states: Sequence[RingState],
    live: dict[str, Domain],
    known: Sequence[Fact],
    turn: Turn,
) -> Actions:
    world = base.world
    groups = all_groups(world.cluster.meta.name, world.cluster.spec)
    has_data = any(state.before is not None for state in states)
    replacing_now = replacing(world, published(states))
    allowed = disruptions(world, states, live, has_data=has_data)
    if has_data:
        allowed = disrupted(world, allowed)
        turn = federated_turn(world, turn)
    site = _site(world, defaults, groups, live, states, allowed)
    password = redis_password(world, fresh) if site.has_embedded_redis else ""
    site = replace(site, redis_digest=redis_digest(world, site, password))
    keys = _keys(base, site, fresh)
    credentials, logins = access(world, site, fresh, verdicts)
    users = build_users(site, logins)
    rotating = rotation(world, fresh.token)
    ring_objects = _missing_rings(asked, base, site, states)
    changes = workload_changes(
        world,
        [*_certificate(asked, world, site), *build(site)],
        live,
        has_data=has_data,
        is_unsafe=base.secrets_wrong or base.certificate_awaited,
        draining=allowed.hold,
        turn=turn,
    )
    reasons = why(asked, is_valid=known[0].is_true)
    restarts = progressing(world, changes.upgrading, live)
    facts = [*known, *_facts(world, states, live, restarts, groups, reasons), policies_retired(asked)]
    statement = build_statement(world, site, states, live, wants=bool(changes.upgrading.wanted))
    is_too_large = not statement and keys_of(world) is not None
    facts += [federation_ready(world, states, is_too_large=is_too_large)]
    facts += [allowed.fact, _rotated(base, rotating), transport_encrypted(world, site.encryption)]
    unwanted = unwanted_children(asked, world, changes.wanted, left_over(world, groups, live, states), states)
    told = statuses(
        asked, verdicts, states, logins_of(world, users), waiting=frozenset(kind.kind for kind in base.kept)
    )
    return Actions(
        first=tuple(keys),
        guard=tuple(guards(asked, base)),
        # While keys are lost, what a backup has of users may be on its way.
        create=(*(() if are_lost(world) else credentials), *ring_objects),
        apply=(
            # Once all rings have their objects, so that the specs are written once.
            () if ring_objects else (build_accepted(site, base.specs),),
            *_before_pods(base, site, verdicts, users, password),
            *(_ring_chain(site, state) for state in states),
            # After the rings that it speaks of.
            statement,
            *((m,) for m in changes.applied),
        ),
        patch=(
            *_finalizer(world),
            *growth(world),
            *replacing_now.marks,
            *changes.patches,
            *moved(world, site),
            *(() if base.secrets_wrong else mended(world, site) or _key_patches(rotating)),
            *let_go(world, states),
            *(unguarded(one) for one in unwanted if is_guarded(one)),
            *released(asked),
        ),
        delete=(*unwanted, *replacing_now.delete, *changes.delete),
        force=replacing_now.force,
        status=(cluster_status(world, facts, site, states, rotating), *told),
        events=events(world, facts),
        again_in_s=again(states, changes.upgrading.held, facts, told, replacing_now, rotating),
    )


def _certificate(asked: World, world: World, site: Site) -> list[Manifest]:
    """Return the Certificate that is asked for, which is accepted only when issued; without one, that in force."""
    specs = (asked.cluster.spec, world.cluster.spec)
    spec = next((one for one in specs if one.tls.cert_manager is not None), None)
    return build_certificate(site, spec) if spec is not None else []


def _outside(world: World) -> list[Fact]:
    """Return what other controllers report about objects that they were asked for."""
    return [certificate_ready(world), api_exposed(world)]


def _site(
    world: World,
    defaults: Defaults,
    groups: Sequence[Group],
    live: dict[str, Domain],
    states: Sequence[RingState],
    allowed: Disruptions,
) -> Site:
    spec = world.cluster.spec
    return Site(
        cluster=world.cluster,
        image=spec.image or defaults.image,
        redis_image=spec.redis.image or defaults.redis_image,
        policies=policies_of(world),
        ring_chunks={state.task.ring: state.chunks for state in states},
        replicas=replicas_to_keep(world, groups, live, states),
        freed=allowed.freed,
        disruptions=allowed.allowed,
        cordons=allowed.note,
        rdma_pools=say.rdma_pools(world),
        rdma_proxies=say.rdma_proxies(world),
        encryption=encryption_mode(world),
        has_monitoring=world.has_monitoring,
        has_gateway_api=world.has_gateway_api,
        has_cert_manager=world.has_cert_manager,
        operator_namespace=defaults.namespace,
        runbook_url=defaults.runbook_url,
        monitoring_labels=defaults.monitoring_labels,
    )


def _keys(base: Basis, site: Site, fresh: Fresh) -> list[Manifest]:
    """Return the Secret with the keys when it is missing: from its copy, or new for a new cluster."""
    if keys_of(base.world) is not None or base.secrets_wrong:
        return []
    if follows(base.world) and made_again(base.world) is None:
        # It has to have the keys of the leader, which a person brings.
        return []
    return [made_again(base.world) or build_keys(site, fresh.token(), fresh.token())]


def _missing_rings(asked: World, base: Basis, site: Site, states: Sequence[RingState]) -> list[Manifest]:
    """Return Ring objects for rings that have none: as they were, or with the cluster's defaults for new rings."""
    if RING in base.kept:
        return []
    made = {one.spec.ring_name for one in asked.ring_objects}
    policies = {f"object-{policy.index}": policy for policy in site.policies}
    return [
        build_ring_object(
            site,
            state.task.ring,
            state.task.shape.part_power,
            _replicas(base.world, state, policies.get(state.task.ring)),
            base.ring_spec(state.task.ring),
        )
        for state in states
        if state.task.ring not in made and not (follows(base.world) and state.published is None)
    ]


def _replicas(world: World, state: RingState, policy: Policy | None) -> float:
    """Return the replicas of a ring: those that the leader's has, or those that it should have."""
    return state.task.shape.replicas if follows(world) else replicas_of(world, state.task.ring, policy)


def _before_pods(
    base: Basis, site: Site, verdicts: Sequence[Verdict], users: Manifest, password: str
) -> Iterator[tuple[Manifest, ...]]:
    """Yield Secrets and quotas, which pods read when they start."""
    yield (users,)
    if site.has_embedded_redis:
        yield (build_redis_secret(site, password),)
    yield tuple(quotas(base.world, site, verdicts))
    if not base.secrets_wrong:
        yield tuple(copied(base.world, site))
        yield tuple(sealed(base.world, site))


def _ring_chain(site: Site, state: RingState) -> tuple[Manifest, ...]:
    """Return the builder before the ring: a ring without a builder could not be continued."""
    outcome = state.outcome
    if outcome is None or outcome.saved is None:
        return ()
    saved = outcome.saved
    if state.newest is not None:
        # The leader has the builder; if this cluster leads one day, it makes one from the ring.
        chunks, since_s = outcome.chunks, outcome.saved.rebalanced_at_s
        return tuple(build_ring_maps(site, outcome.ring, outcome.version, chunks, since_s))
    builders = build_builder_maps(
        site, outcome.ring, split(saved.builder), saved.rebalanced_at_s, saved.moved, saved.surplus
    )
    return (*builders, *build_ring_maps(site, outcome.ring, outcome.version, outcome.chunks))


def _facts(
    world: World,
    states: Sequence[RingState],
    live: dict[str, Domain],
    restarts: Fact,
    groups: Sequence[Group],
    reasons: Why,
) -> list[Fact]:
    return [
        say.rings_balanced(world, states),
        *_serving(world, states, live, reasons),
        restarts,
        say.scale_in_blocked(world, states, groups, live),
        say.drained(world, states),
        volumes_resized(world),
    ]


def _serving(world: World, states: Sequence[RingState], live: dict[str, Domain], reasons: Why) -> list[Fact]:
    """Return conditions that are told whether or not anything may be changed."""
    objects = [state for state in states if state.task.ring.startswith("object-")]
    databases = [state for state in states if state not in objects]
    storage = say.available("StorageAvailable", STORAGE, live, objects)
    containers = say.available("ContainersAvailable", CONTAINER, live, databases)
    direct = say.direct_access_available(world)
    degraded = say.degraded(world, live, replacing(world, published(states)).message)
    return [
        explained(storage, reasons, lambda part: part.component == STORAGE),
        explained(containers, reasons, lambda part: part.component == CONTAINER),
        explained(say.proxies_available(world, live), reasons, lambda part: serves_api(world, part)),
        explained_degraded(degraded, reasons, has_data=any(state.before is not None for state in states)),
        explained(direct, reasons, lambda part: part.component == METADATA)
        if world.cluster.spec.direct_access.enabled
        else direct,
        pods_healthy(reasons),
        capacity_available(levels(world)),
        replicas_spread(world, states),
        fragments_whole(world),
        regions_equal(world),
        say.maintenance(world, states, live),
        say.rdma_available(world),
        failure_table_shared(world),
        keys_sealed(world),
    ]


def _unknown() -> list[Fact]:
    """Return conditions that are Unknown while nothing may be changed."""
    message = "not looked at while the spec is invalid or paused"
    types = (
        *("RingsBalanced", "ScaleInBlocked", "Drained", "VolumesResized", "KeysRotated", "NodesCordoned"),
        "TransportEncrypted",
    )
    return [Fact(type_, "Unknown", "NotObserved", message) for type_ in types]


def _rotated(base: Basis, rotating: KeyPlan) -> Fact:
    if not base.secrets_wrong:
        return rotating.fact
    return Fact("KeysRotated", "Unknown", "NotObserved", "not checked while keys or certificates are wrong")


def _key_patches(rotating: KeyPlan) -> tuple[Patch, ...]:
    return () if rotating.patch is None else (rotating.patch,)


def _finalizer(world: World) -> tuple[Patch, ...]:
    meta = world.cluster.meta
    if FINALIZER in meta.finalizers or meta.deleting:
        return ()
    change = {"resourceVersion": world.resource_version, "finalizers": [*meta.finalizers, FINALIZER]}
    return (Patch(CLUSTER, meta.name, {"metadata": change}),)
