"""Which StatefulSets with data may be changed now: one failure domain at a time, the next when the last is in sync.

Fault model: a pod that never becomes ready, or never says that it is in sync, stops the domains after it, for one more
restart could take the second copy. What may be its cure goes on: a domain in trouble is changed first, and pods that
have no partitions any more, because they were drained, are not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.manifests import (
    DEPLOYMENT,
    GROUP,
    STATEFUL_SET,
    ZONE_LABEL,
    Manifest,
    annotations_of,
    digest_of,
    is_going,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TEMPLATE = f"{GROUP}/template"
"""Annotation on StatefulSets: the digest of the pod template that was applied; another one means a restart."""
TEMPLATE_SINCE = f"{GROUP}/template-since"
"""Annotation beside it: when it changed last, in RFC 3339."""
_REVISION = "controller-revision-hash"


def stamped(world: World, manifest: Manifest) -> Manifest:
    """A workload with the digest of its pod template and when that changed, other manifests as they are."""
    if kind_of(manifest) not in (STATEFUL_SET, DEPLOYMENT):
        return manifest
    metadata = manifest["metadata"]
    digest, known = digest_of(manifest["spec"]["template"]), world.child(kind_of(manifest), name_of(manifest))
    before = annotations_of(known) if known is not None else {}
    since = before.get(TEMPLATE_SINCE) if before.get(TEMPLATE) == digest else None
    moment = since or rfc3339(datetime.fromtimestamp(world.now_s, UTC))
    notes = {**annotations_of(manifest), TEMPLATE: digest, TEMPLATE_SINCE: moment}
    return {**manifest, "metadata": {**metadata, "annotations": notes}}


def held_back(
    world: World,
    wanted: Sequence[Manifest],
    live: Mapping[str, Domain],
    has_data: bool,
    secrets_wrong: bool = False,
    draining: str = "",
) -> dict[str, str]:
    """StatefulSets with data whose pods must not restart now, and why; none may while `secrets_wrong`.

    `draining`: why none that is whole may; those in trouble may need the restart to come back.
    """
    sets = [one for one in wanted if kind_of(one) == STATEFUL_SET and name_of(one) in live]
    changed = [name_of(one) for one in sets if _restarts(world, one)]
    if not has_data or not changed:
        return {}
    if secrets_wrong:
        return dict.fromkeys(changed, "keys or certificates are wrong, and pods might not come back")
    maintenance = world.cluster.spec.maintenance
    if maintenance is not None:
        turns, reason = _in_maintenance(maintenance.zone, changed, live)
    else:
        turns, reason = _next(changed, live)
        if draining:
            turns, reason = {name for name in turns if name in live and not live[name].whole}, draining
    return {name: reason for name in changed if name not in turns}


def _in_maintenance(zone: str, changed: Sequence[str], live: Mapping[str, Domain]) -> tuple[set[str], str]:
    """All of the zone at once, unless another one is in trouble; nothing elsewhere."""
    down = [pod for one in live.values() if one.zone != zone for pod in one.down]
    reason = f"zone {zone} is in maintenance"
    if down:
        return set(), f"{reason}, and {named(down)} elsewhere is not ready"
    return {name for name in changed if live[name].zone == zone}, reason


def _next(changed: Sequence[str], live: Mapping[str, Domain]) -> tuple[set[str], str]:
    """The one whose turn it is, and what the others wait for."""
    broken = [one for one in live.values() if not one.whole]
    late = [one for one in live.values() if one.behind]
    if broken:
        curable = [one for one in broken if one.name in changed]
        # While another is being restarted, only one that has nothing to lose.
        free = [one for one in curable if one.ready == 0 or not any(other.rolling for other in broken if other != one)]
        turn = free[0].name if free else ""
    elif len(late) == 1 and late[0].name in changed:
        turn = late[0].name
    else:
        # A domain that can't say how it is may be one whose services are too old for it; but no other may be behind.
        silent = [one.name for one in late if one.name in changed and one.behind == one.silent]
        turn = "" if len(silent) < len(late) else next(iter([*silent, *changed]))
    return {turn}, _reason(broken, late, turn)


def _reason(broken: Sequence[Domain], late: Sequence[Domain], turn: str) -> str:
    rolling = sorted(one.name for one in broken if one.rolling)
    down = sorted(pod for one in broken for pod in one.down)
    behind = sorted(pod for one in late for pod in one.behind)
    silent = sorted(pod for one in late for pod in one.silent)
    parts = [f"{named(rolling)} is being restarted"] if rolling else []
    parts += [f"{named(down)} is not ready"] if down else []
    parts += [f"{named(silent)} does not say how it is"] if silent else []
    parts += [f"{named(behind)} is not back in sync"] if behind and not silent else []
    return "; ".join(parts) or f"{turn} goes first"


def _restarts(world: World, wanted: Manifest) -> bool:
    live = world.child(STATEFUL_SET, name_of(wanted))
    return live is not None and annotations_of(live).get(TEMPLATE) != annotations_of(wanted).get(TEMPLATE)


def stepwise(world: World, manifest: Manifest, live: Mapping[str, Domain], has_data: bool) -> Manifest:
    """A StatefulSet whose pods are in different zones, with how far its restart may go now.

    Kubernetes waits for readiness only, so it is let on pod by pod, from the last one, as they are in sync.
    """
    domain = live.get(name_of(manifest))
    gone = world.child(STATEFUL_SET, name_of(manifest)) is None
    if kind_of(manifest) != STATEFUL_SET or gone or domain is None or ZONE_LABEL in labels_of(manifest) or not has_data:
        return manifest
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": _partition(world, manifest, domain)}}
    return {**manifest, "spec": {**manifest["spec"], "updateStrategy": strategy}}


def _partition(world: World, manifest: Manifest, domain: Domain) -> int:
    """The lowest ordinal that may be of the new revision."""
    current = world.child(STATEFUL_SET, domain.name) or {}
    replicas = int(manifest["spec"].get("replicas") or 0)
    if _restarts(world, manifest):
        return max(replicas - 1, 0)
    old, now = _of_older_revisions(_pods(world), domain.name, current, replicas), _live_partition(current)
    if not old:
        return 0 if not domain.rolling else now
    if world.cluster.spec.upgrade.paused:
        return max(now, max(old) + 1)
    # Old pods in trouble are not waited for: the new revision may be their cure.
    unready = {name_of(pod) for pod in old.values() if not is_ready(pod)}
    troubled = {*domain.down} - unready
    if f"{domain.name}-{max(old)}" not in unready:
        # Its restart takes a copy; that of a pod that serves nothing takes none, and others may be behind without it.
        troubled |= {*domain.behind} - unready
    return now if troubled else min(max(old), now if now else max(old))


def never_scheduled(world: World) -> tuple[Manifest, ...]:
    """Pods to delete: no node has taken them, and their StatefulSet may replace them by ones of a newer template.

    It would first wait until the pods after them are ready, and those may wait for the devices of these. Such a pod
    runs nothing, and its claims stay.
    """
    pods, found = _pods(world), []
    for (kind, name), live in sorted(world.children.items()):
        status: dict[str, Any] = live.get("status") or {}
        is_seen = status.get("observedGeneration") == live["metadata"].get("generation")
        if kind != STATEFUL_SET.kind or status.get("updateRevision") is None or not is_seen:
            continue
        old = _of_older_revisions(pods, name, live, int(live["spec"].get("replicas") or 0))
        may_go = [pod for ordinal, pod in old.items() if ordinal >= _live_partition(live)]
        found += [pod for pod in may_go if not pod["spec"].get("nodeName") and not is_going(pod)]
    return tuple(found)


def _pods(world: World) -> dict[str, Manifest]:
    return {name_of(pod): pod for pod in world.pods}


def _of_older_revisions(pods: Mapping[str, Manifest], name: str, live: Manifest, replicas: int) -> dict[int, Manifest]:
    """Return those of the first `replicas` pods of a StatefulSet that are not of its newest template, by ordinal."""
    revision = (live.get("status") or {}).get("updateRevision")
    known = {ordinal: pods[f"{name}-{ordinal}"] for ordinal in range(replicas) if f"{name}-{ordinal}" in pods}
    return {o: pod for o, pod in known.items() if labels_of(pod).get(_REVISION) not in (None, revision)}


def _live_partition(live: Manifest) -> int:
    strategy: dict[str, Any] = (live["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(strategy.get("partition") or 0)


def with_live_templates(world: World, manifest: Manifest) -> Manifest:
    """A StatefulSet with the volume sizes that it was made with: they can't change, the volumes are grown instead."""
    live = world.child(STATEFUL_SET, name_of(manifest)) if kind_of(manifest) == STATEFUL_SET else None
    templates = live["spec"].get("volumeClaimTemplates") or [] if live is not None else []
    made = {claim["metadata"]["name"]: claim for claim in templates}
    if not made or "volumeClaimTemplates" not in manifest["spec"]:
        return manifest
    claims = [
        {**claim, "spec": _sized(claim["spec"], made[claim["metadata"]["name"]]["spec"])}
        if claim["metadata"]["name"] in made
        else claim
        for claim in manifest["spec"]["volumeClaimTemplates"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "volumeClaimTemplates": claims}}


def _sized(spec: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    size = made["resources"]["requests"]["storage"]
    return {**spec, "resources": {"requests": {"storage": size}}}
