"""Which StatefulSets with data may be changed now: one failure domain at a time, the next when the last is in sync.

Fault model: a pod that never becomes ready, or never reports that it is in sync, stops the domains after it, because
one more restart could remove the second copy. What may cure it goes on: a domain in trouble is changed first, and pods
that have no partitions any more, because they were drained, are not waited for. When several domains are in trouble,
perhaps each half changed, none of their running pods is replaced; those that are down are, one after the other, since
no request depends on them. Kubernetes can't be told to replace a pod and leave the one after it, nor does every version
replace one that is not ready: such a pod is deleted here, and Kubernetes is kept from replacing any other meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.revisions import ON_DELETE, is_on_delete, is_seen, older, partition
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TEMPLATE = f"{GROUP}/template"
"""Annotation on StatefulSets: the digest of the pod template that was applied; another one means a restart."""
TEMPLATE_SINCE = f"{GROUP}/template-since"
"""Annotation on StatefulSets: when the template changed last, in RFC 3339."""


def stamped(world: World, manifest: Manifest) -> Manifest:
    """Return a workload with the digest of its pod template and the time of its last change; other
    manifests unchanged.
    """
    if kind_of(manifest) not in (STATEFUL_SET, DEPLOYMENT):
        return manifest
    metadata = manifest["metadata"]
    digest, known = digest_of(manifest["spec"]["template"]), world.child(kind_of(manifest), name_of(manifest))
    before = annotations_of(known) if known is not None else {}
    since = before.get(TEMPLATE_SINCE) if before.get(TEMPLATE) == digest else None
    moment = since or rfc3339(datetime.fromtimestamp(world.now_s, UTC))
    notes = {**annotations_of(manifest), TEMPLATE: digest, TEMPLATE_SINCE: moment}
    return {**manifest, "metadata": {**metadata, "annotations": notes}}


@dataclass(frozen=True, slots=True)
class Turns:
    """How far StatefulSets with data may be changed now.

    Pods of `go` may be replaced; of `cure` only those that are not ready. `held` has the StatefulSets that must not get
    the newest template, and why. All others may get it, and none of their pods is replaced. `is_safe`: whether a
    deleted pod would come back.
    """

    go: frozenset[str]
    cure: str = ""
    held: Mapping[str, str] = field(default_factory=dict)
    is_safe: bool = True


def turns(
    world: World,
    wanted: Sequence[Manifest],
    live: Mapping[str, Domain],
    has_data: bool,
    secrets_wrong: bool = False,
    draining: str = "",
) -> Turns:
    """Return whose turn it is, and what the others wait for. No template is applied while `secrets_wrong`.

    `draining` says why no restart may begin; a restart that has begun goes on, as pods in trouble may need it to come
    back.
    """
    sets = [one for one in wanted if kind_of(one) == STATEFUL_SET and name_of(one) in live]
    changed = [name_of(one) for one in sets if _restarts(world, one)]
    if not has_data:
        return Turns(frozenset(live))
    if secrets_wrong:
        wrong = dict.fromkeys(changed, "keys or certificates are wrong, and pods might not come back")
        return Turns(frozenset(live) - {*changed}, "", wrong, is_safe=False)
    maintenance = world.cluster.spec.maintenance
    if maintenance is not None:
        allowed, reason = _in_maintenance(maintenance.zone, changed, live)
        held = {name: reason for name in changed if name not in allowed}
        return Turns(frozenset(live) - {*held}, "", held)
    halfway = [name_of(one) for one in sets if live[name_of(one)].rolling and name_of(one) not in changed]
    go, cure, reason = _next(changed, sorted(halfway), live)
    if draining and go and not live[go].rolling:
        go, cure = "", go if live[go].down else ""
    # Where Kubernetes replaces pods by a template that is no longer wanted, the newest one stops that.
    free = {go, cure, *(name for name in changed if live[name].moving)}
    return Turns(frozenset({go}), cure, {name: draining or reason for name in changed if name not in free})


def _in_maintenance(zone: str, changed: Sequence[str], live: Mapping[str, Domain]) -> tuple[set[str], str]:
    """Return the turn during maintenance: all of the zone at once unless another one is in trouble, and
    none elsewhere.
    """
    down = [pod for one in live.values() if one.zone != zone for pod in one.down]
    reason = f"zone {zone} is in maintenance"
    if down:
        return set(), f"{reason}, and {named(down)} elsewhere is not ready"
    return {name for name in changed if live[name].zone == zone}, reason


def _next(changed: Sequence[str], halfway: Sequence[str], live: Mapping[str, Domain]) -> tuple[str, str, str]:
    """Return whose turn it is, or else in which one only failed pods are replaced, and what the others wait for.

    `changed` do not have the newest template yet; `halfway` have it, and pods of an older one.
    """
    troubled = [one for one in live.values() if one.down or one.moving]
    late = [one for one in live.values() if one.behind]
    go = ""
    if len(troubled) == 1:
        only = troubled[0]
        goes_on = only.moving and only.name in halfway
        if goes_on or (only.name in (*halfway, *changed) and all(one is only for one in late)):
            go = only.name
    elif not troubled and len(late) == 1 and late[0].name in (*halfway, *changed):
        go = late[0].name
    elif not troubled:
        # A domain without a report may be one whose services are too old for it; but no other domain may be behind.
        silent = [one.name for one in late if one.name in changed and one.behind == one.silent]
        go = "" if len(silent) < len(late) else next(iter([*halfway, *silent, *changed]), "")
    cure = "" if go else _cure(changed, halfway, live)
    return go, cure, _reason(troubled, late, go)


def _cure(changed: Sequence[str], halfway: Sequence[str], live: Mapping[str, Domain]) -> str:
    """Return the first domain with pods to be cured: one that has begun, else one by one, unless there is no data to
    lose.
    """
    busy = [
        one for one in live.values() if one.name not in changed and (one.moving or (one.rolling and bool(one.trying)))
    ]
    sick = [
        one
        for one in live.values()
        if one.down and (one.name in changed or (one.name in halfway and not one.trying))
        if one.ready == 0 or all(other is one for other in busy)
    ]
    return min(sick, key=lambda one: (one.name in changed, one.name)).name if sick else ""


def _reason(troubled: Sequence[Domain], late: Sequence[Domain], turn: str) -> str:
    rolling = sorted(one.name for one in troubled if one.moving)
    down = sorted(pod for one in troubled for pod in one.down)
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


def paced(world: World, manifest: Manifest, live: Mapping[str, Domain], turn: Turns, has_data: bool) -> Manifest:
    """Return a StatefulSet with data, with how far Kubernetes may replace its pods now; other manifests unchanged.

    A StatefulSet within one zone is left to Kubernetes when its turn has come. Kubernetes waits for readiness only, so
    where pods are in different zones it may continue pod by pod, from the last one, as they come into sync.
    """
    domain = live.get(name_of(manifest))
    if kind_of(manifest) != STATEFUL_SET or world.child(STATEFUL_SET, name_of(manifest)) is None:
        return manifest
    if domain is None or not has_data:
        return manifest
    strategy = _strategy(world, manifest, domain, turn)
    return {**manifest, "spec": {**manifest["spec"], "updateStrategy": strategy}}


def _strategy(world: World, manifest: Manifest, domain: Domain, turn: Turns) -> Manifest:
    """Return the update strategy for now."""
    current = world.child(STATEFUL_SET, domain.name) or {}
    has_zone, restarts = ZONE_LABEL in labels_of(manifest), _restarts(world, manifest)
    goes = domain.name in turn.go or not (domain.rolling or restarts)
    if restarts:
        return _first_strategy(manifest, domain, goes, goes or domain.name == turn.cure)
    if not is_seen(current):
        return _up_from(0) if has_zone and goes else _as_it_is(current)
    old = _older(world, manifest, current)
    if not old:
        return _up_from(0 if has_zone or not domain.rolling else partition(current))
    # One that is ending already becomes what its ordinal allows then.
    remaining = [ordinal for ordinal, pod in old.items() if not is_going(pod)]
    stays = ON_DELETE if is_on_delete(current) else _up_from(max(remaining, default=-1) + 1)
    if world.cluster.spec.upgrade.paused:
        return _up_from(0) if has_zone and goes and domain.moving else stays
    if has_zone and goes:
        return _up_from(0)
    target = _target(domain, old)
    if target is not None and (goes or domain.name == turn.cure):
        return _up_from(target) if target == max(old) and stays != ON_DELETE else ON_DELETE
    return _up_from(max(old)) if goes and not domain.down and not domain.behind else stays


def _first_strategy(manifest: Manifest, domain: Domain, goes: bool, cures: bool) -> Manifest:
    """Return the strategy with which a StatefulSet gets a new template: from the last pod on, or none while that is
    needed.
    """
    if goes and ZONE_LABEL in labels_of(manifest):
        return _up_from(0)
    replicas = int(manifest["spec"].get("replicas") or 0)
    last = f"{domain.name}-{replicas - 1}"
    if domain.down:
        is_free = last in domain.down
    else:
        is_free = goes and not {*domain.behind} - {*domain.silent, last}
    return _up_from(max(replicas - 1, 0) if cures and is_free else replicas)


def _up_from(ordinal: int) -> Manifest:
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": ordinal}}


def _as_it_is(live: Manifest) -> Manifest:
    return ON_DELETE if is_on_delete(live) else _up_from(partition(live))


def _older(world: World, manifest: Manifest, live: Manifest) -> dict[int, Manifest]:
    return older(_pods(world), live, int(manifest["spec"].get("replicas") or 0))


def _target(domain: Domain, old: Mapping[int, Manifest]) -> int | None:
    """Return the last of the pods that may be replaced although others are in trouble, since it serves nothing.

    Returns None while a pod of the newest template has not come up: that template may be no cure.
    """
    return None if domain.trying else max((o for o, pod in old.items() if not is_ready(pod)), default=None)


def switched(world: World, wanted: Iterable[Manifest]) -> dict[str, Patch]:
    """Return the changes to OnDelete by name, without which these manifests can't be applied.

    Kubernetes fills in fields for the other strategy that nobody owns, so applying does not remove them, and with them
    OnDelete is refused.
    """
    names = [name_of(one) for one in wanted if kind_of(one) == STATEFUL_SET and is_on_delete(one)]
    found = {name: world.child(STATEFUL_SET, name) for name in names}
    change = {"spec": {"updateStrategy": {**ON_DELETE, "rollingUpdate": None}}}
    return {name: Patch(STATEFUL_SET, name, change) for name, one in found.items() if one and not is_on_delete(one)}


def cured(
    world: World, wanted: Iterable[Manifest], live: Mapping[str, Domain], turn: Turns, has_data: bool
) -> tuple[Manifest, ...]:
    """Return pods to delete: they are not ready, have an older template, and will be made anew from the newest one.

    One at a time is taken of each StatefulSet that may go, or is to be cured.
    """
    if not has_data or not turn.is_safe or world.cluster.spec.upgrade.paused:
        return ()
    found = []
    for manifest in wanted:
        domain, current = live.get(name_of(manifest)), world.child(STATEFUL_SET, name_of(manifest))
        if kind_of(manifest) != STATEFUL_SET or domain is None or current is None or _restarts(world, manifest):
            continue
        if not is_seen(current) or name_of(manifest) not in (*turn.go, turn.cure):
            continue
        old = _older(world, manifest, current)
        target = _target(domain, old)
        if target is not None and (is_on_delete(current) or target >= partition(current)):
            found += [pod for pod in [old[target]] if not is_going(pod)]
    return tuple(found)


def never_scheduled(world: World) -> tuple[Manifest, ...]:
    """Return pods to delete that no node has taken, and whose StatefulSet may replace them by ones of a newer template.

    The StatefulSet would first wait until the pods after them are ready, and those may wait for the devices of these.
    Such a pod runs nothing, and its claims stay.
    """
    pods, found = _pods(world), []
    for (kind, _), live in sorted(world.children.items()):
        if kind != STATEFUL_SET.kind or not is_seen(live):
            continue
        may_go = [pod for ordinal, pod in older(pods, live).items() if ordinal >= partition(live)]
        found += [pod for pod in may_go if not pod["spec"].get("nodeName") and not is_going(pod)]
    return tuple(found)


def _pods(world: World) -> dict[str, Manifest]:
    return {name_of(pod): pod for pod in world.pods}


def with_live_templates(world: World, manifest: Manifest) -> Manifest:
    """Return a StatefulSet with the volume sizes it was made with: they can't change; the volumes are grown instead."""
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
