"""ServiceMonitor and PrometheusRule, where a Prometheus operator has brought these kinds."""

from __future__ import annotations

from typing import Any

from swiftlet_operator.build.alerts import ALERTS, Alert, expression_of
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import (
    INSTANCE_LABEL,
    MANAGEMENT,
    NAME_LABEL,
    POOL_LABEL,
    PROMETHEUS_RULE,
    SERVICE_MONITOR,
    ZONE_LABEL,
    Manifest,
)

_PORTS = (MANAGEMENT, "object", "replicator", "container")
_COMPONENT = "monitoring"


def build_monitoring(site: Site) -> list[Manifest]:
    """Nothing unless it is asked for and possible."""
    if not (site.spec.monitoring.enabled and site.has_monitoring):
        return []
    monitor = {
        "selector": {"matchLabels": {NAME_LABEL: "swiftlet", INSTANCE_LABEL: site.name}},
        "endpoints": [_endpoint(port) for port in _PORTS],
    }
    there = {
        "redis": site.spec.redis.mode == "external" or site.redis_image is not None,
        "encryption": site.spec.encryption == "transport",
    }
    rules = [_rule(site, one) for one in ALERTS if not one.only_with or there[one.only_with]]
    groups = {"groups": [{"name": f"swiftlet-{site.namespace}-{site.name}", "rules": rules}]}
    labels = site.monitoring_labels
    return [
        site.object(SERVICE_MONITOR, site.child(""), _COMPONENT, {"spec": monitor}, labels=labels),
        site.object(PROMETHEUS_RULE, site.child(""), _COMPONENT, {"spec": groups}, labels=labels),
    ]


def _endpoint(port: str) -> dict[str, Any]:
    return {
        "port": port,
        "path": "/metrics",
        "interval": "30s",
        "relabelings": [
            # What alerts and dashboards pick series by: names of pods say too little, `lab-2-0` begins like `lab`.
            _copied("service", INSTANCE_LABEL, "swiftlet_cluster"),
            _copied("pod", POOL_LABEL, "swiftlet_pool"),
            _copied("pod", ZONE_LABEL, "swiftlet_zone"),
            # The Service's name stands in `job`; in metrics `service` says which of Swiftlet's services it is.
            {"action": "labeldrop", "regex": "service"},
        ],
    }


def _copied(of: str, label: str, target: str) -> dict[str, Any]:
    """The label of a Service or pod as a label of all its series; none where it has none."""
    source = "".join(letter if letter.isalnum() else "_" for letter in label)
    return {"action": "replace", "sourceLabels": [f"__meta_kubernetes_{of}_label_{source}"], "targetLabel": target}


def _rule(site: Site, alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": expression_of(alert, site.namespace, site.name),
        "for": alert.lasting,
        "labels": {
            "severity": alert.severity,
            # Of all alerts of a cluster the same, whoever exported the numbers: routes go by them.
            "namespace": site.namespace,
            "swiftlet_cluster": site.name,
        },
        "annotations": {
            "summary": f"{site.namespace}/{site.name}: {alert.summary}",
            "description": alert.description,
            "runbook_url": f"{site.runbook_url}#{alert.name.lower()}",
        },
    }
