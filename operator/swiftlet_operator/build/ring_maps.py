"""ConfigMaps of rings and of their builders, and the Ring objects that nobody has made."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import CONFIG_MAP, GROUP, RING, RING_LABEL, RING_VERSION_LABEL, Manifest

BUILDER_LABEL = f"{GROUP}/builder"
REBALANCED_AT = f"{GROUP}/rebalanced-at"
MOVED = f"{GROUP}/moved"
SURPLUS = f"{GROUP}/surplus"


def build_ring_maps(site: Site, ring: str, version: int, chunks: Sequence[bytes]) -> list[Manifest]:
    """A ring in as many ConfigMaps as it has chunks."""
    labels = {RING_LABEL: ring, RING_VERSION_LABEL: str(version)}
    return [
        site.object(
            CONFIG_MAP, ring_map(site.name, ring, index), "ring", {"binaryData": {"chunk": _text(chunk)}}, labels=labels
        )
        for index, chunk in enumerate(chunks)
    ]


def build_builder_maps(
    site: Site, ring: str, pieces: Sequence[bytes], rebalanced_at_s: int, moved: int, surplus: int
) -> list[Manifest]:
    """A builder in pieces; kept when the cluster goes, for the data on the volumes lies where it says."""
    annotations = {REBALANCED_AT: str(rebalanced_at_s), MOVED: str(moved), SURPLUS: str(surplus)}
    return [
        site.object(
            CONFIG_MAP,
            builder_map(site.name, ring, index),
            "builder",
            {"binaryData": {"piece": _text(piece)}},
            labels={BUILDER_LABEL: ring},
            annotations=annotations,
            owned=site.spec.deletion_policy == "Delete",
        )
        for index, piece in enumerate(pieces)
    ]


def build_ring_object(site: Site, ring: str, replicas: float | None) -> Manifest:
    """A Ring with the cluster's defaults, for whoever wants to change it later."""
    kind, _, index = ring.partition("-")
    defaults = site.spec.rings
    spec = {
        "clusterRef": {"name": site.name},
        "type": kind,
        "partPower": defaults.part_power,
        "replicas": defaults.replicas if replicas is None else replicas,
        "minPartHours": defaults.min_part_hours,
        "overload": defaults.overload,
    }
    if index:
        spec["policyIndex"] = int(index)
    return site.object(RING, site.child(ring), "ring", {"spec": spec})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
