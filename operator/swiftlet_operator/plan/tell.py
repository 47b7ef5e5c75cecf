"""What is reported: the statuses of the cluster and of the objects around it, and events for what is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd import Fact, Resource
from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.build import Site
from swiftlet_operator.build.names import ring_map
from swiftlet_operator.build.secrets import credentials_name, endpoint
from swiftlet_operator.build.site import PROXY
from swiftlet_operator.checks import AWAITED, Verdict
from swiftlet_operator.logins import NOT_SERVED, SILENT
from swiftlet_operator.manifests import (
    CLUSTER,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    POLICY,
    QUOTA,
    RING,
    USER,
    Kind,
    name_of,
    selector,
)
from swiftlet_operator.plan import facts as say
from swiftlet_operator.plan.actions import Event, StatusOf
from swiftlet_operator.plan.capacity import levels, told
from swiftlet_operator.plan.durability import durability
from swiftlet_operator.plan.encryption import EXPECTED as ENCRYPTING
from swiftlet_operator.plan.keys import ROTATING, KeyPlan
from swiftlet_operator.plan.membership import members_told
from swiftlet_operator.plan.policy_use import RETIRING, with_use
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.served import Logins, with_login
from swiftlet_operator.plan.trouble import STARTING, remembered
from swiftlet_operator.plan.upgrades import TIMED_OUT
from swiftlet_operator.plan.usage import quota_fields, usage_of, user_fields
from swiftlet_operator.world import World

_WAITS = "StorageCluster {name} takes no change of it while it is paused or its SpecValid is not True; see there"
ALL_WAIT = frozenset({POLICY.kind, QUOTA.kind, USER.kind})
"""Kinds of objects that wait while nothing may be changed."""
_GOOD_WHEN_FALSE = frozenset({"Degraded", "ScaleInBlocked", "DeletionBlocked"})
_NEITHER = frozenset({"Maintenance", "NodesCordoned", "Progressing", "Drained", "PoliciesRetired"})
"""Conditions whose change is no trouble in either direction."""
PART_ALTHOUGH = frozenset({NOT_SERVED, SILENT, RETIRING})
"""Reasons for which an object is not ready although it is part of the cluster."""
_EXPECTED = {
    "KeysRotated": ROTATING,
    "FailureTableShared": frozenset({"NotUsed"}),
    "SpecValid": AWAITED,
    "CertificateReady": frozenset({"NotWanted", "NotRequested", "Issuing"}),
    "APIExposed": frozenset({"NotWanted", "NotMade", "NotAttached"}),
    "DirectAccessAvailable": frozenset({"NotWanted"}),
    "FragmentsWhole": frozenset({"NotWanted", "FragmentsMissing"}),
    "RegionsEqual": frozenset({"NotWanted"}),
    "FederationReady": frozenset({"NotWanted", "RingsSpreading", "NotRead"}),
    "TransportEncrypted": ENCRYPTING,
    "KeysSealed": frozenset({"Pending"}),
}
"""Reasons that are no trouble although the condition is not yet as it should be."""


def cluster_status(
    world: World,
    facts: Sequence[Fact],
    site: Site | None = None,
    states: Sequence[RingState] = (),
    rotating: KeyPlan | None = None,
) -> StatusOf:
    """Return the cluster's own status."""
    fields: dict[str, object] = {
        "observedGeneration": world.cluster.meta.generation,
        "transports": say.transports(world),
        "filling": told(levels(world)),
        **remembered(world, say.ready(facts)),
        "proxy": _proxies(world),
    }
    if site is not None:
        fields["endpoint"] = endpoint(site)
        fields["zones"] = sorted({zone for state in states if state.outcome for zone in state.outcome.zones})
    if (federation := world.cluster.spec.federation) is not None:
        fields["federation"] = {"leader": federation.leader, "members": members_told(world, federation)}
    if rotating is not None:
        fields["keyGeneration"] = rotating.generation
    meta = world.cluster.meta
    return StatusOf(CLUSTER, meta.name, meta.generation, (say.ready(facts), *facts), fields)


def _proxies(world: World) -> dict[str, object]:
    """Return what the scale subresource needs: how many proxies there are, and a selector for them."""
    name = world.cluster.meta.name
    count = sum(say.proxy_pods(world, "replicas").values())
    return {"replicas": count, "selector": selector({INSTANCE_LABEL: name, COMPONENT_LABEL: PROXY})}


def statuses(
    world: World,
    verdicts: Sequence[Verdict],
    states: Sequence[RingState],
    logins: Logins,
    *,
    waiting: Collection[str] = (),
) -> list[StatusOf]:
    """Return the statuses of the objects around the cluster; no new object of the kinds in `waiting` becomes part of
    it.
    """
    wrong = {(one.kind, one.name): one for one in reversed(verdicts) if one.violated}
    outcomes = {state.task.ring: state for state in states}
    found = []

    def waits(kind: Kind, one: Resource[Any]) -> bool:
        return kind.kind in waiting and not _is_part(one) and (kind.kind, one.meta.name) not in wrong

    def told(kind: Kind, one: Resource[Any], fields: Mapping[str, object]) -> None:
        if waits(kind, one):
            fact = Fact("Ready", "False", "ClusterWaits", _WAITS.format(name=world.cluster.meta.name))
            found.append(StatusOf(kind, one.meta.name, one.meta.generation, (fact,), fields))
        else:
            found.append(_simple(kind, one.meta.name, one.meta.generation, wrong, fields))

    usage = usage_of(world)
    for policy in world.policies:
        state = outcomes.get(f"object-{policy.spec.index}")
        told(POLICY, policy, {} if state is None else durability(world, state))
        found[-1] = with_use(world, policy, found[-1])
    for quota in world.quotas:
        told(QUOTA, quota, quota_fields(world, quota, usage))
    for user in world.users:
        told(USER, user, {"secretName": credentials_name(user), **user_fields(world, user, usage)})
        found[-1] = with_login(world, user, logins, found[-1])
    for ring in world.ring_objects:
        state = outcomes.get(ring.spec.ring_name)
        if state is not None and not waits(RING, ring):
            found.append(_ring_status(world, ring.meta.name, ring.meta.generation, state))
        else:
            told(RING, ring, {})
    for broken in world.unreadable:
        generation = int(broken.manifest["metadata"].get("generation") or 0)
        found.append(_simple(broken.kind, name_of(broken.manifest), generation, wrong, {}))
    return found


def _is_part(one: Resource[Any]) -> bool:
    """Return whether an object, as it is now, is already part of the cluster."""
    return any(
        found.type == "Ready"
        and (found.status == "True" or found.reason in PART_ALTHOUGH)
        and found.observed_generation == one.meta.generation
        for found in one.conditions
    )


def _simple(
    kind: Kind, name: str, generation: int, wrong: dict[tuple[str, str], Verdict], fields: Mapping[str, object]
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


def events(world: World, facts: Sequence[Fact]) -> tuple[Event, ...]:
    """Return an event for each condition whose status or reason is new; on the first visit only for a wrong spec."""
    before = {one.type: (one.status, one.reason) for one in world.cluster.conditions}
    found = []
    for fact in (say.ready(facts), *facts):
        old = before.get(fact.type)
        if fact.status == "Unknown" or old == (fact.status, fact.reason):
            continue
        calm = fact.type in _NEITHER or fact.reason in _EXPECTED.get(fact.type, ()) or fact.reason == STARTING
        bad = fact.reason == TIMED_OUT or (not calm and fact.is_true == (fact.type in _GOOD_WHEN_FALSE))
        if old is None and not (bad and fact.type == "SpecValid"):
            continue
        message = f"{fact.type} is {fact.status}: {fact.message}"
        found.append(Event("Warning" if bad else "Normal", fact.reason, message))
    return tuple(found)
