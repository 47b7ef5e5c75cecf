"""The handlers that kopf calls: every event of our own kinds says which cluster to look at, and nothing more.

Children and pods are watched beside kopf, which would read each of them completely. There are only event handlers, so
that kopf keeps neither its own finalizer nor its own annotations on the objects. An event that got lost does no harm;
every cluster is looked at again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kopf

from swiftlet_operator.kube import WATCH_TIMEOUT_S, HttpKube, Kube, Metadata
from swiftlet_operator.leader import Leader
from swiftlet_operator.manifests import (
    CHILD_KINDS,
    CLUSTER,
    GROUP,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    POD,
    Kind,
    name_of,
)
from swiftlet_operator.metrics import Clusters
from swiftlet_operator.observe import SATELLITES, cluster_of
from swiftlet_operator.reconcile import Key
from swiftlet_operator.watch import follow
from swiftlet_operator.workqueue import WorkQueue

REQUEST_TIMEOUT_S = 30.0
WORKERS = 3
"""Clusters that are reconciled at a time.

Deciding needs the processor: more of them would take turns at it and each take longer. Fewer would all stand still
while one cluster's requests time out.
"""
IDLE_S = 0.5
SWEEP_S = 60.0
STALE_S = 3 * SWEEP_S
"""Seconds without a complete sweep, while we lead, after which the operator counts as dead."""
WATCHED = (*CHILD_KINDS, POD)
"""The kinds that are watched beside kopf, in each namespace."""
_OWNED = {MANAGED_BY_LABEL: MANAGER}


@dataclass(slots=True)
class Heart:
    """The time of the last complete sweep over all clusters, by the monotonic clock."""

    beat_at: float


def register(registry: kopf.OperatorRegistry, queue: WorkQueue, heart: Heart, leader: Leader) -> None:
    """Register the handlers of all events, the settings, and the probe."""
    kopf.on.startup(registry=registry)(_configure)
    kopf.on.login(registry=registry)(_log_in)

    async def enqueue(body: Mapping[str, Any], **_: Any) -> None:
        key = key_of(body)
        if key is not None and leader.leads:
            queue.add(key)

    async def alive(**_: Any) -> str:
        return liveness(heart, leader, time.monotonic())

    for kind in (CLUSTER, *SATELLITES):
        kopf.on.event(*_selector(kind), registry=registry, id=f"enqueue-{kind.plural}")(enqueue)
    kopf.on.probe(registry=registry, id="sweep")(alive)


def key_of(body: Mapping[str, Any]) -> Key | None:
    """Return the cluster that an object belongs to."""
    namespace = body["metadata"].get("namespace")
    if body.get("kind") == CLUSTER.kind:
        return Key(namespace, name_of(body))
    name = cluster_of(body) or (body["metadata"].get("labels") or {}).get(INSTANCE_LABEL)
    return Key(namespace, name) if namespace and name else None


def watches(kube: HttpKube, queue: WorkQueue, leader: Leader, namespaces: Sequence[str]) -> list[Awaitable[None]]:
    """Return watches, which run until cancelled; each follows one kind in one namespace (in all when none is named).

    They follow the objects with our label.
    """

    def tell(metadata: Metadata) -> None:
        key = key_of({"metadata": metadata})
        if key is not None and leader.leads:
            queue.add(key)

    return [follow(kube, kind, namespace, _OWNED, tell) for kind in WATCHED for namespace in namespaces or (None,)]


def liveness(heart: Heart, leader: Leader, now: float) -> str:
    """Return "ok"; raise when a leader has not swept over the clusters for long."""
    if leader.leads and now - heart.beat_at > STALE_S:
        raise RuntimeError("no sweep over the clusters has ended lately")
    return "ok"


def _selector(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


async def _log_in(logger: kopf.Logger, settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo:
    """Return how kopf reaches the API server, in the order in which `swiftlet_operator.kube` looks."""
    info = kopf.login_with_service_account(logger=logger, settings=settings)
    info = info or kopf.login_with_kubeconfig(logger=logger, settings=settings)
    if info is None:
        raise kopf.LoginError("neither a service account nor a kubeconfig was found; set KUBECONFIG")
    return info


async def _configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    # kopf removes its own finalizer if it has no deletion handler; ours is set and removed by the plan.
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.watching.server_timeout = WATCH_TIMEOUT_S
    settings.watching.client_timeout = WATCH_TIMEOUT_S + REQUEST_TIMEOUT_S
    # A worker of kopf's serves one object, and stays for this long after its last event. A limit on their number would
    # limit how many objects may change in that time; our handlers only put a name into the queue.
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = IDLE_S
    # The plan writes our events; kopf's would only say that a handler ran.
    settings.posting.enabled = False
    settings.scanning.disabled = False


async def sweep(
    kube: Kube, queue: WorkQueue, heart: Heart, leader: Leader, namespaces: Sequence[str], clusters: Clusters
) -> None:
    """Look regularly for forgotten clusters, until cancelled. A new leader looks at all of them at once.

    A cluster whose next reconcile is scheduled is left alone: at rest the sweep itself reads five lists of each
    namespace. `clusters` forget those that are gone.
    """
    was_leading, due_at = False, 0.0
    while True:
        await asyncio.sleep(1.0)
        now = time.monotonic()
        if not leader.leads:
            was_leading = False
            heart.beat_at = now
            continue
        if was_leading and now < due_at:
            continue
        with contextlib.suppress(Exception):
            await _sweep_once(kube, queue, namespaces, clusters, anew=not was_leading)
            heart.beat_at, was_leading, due_at = time.monotonic(), True, now + SWEEP_S


async def _sweep_once(
    kube: Kube, queue: WorkQueue, namespaces: Sequence[str], clusters: Clusters, *, anew: bool
) -> None:
    kinds = (CLUSTER, *SATELLITES)
    asked = [(kind, namespace) for kind in kinds for namespace in namespaces or (None,)]
    found = {key_of(one): None for kind, namespace in asked for one in await kube.list(kind, namespace)}
    # This comes last: a cluster that is added while it is being reconciled is reconciled again.
    clusters.keep((key.namespace, key.name) for key in found if key is not None)
    for key in found:
        if key is not None and (anew or not queue.knows(key)):
            queue.add(key)
