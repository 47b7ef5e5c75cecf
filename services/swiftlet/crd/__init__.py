"""Typed views of the custom resources, their conditions and quantities: what Kubernetes declares, as frozen values.

The specs' names, types, limits and defaults, how a resource becomes a view, and how conditions merge belong here.
Talking to Kubernetes, and deciding anything (the operator's checks and plans do) don't. `crds/*.yaml` says what each
field means, its unit and its reason; a test compares the two. Rules between fields are in the CRDs, for the API server;
rules between objects are the operator's.
"""

from swiftlet.crd.base import NamedRef, SecretKeyRef
from swiftlet.crd.cluster import (
    AuthSpec,
    ContainerSpec,
    DatabaseStorage,
    MetadataSpec,
    MonitoringSpec,
    Pool,
    ProxySpec,
    RdmaSpec,
    RedisSpec,
    ReplicatorSpec,
    RingDefaults,
    ServiceSpec,
    Storage,
    StorageClusterSpec,
)
from swiftlet.crd.conditions import Condition, Fact, merge_conditions, parse_conditions
from swiftlet.crd.exposure import CertManagerSpec, IngressSpec, RouteSpec, TlsSpec
from swiftlet.crd.federation import FederationSpec, MemberSpec
from swiftlet.crd.kinds import (
    GROUP,
    KINDS,
    VERSION,
    Kind,
    Meta,
    Resource,
    parse_resource,
    parse_ring,
    parse_storage_cluster,
    parse_storage_policy,
    parse_storage_quota,
    parse_storage_user,
)
from swiftlet.crd.network import NetworkPeer, NetworkSpec
from swiftlet.crd.pods import PodShape, PodSpec, Resources, Toleration
from swiftlet.crd.policy import StoragePolicySpec
from swiftlet.crd.quota import Assignment, Level, StorageQuotaSpec
from swiftlet.crd.ring import RingSpec
from swiftlet.crd.user import StorageUserSpec
from swiftlet.quantities import parse_quantity, quantity_bytes

__all__ = [
    "GROUP",
    "KINDS",
    "VERSION",
    "Assignment",
    "AuthSpec",
    "CertManagerSpec",
    "Condition",
    "ContainerSpec",
    "DatabaseStorage",
    "Fact",
    "FederationSpec",
    "IngressSpec",
    "Kind",
    "Level",
    "MemberSpec",
    "Meta",
    "MetadataSpec",
    "MonitoringSpec",
    "NamedRef",
    "NetworkPeer",
    "NetworkSpec",
    "PodShape",
    "PodSpec",
    "Pool",
    "ProxySpec",
    "RdmaSpec",
    "RedisSpec",
    "ReplicatorSpec",
    "Resource",
    "Resources",
    "RingDefaults",
    "RingSpec",
    "RouteSpec",
    "SecretKeyRef",
    "ServiceSpec",
    "Storage",
    "StorageClusterSpec",
    "StoragePolicySpec",
    "StorageQuotaSpec",
    "StorageUserSpec",
    "TlsSpec",
    "Toleration",
    "merge_conditions",
    "parse_conditions",
    "parse_quantity",
    "parse_resource",
    "parse_ring",
    "parse_storage_cluster",
    "parse_storage_policy",
    "parse_storage_quota",
    "parse_storage_user",
    "quantity_bytes",
]
