"""Everything that one reconcile has read, frozen: the input of all decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swiftlet.crd import (
    Resource,
    RingSpec,
    StorageClusterSpec,
    StoragePolicySpec,
    StorageQuotaSpec,
    StorageUserSpec,
)
from swiftlet.ring import Ring
from swiftlet_operator.manifests import Kind, Manifest
from swiftlet_operator.reports import Report, Reports
from swiftlet_operator.sealing import RecoveryKeys
from swiftlet_operator.statements import Federated
from swiftlet_operator.trouble import Evidence

RUNBOOKS = "docs/runbooks.md"
"""The page that explains alerts, within the project; whoever installs the operator may name a copy by its address."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings from the operator's own deployment: images for clusters that name none, and the namespace of its pod.

    `runbook_url` is the page that alerts name, `monitoring_labels` is put on each ServiceMonitor and PrometheusRule.
    """

    image: str
    redis_image: str | None = None
    namespace: str | None = None
    runbook_url: str = RUNBOOKS
    monitoring_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A damaged object that could not be parsed; `generation` is its own, `problem` says what is wrong with it."""

    kind: Kind
    manifest: Manifest
    problem: str


@dataclass(frozen=True, slots=True)
class Unsealed:
    """The Secret with a cluster's lost keys, from a sealed copy; without one, `problem` says why there is none."""

    secret: Manifest | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """One cluster, made at `created_s`, and everything around it as it was at `now_s`.

    `resource_version` is the cluster's, so that a change of its list of finalizers undoes nobody else's.
    `own` are the cluster and the objects that refer to it as they were read, by kind and name.
    `children` are the live objects with the cluster's labels, by kind and name. `ring_objects` and others are the
    objects whose clusterRef names this cluster, `unreadable` those of them that are damaged. `secrets` are the
    Secrets that users and spec.tls name, None for one that is not there. `reports` are what the pods' services said of
    themselves, by pod and service; who did not answer is not among them. `volumes` are the PersistentVolumes of pods
    whose place is in question, `storage_classes` those of volumes that should grow, None for one that is not there.
    `filling`: the level of devices that were nearly full at the last look. `rescued` are rings that the ConfigMaps have
    lost, as pods that use them gave them back. `evidence` says why pods or claims don't get on, where there are such.
    `named` are ServiceAccounts and PriorityClasses that the pods are to have, by kind and name, None for one that is
    not there; one that can't be looked up is not among them.
    `retired` are indexes of policies that are being deleted and of which it is proved that nothing is left.
    `recovery` are the operator's recovery keys, None with the reason in
    `recovery_problem`; `unsealed` is what sealed copies gave back of keys that are lost.
    `federated` is what was read of other members of the cluster's federation.
    """

    cluster: Resource[StorageClusterSpec]
    now_s: int
    created_s: int = 0
    resource_version: str = ""
    ring_objects: tuple[Resource[RingSpec], ...] = ()
    policies: tuple[Resource[StoragePolicySpec], ...] = ()
    quotas: tuple[Resource[StorageQuotaSpec], ...] = ()
    users: tuple[Resource[StorageUserSpec], ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    own: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    children: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    pods: tuple[Manifest, ...] = ()
    claims: tuple[Manifest, ...] = ()
    nodes: tuple[Manifest, ...] = ()
    secrets: Mapping[str, Manifest | None] = field(default_factory=dict)
    has_monitoring: bool = False
    has_gateway_api: bool = False
    has_cert_manager: bool = False
    named: Mapping[tuple[str, str], Manifest | None] = field(default_factory=dict)
    reports: Reports = field(default_factory=dict)
    volumes: Mapping[str, Manifest] = field(default_factory=dict)
    storage_classes: Mapping[str, Manifest | None] = field(default_factory=dict)
    filling: Mapping[str, str] = field(default_factory=dict)
    rescued: Mapping[str, Ring] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    retired: frozenset[int] = frozenset()
    recovery: RecoveryKeys | None = None
    recovery_problem: str = ""
    unsealed: Unsealed = Unsealed()
    federated: Federated = field(default_factory=Federated)

    def child(self, kind: Kind, name: str) -> Manifest | None:
        """Return a live child, None when it is missing."""
        return self.children.get((kind.kind, name))

    def pod(self, name: str) -> Manifest | None:
        """Return a live pod, None when it is missing."""
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    def report(self, pod: str, service: str) -> Report | None:
        """Return the report of a pod's service; None when it did not answer. Of pods of other members of the federation
        it is what their member says.
        """
        if pod not in self.reports and self.pod(pod) is None:
            return self.federated.reports.get(pod, {}).get(service)
        return self.reports.get(pod, {}).get(service)

    def node(self, name: str) -> Manifest | None:
        """Return a node, None when it is missing."""
        return next((node for node in self.nodes if node["metadata"]["name"] == name), None)
