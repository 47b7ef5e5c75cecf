"""The part of a pod's spec that says where it may run and who owns it, with what the operator adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet.crd import PodShape
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import HOSTNAME, TOPOLOGY_REGION, TOPOLOGY_ZONE

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def shape(
    site: Site,
    pods: PodShape,
    alike: Mapping[str, str] | None = None,
    *,
    node_selector: Mapping[str, str] | None = None,
    zone: str | None = None,
    region: str | None = None,
    apart: bool = False,
) -> dict[str, Any]:
    """Return that part.

    `alike` are the labels of the component's pods in all zones; without them there is only one pod, and nothing to
    spread. The pods run in `zone` and in `region` where these are named, and on different nodes if they have to be
    `apart`.
    """
    asked = site.spec.shape_of(pods)
    found: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "serviceAccountName": asked.service_account_name or account_name(site),
        # Environment variables of Services would look like settings.
        "enableServiceLinks": False,
    }
    if alike is not None:
        found["topologySpreadConstraints"] = _spread(asked, alike, zone)
    if selected := {**asked.node_selector, **(node_selector or {})}:
        found["nodeSelector"] = selected
    if asked.tolerations:
        found["tolerations"] = [one.manifest for one in asked.tolerations]
    if site.spec.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": one.name} for one in site.spec.image_pull_secrets]
    if affinity := _affinity(asked, {TOPOLOGY_ZONE: zone, TOPOLOGY_REGION: region}, alike if apart else None):
        found["affinity"] = affinity
    if asked.priority_class_name is not None:
        found["priorityClassName"] = asked.priority_class_name
    return found


def head(
    site: Site, pods: PodShape, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the metadata of a pod: the labels and annotations of the spec, and ours, which take precedence."""
    asked = site.spec.shape_of(pods)
    return {
        "labels": {**asked.pod_labels, **site.labels, **labels},
        "annotations": {**asked.pod_annotations, **annotations},
    }


def account_name(site: Site) -> str:
    """Return the ServiceAccount of pods for which the spec names none."""
    return site.child("pods")


def _spread(asked: PodShape, alike: Mapping[str, str], zone: str | None) -> list[dict[str, Any]]:
    """Return the spread over zones and nodes as far as possible, unless the spec has another; no zones
    within a zone.
    """
    known = {one.topology_key: (one.max_skew, one.when_unsatisfiable) for one in asked.topology_spread_constraints}
    wanted = {TOPOLOGY_ZONE: (1, "ScheduleAnyway"), HOSTNAME: (1, "ScheduleAnyway"), **known}
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": dict(alike)},
        }
        for key, (skew, otherwise) in wanted.items()
        if zone is None or key != TOPOLOGY_ZONE
    ]


def _affinity(asked: PodShape, places: Mapping[str, str | None], apart: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the affinity of the spec, limited to nodes whose labels have the values of `places`, and away from pods
    with the labels `apart`.
    """
    found = asked.affinity.manifest if asked.affinity is not None else {}
    for label, value in places.items():
        if value is not None:
            _within(found.setdefault("nodeAffinity", {}), label, value)
    if apart is not None:
        alone = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": dict(apart)}}
        part = found.setdefault("podAntiAffinity", {})
        part[_REQUIRED] = [*part.get(_REQUIRED, ()), alone]
    return {name: part for name, part in found.items() if part}


def _within(part: dict[str, Any], label: str, value: str) -> None:
    """Add the label to every term, because one of them that is met is enough."""
    ours = {"key": label, "operator": "In", "values": [value]}
    terms = part.get(_REQUIRED, {}).get("nodeSelectorTerms") or [{}]
    part[_REQUIRED] = {
        "nodeSelectorTerms": [{**term, "matchExpressions": [*term.get("matchExpressions", ()), ours]} for term in terms]
    }
