"""Manifests as plain data: kinds, labels, names of children, and access to their fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

GROUP = "swiftlet.io"
VERSION = "v1alpha1"
MANAGER = "swiftlet-operator"
"""Field manager, `managed-by` label and reporter of events."""
FINALIZER = f"{GROUP}/cluster"
DATA_FINALIZER = f"{GROUP}/data"
"""The finalizer of objects without which data can't be found. Whoever deletes one gets it back from its copy."""
POLICY_FINALIZER = f"{GROUP}/policy"
"""The finalizer of StoragePolicies, until it is proved that nothing is left of what was stored with them."""
APPLIED = f"{GROUP}/applied"
"""An annotation on every child: the digest of what was applied, so that a field that is no longer wanted is noticed."""
RESTART_DIGEST = f"{GROUP}/settings"
"""An annotation on pods: the digest of the settings that are read only at the start."""
ALLOW_SCALE_IN = f"{GROUP}/allow-scale-in"
"""An annotation on a StorageCluster, as a way out: pods (comma-separated) whose devices may go although nobody has
reported them empty.
"""
ALLOW_NEW_RING = f"{GROUP}/allow-new-ring"
"""An annotation on a StorageCluster: names of lost rings, separated by commas, that may be laid out anew."""
NODE_LOST_SINCE = f"{GROUP}/node-lost-since"
"""An annotation on volume claims: since when the node of their pod or volume has been gone, in RFC 3339."""
CORDONS = f"{GROUP}/cordons"
"""An annotation on the budget of pods with data: the nodes that are cordoned, and the failure domain that is open."""
ALLOW_DELETION = f"{GROUP}/allow-deletion"
"""An annotation on a StorageCluster, as a way out: "true" lets it be deleted although data exists."""
WATCHES = f"{GROUP}/watches"
"""An annotation on the operator's Lease: the namespaces that its holder manages, separated by commas; empty for all."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGEMENT = "management"
"""Name of the port of `/metrics` and `/statusz` of services that clients reach."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
POOL_LABEL = f"{GROUP}/pool"
ZONE_LABEL = f"{GROUP}/zone"
REGION_LABEL = f"{GROUP}/region"
RING_LABEL = f"{GROUP}/ring"
RING_VERSION_LABEL = f"{GROUP}/ring-version"
TOPOLOGY_ZONE = "topology.kubernetes.io/zone"
TOPOLOGY_REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
MOST_NAMED = 3
"""The largest number of names in a message, which then has the number of the others."""
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
"""A label on each pod of a StatefulSet."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API server: where its objects live."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def path(self) -> str:
        """Return the path of the API group and version, `/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


def _own(kind: str, plural: str) -> Kind:
    return Kind(f"{GROUP}/{VERSION}", kind, plural)


CLUSTER = _own("StorageCluster", "storageclusters")
RING = _own("Ring", "rings")
POLICY = _own("StoragePolicy", "storagepolicies")
QUOTA = _own("StorageQuota", "storagequotas")
USER = _own("StorageUser", "storageusers")
OWN_KINDS = (CLUSTER, RING, POLICY, QUOTA, USER)

CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
POD = Kind("v1", "Pod", "pods")
PVC = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PV = Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
NODE = Kind("v1", "Node", "nodes", namespaced=False)
EVENT = Kind("v1", "Event", "events")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
INGRESS = Kind("networking.k8s.io/v1", "Ingress", "ingresses")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
SERVICE_MONITOR = Kind("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
PROMETHEUS_RULE = Kind("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")
DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
MONITORING_KINDS = (SERVICE_MONITOR, PROMETHEUS_RULE)
HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
CERTIFICATE = Kind("cert-manager.io/v1", "Certificate", "certificates")
OTHERS_KINDS = (*MONITORING_KINDS, HTTP_ROUTE, CERTIFICATE)
"""Kinds of children that belong to other projects, which may not be installed."""

CHILD_KINDS = (
    CONFIG_MAP,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    DEPLOYMENT,
    BUDGET,
    NETWORK_POLICY,
    INGRESS,
)
"""Kinds of children that every API server knows."""

_KINDS = {
    (kind.api_version, kind.kind): kind
    for kind in (
        *OWN_KINDS,
        *CHILD_KINDS,
        *OTHERS_KINDS,
        POD,
        PVC,
        PV,
        NODE,
        STORAGE_CLASS,
        PRIORITY_CLASS,
        EVENT,
        LEASE,
        DEFINITION,
    )
}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return the kind of a manifest. Raises KeyError for one that the operator never handles."""
    return _KINDS[manifest["apiVersion"], manifest["kind"]]


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return `metadata.name` of a manifest."""
    return str(manifest["metadata"]["name"])


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return `metadata.labels`, empty when there are none."""
    return manifest["metadata"].get("labels") or {}


def finalizers_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return `metadata.finalizers`, empty when there are none."""
    return manifest["metadata"].get("finalizers") or []


def is_going(manifest: Mapping[str, Any]) -> bool:
    """Return whether somebody has deleted the object, though its finalizers may still keep it."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def annotations_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return `metadata.annotations`, empty when there are none."""
    return manifest["metadata"].get("annotations") or {}


def digest_of(value: Any) -> str:
    """Return a short digest of plain data, the same for the same data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cluster_labels(cluster: str) -> dict[str, str]:
    """Return the labels by which everything of a cluster is found."""
    return {NAME_LABEL: "swiftlet", INSTANCE_LABEL: cluster, MANAGED_BY_LABEL: MANAGER}


def selector(labels: Mapping[str, str]) -> str:
    """Return labels as a query."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def told_at(container: Manifest) -> tuple[str, int]:
    """Return the scheme and port at which a container with ports answers `/statusz`."""
    ports = container["ports"]
    for port in ports:
        if port.get("name") == MANAGEMENT:
            return "http", port["containerPort"]
    probe = (container.get("readinessProbe") or {}).get("httpGet") or {}
    return "https" if probe.get("scheme") == "HTTPS" else "http", ports[0]["containerPort"]


def named(names: Sequence[str]) -> str:
    """Return the first of the names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
