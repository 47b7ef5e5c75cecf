"""How clients outside of Kubernetes reach the API: an Ingress, or a route of the Gateway API; and its certificate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import NamedRef, ObjectName, View
from swiftlet.crd.pods import Annotations, Labels

HostName = Annotated[
    str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
]
DnsName = Annotated[
    str, Field(max_length=253, pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
]
HostNames = Annotated[tuple[HostName, ...], Field(max_length=16)]
Duration = Annotated[str, Field(min_length=2, max_length=16, pattern=r"^([0-9]{1,6}h)?([0-9]{1,4}m)?([0-9]{1,4}s)?$")]
"""A duration in Go's notation, with hours, minutes and seconds."""


class IngressSpec(View):
    """The Ingress in front of the proxies."""

    class_name: ObjectName | None = None
    hosts: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=16)]
    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})
    tls_secret_ref: NamedRef | None = None


class ParentRef(View):
    """The object that a route is attached to, usually a Gateway."""

    name: ObjectName
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = (
        None
    )
    section_name: ObjectName | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    kind: Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")] = "Gateway"
    group: ObjectName = "gateway.networking.k8s.io"


class RouteSpec(View):
    """The HTTPRoute to the proxies."""

    parent_refs: Annotated[tuple[ParentRef, ...], Field(min_length=1, max_length=8)]
    hostnames: HostNames = ()
    scheme: Literal["http", "https"] = "https"
    request_timeout: (
        Annotated[str, Field(min_length=2, max_length=20, pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")] | None
    ) = None
    annotations: Annotations = Field(default={})
    labels: Labels = Field(default={})


class IssuerRef(View):
    """The issuer of the certificate."""

    name: ObjectName
    kind: Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*$")] = "Issuer"
    group: ObjectName = "cert-manager.io"


class CertManagerSpec(View):
    """A certificate that cert-manager issues and renews."""

    issuer_ref: IssuerRef
    service_names: bool = True
    dns_names: Annotated[tuple[DnsName, ...], Field(max_length=32)] = ()
    duration: Duration | None = None
    renew_before: Duration | None = None


class TlsSpec(View):
    """Encryption between clients and proxies, with the user's own certificate or one of cert-manager."""

    secret_ref: NamedRef | None = None
    cert_manager: CertManagerSpec | None = None

    @property
    def enabled(self) -> bool:
        """Whether the API speaks HTTPS."""
        return self.secret_ref is not None or self.cert_manager is not None

    def secret_name(self, cluster: str) -> str | None:
        """Return the name of the Secret with certificate and key; None without TLS."""
        if self.secret_ref is not None:
            return self.secret_ref.name
        return certificate_name(cluster) if self.cert_manager is not None else None


def certificate_name(cluster: str) -> str:
    """Return the name of a cluster's Certificate, and of its Secret."""
    return f"{cluster}-tls"


def seconds_of(duration: str) -> int:
    """Return the seconds of a duration."""
    units = {"h": 3600, "m": 60, "s": 1}
    total, digits = 0, ""
    for letter in duration:
        if letter in units:
            total, digits = total + int(digits) * units[letter], ""
        else:
            digits += letter
    return total
