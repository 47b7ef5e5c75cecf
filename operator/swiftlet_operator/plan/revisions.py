"""Which pods of a StatefulSet have an older template than the newest, and which of them Kubernetes replaces. Pure.

A controller that has not seen the newest spec reports on the template before it, so nothing is known until it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet_operator.manifests import Manifest, is_going, labels_of, name_of

ON_DELETE: Manifest = {"type": "OnDelete"}
"""The strategy with which Kubernetes replaces no pod by itself, and makes a deleted one from the newest template."""
_REVISION = "controller-revision-hash"


def is_seen(live: Manifest) -> bool:
    """Return whether the StatefulSet's controller has seen its newest spec."""
    status: dict[str, Any] = live.get("status") or {}
    generation = int(live["metadata"].get("generation") or 0)
    return status.get("updateRevision") is not None and int(status.get("observedGeneration") or 0) >= generation


def older(pods: Mapping[str, Manifest], live: Manifest, replicas: int | None = None) -> dict[int, Manifest]:
    """Return those of the first `replicas` pods (all when None) that are not of the newest template, by ordinal."""
    revision = (live.get("status") or {}).get("updateRevision")
    count = int(live["spec"].get("replicas") or 0) if replicas is None else replicas
    known = {ordinal: pods.get(f"{name_of(live)}-{ordinal}") for ordinal in range(count)}
    return {o: pod for o, pod in known.items() if pod and labels_of(pod).get(_REVISION) not in (None, revision)}


def is_on_delete(live: Manifest) -> bool:
    """Return whether Kubernetes replaces pods only when somebody deletes them."""
    return bool((live["spec"].get("updateStrategy") or {}).get("type") == ON_DELETE["type"])


def partition(live: Manifest) -> int:
    """Return the lowest ordinal that Kubernetes may make from the newest template."""
    strategy: dict[str, Any] = (live["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(strategy.get("partition") or 0)


def is_held(pods: Mapping[str, Manifest], live: Manifest) -> bool:
    """Return whether Kubernetes is known to replace no pod by itself, and no pod is ending."""
    names = (f"{name_of(live)}-{ordinal}" for ordinal in range(int(live["spec"].get("replicas") or 0)))
    if not is_seen(live) or any(is_going(pods[name]) for name in names if name in pods):
        return False
    first = partition(live)
    return is_on_delete(live) or (first > 0 and all(ordinal < first for ordinal in older(pods, live)))
