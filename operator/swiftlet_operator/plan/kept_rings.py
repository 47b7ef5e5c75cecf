"""What exists of a ring from earlier: in ConfigMaps, in copies in Secrets, or at services that use it.

A ring is laid out for the first time only when nothing indicates an earlier one. Data lie where the earlier ring put
them, so a new one in its place would look for most of them on devices that do not have them.

Fault model: people delete ConfigMaps and Secrets, of the builder, of the ring, or all of them; a backup brings back
some of them, perhaps of an older version, perhaps without labels. A cluster is made again over the volumes of one of
the same name. Services hand out the ring that they use, and servers of devices keep it on their volumes, so running
pods can give back what the cluster has lost. A pod that does not answer may be the one that knows of the ring.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence

from swiftlet.crd import Resource, RingSpec
from swiftlet.ring import Ring
from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.ring_maps import BUILDER_KINDS, MOVED, REBALANCED_AT, SURPLUS
from swiftlet_operator.checks import live_policies
from swiftlet_operator.manifests import (
    ALLOW_NEW_RING,
    COMPONENT_LABEL,
    CONFIG_MAP,
    RING,
    Kind,
    Manifest,
    annotations_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.federation import since_of
from swiftlet_operator.plan.sync import seconds
from swiftlet_operator.problems import BrokenState
from swiftlet_operator.rings import Saved, Task, known, named, rebuilt, ring_of, unite
from swiftlet_operator.world import World


def saved(world: World, task: Task) -> Saved | None:
    """Return the newest builder of a ring, or one made from the newest copy of the ring; None before the first layout.

    Raises BrokenState when there has been a ring, and what is left of it can't be used or is older than what services
    use.
    """
    ring, newest = task.ring, _newest_builder(world, task.ring)
    chunks = _chunks(world, ring)
    found_elsewhere = (_joined(chunks), world.rescued.get(ring), world.federated.rings.get(ring))
    copies = [one for one in found_elsewhere if one is not None]
    version = known(ring, newest).version if newest is not None else 0
    ahead = max(copies, key=lambda one: one.version, default=None)
    found = newest
    if ahead is not None and ahead.version > version:
        found, version = rebuilt(ahead, task.shape, world.now_s), ahead.version
    if ring in _allowed(world):
        return found
    _refuse_if_lost(world, ring, version, damaged=bool(chunks) or _has_pieces(world, ring))
    return found


def followed(world: World, task: Task) -> tuple[Saved | None, Saved | None]:
    """Return a ring that another member builds: as this cluster has it, and as it is to have it; None where there is
    none. A newer version of the leader's takes the place of what is here, an older one never does.

    Raises BrokenState when services use a newer one than can be found.
    """
    ring = task.ring
    chunks = _chunks(world, ring)
    own = _newest([_joined(chunks), world.rescued.get(ring)])
    newest = _newest([own, world.federated.rings.get(ring)])
    versions = {one.rings.get(ring, 0) for reports in world.reports.values() for one in reports.values()}
    told = max(versions, default=0)
    if newest is None and chunks:
        raise BrokenState(f"ring {ring} is damaged: its ConfigMaps don't make one, and the leader is not heard")
    if (newest.version if newest is not None else 0) < told:
        raise BrokenState(
            f"services use version {told} of ring {ring}, and neither this cluster nor the leader has it: start a pod "
            "that has it, or restore the leader's rings"
        )
    noted = world.child(CONFIG_MAP, ring_map(world.cluster.meta.name, ring, 0))
    before = _as_saved(own, task, _number(annotations_of(noted), REBALANCED_AT) if noted is not None else 0)
    return before, before if newest is own else _as_saved(newest, task, since_of(world, ring))


def _newest(rings: Iterable[Ring | None]) -> Ring | None:
    # Of two equal ones the first is returned.
    return max((one for one in rings if one is not None), key=lambda one: one.version, default=None)


def _as_saved(ring: Ring | None, task: Task, since_s: int) -> Saved | None:
    return rebuilt(ring, task.shape, since_s) if ring is not None else None


def lost_rings(world: World) -> dict[str, list[str]]:
    """Return the rings that services use in a version that no object in the cluster has, with the pods that use the
    newest.
    """
    newest: dict[str, tuple[int, list[str]]] = {}
    for pod, reports in sorted(world.reports.items()):
        for ring, version in ((ring, number) for one in reports.values() for ring, number in one.rings.items()):
            known_version, pods = newest.get(ring, (0, []))
            if version > known_version:
                newest[ring] = (version, [pod])
            elif version == known_version > 0 and pods[-1] != pod:
                pods.append(pod)
    return {
        ring: pods
        for ring, (version, pods) in newest.items()
        if not _is_retired(world, ring) and version > kept_version(world, ring)
    }


def published_ring(world: World, ring: str) -> Ring | None:
    """Return a ring as the services should have it; None when there is none or it can't be read."""
    return _joined(_chunks(world, ring))


def has_been(world: World, ring: str) -> bool:
    """Return whether anything indicates that a ring has been laid out."""
    told = any(one.rings.get(ring, 0) for reports in world.reports.values() for one in reports.values())
    return told or bool(_chunks(world, ring)) or _has_pieces(world, ring) or bool(_published_version(world, ring))


def _is_retired(world: World, ring: str) -> bool:
    """Return whether a ring's policy has been retired, so that services merely have not heard of it."""
    index, known = ring.removeprefix("object-"), live_policies(world)
    if not index.isdecimal() or not known or int(index) in known:
        return False
    return not any(one.spec.index == int(index) and not one.meta.deleting for one in world.policies)


def kept_builder(world: World, ring: str, kind: Kind) -> bytes | None:
    """Return the bytes of a builder in objects of one kind; None when some are missing or damaged."""
    entry = dict(BUILDER_KINDS)[kind]
    return unite(_binary(world, kind, ring, builder_map, entry, "piece")[0])


def unheard(world: World) -> str:
    """Return why a first layout has to wait: pods on volumes older than the cluster have not all answered."""
    older = [name_of(one) for one in world.claims if _is_older(world, one)]
    silent = sorted(
        name_of(pod) for pod in world.pods if not world.reports.get(name_of(pod)) and _stands_on(older, pod)
    )
    if not silent:
        return ""
    return f"the volumes of {named(silent)} are older than the cluster, and the pods have not said which ring they had"


def _newest_builder(world: World, ring: str) -> Saved | None:
    """Return the newer one of the builder and its copy that can be read; BrokenState when one is complete but is not a
    builder.
    """
    found: list[Saved] = []
    problem: BrokenState | None = None
    for kind, entry in BUILDER_KINDS:
        pieces, first = _binary(world, kind, ring, builder_map, entry, "piece")
        data = unite(pieces)
        if data is None or first is None:
            continue
        notes = annotations_of(first)
        one = Saved(data, _number(notes, REBALANCED_AT), _number(notes, MOVED), _number(notes, SURPLUS))
        try:
            known(ring, one)
            found.append(one)
        except BrokenState as error:
            problem = error
    if problem is not None and not found:
        raise problem
    # Of two equal ones the first is returned.
    return max(found, key=lambda one: (known(ring, one).version, one.rebalanced_at_s), default=None)


def _has_pieces(world: World, ring: str) -> bool:
    return any(_binary(world, kind, ring, builder_map, entry, "piece")[0] for kind, entry in BUILDER_KINDS)


def _refuse_if_lost(world: World, ring: str, version: int, *, damaged: bool) -> None:
    versions = {one.rings.get(ring, 0) for reports in world.reports.values() for one in reports.values()}
    told = max([*versions, _published_version(world, ring)], default=0)
    if version >= told and (version or not damaged):
        return
    name = world.cluster.meta.name
    raise BrokenState(
        f"{_which(ring, version, told)}, and no pod that runs gives it back. Restore the ConfigMaps or the Secrets "
        f"{builder_map(name, ring, 0)} (or the ConfigMaps {ring_map(name, ring, 0)}) from a backup, or start a pod "
        "that had the ring. Another ring would not find the data of this one; if there are none to find, annotate the "
        f"StorageCluster with {ALLOW_NEW_RING}={ring}"
    )


def _which(ring: str, version: int, told: int) -> str:
    if version:
        return f"ring {ring} is older than what services use: version {version} is kept, version {told} is in use"
    return f"ring {ring}{f', version {told},' if told else ''} is lost: its ConfigMaps and Secrets are gone or damaged"


def _published_version(world: World, ring: str) -> int:
    """Return the version that the Ring object's status names, 0 when it names none."""
    for one in world.ring_objects:
        if one.spec.ring_name == ring:
            return _version_of(world, one)
    return 0


def _version_of(world: World, ring: Resource[RingSpec]) -> int:
    live = world.own.get((RING.kind, ring.meta.name)) or {}
    version = (live.get("status") or {}).get("version")
    return version if isinstance(version, int) else 0


def _allowed(world: World) -> frozenset[str]:
    """Return the rings that may be laid out anew although there has been one, because a person allowed it."""
    text = world.cluster.meta.annotations.get(ALLOW_NEW_RING, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _is_older(world: World, claim: Manifest) -> bool:
    return 0 < seconds(claim["metadata"].get("creationTimestamp")) < world.created_s


def _stands_on(claims: Sequence[str], pod: Manifest) -> bool:
    if labels_of(pod).get(COMPONENT_LABEL) not in {"storage", "container"}:
        return False
    end = f"-{name_of(pod)}"
    return any(name.endswith(end) for name in claims)


def kept_version(world: World, ring: str) -> int:
    """Return the newest version of a ring that can be read from the cluster's own objects, 0 for none."""
    try:
        builder = _newest_builder(world, ring)
    except BrokenState:
        builder = None
    published = _joined(_chunks(world, ring))
    return max(known(ring, builder).version if builder else 0, published.version if published else 0)


def _chunks(world: World, ring: str) -> list[bytes]:
    return _binary(world, CONFIG_MAP, ring, ring_map, "binaryData", "chunk")[0]


def _joined(chunks: list[bytes]) -> Ring | None:
    return ring_of(chunks) if chunks else None


def _binary(
    world: World, kind: Kind, ring: str, name: Callable[[str, str, int], str], entry: str, key: str
) -> tuple[list[bytes], Manifest | None]:
    """Return the contents of a ring's objects of one kind in order, and the first of the objects."""
    found: list[bytes] = []
    first = None
    while (live := world.child(kind, name(world.cluster.meta.name, ring, len(found)))) is not None:
        first = first or live
        try:
            found.append(base64.b64decode((live.get(entry) or {}).get(key, ""), validate=True))
        except binascii.Error:
            found.append(b"")
    return found, first


def _number(notes: dict[str, str], name: str) -> int:
    text = notes.get(name, "")
    return int(text) if text.isdigit() else 0
