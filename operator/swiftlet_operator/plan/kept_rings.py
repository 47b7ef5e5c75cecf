"""What there is of a ring from an earlier look: in ConfigMaps, or with the services that use it.

A ring is laid out for the first time only when nothing speaks for an earlier one. Data lie where the earlier ring put
them, so a new one in its place would look for most of them on devices that do not have them.

Fault model: people delete ConfigMaps, of the builder, of the ring, or of both; a backup brings back some of them. A
cluster is made again over the volumes of one of the same name. Services keep each ring that they use on their
volumes and hand it out, so what runs can give back what the cluster has lost. A pod that does not answer may be the one
that knows of the ring.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from swiftlet.crd import Resource, RingSpec
from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.ring_maps import MOVED, REBALANCED_AT, SURPLUS
from swiftlet_operator.manifests import (
    ALLOW_NEW_RING,
    COMPONENT_LABEL,
    CONFIG_MAP,
    RING,
    Manifest,
    annotations_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.sync import seconds
from swiftlet_operator.problems import BrokenState
from swiftlet_operator.rings import Saved, Task, named, rebuilt, ring_of, unite
from swiftlet_operator.world import World


def saved(world: World, task: Task) -> Saved | None:
    """The builder of a ring, or one made from the newest copy of the ring; None before the first layout.

    BrokenState when there has been a ring, and neither ConfigMaps nor services give one that can be used.
    """
    pieces, first = _binary(world, task.ring, builder_map, "piece")
    data = unite(pieces)
    if data is not None and first is not None:
        notes = annotations_of(first)
        return Saved(data, _number(notes, REBALANCED_AT), _number(notes, MOVED), _number(notes, SURPLUS))
    chunks, _ = _binary(world, task.ring, ring_map, "chunk")
    copies = [ring_of(chunks) if chunks else None, world.rescued.get(task.ring)]
    rings = [ring for ring in copies if ring is not None]
    if rings:
        return rebuilt(max(rings, key=lambda ring: ring.version), task.shape, world.now_s)
    if task.ring in _allowed(world):
        return None
    _refuse_if_lost(world, task.ring, damaged=bool(pieces or chunks))
    return None


def lost_rings(world: World) -> dict[str, list[str]]:
    """The rings that services use and of which no ConfigMap is left, and the pods that have the newest version."""
    newest: dict[str, tuple[int, list[str]]] = {}
    for pod, reports in sorted(world.reports.items()):
        for ring, version in ((ring, number) for one in reports.values() for ring, number in one.rings.items()):
            known, pods = newest.get(ring, (0, []))
            if version > known:
                newest[ring] = (version, [pod])
            elif version == known > 0 and pod not in pods:
                pods.append(pod)
    return {ring: pods for ring, (_, pods) in newest.items() if not _is_kept(world, ring)}


def unheard(world: World) -> str:
    """Why a first layout has to wait: pods on volumes that are older than the cluster have not all answered."""
    silent = sorted(
        name_of(pod)
        for pod in world.pods
        if _stands_on_older_volumes(world, pod) and not world.reports.get(name_of(pod))
    )
    if not silent:
        return ""
    return f"the volumes of {named(silent)} are older than the cluster, and the pods have not said which ring they had"


def _refuse_if_lost(world: World, ring: str, *, damaged: bool) -> None:
    versions = {one.rings.get(ring, 0) for reports in world.reports.values() for one in reports.values()}
    told = max([*versions, _published_version(world, ring)], default=0)
    if not (damaged or told):
        return
    name = world.cluster.meta.name
    which = f"ring {ring}, version {told}," if told else f"ring {ring}"
    maps = f"{builder_map(name, ring, 0)} and {ring_map(name, ring, 0)}"
    raise BrokenState(
        f"{which} is lost: the ConfigMaps {maps} are gone or damaged, and no pod that runs gives it back. Restore one "
        "of the two from a backup, or start a storage or container pod that had the ring. A new ring would not find "
        f"the data of this one; if there are none to find, annotate the StorageCluster with {ALLOW_NEW_RING}={ring}"
    )


def _published_version(world: World, ring: str) -> int:
    """The version that the Ring object's status names, 0 when it names none."""
    for one in world.ring_objects:
        if one.spec.ring_name == ring:
            return _version_of(world, one)
    return 0


def _version_of(world: World, ring: Resource[RingSpec]) -> int:
    live = world.own.get((RING.kind, ring.meta.name)) or {}
    version = (live.get("status") or {}).get("version")
    return version if isinstance(version, int) else 0


def _allowed(world: World) -> frozenset[str]:
    """Rings that may be laid out anew although there has been one: a person said so."""
    text = world.cluster.meta.annotations.get(ALLOW_NEW_RING, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _stands_on_older_volumes(world: World, pod: Manifest) -> bool:
    if labels_of(pod).get(COMPONENT_LABEL) not in {"storage", "container"}:
        return False
    mine = [one for one in world.claims if name_of(one).endswith(f"-{name_of(pod)}")]
    made = [seconds(one["metadata"].get("creationTimestamp")) for one in mine]
    return any(0 < moment < world.created_s for moment in made)


def _is_kept(world: World, ring: str) -> bool:
    """Whether the builder or the ring can be read from ConfigMaps."""
    if unite(_binary(world, ring, builder_map, "piece")[0]) is not None:
        return True
    chunks, _ = _binary(world, ring, ring_map, "chunk")
    return bool(chunks) and ring_of(chunks) is not None


def _binary(
    world: World, ring: str, name: Callable[[str, str, int], str], key: str
) -> tuple[list[bytes], Manifest | None]:
    """The contents of a ring's ConfigMaps in order, and the first of them."""
    found: list[bytes] = []
    first = None
    while (live := world.child(CONFIG_MAP, name(world.cluster.meta.name, ring, len(found)))) is not None:
        first = first or live
        try:
            found.append(base64.b64decode((live.get("binaryData") or {}).get(key, ""), validate=True))
        except binascii.Error:
            found.append(b"")
    return found, first


def _number(notes: dict[str, str], name: str) -> int:
    text = notes.get(name, "")
    return int(text) if text.isdigit() else 0
