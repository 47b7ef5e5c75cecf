"""The spec of a StorageCluster: one object store."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import (
    DnsLabel,
    MinPartHours,
    NamedRef,
    ObjectName,
    Overload,
    PartPower,
    PoolName,
    Quantity,
    Replicas,
    SecretKey,
    SecretKeyRef,
    View,
    Zone,
)
from swiftlet.crd.exposure import IngressSpec, RouteSpec, TlsSpec
from swiftlet.crd.federation import FederationSpec
from swiftlet.crd.network import DirectAccessSpec, NetworkSpec
from swiftlet.crd.pods import Annotations, Labels, NodeSelector, PodShape, PodSpec, Resources, asked, merged
from swiftlet.crd.user import LoginPart, UserRole
from swiftlet.quantities import parse_quantity, quantity_bytes

GIB = 1024**3

Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Workers = Annotated[int, Field(ge=1, le=256)]
Zones = Annotated[tuple[Zone, ...], Field(max_length=16)]
Role = Literal["object", "proxy"]


class Storage(View):
    """The volume of one device of a pool."""

    class_name: ObjectName | None = None
    size: Quantity

    @property
    def size_bytes(self) -> int:
        """The volume's size in bytes."""
        return quantity_bytes(self.size)


class DatabaseStorage(Storage):
    """The volume of one container server; databases are small."""

    size: Quantity = "10Gi"


class RdmaSpec(View):
    """Whether and how pods get RDMA devices."""

    mode: Literal["auto", "required", "disabled"] = "auto"
    resource: (
        Annotated[
            str,
            Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=253),
        ]
        | None
    ) = None
    count: Annotated[int, Field(ge=1, le=64)] = 1
    node_selector: NodeSelector = Field(default={})
    networks: Annotated[str, Field(max_length=1024)] | None = None

    @property
    def wanted(self) -> bool:
        """Whether pods should request a device where there is one."""
        return self.mode != "disabled" and self.resource is not None


class Pool(PodSpec):
    """Equal storage pods with equal devices."""

    name: PoolName
    replicas: Annotated[int, Field(ge=1, le=1000)]
    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=2)] = ("object",)
    zones: Zones = ()
    region: DnsLabel = "default"
    devices_per_pod: Annotated[int, Field(ge=1, le=32)] = 1
    storage: Storage
    weight: Annotated[float, Field(ge=0, le=10_000_000)] | None = None
    rdma: RdmaSpec | None = None
    resources: Resources = asked("100m", "256Mi")

    @property
    def device_weight(self) -> float:
        """The weight of each device in the rings: the one in the spec, or else the size in GiB."""
        return self.weight if self.weight is not None else float(parse_quantity(self.storage.size) / GIB)

    @property
    def device_count(self) -> int:
        """The number of devices of all pods of the pool."""
        return self.replicas * self.devices_per_pod


class ServiceSpec(View):
    """The Service in front of the proxies."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: Port | None = None
    node_port: Annotated[int, Field(ge=30000, le=32767)] | None = None
    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})


class ServiceDefaults(View):
    """Settings that all Services of the cluster have in addition to their own."""

    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})


class ProxySpec(PodSpec):
    """The proxies, which serve the Swift API."""

    replicas: Annotated[int, Field(ge=0, le=500)] = 2
    regions: Annotated[tuple[DnsLabel, ...], Field(max_length=16)] = ()
    workers: Workers = 1
    service: ServiceSpec = ServiceSpec()
    storage_url: Annotated[str, Field(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$", max_length=253)] | None = None
    front: bool = True
    rdma: RdmaSpec | None = None
    ingress: IngressSpec | None = None
    route: RouteSpec | None = None
    resources: Resources = asked("100m", "256Mi")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which clients outside of Kubernetes know the API."""
        ingress = self.ingress.hosts if self.ingress is not None else ()
        route = self.route.hostnames if self.route is not None else ()
        return tuple(dict.fromkeys((*ingress, *route)))


class MetadataSpec(PodSpec):
    """The metadata servers, which tell direct clients where their objects are."""

    replicas: Annotated[int, Field(ge=0, le=500)] = 2
    workers: Workers = 1
    resources: Resources = asked("25m", "128Mi")


class ContainerSpec(PodSpec):
    """The container servers: account and container databases."""

    replicas: Annotated[int, Field(ge=1, le=1000)] = 3
    zones: Zones = ()
    storage: DatabaseStorage = DatabaseStorage()
    resources: Resources = asked("50m", "128Mi")


class RingDefaults(View):
    """The values that the operator writes into the Ring objects that it creates."""

    part_power: PartPower = 14
    replicas: Replicas = 3
    min_part_hours: MinPartHours = 1
    overload: Overload = 0.1


class RedisPasswordRef(SecretKeyRef):
    """The entry of a Secret that holds the password of an external Redis."""

    key: SecretKey = "password"


class RedisCaRef(SecretKeyRef):
    """The entry of a Secret that holds the authorities of an external Redis' certificate."""

    key: SecretKey = "ca.crt"


class RedisTlsSpec(View):
    """Encryption of connections to an external Redis."""

    enabled: bool = False
    ca_secret_ref: RedisCaRef | None = None


class RedisSpec(PodSpec):
    """The Redis that holds the failure table."""

    mode: Literal["embedded", "external"] = "embedded"
    image: Image | None = None
    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:\[\]_-]+:[0-9]{1,5}$", max_length=259)] | None = None
    password_secret_ref: RedisPasswordRef | None = None
    tls: RedisTlsSpec | None = None
    resources: Resources = asked("25m", "32Mi")

    @property
    def speaks_tls(self) -> bool:
        """Whether connections to an external Redis use TLS."""
        return self.tls is not None and self.tls.enabled

    @property
    def ca_secret_ref(self) -> RedisCaRef | None:
        """The authorities of an external Redis' certificate; None for those of the image, and without TLS."""
        return self.tls.ca_secret_ref if self.tls is not None and self.tls.enabled else None


class AllowedLogin(View):
    """Roles or accounts that a single login may have and others may not."""

    account: LoginPart
    user: LoginPart
    roles: Annotated[tuple[UserRole, ...], Field(max_length=4)] = ()


class AuthSpec(View):
    """Authentication of clients, and what StorageUsers may request."""

    token_life_seconds: Annotated[int, Field(ge=60, le=2_678_400)] = 86_400
    allowed_roles: Annotated[tuple[UserRole, ...], Field(max_length=4)] = ("admin", "user", "reader")
    users: Annotated[tuple[AllowedLogin, ...], Field(max_length=64)] = ()
    reserved_accounts: Annotated[tuple[LoginPart, ...], Field(max_length=64)] = ()

    def roles_for(self, account: str, user: str) -> frozenset[UserRole]:
        """Return the roles that a StorageUser with this login may have."""
        more = (role for one in self._allowed(account, user) for role in one.roles)
        return frozenset((*self.allowed_roles, *more))

    def may_use(self, account: str, user: str) -> bool:
        """Return whether the account is free to all, or reserved for this login among others."""
        return account not in self.reserved_accounts or bool(self._allowed(account, user))

    def _allowed(self, account: str, user: str) -> list[AllowedLogin]:
        return [one for one in self.users if (one.account, one.user) == (account, user)]


Recipient = Annotated[str, Field(pattern=r"^age1[02-9ac-hj-np-z]{58}$", max_length=62)]


class KeysSpec(View):
    """The cluster key, by which services trust each other and tokens; a higher generation requests a new one.

    `recovery_recipients` are the age recipients that can open the sealed copies of the keys besides the operator.
    """

    generation: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    recovery_recipients: Annotated[tuple[Recipient, ...], Field(max_length=8)] = ()


class ReplicatorSpec(View):
    """Settings of the replicators."""

    interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 10
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    bytes_per_second: Annotated[int, Field(ge=0)] = 0
    link_bytes_per_second: Annotated[int, Field(ge=0)] = 0
    error_suppression_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    error_suppression_interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    resources: Resources = asked("25m", "128Mi")


class RealmsRef(SecretKeyRef):
    """The entry of a Secret that holds the realms file of container sync."""

    key: SecretKey = "realms.conf"


class ContainerSyncSpec(View):
    """Container sync with other clusters; `current` is the realm and cluster that this one is."""

    realms_secret_ref: RealmsRef
    current: Annotated[str, Field(pattern=r"^//[^/\s]+/[^/\s]+$", max_length=253)] | None = None


class MonitoringSpec(View):
    """Objects for the Prometheus operator, created where it is installed."""

    enabled: bool = True


class MaintenanceSpec(View):
    """Planned work on the nodes of one zone."""

    zone: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)]


class UpgradeSpec(View):
    """How pods are restarted when their template changes."""

    paused: bool = False
    timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] = 1800
    continue_after_timeout: bool = False


DrainName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?(/(d[0-9]{1,2}|db))?$", max_length=70)]
"""The name of a pod, or the name that one of its devices has in rings."""


class StorageClusterSpec(View):
    """The spec of a StorageCluster, which is one object store."""

    image: Image | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[tuple[NamedRef, ...], Field(max_length=8)] = ()
    pod_defaults: PodShape = PodShape()
    service_defaults: ServiceDefaults = ServiceDefaults()
    pools: Annotated[tuple[Pool, ...], Field(min_length=1, max_length=32)]
    rings: RingDefaults = RingDefaults()
    proxy: ProxySpec = ProxySpec()
    metadata: MetadataSpec = MetadataSpec()
    container: ContainerSpec = ContainerSpec()
    redis: RedisSpec = RedisSpec()
    auth: AuthSpec = AuthSpec()
    keys: KeysSpec = KeysSpec()
    tls: TlsSpec = TlsSpec()
    network: NetworkSpec = NetworkSpec()
    direct_access: DirectAccessSpec = DirectAccessSpec()
    replicator: ReplicatorSpec = ReplicatorSpec()
    container_sync: ContainerSyncSpec | None = None
    federation: FederationSpec | None = None
    monitoring: MonitoringSpec = MonitoringSpec()
    rdma: RdmaSpec = RdmaSpec()
    encryption: Literal["none", "transport"] = "none"
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    placement: Literal["required", "preferred"] = "preferred"
    upgrade: UpgradeSpec = UpgradeSpec()
    maintenance: MaintenanceSpec | None = None
    replace_lost_nodes_after_seconds: Annotated[int, Field(ge=0, le=2_678_400)] = 900
    drain: Annotated[tuple[DrainName, ...], Field(max_length=64)] = ()
    paused: bool = False

    @property
    def api_port(self) -> int:
        """The port of the Service in front of the proxies: the one in the spec, or else the protocol's own."""
        if self.proxy.service.port is not None:
            return self.proxy.service.port
        return 443 if self.tls.enabled else 80

    @property
    def external_url(self) -> str | None:
        """The base URL of the API for clients outside of Kubernetes; None when the spec has none.

        It is `storageUrl`, or else made from the first name of the Ingress, or else from that of the route.
        """
        if self.proxy.storage_url is not None:
            return self.proxy.storage_url.rstrip("/")
        if self.proxy.ingress is not None:
            encrypted = self.tls.enabled or self.proxy.ingress.tls_secret_ref is not None
            return f"{'https' if encrypted else 'http'}://{self.proxy.ingress.hosts[0]}"
        if self.proxy.route is not None and self.proxy.route.hostnames:
            return f"{self.proxy.route.scheme}://{self.proxy.route.hostnames[0]}"
        return None

    def shape_of(self, pods: PodShape) -> PodShape:
        """Return the settings of a component's pods: its own, merged over those for all pods."""
        return merged(pods, self.pod_defaults)

    @property
    def components(self) -> tuple[PodSpec, ...]:
        """The parts of the cluster that have pods."""
        return (*self.pools, self.container, self.proxy, self.metadata, self.redis)

    def rdma_of(self, pods: Pool | ProxySpec) -> RdmaSpec:
        """Return the RDMA settings of a pool or of the proxies: their own as a whole, otherwise the cluster's."""
        return pods.rdma if pods.rdma is not None else self.rdma

    def pool_named(self, name: str) -> Pool | None:
        """Return the pool of that name, None when there is none."""
        return next((pool for pool in self.pools if pool.name == name), None)
