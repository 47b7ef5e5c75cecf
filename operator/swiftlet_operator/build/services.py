"""Services: the API's, the metadata servers', and the headless ones that give pods stable names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet.crd import ServiceSpec
from swiftlet_operator.build.pods import API_LABEL, component_labels
from swiftlet_operator.build.site import (
    CONTAINER,
    CONTAINER_NATIVE_PORT,
    CONTAINER_PORT,
    MANAGEMENT_PORT,
    METADATA,
    METADATA_MANAGEMENT_PORT,
    METADATA_PORT,
    OBJECT_NATIVE_PORT,
    OBJECT_PORT,
    PROXY,
    REDIS,
    REDIS_PORT,
    REPLICATOR_PORT,
    STORAGE,
    Site,
)
from swiftlet_operator.manifests import INSTANCE_LABEL, MANAGEMENT, SERVICE, Manifest


def build_services(site: Site) -> list[Manifest]:
    """Return the Services for everything that the cluster has pods for."""
    services = [
        _api(site, site.spec.proxy.service),
        _management(site),
        _headless(
            site,
            STORAGE,
            {"object": OBJECT_PORT, "object-native": OBJECT_NATIVE_PORT, "replicator": REPLICATOR_PORT},
        ),
        _headless(
            site,
            CONTAINER,
            {"container": CONTAINER_PORT, "updates": CONTAINER_NATIVE_PORT, "replicator": REPLICATOR_PORT},
        ),
    ]
    if site.spec.metadata.replicas:
        ports = {"metadata": METADATA_PORT, MANAGEMENT: METADATA_MANAGEMENT_PORT}
        services.append(_internal(site, METADATA, ports))
    if site.has_embedded_redis:
        services.append(_internal(site, REDIS, {"redis": REDIS_PORT}))
    return [_as_asked(site, one) for one in services]


def _as_asked(site: Site, service: Manifest) -> Manifest:
    """Return a Service with the labels and annotations that all Services should have; its own take precedence."""
    asked, metadata = site.spec.service_defaults, service["metadata"]
    notes = {**asked.annotations, **metadata.get("annotations", {})}
    head = {**metadata, "labels": {**asked.labels, **metadata["labels"]}, **({"annotations": notes} if notes else {})}
    return {**service, "metadata": head}


def _api(site: Site, spec: ServiceSpec) -> Manifest:
    port = {"name": "api", "port": site.spec.api_port, "targetPort": "api", "protocol": "TCP"}
    if spec.node_port is not None:
        port["nodePort"] = spec.node_port
    content = {"type": spec.type, "selector": {INSTANCE_LABEL: site.name, API_LABEL: "true"}, "ports": [port]}
    return site.object(
        SERVICE, site.child(""), PROXY, {"spec": content}, labels=spec.labels, annotations=spec.annotations
    )


def _management(site: Site) -> Manifest:
    """Return the Service for the proxies' metrics, which are not in the API's because that may be open to the world."""
    content = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": {INSTANCE_LABEL: site.name, API_LABEL: "true"},
        "ports": _ports({MANAGEMENT: MANAGEMENT_PORT}),
    }
    return site.object(SERVICE, site.child(MANAGEMENT), PROXY, {"spec": content})


def _internal(site: Site, component: str, ports: Mapping[str, int]) -> Manifest:
    content = {"type": "ClusterIP", "selector": component_labels(site, component), "ports": _ports(ports)}
    return site.object(SERVICE, site.child(component), component, {"spec": content})


def _headless(site: Site, component: str, ports: Mapping[str, int]) -> Manifest:
    # Pods that are not ready have DNS names too, as they need each other to become ready.
    content = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": component_labels(site, component),
        "ports": _ports(ports),
    }
    return site.object(SERVICE, site.child(component), component, {"spec": content})


def _ports(ports: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports.items()]
