"""What the services and the operator export: every metric that their modules register, with its labels."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric

import swiftlet
import swiftlet_operator
from swiftlet_operator.metrics import Clusters

TARGET_LABELS = frozenset(
    {
        *("namespace", "pod", "container", "endpoint", "job", "instance"),
        *("swiftlet_cluster", "swiftlet_pool", "swiftlet_zone"),
    }
)
"""Labels of all series of a target: those of the Prometheus operator, without the one that the ServiceMonitor drops,
and those that it adds."""
OF_PROMETHEUS = {"up": frozenset[str](), "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
"""Series that Prometheus itself makes."""


@cache
def exported() -> dict[str, frozenset[str]]:
    """Names of series as they stand in expressions, and the labels that are on them besides the target's."""
    for package in (swiftlet, swiftlet_operator):
        _import_all(package)
    found: dict[str, frozenset[str]] = {}
    # The operator registers the metrics of its clusters when it runs.
    for collector in [*REGISTRY._collector_to_names, Clusters(lambda: True)]:
        families: list[Metric] = [*collector.collect()]
        for family in families:
            # A metric without its first value shows no sample, and so no label.
            declared: tuple[str, ...] = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            labels = frozenset(declared)
            for suffix, more in _series(family.type):
                found[f"{family.name}{suffix}"] = labels | more
    return found


def _series(type_: str) -> list[tuple[str, frozenset[str]]]:
    nothing = frozenset[str]()
    if type_ == "histogram":
        return [("_bucket", frozenset({"le"})), ("_count", nothing), ("_sum", nothing)]
    return [("_total", nothing)] if type_ == "counter" else [("", nothing)]


def _import_all(package: ModuleType) -> None:
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        parts = one.name.split(".")
        if not {"tests", "testing", "__main__"} & set(parts):
            importlib.import_module(one.name)
