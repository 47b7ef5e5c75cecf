"""Makes each condition: pure summaries of a world and of the plan for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from swiftlet.crd import Fact, Pool, ProxySpec
from swiftlet_operator.build.site import METADATA, PROXY, Group
from swiftlet_operator.checks import Verdict, offers
from swiftlet_operator.manifests import COMPONENT_LABEL, DEPLOYMENT, POOL_LABEL, labels_of, name_of
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.spread import is_served
from swiftlet_operator.plan.sync import is_empty, is_named, owes_no_rows, pod_of
from swiftlet_operator.plan.workloads import Domain, awaited_services, leaving_pods, published
from swiftlet_operator.reports import SERVING, Report
from swiftlet_operator.rings import named
from swiftlet_operator.trouble.seen import status_of
from swiftlet_operator.world import World

_RDMA = "rdma"
_FALLBACKS = frozenset({"http", "tcp"})
"""Transports between nodes that are used when RDMA is not available."""
_MAX_REASON = 300
"""The largest number of characters of a pod's message in a condition."""
READY_NEEDS = ("SpecValid", "StorageAvailable", "ContainersAvailable", "ProxiesAvailable")
"""Ready is True when all of these conditions are."""


def spec_valid(verdicts: Iterable[Verdict], meanwhile: str = "") -> Fact:
    """Return whether the specs of the cluster and of the objects around it fit together.

    `meanwhile` says what is done until they do.
    """
    wrong = [one for one in verdicts if one.violated and one.kind == "StorageCluster"]
    if not wrong:
        return Fact("SpecValid", "True", "Valid", "the cluster and the objects around it fit together")
    messages = [*(one.message for one in wrong), *([meanwhile] if meanwhile else [])]
    return Fact("SpecValid", "False", wrong[0].reason, "; ".join(messages))


def rings_balanced(world: World, states: Sequence[RingState]) -> Fact:
    """Return whether all partitions are where the rings will have them in the end."""
    broken = [state.problem for state in states if state.outcome is None]
    if broken:
        return Fact("RingsBalanced", "False", "BuilderUnreadable", "; ".join(broken))
    refused = [state.outcome.refused for state in states if state.outcome and state.outcome.refused]
    if refused:
        return Fact("RingsBalanced", "False", refused[0][0], "; ".join(message for _, message in refused))
    waiting = [f"ring {one.task.ring}: {one.outcome.waiting}" for one in states if one.outcome and one.outcome.waiting]
    if waiting:
        return Fact("RingsBalanced", "False", "Rebalancing", "; ".join(waiting))
    federation = world.cluster.spec.federation
    if federation is not None and not federation.leads:
        message = f"member {federation.leader} builds the rings; its RingsBalanced tells what waits to be moved"
        return Fact("RingsBalanced", "True", "Followed", message)
    return Fact("RingsBalanced", "True", "Balanced", "no partition is waiting to be moved")


def available(type_: str, component: str, live: Mapping[str, Domain], rings: Sequence[RingState]) -> Fact:
    """Return whether enough pods with data serve: a majority for every partition, wherever its replicas are, and
    enough fragments of objects with erasure coding.
    """
    missing = [state.task.ring for state in rings if state.outcome is None or state.outcome.saved is None]
    if missing:
        return Fact(type_, "False", "RingMissing", f"there is no ring {', '.join(missing)} yet")
    mine = [one for one in live.values() if one.component == component]
    if not mine:
        return Fact(type_, "False", "NoPods", "the pods have not been created yet")
    down = {one.name: len(one.down) for one in mine if one.down}
    if not down:
        return Fact(type_, "True", "AllReady", "all pods are ready")
    text = ", ".join(f"{count} of {name}" for name, count in sorted(down.items()))
    # Replicas stand in different domains, so one domain takes one replica with it.
    lost = 1 if len(down) == 1 and len(mine) > 1 else sum(down.values())
    away = {pod for one in mine for pod in one.down}
    # Some may be known by their StatefulSet alone, and are any of its pods.
    unknown = sum(f"a pod of {one.name}" in away for one in mine)
    is_short = any(not is_served(state, lambda device: pod_of(device) in away, unknown) for state in rings)
    copies = [(int(state.task.shape.replicas) - 1) // 2 for state in rings if state.task.shape.coding is None]
    if lost <= min(copies, default=lost) and not is_short:
        more = "" if len(copies) == len(rings) else ", or fragments enough"
        return Fact(type_, "True", "MajorityReady", f"not ready: {text}; every partition has a majority{more}")
    return Fact(type_, "False", "PodsNotReady", f"not ready: {text}; see their events and logs")


def proxy_pods(world: World, field: str) -> dict[str, int]:
    """Return how many pods the Deployments of proxies have, wanted or not, by their names: a `field` of the status."""
    return {
        name: int(status_of(one).get(field) or 0)
        for (kind, name), one in world.children.items()
        if kind == DEPLOYMENT.kind and labels_of(one).get(COMPONENT_LABEL) == PROXY
    }


def proxies_available(world: World, live: Mapping[str, Domain]) -> Fact:
    """Return whether any proxy serves the API."""
    spec = world.cluster.spec
    ready = sum(proxy_pods(world, "readyReplicas").values())
    sumo = {f"{world.cluster.meta.name}-{pool.name}" for pool in spec.pools if PROXY in pool.roles}
    ready += sum(one.ready for one in live.values() if any(one.name == s or one.name.startswith(f"{s}-") for s in sumo))
    if not spec.proxy.replicas and not sumo:
        message = "spec.proxy.replicas is 0 and no pool has the role proxy; set one of them"
        return Fact("ProxiesAvailable", "False", "NoProxies", message)
    if ready:
        return Fact("ProxiesAvailable", "True", "Ready", "at least one pod serves the API")
    return Fact("ProxiesAvailable", "False", "PodsNotReady", "no pod serves the API; see the proxies' events and logs")


def direct_access_available(world: World) -> Fact:
    """Return whether clients can get grants for direct access: a metadata server serves."""
    type_, name = "DirectAccessAvailable", f"{world.cluster.meta.name}-{METADATA}"
    if not world.cluster.spec.direct_access.enabled:
        return Fact(type_, "False", "NotWanted", "spec.directAccess.enabled is not set")
    if ((world.child(DEPLOYMENT, name) or {}).get("status") or {}).get("readyReplicas"):
        return Fact(type_, "True", "Ready", "at least one metadata server gives grants")
    message = f"no pod of Deployment {name} is ready, so clients use the proxies; see its events and logs"
    return Fact(type_, "False", "PodsNotReady", message)


def progressing(world: World, held: Mapping[str, str], live: Mapping[str, Domain]) -> Fact:
    """Return whether pods are being changed."""
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


def degraded(world: World, live: Mapping[str, Domain], lost: str) -> Fact:
    """Return whether fewer copies of data are available than there should be; `lost` tells of nodes that are gone."""
    if lost:
        return Fact("Degraded", "True", "NodeLost", lost)
    down = sorted(one.name for one in live.values() if one.ready < one.replicas or one.down)
    if down:
        return Fact("Degraded", "True", "PodsNotReady", f"{', '.join(down)} has pods that are not ready")
    failed = _failed_devices(world)
    if failed:
        message = f"{named(failed)} can't be used; replace the volume, and name it in spec.drain until then"
        return Fact("Degraded", "True", "DeviceFailed", message)
    stale = sorted(pod for one in live.values() for pod in one.stale)
    if stale:
        silent = (
            " and does not say how it is"
            if all(pod in one.silent for one in live.values() for pod in one.stale)
            else ""
        )
        message = f"{named(stale)} has not been in sync since it became ready{silent}"
        return Fact("Degraded", "True", "NotInSync", message)
    return Fact("Degraded", "False", "AllReady", "all pods with data are ready and in sync")


def _failed_devices(world: World) -> list[str]:
    found = []
    for pod, reports in world.reports.items():
        for service in ("object", "container"):
            devices = reports[service].devices if service in reports else {}
            found += [
                name if "/" in name else f"{pod}/{name}"
                for name, device in devices.items()
                if device.state is not None and device.state != SERVING
            ]
    return sorted(found)


def maintenance(world: World, states: Sequence[RingState], live: Mapping[str, Domain]) -> Fact:
    """Return whether a zone may be worked on."""
    spec = world.cluster.spec
    if spec.maintenance is None:
        return Fact("Maintenance", "False", "NotWanted", "no zone is in maintenance")
    zone = spec.maintenance.zone
    zones = {one.zone for one in live.values() if one.zone}
    zones |= {found for ring in published(states) for found in ring.zones.values()}
    if zone not in zones:
        message = f"nothing stands in zone {zone}, so no pod may go at all; the zones are {', '.join(sorted(zones))}"
        return Fact("Maintenance", "False", "ZoneUnknown", message)
    others = [one for one in live.values() if one.zone not in (None, zone)]
    troubled = sorted(one.name for one in others if not one.whole or one.stale)
    if troubled:
        message = f"zone {zone} may not be drained yet: {named(troubled)} is not whole or not in sync"
        return Fact("Maintenance", "False", "OtherZonesNotWhole", message)
    mixed = sorted(one.name for one in live.values() if one.zone is None)
    more = f"; of {', '.join(mixed)} those pods may go that stand there" if mixed else ""
    message = f"zone {zone} may be drained; remove spec.maintenance when the work is done{more}"
    return Fact("Maintenance", "True", "ZoneMayBeDrained", message)


def drained(world: World, states: Sequence[RingState]) -> Fact:
    """Return whether everything that spec.drain names is free of data."""
    names = world.cluster.spec.drain
    if not names:
        return Fact("Drained", "False", "NotWanted", "spec.drain names nothing")
    rings = published(states)
    members = {device for ring in rings for device in ring.zones}
    unknown = [one for one in names if not any(is_named(device, (one,)) for device in members)]
    concerned = sorted(device for device in members if is_named(device, names))
    full = [
        device
        for device in concerned
        if not owes_no_rows(world, device)
        or any(
            device in ring.assigned or not is_empty(world, device, ring.ring, ring.version)
            for ring in rings
            if device in ring.zones
        )
    ]
    if full:
        return Fact("Drained", "False", "Draining", f"{named(full)} may still hold data")
    if unknown:
        message = f"{named(unknown)} is in no ring; a name is that of a pod, or POD/d0"
        return Fact("Drained", "False", "NameUnknown", message)
    return Fact("Drained", "True", "Empty", f"{named(concerned)} holds no data any more")


def scale_in_blocked(
    world: World, states: Sequence[RingState], groups: Sequence[Group], live: Mapping[str, Domain]
) -> Fact:
    """Return whether pods should go but can't yet."""
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
    going = leaving_pods(groups, live)
    if going and (late := awaited_services(world, going, states)):
        message = (
            f"{named(going)} holds no data any more and goes when nobody writes to it: {named(late)} does not say yet "
            "that it uses the rings without it"
        )
        return Fact("ScaleInBlocked", "True", "AwaitingServices", message)
    return Fact("ScaleInBlocked", "False", "NothingToDrain", "no pod is to be removed")


def _pods(devices: Iterable[str]) -> set[str]:
    return {pod_of(name) for name in devices}


def transports(world: World) -> dict[str, int]:
    """Return how many pods reach their peers by each transport."""
    return dict(sorted(Counter(one for reports in world.reports.values() for one in _used(reports)).items()))


def _used(reports: Mapping[str, Report]) -> set[str]:
    return {name for one in reports.values() for name, peers in one.transports.items() if peers}


def rdma_pools(world: World) -> frozenset[str]:
    """Return the pools whose pods ask for RDMA: those that must, and those that may where all their nodes offer it."""
    return frozenset(pool.name for pool in world.cluster.spec.pools if _asks_for_rdma(world, pool))


def rdma_proxies(world: World) -> bool:
    """Return whether the proxies' own pods ask for RDMA, by the same rule."""
    return _asks_for_rdma(world, world.cluster.spec.proxy)


def _asks_for_rdma(world: World, pods: Pool | ProxySpec) -> bool:
    rdma = world.cluster.spec.rdma_of(pods)
    if not rdma.wanted:
        return False
    wanted = {**world.cluster.spec.shape_of(pods).node_selector, **rdma.node_selector}.items()
    selected = [node for node in world.nodes if wanted <= labels_of(node).items()]
    return rdma.mode == "required" or (bool(selected) and all(offers(node, rdma) for node in selected))


def rdma_available(world: World) -> Fact:
    """Return whether the pods that want RDMA have it, and use it."""
    pools = rdma_pools(world)
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
    fallen = sorted(
        name_of(pod)
        for pod in world.pods
        if labels_of(pod).get(POOL_LABEL) in pools
        and (used := _used(world.reports.get(name_of(pod), {})))
        and used & _FALLBACKS
        and _RDMA not in used
    )
    if fallen:
        reports = world.reports.get(fallen[0], {}).values()
        why = next((one.rdma_missing for one in reports if one.rdma_missing), "see its log and the device's state")
        message = f"{named(fallen)} was given RDMA but reaches its peers without: {_shortened(why)}"
        return Fact("RDMAAvailable", "False", "FellBack", message)
    return Fact("RDMAAvailable", "True", "Available", "all pools with RDMA request its resource")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."


def ready(facts: Sequence[Fact]) -> Fact:
    """Return the condition Ready, which sums up the others."""
    wrong = [fact for fact in facts if fact.type in READY_NEEDS and not fact.is_true]
    if not wrong:
        return Fact("Ready", "True", "Available", "the API serves reads and writes")
    return Fact("Ready", "False", wrong[0].reason, f"{wrong[0].type}: {wrong[0].message}")
