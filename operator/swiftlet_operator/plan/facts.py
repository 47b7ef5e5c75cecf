"""What each condition says: pure summaries of a world and of what was planned for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from swiftlet.crd import Fact
from swiftlet_operator.build.site import PROXY
from swiftlet_operator.checks import Verdict, offers
from swiftlet_operator.manifests import DEPLOYMENT
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.world import World

READY_NEEDS = ("SpecValid", "StorageAvailable", "ContainersAvailable", "ProxiesAvailable")
"""Ready is true when all of these are."""


def spec_valid(verdicts: Iterable[Verdict]) -> Fact:
    """Whether the cluster, with the objects around it, can be made true at all."""
    wrong = [one for one in verdicts if one.violated and one.kind == "StorageCluster"]
    if not wrong:
        return Fact("SpecValid", "True", "Valid", "the cluster and the objects around it fit together")
    return Fact("SpecValid", "False", wrong[0].reason, "; ".join(one.message for one in wrong))


def rings_balanced(states: Sequence[RingState]) -> Fact:
    """Whether partitions are where they should be in the end."""
    broken = [state.problem for state in states if state.outcome is None]
    if broken:
        return Fact("RingsBalanced", "False", "BuilderUnreadable", "; ".join(broken))
    refused = [state.outcome.refused for state in states if state.outcome and state.outcome.refused]
    if refused:
        return Fact("RingsBalanced", "False", refused[0][0], "; ".join(message for _, message in refused))
    waiting = [f"ring {one.task.ring}: {one.outcome.waiting}" for one in states if one.outcome and one.outcome.waiting]
    if waiting:
        return Fact("RingsBalanced", "False", "Rebalancing", "; ".join(waiting))
    return Fact("RingsBalanced", "True", "Balanced", "no partition is waiting to be moved")


def available(
    type_: str, component: str, live: Mapping[str, Domain], rings: Sequence[RingState], replicas: float
) -> Fact:
    """Whether enough pods with data serve: for every partition a majority, wherever its replicas are."""
    missing = [state.task.ring for state in rings if state.outcome is None or state.outcome.saved is None]
    if missing:
        return Fact(type_, "False", "RingMissing", f"there is no ring {', '.join(missing)} yet")
    mine = [one for one in live.values() if one.component == component]
    if not mine:
        return Fact(type_, "False", "NoPods", "the pods have not been made yet")
    down = {one.name: one.replicas - one.ready for one in mine if one.ready < one.replicas}
    if not down:
        return Fact(type_, "True", "AllReady", "all pods are ready")
    text = ", ".join(f"{count} of {name}" for name, count in sorted(down.items()))
    # Replicas stand in different domains, so one domain takes one replica with it.
    lost = 1 if len(down) == 1 and len(mine) > 1 else sum(down.values())
    if lost <= (int(replicas) - 1) // 2:
        return Fact(type_, "True", "MajorityReady", f"not ready: {text}; every partition has a majority")
    return Fact(type_, "False", "PodsNotReady", f"not ready: {text}; see their events and logs")


def proxies_available(world: World, live: Mapping[str, Domain]) -> Fact:
    """Whether somebody serves the API."""
    spec = world.cluster.spec
    deployment = world.child(DEPLOYMENT, f"{world.cluster.meta.name}-{PROXY}")
    ready = int(((deployment or {}).get("status") or {}).get("readyReplicas") or 0)
    sumo = {f"{world.cluster.meta.name}-{pool.name}" for pool in spec.pools if PROXY in pool.roles}
    ready += sum(one.ready for one in live.values() if any(one.name == s or one.name.startswith(f"{s}-") for s in sumo))
    if not spec.proxy.replicas and not sumo:
        message = "spec.proxy.replicas is 0 and no pool has the role proxy; set one of them"
        return Fact("ProxiesAvailable", "False", "NoProxies", message)
    if ready:
        return Fact("ProxiesAvailable", "True", "Ready", "at least one pod serves the API")
    return Fact("ProxiesAvailable", "False", "PodsNotReady", "no pod serves the API; see the proxies' events and logs")


def progressing(world: World, held: Mapping[str, str], live: Mapping[str, Domain]) -> Fact:
    """Whether pods are being changed."""
    if world.cluster.spec.paused:
        return Fact("Progressing", "False", "Paused", "spec.paused is true: nothing is changed until it is false")
    if held:
        reasons = sorted(set(held.values()))
        message = f"{', '.join(sorted(held))} restart later: {'; '.join(reasons)}"
        return Fact("Progressing", "True", "RollingOut", message)
    rolling = sorted(one.name for one in live.values() if one.rolling)
    if rolling:
        return Fact("Progressing", "True", "RollingOut", f"{', '.join(rolling)} is being restarted")
    return Fact("Progressing", "False", "Complete", "all pods are as they should be")


def degraded(live: Mapping[str, Domain]) -> Fact:
    """Whether data has fewer copies at hand than it should."""
    down = sorted(one.name for one in live.values() if one.ready < one.replicas)
    if down:
        return Fact("Degraded", "True", "PodsNotReady", f"{', '.join(down)} has pods that are not ready")
    return Fact("Degraded", "False", "AllReady", "all pods with data are ready")


def scale_in_blocked(states: Sequence[RingState]) -> Fact:
    """Whether pods should go but can't yet."""
    few = [s.outcome.refused for s in states if s.outcome and s.outcome.draining and s.outcome.refused]
    if few:
        return Fact("ScaleInBlocked", "True", few[0][0], few[0][1])
    drained = _pods(name for state in states if state.outcome for name in state.outcome.drained)
    draining = _pods(name for state in states if state.outcome for name in state.outcome.draining)
    if draining - drained:
        message = f"partitions are being moved away from {', '.join(sorted(draining - drained))}"
        return Fact("ScaleInBlocked", "True", "Draining", message)
    if drained:
        message = (
            f"nobody has reported that {', '.join(sorted(drained))} hold nothing any more; if you know that they are "
            "empty, name them in the annotation swiftlet.io/allow-scale-in of the StorageCluster"
        )
        return Fact("ScaleInBlocked", "True", "AwaitingEmpty", message)
    return Fact("ScaleInBlocked", "False", "NothingToDrain", "no pod is to go")


def _pods(devices: Iterable[str]) -> set[str]:
    return {name.split("/")[0] for name in devices}


def rdma_available(world: World, pools: frozenset[str]) -> Fact:
    """Whether the pools that want RDMA have it."""
    spec = world.cluster.spec
    wanting = [pool for pool in spec.pools if spec.rdma_of(pool).wanted]
    if not wanting:
        return Fact("RDMAAvailable", "False", "NotWanted", "no pool asks for RDMA")
    without = [pool.name for pool in wanting if not any(offers(node, spec.rdma_of(pool)) for node in world.nodes)]
    if without:
        message = f"no node offers the resource that pool {', '.join(without)} wants; is the device plugin running?"
        return Fact("RDMAAvailable", "False", "NoNodes", message)
    if missing := [pool.name for pool in wanting if pool.name not in pools]:
        message = f"not all nodes of pool {', '.join(missing)} offer it, so its pods do without"
        return Fact("RDMAAvailable", "False", "SomeNodes", message)
    return Fact("RDMAAvailable", "True", "Available", "all pools that want RDMA ask for it")


def ready(facts: Sequence[Fact]) -> Fact:
    """The summary."""
    wrong = [fact for fact in facts if fact.type in READY_NEEDS and not fact.is_true]
    if not wrong:
        return Fact("Ready", "True", "Available", "the API serves reads and writes")
    return Fact("Ready", "False", wrong[0].reason, f"{wrong[0].type}: {wrong[0].message}")
