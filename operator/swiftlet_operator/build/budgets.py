"""PodDisruptionBudgets: of all pods with data one may be away, and those of a failure domain that is being emptied.

Pods with data have one budget together, so that two evictions in different domains are never allowed at the same time.
Pods that may be evicted freely are left out of its selector: they could not get a second budget in the same write, and
the eviction of a pod with two budgets fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet_operator.build.names import data_budget
from swiftlet_operator.build.pods import component_labels
from swiftlet_operator.build.site import CONTAINER, METADATA, PROXY, STORAGE, Site
from swiftlet_operator.manifests import BUDGET, COMPONENT_LABEL, CORDONS, INSTANCE_LABEL, POD_NAME_LABEL, Manifest


def build_budgets(site: Site) -> list[Manifest]:
    """Return a budget for all pods with data, and one per Deployment."""
    budgets = [_of_data(site)]
    for component, replicas in ((PROXY, site.spec.proxy.replicas), (METADATA, site.spec.metadata.replicas)):
        if replicas:
            selector = {"matchLabels": component_labels(site, component)}
            budgets.append(_budget(site, site.child(component), component, selector, 1))
    return budgets


def _of_data(site: Site) -> Manifest:
    chosen: list[dict[str, Any]] = [{"key": COMPONENT_LABEL, "operator": "In", "values": [CONTAINER, STORAGE]}]
    if site.freed:
        chosen.append({"key": POD_NAME_LABEL, "operator": "NotIn", "values": list(site.freed)})
    selector = {"matchLabels": {INSTANCE_LABEL: site.name}, "matchExpressions": chosen}
    notes = {CORDONS: site.cordons} if site.cordons else None
    return _budget(site, data_budget(site.name), STORAGE, selector, site.disruptions, notes)


def _budget(
    site: Site,
    name: str,
    component: str,
    selector: Mapping[str, Any],
    unavailable: int,
    notes: Mapping[str, str] | None = None,
) -> Manifest:
    spec = {"maxUnavailable": unavailable, "selector": dict(selector)}
    return site.object(BUDGET, name, component, {"spec": spec}, annotations=notes)
