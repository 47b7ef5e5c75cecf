"""What keeps pods from running, told in conditions: `PodsHealthy`, and the cause in those that depend on the pods.

Until a cluster has been Ready once, what only needs more time is told as `Starting`: it raises no alarm, and
`PodsHealthy` is Unknown, by which alerts recognise it. A cause is told at once. A start that takes too long does not
count as a start any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from swiftlet.crd import Fact
from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.build.site import CONTAINER, METADATA, PROXY, STORAGE
from swiftlet_operator.manifests import CLUSTER, DEPLOYMENT, STATEFUL_SET
from swiftlet_operator.plan.sync import seconds
from swiftlet_operator.trouble import Diagnosis, Part, Seen, Trouble, diagnose, on_the_way, told
from swiftlet_operator.world import World

TYPE = "PodsHealthy"
STARTING = "Starting"
START_LIMIT_S = 1800
"""Seconds after which a cluster that has never been Ready does not count as starting any more."""
FIRST_READY = "firstReadyTime"
"""Field of the status: when the cluster was Ready for the first time."""
_OF_A_START = frozenset({"PodsNotReady", "NotInSync"})
"""Reasons of `Degraded` that occur in every start; a lost node or a failed device is told at once."""
_ORDER = (STORAGE, CONTAINER, PROXY, METADATA)
"""Components in the order in which their troubles are told, the gravest first."""


@dataclass(frozen=True, slots=True)
class Why:
    """What keeps pods from running.

    `is_new`: the cluster has never been Ready. `starting`: it is new, and the start does not take too long.
    """

    diagnosis: Diagnosis
    starting: bool
    is_new: bool

    def troubles(self, concerned: Callable[[Part], bool]) -> list[Trouble]:
        """Return the troubles of some components of the cluster."""
        return [one for one in self.diagnosis.troubles if concerned(one.part)]

    def summary(self, concerned: Callable[[Part], bool]) -> str:
        """Return what the pods of some components are doing until they are ready."""
        waiting = (one for one in self.diagnosis.on_way if concerned(one.part))
        return on_the_way(waiting, dict(self.diagnosis.wanted))


def seen_of(world: World) -> Seen:
    """Return the part of the world that says why pods don't run."""
    kinds = {STATEFUL_SET.kind, DEPLOYMENT.kind}
    return Seen(
        now_s=world.now_s,
        workloads=[one for (kind, _), one in sorted(world.children.items()) if kind in kinds],
        pods=world.pods,
        claims=world.claims,
        nodes=world.nodes,
        volumes=world.volumes,
        evidence=world.evidence,
    )


def why(world: World, *, is_valid: bool) -> Why:
    """Look at the pods. `is_valid`: the specs fit together, so that there can be a start."""
    found = diagnose(seen_of(world))
    order = {component: index for index, component in enumerate(_ORDER)}
    troubles = sorted(found.troubles, key=lambda one: order.get(one.part.component, len(order)))
    is_new = first_ready_time(world) is None
    begun_s = max([world.created_s, *(seconds(since) for since in _since(world, "SpecValid", "True"))])
    in_time = world.now_s - begun_s < START_LIMIT_S
    starting = is_new and is_valid and in_time and not world.cluster.spec.paused
    return Why(replace(found, troubles=tuple(troubles)), starting, is_new)


def pods_healthy(reasons: Why) -> Fact:
    """Return whether nothing keeps a pod from running; Unknown while the cluster starts for the first time."""
    troubles, summary = reasons.diagnosis.troubles, reasons.diagnosis.summary
    if troubles:
        return Fact(TYPE, "False", troubles[0].cause, told(troubles))
    if reasons.starting:
        return Fact(TYPE, "Unknown", STARTING, summary or "the pods run; the cluster has not been Ready yet")
    more = f"; {summary}" if summary else ""
    return Fact(TYPE, "True", "NoneInTrouble", f"nothing keeps a pod from running{more}")


def explained(fact: Fact, reasons: Why, concerned: Callable[[Part], bool]) -> Fact:
    """Return a fact about some components with the cause in its message, and in its reason where it is False."""
    troubles = reasons.troubles(concerned)
    if troubles and fact.is_true:
        return replace(fact, message=f"{fact.message}. {told(troubles)}")
    if troubles:
        return replace(fact, reason=troubles[0].cause, message=f"{told(troubles)} So {fact.message}")
    if reasons.starting and not fact.is_true:
        return replace(fact, reason=STARTING, message=reasons.summary(concerned) or fact.message)
    return fact


def serves_api(world: World, part: Part) -> bool:
    """Return whether pods of a part serve the Swift API: the proxies, and pools that have this role."""
    pools = {pool.name for pool in world.cluster.spec.pools if PROXY in pool.roles}
    return part.component == PROXY or part.pool in pools


def explained_degraded(fact: Fact, reasons: Why, *, has_data: bool) -> Fact:
    """Return `Degraded`; before the cluster has served for the first time no copy counts as missing."""
    if fact.reason in _OF_A_START and (reasons.starting or (reasons.is_new and not has_data)):
        return Fact("Degraded", "False", STARTING, "the cluster has not been Ready yet")
    troubles = reasons.troubles(lambda part: part.component in (STORAGE, CONTAINER))
    return replace(fact, message=f"{fact.message}. {told(troubles)}") if fact.is_true and troubles else fact


def first_ready_time(world: World) -> str | None:
    """Return when the cluster was Ready for the first time, by its status; None when it never was."""
    own = world.own.get((CLUSTER.kind, world.cluster.meta.name)) or {}
    known = (own.get("status") or {}).get(FIRST_READY)
    return known if isinstance(known, str) and known else None


def remembered(world: World, ready: Fact) -> dict[str, object]:
    """Return the field of the status that says since when the cluster is not new any more, once it is not."""
    found = first_ready_time(world)
    if found is None and ready.is_true:
        found = rfc3339(datetime.fromtimestamp(world.now_s, UTC))
    return {} if found is None else {FIRST_READY: found}


def _since(world: World, type_: str, status: str) -> list[str]:
    """Return since when a condition has had this status; nothing when it has another one."""
    return [one.last_transition_time for one in world.cluster.conditions if (one.type, one.status) == (type_, status)]
