"""The Certificate by which cert-manager issues the API's certificate; pods mount its Secret.

Durations are written as Go prints them, as cert-manager's own client does: otherwise a normalised text would differ
from ours and be written again in every reconcile.
"""

from __future__ import annotations

from typing import Any

from swiftlet.crd import CertManagerSpec, StorageClusterSpec
from swiftlet.crd.exposure import certificate_name, seconds_of
from swiftlet_operator.build.site import PROXY, Site
from swiftlet_operator.manifests import CERTIFICATE, Manifest


def build_certificate(site: Site, spec: StorageClusterSpec) -> list[Manifest]:
    """Return the Certificate for `spec`, which may not be accepted yet.

    Nothing is returned when the spec has none, or when the kind is not installed.
    """
    asked = spec.tls.cert_manager
    if asked is None or not site.has_cert_manager:
        return []
    name = certificate_name(site.name)
    content: dict[str, Any] = {
        "secretName": name,
        # The Secret is watched by these labels, so that what waits for it continues at once.
        "secretTemplate": {"labels": site.labels},
        "issuerRef": asked.issuer_ref.model_dump(by_alias=True),
        "dnsNames": names_of(site, spec, asked),
        "usages": ["digital signature", "key encipherment", "server auth"],
        "privateKey": {"rotationPolicy": "Always"},
    }
    if asked.duration is not None:
        content["duration"] = go_duration(asked.duration)
    if asked.renew_before is not None:
        content["renewBefore"] = go_duration(asked.renew_before)
    return [site.object(CERTIFICATE, name, PROXY, {"spec": content})]


def names_of(site: Site, spec: StorageClusterSpec, asked: CertManagerSpec) -> list[str]:
    """Return the Service's names from the shortest to the longest, those of Ingress and route, and those asked for."""
    inside = f"{site.name}.{site.namespace}"
    service = [site.name, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"] if asked.service_names else []
    return list(dict.fromkeys([*service, *spec.proxy.hosts, *asked.dns_names]))


def go_duration(text: str) -> str:
    """Return a duration as Go prints it: `90m` is `1h30m0s`."""
    minutes, seconds = divmod(seconds_of(text), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
