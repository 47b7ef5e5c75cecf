"""NetworkPolicies: only the cluster's own pods reach what keeps data."""

from __future__ import annotations

from typing import Any

from swiftlet_operator.build.pods import component_labels
from swiftlet_operator.build.site import (
    API_PORT,
    CONTAINER,
    CONTAINER_PORT,
    OBJECT_NATIVE_PORT,
    OBJECT_PORT,
    PROXY,
    REDIS,
    REDIS_PORT,
    REPLICATOR_PORT,
    STORAGE,
    Site,
)
from swiftlet_operator.manifests import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL, NETWORK_POLICY, Manifest

_OPERATOR = {NAME_LABEL: "swiftlet-operator", COMPONENT_LABEL: "operator"}
"""What the chart gives the operator's pods."""
_PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


def build_network(site: Site) -> list[Manifest]:
    """One for each component with data."""
    storage = [_rule([_own_pods(site)], OBJECT_PORT, OBJECT_NATIVE_PORT, REPLICATOR_PORT)]
    container = [_rule([_own_pods(site)], CONTAINER_PORT, REPLICATOR_PORT)]
    if site.operator_namespace is not None:
        # It asks every service what it knows, at /statusz.
        operator = _in_namespace(site.operator_namespace, _OPERATOR)
        storage.append(_rule([operator], OBJECT_PORT, REPLICATOR_PORT))
        container.append(_rule([operator], CONTAINER_PORT, REPLICATOR_PORT))
    if site.spec.monitoring.enabled:
        storage.append(_rule([_anywhere(_PROMETHEUS)], OBJECT_PORT, REPLICATOR_PORT))
        container.append(_rule([_anywhere(_PROMETHEUS)], CONTAINER_PORT, REPLICATOR_PORT))
    if any(PROXY in pool.roles for pool in site.spec.pools):
        storage.append(_rule([], API_PORT))
    policies = [_policy(site, STORAGE, storage), _policy(site, CONTAINER, container)]
    if site.spec.redis.mode == "embedded" and site.redis_image is not None:
        policies.append(_policy(site, REDIS, [_rule([_own_pods(site)], REDIS_PORT)]))
    return policies


def _own_pods(site: Site) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {NAME_LABEL: "swiftlet", INSTANCE_LABEL: site.name}}}


def _anywhere(labels: dict[str, str]) -> dict[str, Any]:
    return {"namespaceSelector": {}, "podSelector": {"matchLabels": labels}}


def _in_namespace(namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    place = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {"namespaceSelector": place, "podSelector": {"matchLabels": labels}}


def _rule(sources: list[dict[str, Any]], *ports: int) -> dict[str, Any]:
    """Who may reach the ports; everybody when there are no sources."""
    rule: dict[str, Any] = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return {"from": sources, **rule} if sources else rule


def _policy(site: Site, component: str, rules: list[dict[str, Any]]) -> Manifest:
    spec = {
        "podSelector": {"matchLabels": component_labels(site, component)},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    return site.object(NETWORK_POLICY, site.child(component), component, {"spec": spec})
