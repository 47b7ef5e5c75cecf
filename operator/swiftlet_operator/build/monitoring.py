"""ServiceMonitor and PrometheusRule, where a Prometheus operator has brought these kinds."""

from __future__ import annotations

from typing import Any

from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import (
    INSTANCE_LABEL,
    MANAGEMENT,
    NAME_LABEL,
    PROMETHEUS_RULE,
    SERVICE_MONITOR,
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
        "endpoints": [{"port": port, "path": "/metrics", "interval": "30s"} for port in _PORTS],
    }
    rules = {"groups": [{"name": f"swiftlet-{site.namespace}-{site.name}", "rules": _rules(site)}]}
    return [
        site.object(SERVICE_MONITOR, site.child(""), _COMPONENT, {"spec": monitor}),
        site.object(PROMETHEUS_RULE, site.child(""), _COMPONENT, {"spec": rules}),
    ]


def _rules(site: Site) -> list[dict[str, Any]]:
    mine = f'namespace="{site.namespace}",pod=~"{site.name}-.*"'
    return [
        _alert(
            "SwiftletDeviceDown",
            f"swiftlet_object_device_up{{{mine}}} == 0",
            "5m",
            "critical",
            "Device {{ $labels.device }} of {{ $labels.pod }} failed; replace its volume.",
        ),
        _alert(
            "SwiftletDeviceFillsUp",
            f"swiftlet_object_device_free_bytes{{{mine}}} / swiftlet_object_device_total_bytes < 0.10",
            "15m",
            "warning",
            "Less than a tenth of {{ $labels.device }} of {{ $labels.pod }} is free; grow the pool.",
        ),
        _alert(
            "SwiftletRingNotUsable",
            f"increase(swiftlet_ring_load_failures_total{{{mine}}}[15m]) > 0",
            "15m",
            "warning",
            "{{ $labels.pod }} can't use the newest ring {{ $labels.ring }}; see its log.",
        ),
        _alert(
            "SwiftletReplicatorStands",
            f"time() - swiftlet_replicator_last_round_timestamp_seconds{{{mine}}} > 3600",
            "15m",
            "warning",
            "The replicator of {{ $labels.pod }} has finished no round for an hour.",
        ),
    ]


def _alert(name: str, expression: str, lasting: str, severity: str, summary: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }
