"""Restarts as a whole: whether they may begin, and what has become of them. Pure.

One failure domain is restarted at a time (`plan/rollout.py`). This module decides what holds all of them: a person who
has paused them, or other clusters whose turn it is. It also reports when a pod has not come back in time, which one,
and why.

Fault model: a pod may never be made, never be scheduled, never start, or never come into sync. The time of each of
these counts from when it began, as the API server has it, so that a restarted operator counts on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swiftlet.crd import Fact
from swiftlet.crd.cluster import UpgradeSpec
from swiftlet_operator.build.site import METADATA, PROXY
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    DEPLOYMENT,
    STATEFUL_SET,
    Manifest,
    annotations_of,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan import facts as say
from swiftlet_operator.plan.rollout import TEMPLATE, TEMPLATE_SINCE
from swiftlet_operator.plan.sync import is_ready, ready_since_s, seconds
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

Turn = Callable[[bool, bool, bool], str]
"""Takes a cluster's turn among all clusters, or gives it back. Arguments: whether it wants one, is in the middle of
restarts, and is stuck. Returns what it waits for, empty when it may go on.
"""
TIMED_OUT = "UpgradeTimedOut"
"""Reason of the condition Progressing."""
PAUSED = "spec.upgrade.paused is true: nothing is restarted until it is false"
_WORKLOADS = (STATEFUL_SET, DEPLOYMENT)
_MAX_CAUSE = 200
"""The largest number of characters of a Kubernetes message about a pod in a condition."""


def alone(wants: bool, in_the_middle: bool, is_stuck: bool) -> str:
    """Return the turn of a cluster that has no others beside it."""
    return ""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A pod that has not come back in time, and a sentence about it."""

    pod: str
    text: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Workloads that must not be changed now and why, those that should be changed, and pods that are overdue."""

    held: Mapping[str, str]
    wanted: tuple[str, ...]
    overdue: tuple[Overdue, ...]
    waits_for: str = ""
    is_paused: bool = False


def upgrade(
    world: World,
    wanted: Sequence[Manifest],
    live: Mapping[str, Domain],
    held: Mapping[str, str],
    turn: Turn | None,
) -> Upgrade:
    """Return the state of the restarts that are due; `held` are the StatefulSets whose turn within the cluster it is
    not.

    Without a `turn` there is no data yet, and nothing waits for anything.
    """
    if turn is None:
        return Upgrade(held, (), ())
    spec = world.cluster.spec.upgrade
    changed = tuple(name_of(one) for one in wanted if _restarts(world, one))
    rolling = _rolling(world, live)
    late = overdue(world, live, rolling, changed) if changed or rolling else ()
    waits_for = turn(bool(changed or rolling), bool(rolling) or _is_mixed(world), bool(late))
    reason = PAUSED if spec.paused else waits_for
    if not reason or not changed:
        return Upgrade(held, changed, late)
    return Upgrade({**held, **dict.fromkeys(changed, reason)}, changed, late, waits_for, spec.paused)


def past_timeout(world: World, live: Mapping[str, Domain]) -> Mapping[str, Domain]:
    """Return the domains that a restart waits for, without pods that nobody has to wait for any longer.

    These are pods that are ready but not in sync in time, where the spec says so. For a pod that is not ready the next
    restart always waits: it could remove the second copy.
    """
    spec = world.cluster.spec.upgrade
    if not spec.continue_after_timeout:
        return live

    def waited(one: Domain) -> Domain:
        behind = tuple(pod for pod in one.behind if _age_s(world, pod, one.name) <= spec.timeout_seconds)
        return replace(one, behind=behind, silent=tuple(pod for pod in one.silent if pod in behind))

    return {name: waited(one) for name, one in live.items()}


def overdue(
    world: World, live: Mapping[str, Domain], rolling: Sequence[str], pending: Sequence[str]
) -> tuple[Overdue, ...]:
    """Return pods that have been away, or not in sync, for longer than an upgrade waits.

    Pods of `pending` workloads are left out: their trouble began before, or has another reason.
    """
    limit_s = world.cluster.spec.upgrade.timeout_seconds
    found = [
        Overdue(pod, _why(world, one, pod))
        for one in live.values()
        if one.name not in pending
        for pod in dict.fromkeys((*one.down, *one.behind))
        if _age_s(world, pod, one.name) > limit_s
    ]
    for pod in world.pods:
        workload = f"{world.cluster.meta.name}-{labels_of(pod).get(COMPONENT_LABEL)}"
        served = labels_of(pod).get(COMPONENT_LABEL) in (PROXY, METADATA)
        if served and workload in rolling and not is_ready(pod) and _age_s(world, name_of(pod), workload) > limit_s:
            found.append(Overdue(name_of(pod), f"{name_of(pod)} is not ready ({_cause(world, name_of(pod))})"))
    return tuple(sorted(set(found), key=lambda one: one.pod))


def _age_s(world: World, pod: str, workload: str) -> int:
    """Return the seconds since a pod went away, or came back without being in sync; for a missing one, since the
    change.
    """
    found = world.pod(pod)
    if found is None:
        since = _changed_s(world, workload)
        return world.now_s - since if since else 0
    if (since_ready := ready_since_s(found)) is not None:
        return world.now_s - max(since_ready, _changed_s(world, workload))
    since = seconds(found["metadata"].get("creationTimestamp"))
    for condition in (found.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Ready":
            since = max(since, seconds(condition.get("lastTransitionTime")))
    return world.now_s - since if since else 0


def _changed_s(world: World, workload: str) -> int:
    """Return when a workload's template changed last, 0 when that is not known."""
    live = world.child(STATEFUL_SET, workload) or world.child(DEPLOYMENT, workload)
    return seconds(annotations_of(live).get(TEMPLATE_SINCE)) if live is not None else 0


def _why(world: World, domain: Domain, pod: str) -> str:
    if pod in domain.down:
        return f"{pod} is not ready ({_cause(world, pod)})"
    if pod in domain.silent:
        return f"{pod} does not say how it is"
    return f"{pod} is ready and has not been in sync since"


def _cause(world: World, pod: str) -> str:
    """Return what Kubernetes says of a pod that is not ready."""
    found = world.pod(pod)
    if found is None:
        return "it is not there; see the events of its StatefulSet"
    status: dict[str, Any] = found.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        state = container.get("state") or {}
        told = state.get("waiting") or state.get("terminated")
        if told and not container.get("ready"):
            return _said(f"{container.get('name')}: {told.get('reason', '')} {told.get('message') or ''}")
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False" and condition.get("message"):
            return _said(str(condition["message"]))
    return "it is not ready; see its events and its log"


def _said(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_CAUSE else f"{text[:_MAX_CAUSE]}..."


def _restarts(world: World, wanted: Manifest) -> bool:
    if kind_of(wanted) not in _WORKLOADS:
        return False
    live = world.child(kind_of(wanted), name_of(wanted))
    return live is not None and annotations_of(live).get(TEMPLATE) != annotations_of(wanted).get(TEMPLATE)


def _rolling(world: World, live: Mapping[str, Domain]) -> tuple[str, ...]:
    """Return workloads whose pods are being replaced."""
    deployments = [one for (kind, _), one in world.children.items() if kind == DEPLOYMENT.kind]
    found = [name_of(one) for one in deployments if _replaces(one)]
    return tuple(sorted([*found, *(one.name for one in live.values() if one.rolling)]))


def _replaces(deployment: Manifest) -> bool:
    status: dict[str, Any] = deployment.get("status") or {}
    if "observedGeneration" not in status:
        return False
    replicas = int(deployment["spec"].get("replicas") or 0)
    updated, every = int(status.get("updatedReplicas") or 0), int(status.get("replicas") or 0)
    return updated < replicas or every > updated


def _is_mixed(world: World) -> bool:
    """Return whether some StatefulSets have another image than others: restarts have begun."""
    images = {
        container["image"]
        for (kind, _), one in world.children.items()
        if kind == STATEFUL_SET.kind and labels_of(one).get(COMPONENT_LABEL) in ("storage", "container")
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    return len(images) > 1


def progressing(world: World, now: Upgrade, live: Mapping[str, Domain]) -> Fact:
    """Return whether pods are being changed, and what hinders it."""
    if now.overdue:
        pods = "; ".join(one.text for one in now.overdue[:3])
        more = f" and {len(now.overdue) - 3} more" if len(now.overdue) > 3 else ""
        spec: UpgradeSpec = world.cluster.spec.upgrade
        message = (
            f"not back after {spec.timeout_seconds} s (spec.upgrade.timeoutSeconds): {pods}{more}; nothing else is "
            "restarted until that is mended"
        )
        if spec.continue_after_timeout:
            message += ", but for pods that are ready (spec.upgrade.continueAfterTimeout)"
        return Fact("Progressing", "False", TIMED_OUT, message)
    if now.is_paused:
        return Fact("Progressing", "False", "UpgradePaused", f"{named(sorted(now.wanted))} restart later: {PAUSED}")
    if now.waits_for:
        message = f"{named(sorted(now.wanted))} restart later: {now.waits_for}"
        return Fact("Progressing", "True", "WaitingForTurn", message)
    return say.progressing(world, now.held, live)
