"""ConfigMaps of rings and of their builders, copies of the builders, and Ring objects that nobody has made.

The copy of a builder is in Secrets, so that no single command that deletes ConfigMaps removes both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import CONFIG_MAP, GROUP, RING, RING_LABEL, RING_VERSION_LABEL, SECRET, Manifest

BUILDER = "builder"
"""The component of builders and of their copies."""
BUILDER_KINDS = ((CONFIG_MAP, "binaryData"), (SECRET, "data"))
"""The kinds of the objects of a builder and of its copy, and the field that has their bytes."""
BUILDER_LABEL = f"{GROUP}/builder"
REBALANCED_AT = f"{GROUP}/rebalanced-at"
MOVED = f"{GROUP}/moved"
SURPLUS = f"{GROUP}/surplus"


def build_ring_maps(
    site: Site, ring: str, version: int, chunks: Sequence[bytes], rebalanced_at_s: int | None = None
) -> list[Manifest]:
    """Return a ring in as many ConfigMaps as it has chunks, with the time of its last rebalance if there is no builder
    that has it.
    """
    annotations = {} if rebalanced_at_s is None else {REBALANCED_AT: str(rebalanced_at_s)}
    labels = {RING_LABEL: ring, RING_VERSION_LABEL: str(version)}
    return [
        site.object(
            CONFIG_MAP,
            ring_map(site.name, ring, index),
            "ring",
            {"binaryData": {"chunk": _text(chunk)}},
            labels=labels,
            annotations=annotations,
            guarded=True,
        )
        for index, chunk in enumerate(chunks)
    ]


def build_builder_maps(
    site: Site, ring: str, pieces: Sequence[bytes], rebalanced_at_s: int, moved: int, surplus: int
) -> list[Manifest]:
    """Return a builder in pieces, and the same pieces as copies. They are kept when the cluster goes, as data needs
    them.
    """
    annotations = {REBALANCED_AT: str(rebalanced_at_s), MOVED: str(moved), SURPLUS: str(surplus)}
    return [
        site.object(
            kind,
            builder_map(site.name, ring, index),
            BUILDER,
            {entry: {"piece": _text(piece)}},
            labels={BUILDER_LABEL: ring},
            annotations=annotations,
            owned=site.spec.deletion_policy == "Delete",
            guarded=True,
        )
        for kind, entry in BUILDER_KINDS
        for index, piece in enumerate(pieces)
    ]


def build_ring_object(
    site: Site,
    ring: str,
    part_power: int,
    replicas: float | None,
    before: tuple[str, Mapping[str, Any]] | None = None,
) -> Manifest:
    """Return a Ring with the cluster's defaults, which users can change later, or as it was `before` it was lost.

    `part_power` is that of an existing ring, because it is fixed for the ring's life.
    """
    if before is not None:
        name, known = before
        return site.object(RING, name, "ring", {"spec": {**known, "partPower": part_power}})
    kind, _, index = ring.partition("-")
    defaults = site.spec.rings
    spec = {
        "clusterRef": {"name": site.name},
        "type": kind,
        "partPower": part_power,
        "replicas": defaults.replicas if replicas is None else replicas,
        "minPartHours": defaults.min_part_hours,
        "overload": defaults.overload,
    }
    if index:
        spec["policyIndex"] = int(index)
    return site.object(RING, site.child(ring), "ring", {"spec": spec})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
