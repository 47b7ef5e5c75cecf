"""NetworkPolicies: only the cluster's own pods reach what keeps data, and no client reaches what tells about pods."""

from __future__ import annotations

from typing import Any

from swiftlet_operator.build.pods import component_labels
from swiftlet_operator.build.site import (
    API_PORT,
    CONTAINER,
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
from swiftlet_operator.manifests import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL, NETWORK_POLICY, Manifest

_OPERATOR = {NAME_LABEL: "swiftlet-operator", COMPONENT_LABEL: "operator"}
"""What the chart gives the operator's pods."""
_PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


def build_network(site: Site) -> list[Manifest]:
    """One for each component with pods."""
    sumo = any(PROXY in pool.roles for pool in site.spec.pools)
    policies = [
        _policy(
            site,
            STORAGE,
            [
                _rule([_own_pods(site)], OBJECT_PORT, OBJECT_NATIVE_PORT, REPLICATOR_PORT),
                *_watched(site, OBJECT_PORT, REPLICATOR_PORT, *([MANAGEMENT_PORT] if sumo else [])),
                *([_rule([], API_PORT)] if sumo else []),
            ],
        ),
        _policy(
            site,
            CONTAINER,
            [
                _rule([_own_pods(site)], CONTAINER_PORT, REPLICATOR_PORT),
                *_watched(site, CONTAINER_PORT, REPLICATOR_PORT),
            ],
        ),
    ]
    if site.spec.proxy.replicas:
        policies.append(_policy(site, PROXY, [_rule([], API_PORT), *_watched(site, MANAGEMENT_PORT)]))
    if site.spec.metadata.replicas:
        rules = [_rule([], METADATA_PORT), *_watched(site, METADATA_MANAGEMENT_PORT)]
        policies.append(_policy(site, METADATA, rules))
    if site.has_embedded_redis:
        policies.append(_policy(site, REDIS, [_rule([_own_pods(site)], REDIS_PORT)]))
    return policies


def _watched(site: Site, *ports: int) -> list[dict[str, Any]]:
    """For the operator, which asks every service at `/statusz`, and for Prometheus where there is monitoring."""
    watchers = []
    if site.operator_namespace is not None:
        watchers.append(_in_namespace(site.operator_namespace, _OPERATOR))
    if site.spec.monitoring.enabled:
        watchers.append(_anywhere(_PROMETHEUS))
    return [_rule([watcher], *ports) for watcher in watchers]


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
