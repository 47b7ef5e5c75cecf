"""A cluster as it was read: frozen, with what could not be read. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swiftlet.ring import Ring, RingError
from swiftlet.ring.codec import join
from swiftlet_operator.manifests import told_at

Object = dict[str, Any]

INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by=swiftlet-operator"
RING_LABEL = "swiftlet.io/ring"
POOL_LABEL = "swiftlet.io/pool"
ZONE_LABEL = "swiftlet.io/zone"
TOPOLOGY_ZONE = "topology.kubernetes.io/zone"
SERVICES = ("proxy", "metadata", "object", "container", "replicator")
"""Containers that answer `/statusz`."""


@dataclass(frozen=True, slots=True)
class Address:
    """The path at which the API server proxies requests to a service of a pod."""

    pod: str
    service: str
    scheme: str
    port: int

    def path(self, namespace: str, page: str) -> str:
        """Return the path of the API server's proxy to a page such as `statusz`."""
        return f"/api/v1/namespaces/{namespace}/pods/{self.scheme}:{self.pod}:{self.port}/proxy/{page}"


@dataclass(frozen=True, slots=True)
class Picture:
    """One StorageCluster and what is around it.

    `reports` has the answers at `/statusz`, by pod and service; `silent` why there is none, by the same. `rings` are
    the published ones by name, `broken_rings` those that can't be read. `failures` are reads that kubectl refused.
    `claims`, and of pods in trouble `volumes` (by name), `classes` (None: not read) and `events`, tell the cause.
    """

    cluster: Object
    ring_objects: tuple[Object, ...] = ()
    policies: tuple[Object, ...] = ()
    quotas: tuple[Object, ...] = ()
    users: tuple[Object, ...] = ()
    stateful_sets: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    volumes: Mapping[str, Object] = field(default_factory=dict)
    classes: tuple[Object, ...] | None = None
    events: tuple[Object, ...] = ()
    now_s: int = 0
    rings: Mapping[str, Ring] = field(default_factory=dict)
    broken_rings: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    silent: Mapping[tuple[str, str], str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return str(self.cluster["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Return the cluster's namespace."""
        return str(self.cluster["metadata"]["namespace"])


def name_of(one: Object) -> str:
    """Return `metadata.name` of an object."""
    return str(one["metadata"]["name"])


def labels_of(one: Object) -> dict[str, str]:
    """Return `metadata.labels`, empty when there are none."""
    return one["metadata"].get("labels") or {}


def status_of(one: Object) -> Object:
    """Return `status`, empty when there is none."""
    return one.get("status") or {}


def conditions_of(one: Object) -> dict[str, Object]:
    """Return an object's conditions by their type."""
    return {str(fact.get("type")): fact for fact in status_of(one).get("conditions") or []}


def is_ready(pod: Object) -> bool:
    """Return whether a pod is ready."""
    return bool(conditions_of(pod).get("Ready", {}).get("status") == "True")


def belongs_to(one: Object, cluster: str) -> bool:
    """Return whether a Ring, policy, quota or user names this cluster."""
    return bool(((one.get("spec") or {}).get("clusterRef") or {}).get("name") == cluster)


def addresses(pods: Sequence[Object]) -> list[Address]:
    """Return the paths at which all services of running pods answer `/statusz`."""
    found = []
    for pod in pods:
        if status_of(pod).get("phase") != "Running":
            continue
        for container in pod["spec"].get("containers") or []:
            ports = container.get("ports") or []
            if container.get("name") in SERVICES and ports:
                found.append(Address(name_of(pod), str(container["name"]), *told_at(container)))
    return found


def rings_of(maps: Sequence[Object]) -> tuple[dict[str, Ring], dict[str, str]]:
    """Return published rings by name from their ConfigMaps, and why others can't be read."""
    chunks: dict[str, list[bytes]] = {}
    rings: dict[str, Ring] = {}
    broken: dict[str, str] = {}
    for one in sorted(maps, key=name_of):
        ring = labels_of(one).get(RING_LABEL)
        text = (one.get("binaryData") or {}).get("chunk")
        if ring is None or text is None:
            continue
        try:
            chunks.setdefault(ring, []).append(base64.b64decode(text, validate=True))
        except binascii.Error:
            broken[ring] = f"ConfigMap {name_of(one)} holds no base64"
    for ring, pieces in chunks.items():
        try:
            rings[ring] = join(pieces)
        except RingError as error:
            broken.setdefault(ring, str(error))
    return rings, broken
