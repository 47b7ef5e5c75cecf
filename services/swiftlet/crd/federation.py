"""`spec.federation`: one store over several Kubernetes clusters, of which each has a StorageCluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import DnsLabel, ObjectName, SecretKey, SecretKeyRef, View
from swiftlet.crd.network import NetworkPeer
from swiftlet.crd.pods import Annotations

MAX_MEMBERS = 15
"""The largest number of other Kubernetes clusters that a StorageCluster of a federation names."""
IN_CLUSTER_HOST = "{pod}.{service}.{namespace}.svc"
"""The host of a pod with data in the rings, unless the spec has another template."""
HostTemplate = Annotated[
    str, Field(pattern=r"^([a-z0-9.-]|\{(pod|service|namespace)\})*$", min_length=1, max_length=150)
]
"""The name of a pod's host, with `{pod}` and, where they are wanted, `{service}` and `{namespace}` in it."""


class KubeconfigRef(SecretKeyRef):
    """The entry of a Secret that holds a kubeconfig."""

    key: SecretKey = "kubeconfig"


class MemberSpec(View):
    """Another member of the federation: its name there, and where its StorageCluster is."""

    name: DnsLabel
    namespace: DnsLabel
    cluster: ObjectName
    kubeconfig_secret_ref: KubeconfigRef


class PodServices(View):
    """The Service of each pod with data, by which other members reach it; `{host}` in an annotation is its host."""

    type: Literal["LoadBalancer", "ClusterIP"] = "LoadBalancer"
    annotations: Annotations = Field(default={})


class FederationSpec(View):
    """The federation that a StorageCluster is a member of."""

    name: DnsLabel
    member: DnsLabel
    leader: DnsLabel
    host_template: HostTemplate = IN_CLUSTER_HOST
    pod_services: PodServices | None = None
    peers: Annotated[tuple[NetworkPeer, ...], Field(min_length=1, max_length=32)]
    members: Annotated[tuple[MemberSpec, ...], Field(max_length=MAX_MEMBERS)] = ()

    @property
    def leads(self) -> bool:
        """Whether this member builds the rings; the others take them from it."""
        return self.member == self.leader

    @property
    def heard(self) -> tuple[MemberSpec, ...]:
        """The members that this one reads: the leader reads all others, and others read the leader."""
        return tuple(one for one in self.members if self.leads or one.name == self.leader)


def host_of(federation: FederationSpec | None, pod: str, service: str, namespace: str) -> str:
    """Return the host of a pod with data as in the rings; `service` is the headless one that names it."""
    template = IN_CLUSTER_HOST if federation is None else federation.host_template
    return template.replace("{pod}", pod).replace("{service}", service).replace("{namespace}", namespace)
