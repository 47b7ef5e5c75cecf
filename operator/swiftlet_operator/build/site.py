"""The input of manifests: the cluster's spec with a value for everything that it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from swiftlet.crd import Pool, ProxySpec, RdmaSpec, Resource, StorageClusterSpec
from swiftlet.crd.federation import host_of
from swiftlet.ring.model import Coding, WriteQuorum
from swiftlet.settings.sections import AGGREGATE_BELOW, EtagKind
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    DATA_FINALIZER,
    POOL_LABEL,
    ZONE_LABEL,
    Kind,
    Manifest,
    cluster_labels,
)
from swiftlet_operator.world import RUNBOOKS

STORAGE = "storage"
CONTAINER = "container"
PROXY = "proxy"
DEFAULT_REGION = "default"
"""The region of pools that name none."""
METADATA = "metadata"
REDIS = "redis"
KEYS = "keys"

OBJECT_PORT = 6200
OBJECT_NATIVE_PORT = 7200
"""The port of the native transport: at the services' default distance from the HTTP port."""
CONTAINER_PORT = 6300
CONTAINER_NATIVE_PORT = 7300
REPLICATOR_PORT = 6400
API_PORT = 8080
METADATA_PORT = 8090
MANAGEMENT_PORT = 8081
METADATA_MANAGEMENT_PORT = 8091
REDIS_PORT = 6379

DATABASE_DEVICE = "db"

EncryptionMode = Literal["none", "accepted", "required"]
"""The values of `cluster.encryption`, in the order in which a cluster reaches them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A storage policy of the cluster; without pools it uses all that keep objects.

    `deprecated` tells that no new containers get it. Objects up to `aggregate_below` bytes share volume files. `etag`
    is the hash in ETags of new objects. `write_quorum` is what acknowledges writes. `coding` is its erasure coding,
    None of one with copies.
    """

    index: int
    name: str
    default: bool
    replicas: float | None = None
    pools: tuple[str, ...] = ()
    deprecated: bool = False
    aggregate_below: int = AGGREGATE_BELOW
    etag: EtagKind = "md5"
    write_quorum: WriteQuorum = "majority"
    coding: Coding | None = None
    pack_below: int = 0
    """Bytes up to which objects with erasure coding are kept as copies."""


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one StatefulSet: those of a pool (or of the container servers) in one zone, or in all zones."""

    name: str
    component: str
    zone: str | None
    replicas: int
    pool: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods besides the cluster's."""
        labels = {COMPONENT_LABEL: self.component}
        if self.pool is not None:
            labels[POOL_LABEL] = self.pool
        if self.zone is not None:
            labels[ZONE_LABEL] = self.zone
        return labels

    def pod(self, ordinal: int) -> str:
        """Return the name of a pod."""
        return f"{self.name}-{ordinal}"


@dataclass(frozen=True, slots=True)
class Proxies:
    """The pods of one Deployment of proxies; `region` is None where they don't know in which one they are."""

    suffix: str
    """The Deployment's name after that of the cluster."""
    region: str | None
    replicas: int
    label: str | None = None
    """The value of the nodes' label for regions, where the pods have to be on such nodes."""


def all_proxies(spec: StorageClusterSpec) -> list[Proxies]:
    """Return the Deployments of proxies that have any pods: one in each of `spec.proxy.regions`, each with its share.

    Without these there is one. It knows its region when all pools are in the same one.
    """
    named, count = spec.proxy.regions, spec.proxy.replicas
    if not named:
        regions = {pool.region for pool in spec.pools}
        only = next(iter(regions)) if len(regions) == 1 else DEFAULT_REGION
        every = [Proxies(PROXY, None if only == DEFAULT_REGION else only, count)]
    else:
        shares = [count // len(named) + (i < count % len(named)) for i in range(len(named))]
        every = [
            Proxies(f"{PROXY}-{region}", region, share, region) for region, share in zip(named, shares, strict=True)
        ]
    return [one for one in every if one.replicas]


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with all that its manifests need.

    `ring_chunks` is how many ConfigMaps each ring has. `replicas` are pods per StatefulSet where that is more than the
    spec says, because devices are still being drained. `freed` are pods with data that may be evicted freely,
    `disruptions` is how many of the others may be away, and `cordons` is what is remembered of nodes that are being
    emptied.

    `rdma_pools` are pools whose pods request an RDMA device, and `rdma_proxies` tells whether the proxies' pods do.
    `has_...` tells whether the kinds of the Prometheus operator, the Gateway API and cert-manager are installed.
    `encryption` is how far services are on the way to spec.encryption.

    `operator_namespace` is where the operator's own pod is, None when it runs outside. `runbook_url` is the page that
    each alert names, and `monitoring_labels` are the labels by which a Prometheus selects what it reads. `redis_digest`
    changes when the embedded Redis has to be restarted for another password or certificate.
    """

    cluster: Resource[StorageClusterSpec]
    image: str
    policies: tuple[Policy, ...]
    ring_chunks: Mapping[str, int]
    redis_image: str | None = None
    redis_digest: str = ""
    replicas: Mapping[str, int] = field(default_factory=dict)
    freed: tuple[str, ...] = ()
    disruptions: int = 1
    cordons: str = ""
    rdma_pools: frozenset[str] = frozenset()
    rdma_proxies: bool = False
    encryption: EncryptionMode = "none"
    has_monitoring: bool = False
    has_gateway_api: bool = False
    has_cert_manager: bool = False
    operator_namespace: str | None = None
    runbook_url: str = RUNBOOKS
    monitoring_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.cluster.meta.name

    @property
    def namespace(self) -> str:
        """Return the cluster's namespace."""
        return self.cluster.meta.namespace

    @property
    def spec(self) -> StorageClusterSpec:
        """Return the cluster's spec."""
        return self.cluster.spec

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which everything of the cluster is found."""
        return cluster_labels(self.name)

    @property
    def tls_secret(self) -> str | None:
        """The Secret with the API's certificate and key; None without TLS."""
        return self.spec.tls.secret_name(self.name)

    @property
    def has_embedded_redis(self) -> bool:
        """Whether the operator runs a Redis: it is wanted, and somebody named an image."""
        return self.spec.redis.mode == "embedded" and self.redis_image is not None

    def child(self, suffix: str) -> str:
        """Return the name of a child: the cluster's name for the empty suffix."""
        return f"{self.name}-{suffix}" if suffix else self.name

    def object(
        self,
        kind: Kind,
        name: str,
        component: str,
        content: Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owned: bool = True,
        guarded: bool = False,
    ) -> Manifest:
        """Return a manifest in the cluster's namespace, with its labels and, unless it outlives the cluster, its owner.

        `guarded` adds the finalizer of objects without which data can't be found.
        """
        own = {**self.labels, COMPONENT_LABEL: component}
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": {**own, **{key: value for key, value in (labels or {}).items() if key not in own}},
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        if guarded:
            metadata["finalizers"] = [DATA_FINALIZER]
        if owned:
            metadata["ownerReferences"] = [self.cluster.owner_reference]
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}

    def host(self, group: Group, ordinal: int) -> str:
        """Return a pod's stable DNS name, as in rings."""
        return self.host_of(group.pod(ordinal), group.component)

    def host_of(self, pod: str, component: str) -> str:
        """Return the stable DNS name of a component's pod; `pod` may be a variable of its environment."""
        return host_of(self.spec.federation, pod, self.child(component), self.namespace)

    def rdma_of(self, pods: Pool | ProxySpec) -> RdmaSpec | None:
        """Return the RDMA resources that a pool's pods or the proxies request; None when they request none."""
        asking = pods.name in self.rdma_pools if isinstance(pods, Pool) else self.rdma_proxies
        return self.spec.rdma_of(pods) if asking else None

    def rdma_mode(self, pods: Pool | ProxySpec) -> str | None:
        """Return `cluster.rdma` for their services; None for the default, as pods that request no device find none."""
        asked = self.rdma_of(pods)
        if asked is not None:
            return asked.mode
        return "off" if self.spec.rdma_of(pods).mode == "disabled" else None


def groups_of_pool(cluster: str, pool: Pool) -> list[Group]:
    """Return a pool's StatefulSets; the first zones have one pod more when the pods can't be divided evenly."""
    return _groups(f"{cluster}-{pool.name}", STORAGE, pool.zones, pool.replicas, pool.name)


def container_groups(cluster: str, spec: StorageClusterSpec) -> list[Group]:
    """Return the StatefulSets of the container servers."""
    return _groups(f"{cluster}-{CONTAINER}", CONTAINER, spec.container.zones, spec.container.replicas, None)


def all_groups(cluster: str, spec: StorageClusterSpec) -> list[Group]:
    """Return all StatefulSets that keep data."""
    storage = [group for pool in spec.pools for group in groups_of_pool(cluster, pool)]
    return storage + container_groups(cluster, spec)


def _groups(base: str, component: str, zones: Sequence[str], replicas: int, pool: str | None) -> list[Group]:
    if not zones:
        return [Group(base, component, None, replicas, pool)]
    each, more = divmod(replicas, len(zones))
    return [Group(f"{base}-{zone}", component, zone, each + (index < more), pool) for index, zone in enumerate(zones)]
