"""The Ingress and the route of the Gateway API by which clients from outside of Kubernetes reach the proxies."""

from __future__ import annotations

from typing import Any

from swiftlet.crd import IngressSpec, RouteSpec
from swiftlet_operator.build.site import PROXY, Site
from swiftlet_operator.manifests import HTTP_ROUTE, INGRESS, Manifest


def build_exposure(site: Site) -> list[Manifest]:
    """Return those that the spec asks for; a route only where the Gateway API is installed."""
    proxy = site.spec.proxy
    found = [] if proxy.ingress is None else [_ingress(site, proxy.ingress)]
    if proxy.route is not None and site.has_gateway_api:
        found.append(_route(site, proxy.route))
    return found


def _ingress(site: Site, asked: IngressSpec) -> Manifest:
    backend = {"service": {"name": site.child(""), "port": {"name": "api"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    content: dict[str, Any] = {"rules": [{"host": host, "http": {"paths": [path]}} for host in asked.hosts]}
    if asked.class_name is not None:
        content["ingressClassName"] = asked.class_name
    secret = asked.tls_secret_ref.name if asked.tls_secret_ref is not None else site.tls_secret
    if secret is not None:
        content["tls"] = [{"hosts": list(asked.hosts), "secretName": secret}]
    return site.object(
        INGRESS, site.child(""), PROXY, {"spec": content}, labels=asked.labels, annotations=asked.annotations
    )


def _route(site: Site, asked: RouteSpec) -> Manifest:
    rule: dict[str, Any] = {"backendRefs": [{"name": site.child(""), "port": site.spec.api_port}]}
    if asked.request_timeout is not None:
        rule["timeouts"] = {"request": asked.request_timeout}
    content: dict[str, Any] = {
        "parentRefs": [one.model_dump(by_alias=True, exclude_none=True) for one in asked.parent_refs],
        "rules": [rule],
    }
    if asked.hostnames:
        content["hostnames"] = list(asked.hostnames)
    return site.object(
        HTTP_ROUTE, site.child(""), PROXY, {"spec": content}, labels=asked.labels, annotations=asked.annotations
    )
