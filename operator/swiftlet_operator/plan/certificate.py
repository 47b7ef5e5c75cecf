"""What cert-manager says of the certificate that it is asked for: the condition `CertificateReady`."""

from __future__ import annotations

from typing import Any

from swiftlet.crd import Fact
from swiftlet.crd.exposure import certificate_name
from swiftlet_operator.manifests import CERTIFICATE, Manifest
from swiftlet_operator.plan.passed_on import condition_of, words
from swiftlet_operator.world import World

TYPE = "CertificateReady"


def certificate_ready(world: World) -> Fact:
    """Return whether cert-manager's certificate is valid; the reason is NotWanted where the spec asks for none."""
    if world.cluster.spec.tls.cert_manager is None:
        return Fact(TYPE, "False", "NotWanted", "spec.tls.certManager is not set")
    if not world.has_cert_manager:
        message = (
            "this Kubernetes knows no kind Certificate of cert-manager.io/v1: install cert-manager, or remove "
            "spec.tls.certManager and name a Secret in spec.tls.secretRef"
        )
        return Fact(TYPE, "False", "CertManagerMissing", message)
    name = certificate_name(world.cluster.meta.name)
    live = world.child(CERTIFICATE, name)
    if live is None:
        return Fact(TYPE, "False", "NotRequested", f"Certificate {name} has not been created yet")
    return _told(name, live)


def _told(name: str, live: Manifest) -> Fact:
    status: dict[str, Any] = live.get("status") or {}
    ready = condition_of(status.get("conditions"), "Ready")
    if ready is None:
        message = f"cert-manager says nothing of Certificate {name} yet; does its controller run?"
        return Fact(TYPE, "False", "Issuing", message)
    if ready.get("status") == "True":
        until = status.get("notAfter")
        return Fact(TYPE, "True", "Issued", f"Certificate {name} is valid" + (f" until {until}" if until else ""))
    return words(TYPE, ready, "NotReady", f"Certificate {name}", "see kubectl describe certificate of that name")
