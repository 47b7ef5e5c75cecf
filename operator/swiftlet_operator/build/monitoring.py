"""ServiceMonitor and PrometheusRule, if the kinds of the Prometheus operator are installed."""

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
    """Return both; nothing unless they are wanted and their kinds are installed."""
    if not (site.spec.monitoring.enabled and site.has_monitoring):
        return []
    monitor = {
        "selector": {"matchLabels": {NAME_LABEL: "swiftlet", INSTANCE_LABEL: site.name}},
        "endpoints": [_endpoint(port) for port in _PORTS],
    }
    there = {
        "redis": site.spec.redis.mode == "external" or site.redis_image is not None,
        "encryption": site.spec.encryption == "transport",
        "federation": site.spec.federation is not None,
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
            # Alerts and dashboards select series by these labels: by name, pod `lab-2-0` would look like one of `lab`.
            _copied("service", INSTANCE_LABEL, "swiftlet_cluster"),
            _copied("pod", POOL_LABEL, "swiftlet_pool"),
            _copied("pod", ZONE_LABEL, "swiftlet_zone"),
            # `job` has the Service's name; in metrics `service` says which of Swiftlet's services it is.
            {"action": "labeldrop", "regex": "service"},
        ],
    }


def _copied(of: str, label: str, target: str) -> dict[str, Any]:
    """Return a rule that copies a label of a Service or pod to all its series, if it has the label."""
    source = "".join(letter if letter.isalnum() else "_" for letter in label)
    return {"action": "replace", "sourceLabels": [f"__meta_kubernetes_{of}_label_{source}"], "targetLabel": target}


def _rule(site: Site, alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": expression_of(alert, site.namespace, site.name),
        "for": alert.lasting,
        "labels": {
            "severity": alert.severity,
            # The labels are the same in all alerts of a cluster, whoever exported the numbers, as routes use them.
            "namespace": site.namespace,
            "swiftlet_cluster": site.name,
        },
        "annotations": {
            "summary": f"{site.namespace}/{site.name}: {alert.summary}",
            "description": alert.description,
            "runbook_url": f"{site.runbook_url}#{alert.name.lower()}",
        },
    }
