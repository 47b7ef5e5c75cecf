"""Why pods of a cluster don't run, by the same code as the operator's conditions. Pure."""

from __future__ import annotations

from swiftlet_operator.plugin.picture import Picture, conditions_of
from swiftlet_operator.trouble import Diagnosis, Evidence, Seen, diagnose

STARTING = "Starting"
"""Reason of conditions during the first start of a cluster."""


def seen_of(picture: Picture) -> Seen:
    """Return the part of the picture that says why pods don't run."""
    return Seen(
        now_s=picture.now_s,
        workloads=(*picture.stateful_sets, *picture.deployments),
        pods=picture.pods,
        claims=picture.claims,
        nodes=picture.nodes,
        volumes=picture.volumes,
        evidence=Evidence(picture.classes, picture.events),
    )


def reasons(picture: Picture) -> Diagnosis:
    """Return what keeps pods from running, and what the other pods that are not ready are doing."""
    return diagnose(seen_of(picture))


def is_starting(picture: Picture) -> bool:
    """Return whether the operator reports the cluster's first start, with nothing wrong with its pods."""
    return bool(conditions_of(picture.cluster).get("PodsHealthy", {}).get("reason") == STARTING)
