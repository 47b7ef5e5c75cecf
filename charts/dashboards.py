"""Grafana's dashboards, made from a few lines each: overview, a pool, sync, operator.

`make chart` writes them to charts/swiftlet/dashboards, from where the chart ships them as ConfigMaps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
_PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
_CLUSTER = 'namespace="$namespace",swiftlet_cluster="$cluster"'
_POOL = f'{_CLUSTER},swiftlet_pool="$pool"'
_TOLD = 'swiftlet_namespace="$namespace",swiftlet_cluster="$cluster"'
_OPERATOR = 'namespace="$namespace"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its queries with their legends, the unit, and how wide and what kind it is."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    description: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page: variables as pairs of name and query, and panels in the order of reading."""

    name: str
    title: str
    variables: Sequence[tuple[str, str]]
    panels: Sequence[Panel]


def _rate(metric: str, selector: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{selector}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, selector: str, by: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', selector, f'{by}, le')})"


def _condition(type_: str) -> Panel:
    query = f'max(swiftlet_operator_condition{{{_TOLD},type="{type_}"}})'
    return Panel(type_, [(query, type_)], kind="stat", width=4, description="1 True, 0 False, -1 Unknown")


_NAMESPACE = ("namespace", "label_values(swiftlet_ring_version, namespace)")
_CLUSTERS = ("cluster", 'label_values(swiftlet_ring_version{namespace="$namespace"}, swiftlet_cluster)')

OVERVIEW = Dashboard(
    "overview",
    "Swiftlet / Overview",
    [_NAMESPACE, _CLUSTERS],
    [
        _condition("Ready"),
        _condition("Degraded"),
        _condition("CapacityAvailable"),
        Panel(
            "Requests",
            [(_rate("swiftlet_http_requests_total", f'{_CLUSTER},service="proxy"'), "requests")],
            "reqps",
            "stat",
            4,
        ),
        Panel(
            "Server errors",
            [
                (
                    # Without any there is no series of them, and the panel is to say 0.
                    "("
                    + _rate("swiftlet_http_requests_total", f'{_CLUSTER},service="proxy",status=~"5.."')
                    + " or 0 * "
                    + _rate("swiftlet_http_requests_total", f'{_CLUSTER},service="proxy"')
                    + ") / "
                    + _rate("swiftlet_http_requests_total", f'{_CLUSTER},service="proxy"'),
                    "share",
                )
            ],
            "percentunit",
            "stat",
            4,
        ),
        Panel(
            "Space in use",
            [
                (
                    f"1 - sum(swiftlet_object_device_free_bytes{{{_CLUSTER}}}) / "
                    f"sum(swiftlet_object_device_total_bytes{{{_CLUSTER}}})",
                    "used",
                )
            ],
            "percentunit",
            "stat",
            4,
        ),
        Panel(
            "Firing alerts",
            [(f'ALERTS{{{_CLUSTER},alertstate="firing"}}', "{{alertname}} {{pod}} {{device}}")],
            kind="table",
            width=WIDTH,
        ),
        Panel(
            "Requests by status",
            [(_rate("swiftlet_http_requests_total", f'{_CLUSTER},service="proxy"', "status"), "{{status}}")],
            "reqps",
        ),
        Panel(
            "Time to answer",
            [
                (
                    _quantile(share, "swiftlet_http_request_duration_seconds", f'{_CLUSTER},service="proxy"', "method"),
                    f"{{{{method}}}} p{share * 100:.0f}",
                )
                for share in (0.5, 0.99)
            ],
            "s",
        ),
        Panel(
            "Traffic of clients",
            [
                (_rate(f"swiftlet_http_{way}_bytes_total", f'{_CLUSTER},service="proxy"'), way)
                for way in ("received", "sent")
            ],
            "Bps",
        ),
        Panel(
            "Free space by pool",
            [
                (
                    f"sum by (swiftlet_pool) (swiftlet_object_device_free_bytes{{{_CLUSTER}}}) / "
                    f"sum by (swiftlet_pool) (swiftlet_object_device_total_bytes{{{_CLUSTER}}})",
                    "{{swiftlet_pool}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Requests at work",
            [(f"sum by (service) (swiftlet_http_requests_in_flight{{{_CLUSTER}}})", "{{service}}")],
        ),
        Panel(
            "Lateness of event loops, p99",
            [(_quantile(0.99, "swiftlet_event_loop_lag_seconds", _CLUSTER, "service"), "{{service}}")],
            "s",
        ),
    ],
)

POOL = Dashboard(
    "pool",
    "Swiftlet / A pool",
    [
        _NAMESPACE,
        _CLUSTERS,
        ("pool", f"label_values(swiftlet_object_device_up{{{_CLUSTER}}}, swiftlet_pool)"),
    ],
    [
        Panel(
            "Free space",
            [
                (
                    f"swiftlet_object_device_free_bytes{{{_POOL}}} / swiftlet_object_device_total_bytes{{{_POOL}}}",
                    "{{pod}}/{{device}}",
                )
            ],
            "percentunit",
        ),
        Panel("Devices that answer", [(f"swiftlet_object_device_up{{{_POOL}}}", "{{pod}}/{{device}}")]),
        Panel(
            "Devices asked last",
            [(f"swiftlet_object_device_unproved{{{_POOL}}}", "{{pod}}/{{device}}")],
            description="1 while a device may have missed writes and its replicator has not yet proved otherwise",
        ),
        Panel(
            "Requests",
            [(_rate("swiftlet_object_requests_total", _POOL, "operation"), "{{operation}}")],
            "reqps",
        ),
        Panel(
            "Requests that failed",
            [(_rate("swiftlet_object_requests_total", f'{_POOL},outcome!="ok"', "outcome"), "{{outcome}}")],
            "reqps",
        ),
        Panel(
            "Time to answer, p99",
            [(_quantile(0.99, "swiftlet_object_request_duration_seconds", _POOL, "operation"), "{{operation}}")],
            "s",
        ),
        Panel(
            "Traffic",
            [
                (_rate(f"swiftlet_object_{way}_bytes_total", _POOL, "pod"), f"{{{{pod}}}} {way}")
                for way in ("received", "sent")
            ],
            "Bps",
        ),
        Panel(
            "Read and checked beside requests",
            [(_rate("swiftlet_object_audited_bytes_total", _POOL, "pod"), "{{pod}}")],
            "Bps",
        ),
        Panel(
            "Rewritten by compaction",
            [(_rate("swiftlet_object_compaction_bytes_total", _POOL, "pod"), "{{pod}}")],
            "Bps",
        ),
        Panel(
            "Damage set aside",
            [(f"sum by (pod, device) (swiftlet_object_quarantined_total{{{_POOL}}})", "{{pod}}/{{device}}")],
        ),
        Panel("Pending updates of listings", [(f"swiftlet_object_pending_updates{{{_POOL}}}", "{{pod}}/{{device}}")]),
        Panel(
            "Age of the oldest pending update",
            [(f"swiftlet_object_pending_oldest_seconds{{{_POOL}}}", "{{pod}}/{{device}}")],
            "s",
        ),
    ],
)

SYNC = Dashboard(
    "sync",
    "Swiftlet / Sync",
    [_NAMESPACE, _CLUSTERS],
    [
        Panel(
            "Since the last round",
            [(f"time() - (swiftlet_replicator_last_round_timestamp_seconds{{{_CLUSTER}}} > 0)", "{{pod}}")],
            "s",
        ),
        Panel(
            "The round that is going on",
            [
                (
                    f'sum by (pod) (swiftlet_replicator_round_partitions{{{_CLUSTER},state="done"}}) / '
                    f'sum by (pod) (swiftlet_replicator_round_partitions{{{_CLUSTER},state="total"}})',
                    "{{pod}}",
                )
            ],
            "percentunit",
        ),
        Panel("It will still take", [(f"swiftlet_replicator_round_remaining_seconds{{{_CLUSTER}}}", "{{pod}}")], "s"),
        Panel(
            "Comparisons by result",
            [(_rate("swiftlet_replicator_compared_total", _CLUSTER, "result"), "{{result}}")],
            "ops",
        ),
        Panel(
            "Objects moved",
            [
                (_rate("swiftlet_replicator_pushed_bytes_total", _CLUSTER), "pushed"),
                (_rate("swiftlet_replicator_pulled_bytes_total", _CLUSTER), "pulled"),
            ],
            "Bps",
        ),
        Panel(
            "Lag of other regions",
            [
                (
                    f"time() - min by (ring, region) "
                    f"(swiftlet_replicator_region_equal_timestamp_seconds{{{_CLUSTER}}})",
                    "{{ring}} {{region}}",
                )
            ],
            "s",
        ),
        Panel(
            "Moved between regions",
            [
                (
                    _rate("swiftlet_replicator_region_bytes_total", _CLUSTER, "region, direction"),
                    "{{direction}} {{region}}",
                )
            ],
            "Bps",
        ),
        Panel("Rows of databases", [(_rate("swiftlet_replicator_rows_total", _CLUSTER, "direction"), "{{direction}}")]),
        Panel(
            "Nodes left out",
            [(f"max by (pod, verdict) (swiftlet_replicator_neighbours_out{{{_CLUSTER}}})", "{{pod}} {{verdict}}")],
        ),
        Panel("Redis answers", [(f"swiftlet_replicator_redis_up{{{_CLUSTER}}}", "{{pod}}")]),
        Panel(
            "Age of the oldest pending update",
            [(f"max by (pod) (swiftlet_object_pending_oldest_seconds{{{_CLUSTER}}})", "{{pod}}")],
            "s",
        ),
        Panel(
            "Wrong rows that the audit found",
            [(f"sum by (kind) (swiftlet_listing_audit_wrong_total{{{_CLUSTER}}})", "{{kind}}")],
        ),
        Panel("Lag of the expirer", [(f"max by (pod) (swiftlet_expirer_lag_seconds{{{_CLUSTER}}})", "{{pod}}")], "s"),
        Panel(
            "Splits of containers under way",
            [(f"sum by (pod) (swiftlet_shard_splits_under_way{{{_CLUSTER}}})", "{{pod}}")],
        ),
    ],
)

OPERATOR = Dashboard(
    "operator",
    "Swiftlet / Operator",
    [("namespace", "label_values(swiftlet_operator_leads, namespace)")],
    [
        Panel("Who leads", [(f"swiftlet_operator_leads{{{_OPERATOR}}}", "{{pod}}")]),
        Panel("Clusters", [(f"max(swiftlet_operator_clusters{{{_OPERATOR}}})", "clusters")]),
        Panel(
            "Reconciles by outcome",
            [(_rate("swiftlet_operator_reconcile_seconds_count", _OPERATOR, "outcome"), "{{outcome}}")],
            "ops",
        ),
        Panel(
            "Time of a reconcile",
            [
                (
                    _quantile(share, "swiftlet_operator_reconcile_seconds", _OPERATOR, "outcome"),
                    f"{{{{outcome}}}} p{share * 100:.0f}",
                )
                for share in (0.5, 0.99)
            ],
            "s",
        ),
        Panel(
            "Requests to the API server",
            [(_rate("swiftlet_operator_api_requests_total", _OPERATOR, "method, code"), "{{method}} {{code}}")],
            "reqps",
        ),
        Panel("Memory", [(f'process_resident_memory_bytes{{{_OPERATOR},container="operator"}}', "{{pod}}")], "bytes"),
        Panel(
            "Conditions of clusters",
            [
                (
                    f"max by (swiftlet_namespace, swiftlet_cluster, type) (swiftlet_operator_condition{{{_OPERATOR}}})",
                    "{{swiftlet_namespace}}/{{swiftlet_cluster}} {{type}}",
                )
            ],
            kind="table",
            width=16,
            description="1 True, 0 False, -1 Unknown",
        ),
        Panel(
            "Age of cluster keys",
            [
                (
                    f"time() - swiftlet_operator_cluster_key_timestamp_seconds{{{_OPERATOR}}}",
                    "{{swiftlet_namespace}}/{{swiftlet_cluster}}",
                )
            ],
            "s",
        ),
    ],
)

DASHBOARDS = (OVERVIEW, POOL, SYNC, OPERATOR)


def dashboard_files() -> dict[str, str]:
    """Name and content of every file in the chart's dashboards."""
    return {f"{one.name}.json": json.dumps(rendered(one), indent=1) + "\n" for one in DASHBOARDS}


def rendered(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana reads it; panels fill rows from left to right."""
    panels: list[dict[str, Any]] = []
    x, y, height = 0, 0, 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > WIDTH:
            x, y, height = 0, y + height, 0
        high = 4 if panel.kind == "stat" else 8
        panels.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": high}))
        x, height = x + panel.width, max(height, high)
    return {
        "uid": f"swiftlet-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["swiftlet"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_DATASOURCE, *(_variable(*one) for one in dashboard.variables)]},
        "panels": panels,
    }


_DATASOURCE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _PROMETHEUS,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    is_table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _PROMETHEUS,
            "expr": expression,
            "legendFormat": legend,
            **({"instant": True, "format": "table"} if is_table else {}),
        }
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _PROMETHEUS,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
