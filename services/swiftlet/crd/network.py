"""`spec.network`: who may reach the store's pods and whom they may reach, in the terms of a NetworkPolicy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from swiftlet.crd.base import DnsLabel, View

Cidr = Annotated[
    str,
    Field(pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F:.]{2,45}/[0-9]{1,3})$", max_length=49),
]
"""A pattern of networks; whoever uses one checks it."""
LabelKey = Annotated[str, Field(min_length=1, max_length=316)]
LabelValue = Annotated[str, Field(max_length=63)]
NetworkedComponent = Literal["storage", "container", "proxy", "metadata", "redis"]


class Requirement(View):
    """A label that objects must have or must not have."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Field(max_length=16)] = ()


class LabelSelector(View):
    """Selects objects by their labels; an empty selector selects all."""

    match_labels: Annotated[Mapping[str, LabelValue], Field(max_length=16)] = Field(default={})
    match_expressions: Annotated[tuple[Requirement, ...], Field(max_length=16)] = ()


class IpBlock(View):
    """A network, with parts of it that are excepted."""

    cidr: Cidr
    excluded: Annotated[tuple[Cidr, ...], Field(max_length=16)] = Field(default=(), alias="except")


class NetworkPeer(View):
    """Pods selected by labels of their namespace, of their own, or both; or addresses."""

    ip_block: IpBlock | None = None
    namespace_selector: LabelSelector | None = None
    pod_selector: LabelSelector | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """Return it in the form of a NetworkPolicy: an empty selector stays, since it means all, and unset fields are
        omitted.
        """
        given = self.model_dump(by_alias=True, exclude_none=True, mode="json")
        return {name: {k: v for k, v in one.items() if v} for name, one in given.items()}


class NetworkPort(View):
    """A port, or a range of ports."""

    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    port: Annotated[int, Field(ge=1, le=65535)]
    end_port: Annotated[int, Field(ge=1, le=65535)] | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """Return it in the form of a NetworkPolicy."""
        return self.model_dump(by_alias=True, exclude_none=True)


class EgressRule(View):
    """Destinations outside of the cluster that its pods may reach."""

    name: DnsLabel
    components: Annotated[tuple[NetworkedComponent, ...], Field(max_length=5)] = ()
    to: Annotated[tuple[NetworkPeer, ...], Field(max_length=16)] = ()
    ports: Annotated[tuple[NetworkPort, ...], Field(max_length=16)] = ()


class DirectAccessSpec(View):
    """Whether clients may transfer objects to and from the object servers themselves, and who may reach these."""

    enabled: bool = False
    clients: Annotated[tuple[NetworkPeer, ...], Field(max_length=32)] = ()


class NetworkSpec(View):
    """The connections that NetworkPolicies allow in addition to those between the cluster's own parts."""

    policies: Literal["full", "ingress", "disabled"] = "full"
    clients: Annotated[tuple[NetworkPeer, ...], Field(max_length=32)] = ()
    dns: Annotated[tuple[NetworkPeer, ...], Field(max_length=8)] = ()
    scrapers: Annotated[tuple[NetworkPeer, ...], Field(max_length=8)] = ()
    extra_egress: Annotated[tuple[EgressRule, ...], Field(max_length=16)] = ()
