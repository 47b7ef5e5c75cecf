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
    Group,
    Site,
    all_groups,
)
from swiftlet_operator.manifests import INSTANCE_LABEL, MANAGEMENT, POD_NAME_LABEL, SERVICE, Manifest

DATA_PORTS = {
    STORAGE: {"object": OBJECT_PORT, "object-native": OBJECT_NATIVE_PORT, "replicator": REPLICATOR_PORT},
    CONTAINER: {"container": CONTAINER_PORT, "updates": CONTAINER_NATIVE_PORT, "replicator": REPLICATOR_PORT},
}
"""The ports of pods with data."""


def build_services(site: Site) -> list[Manifest]:
    """Return the Services for everything that the cluster has pods for."""
    services = [
        _api(site, site.spec.proxy.service),
        _management(site),
        _headless(site, STORAGE, DATA_PORTS[STORAGE]),
        _headless(site, CONTAINER, DATA_PORTS[CONTAINER]),
    ]
    if site.spec.metadata.replicas:
        ports = {"metadata": METADATA_PORT, MANAGEMENT: METADATA_MANAGEMENT_PORT}
        services.append(_internal(site, METADATA, ports))
    if site.has_embedded_redis:
        services.append(_internal(site, REDIS, {"redis": REDIS_PORT}))
    services += [_of_pod(site, group, ordinal) for group, ordinal in _pods_for_others(site)]
    return [_as_asked(site, one) for one in services]


def _pods_for_others(site: Site) -> list[tuple[Group, int]]:
    """Return the pods with data that other members of a federation reach by Services of their own."""
    if site.spec.federation is None or site.spec.federation.pod_services is None:
        return []
    groups = all_groups(site.name, site.spec)
    return [(one, i) for one in groups for i in range(max(one.replicas, site.replicas.get(one.name, 0)))]


def _of_pod(site: Site, group: Group, ordinal: int) -> Manifest:
    """Return the Service of one pod, with the ports that the pod has. Its peers reach it before it is ready, too."""
    assert site.spec.federation is not None
    assert site.spec.federation.pod_services is not None
    spec, name = site.spec.federation.pod_services, group.pod(ordinal)
    content = {
        "type": spec.type,
        "publishNotReadyAddresses": True,
        "selector": {INSTANCE_LABEL: site.name, POD_NAME_LABEL: name},
        # By their usual names a Prometheus would read the pod twice.
        "ports": [{**one, "name": f"tcp-{one['port']}"} for one in _ports(DATA_PORTS[group.component])],
        # The pods of other members are admitted by their addresses.
        **({"externalTrafficPolicy": "Local"} if spec.type == "LoadBalancer" else {}),
    }
    notes = {key: text.replace("{host}", site.host(group, ordinal)) for key, text in spec.annotations.items()}
    return site.object(SERVICE, name, group.component, {"spec": content}, annotations=notes)


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
