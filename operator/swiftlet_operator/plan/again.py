"""When a cluster is looked at again although no event asks for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from swiftlet.crd import Fact
from swiftlet_operator.plan import facts as say
from swiftlet_operator.plan.actions import StatusOf
from swiftlet_operator.plan.keys import KeyPlan
from swiftlet_operator.plan.lost import Replacing
from swiftlet_operator.plan.membership import TYPE as FEDERATION_READY
from swiftlet_operator.plan.redis import TYPE as FAILURE_TABLE_SHARED
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.served import awaits_proxies
from swiftlet_operator.plan.trouble import TYPE as PODS_HEALTHY

LOOK_AGAIN_S = 300.0
"""Without any event the cluster is looked at after this time."""
TROUBLED_S = 30.0
"""While something is wrong that no event tells of: pods that don't run, devices, volumes, Redis."""
BUSY_S = 15.0
"""While pods are restarted or rings wait for pods: readiness in other places changes without an event."""
_WAITING = {
    "Progressing": {"RollingOut", "UpgradeTimedOut", "WaitingForTurn"},
    "Degraded": {"PodsNotReady", "NotInSync", "NodeLost"},
    "ScaleInBlocked": {"AwaitingEmpty", "AwaitingServices"},
    "Drained": {"Draining"},
    "NodesCordoned": {"DomainOpen", "NotInSync", "OnePodAtATime"},
    "TransportEncrypted": {"NotReady", "TurningOn", "TurningOff"},
    "KeysSealed": {"Pending"},
}
"""Conditions that change only with a pod's report, which no event announces."""
_TROUBLES = frozenset({PODS_HEALTHY, FAILURE_TABLE_SHARED, "VolumesResized"})
"""Conditions that pods, services or volumes set right without an event."""
_OTHERS = frozenset({"CertificateReady", "APIExposed"})
"""Conditions that tell what other controllers have done, for their own reasons."""
_NOBODY = frozenset(
    {"NotWanted", "CertManagerMissing", "GatewayAPIMissing", "NotUsed", "ExpansionNotAllowed", "NotObserved"}
)
"""Reasons that wait for a person: nobody else does anything that could be waited for."""


def again(
    states: Iterable[RingState],
    held: Mapping[str, str],
    facts: Sequence[Fact],
    told: Iterable[StatusOf],
    replacing_now: Replacing,
    rotating: KeyPlan,
) -> float:
    """Return in how many seconds the cluster has to be looked at again; `held` are workloads that wait."""
    times = [LOOK_AGAIN_S]
    times += [state.outcome.again_in_s for state in states if state.outcome and state.outcome.again_in_s is not None]
    if replacing_now.again_in_s is not None:
        times.append(replacing_now.again_in_s)
    if rotating.again_in_s is not None:
        times.append(rotating.again_in_s)
    if held or replacing_now.force or awaits_proxies(told):
        times.append(BUSY_S)
    return max(1.0, min(*times, while_waiting(facts)))


def while_waiting(facts: Sequence[Fact]) -> float:
    """Return the same as `again`, for conditions alone."""
    open_ = {fact.type for fact in facts if not fact.is_true and fact.reason not in _NOBODY}
    waits = any(fact.type in _WAITING and fact.reason in _WAITING[fact.type] for fact in facts)
    if waits or open_ & _OTHERS or not say.ready(facts).is_true:
        return BUSY_S
    federated = {fact.status for fact in facts if fact.type == FEDERATION_READY and fact.reason != "NotWanted"}
    if federated:
        # What other members do makes no event here.
        return TROUBLED_S if federated == {"True"} else BUSY_S
    failed = any((fact.type, fact.reason) == ("Degraded", "DeviceFailed") for fact in facts)
    return TROUBLED_S if failed or open_ & _TROUBLES else LOOK_AGAIN_S
