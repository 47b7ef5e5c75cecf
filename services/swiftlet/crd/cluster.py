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
from swiftlet.crd.network import NetworkSpec
from swiftlet.crd.pods import Annotations, Labels, NodeSelector, PodShape, PodSpec, Resources, asked, merged
from swiftlet.crd.quantity import parse_quantity, quantity_bytes
from swiftlet.crd.user import LoginPart, UserRole

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
    """Whether and how pods get at RDMA devices."""

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
        """Whether pods should ask for a device where there is one."""
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
        """The weight of each device in the rings: what was asked for, else the size in GiB."""
        return self.weight if self.weight is not None else float(parse_quantity(self.storage.size) / GIB)

    @property
    def device_count(self) -> int:
        """Devices of all its pods."""
        return self.replicas * self.devices_per_pod


class ServiceSpec(View):
    """The Service in front of the proxies."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: Port | None = None
    node_port: Annotated[int, Field(ge=30000, le=32767)] | None = None
    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})


class ServiceDefaults(View):
    """What all Services of the cluster have besides what they need."""

    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})


class ProxySpec(PodSpec):
    """The proxies: the Swift API."""

    replicas: Annotated[int, Field(ge=0, le=500)] = 2
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
    """The metadata servers: where a direct client finds its objects."""

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
    """Encryption on the way to an external Redis."""

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
        """Whether an external Redis is spoken to in TLS."""
        return self.tls is not None and self.tls.enabled

    @property
    def ca_secret_ref(self) -> RedisCaRef | None:
        """The authorities of an external Redis' certificate, None for those of the image and without TLS."""
        return self.tls.ca_secret_ref if self.tls is not None and self.tls.enabled else None


class AllowedLogin(View):
    """What one login may have that others may not."""

    account: LoginPart
    user: LoginPart
    roles: Annotated[tuple[UserRole, ...], Field(max_length=4)] = ()


class AuthSpec(View):
    """How clients prove who they are, and what StorageUsers may ask for."""

    token_life_seconds: Annotated[int, Field(ge=60, le=2_678_400)] = 86_400
    allowed_roles: Annotated[tuple[UserRole, ...], Field(max_length=4)] = ("admin", "user", "reader")
    users: Annotated[tuple[AllowedLogin, ...], Field(max_length=64)] = ()
    reserved_accounts: Annotated[tuple[LoginPart, ...], Field(max_length=64)] = ()

    def roles_for(self, account: str, user: str) -> frozenset[UserRole]:
        """The roles that a StorageUser with this login may carry."""
        more = (role for one in self._allowed(account, user) for role in one.roles)
        return frozenset((*self.allowed_roles, *more))

    def may_use(self, account: str, user: str) -> bool:
        """Whether the account is free to all, or this login is among those that it is reserved for."""
        return account not in self.reserved_accounts or bool(self._allowed(account, user))

    def _allowed(self, account: str, user: str) -> list[AllowedLogin]:
        return [one for one in self.users if (one.account, one.user) == (account, user)]


Recipient = Annotated[str, Field(pattern=r"^age1[02-9ac-hj-np-z]{58}$", max_length=62)]


class KeysSpec(View):
    """The cluster key, which services and tokens are trusted by; a higher generation asks for a new one.

    `recovery_recipients`: of age, who besides the operator can open the sealed copies of the keys.
    """

    generation: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    recovery_recipients: Annotated[tuple[Recipient, ...], Field(max_length=8)] = ()


class ReplicatorSpec(View):
    """How replicas are brought into agreement."""

    interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 10
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    bytes_per_second: Annotated[int, Field(ge=0)] = 0
    error_suppression_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    error_suppression_interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    resources: Resources = asked("25m", "128Mi")


class MonitoringSpec(View):
    """What is made for a Prometheus operator, where there is one."""

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
"""A pod, or one of its devices as it is named in rings."""


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
    replicator: ReplicatorSpec = ReplicatorSpec()
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
        """The port of the Service in front of the proxies: the one asked for, else the protocol's own."""
        if self.proxy.service.port is not None:
            return self.proxy.service.port
        return 443 if self.tls.enabled else 80

    @property
    def external_url(self) -> str | None:
        """The base URL of the API as the spec says that clients outside of Kubernetes reach it; None when it doesn't.

        It is what `storageUrl` says, else the first name of the Ingress, else that of the route.
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
        """All parts that have pods."""
        return (*self.pools, self.container, self.proxy, self.metadata, self.redis)

    def rdma_of(self, pods: Pool | ProxySpec) -> RdmaSpec:
        """Return the RDMA settings of a pool or of the proxies: their own as a whole, otherwise the cluster's."""
        return pods.rdma if pods.rdma is not None else self.rdma

    def pool_named(self, name: str) -> Pool | None:
        """The pool of that name."""
        return next((pool for pool in self.pools if pool.name == name), None)
