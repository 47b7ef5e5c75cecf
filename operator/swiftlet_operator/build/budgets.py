"""PodDisruptionBudgets: one pod at a time, none while another domain is not whole, all of a zone in maintenance."""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet_operator.build.pods import component_labels, pod_labels
from swiftlet_operator.build.site import METADATA, PROXY, Site, all_groups
from swiftlet_operator.manifests import BUDGET, Manifest


def build_budgets(site: Site) -> list[Manifest]:
    """One per StatefulSet with data and per Deployment."""
    budgets = [
        _budget(site, group.name, group.component, pod_labels(site, group), _allowed(site, group.name))
        for group in all_groups(site.name, site.spec)
    ]
    for component, replicas in ((PROXY, site.spec.proxy.replicas), (METADATA, site.spec.metadata.replicas)):
        if replicas:
            budgets.append(_budget(site, site.child(component), component, component_labels(site, component), 1))
    return budgets


def _allowed(site: Site, group: str) -> int | str:
    """How many pods of a group may be away because somebody wants it."""
    if group in site.frozen:
        return 0
    return "100%" if group in site.drainable else 1


def _budget(site: Site, name: str, component: str, labels: Mapping[str, str], unavailable: int | str) -> Manifest:
    spec = {"maxUnavailable": unavailable, "selector": {"matchLabels": dict(labels)}}
    return site.object(BUDGET, name, component, {"spec": spec})
