"""StatefulSets of the pools: object server and replicator, and the proxy if the pool has that role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swiftlet.crd import Pool
from swiftlet_operator.build import settings
from swiftlet_operator.build.pods import (
    API_LABEL,
    pod_labels,
    proxy_container,
    realms_mounts,
    service_container,
    template,
    volumes,
)
from swiftlet_operator.build.rdma import NETWORKS, with_rdma
from swiftlet_operator.build.redis import redis_files, redis_volumes
from swiftlet_operator.build.settings import restart_digest
from swiftlet_operator.build.site import (
    DEFAULT_REGION,
    OBJECT_NATIVE_PORT,
    OBJECT_PORT,
    PROXY,
    REDIS,
    REPLICATOR_PORT,
    STORAGE,
    Group,
    Site,
    groups_of_pool,
)
from swiftlet_operator.manifests import STATEFUL_SET, Manifest

DEVICES_DIRECTORY = "/srv/swiftlet"
RING_CACHE = ".rings"
"""Directory on a device for the last good rings; stores leave it alone."""


def build_storage(site: Site) -> list[Manifest]:
    """Return all StatefulSets of all pools."""
    return [_stateful_set(site, pool, group) for pool in site.spec.pools for group in groups_of_pool(site.name, pool)]


def devices_of(pool: Pool) -> list[str]:
    """Return the names of a pod's devices."""
    return [f"d{index}" for index in range(pool.devices_per_pod)]


def _stateful_set(site: Site, pool: Pool, group: Group) -> Manifest:
    rdma = site.rdma_of(pool)
    has_proxy = PROXY in pool.roles
    services = ["object", "replicator"] + ["proxy"] * has_proxy
    addresses = [f"{_host(site)}:{OBJECT_PORT}/{name}" for name in devices_of(pool)]
    containers = [_object(site, pool), replicator(site, "DEVICES", addresses, realms_mounts(site))]
    if has_proxy:
        containers.append(proxy_container(site, site.spec.proxy.resources, _place(site, pool, group)))
    containers = [with_rdma(site, pool, one) for one in containers]
    labels = group.labels | ({API_LABEL: "true"} if has_proxy else {})
    pod = template(
        site,
        labels,
        restart_digest(site, *services),
        pool,
        containers,
        [*volumes(site, proxy=has_proxy, realms=True), *redis_volumes(site)],
        annotations={NETWORKS: rdma.networks} if rdma and rdma.networks else None,
        node_selector=rdma.node_selector if rdma else None,
        zone=group.zone,
        has_data=True,
    )
    claims = [claim(site, group, name, pool.storage.size, pool.storage.class_name) for name in devices_of(pool)]
    return stateful_set(site, group, pod, claims)


def _place(site: Site, pool: Pool, group: Group) -> list[dict[str, str]]:
    """Return the environment that tells a proxy where it is in the rings, as far as all pods of the group are there."""
    if group.zone is None and all(one.region == DEFAULT_REGION for one in site.spec.pools):
        return []
    known = {"REGION": pool.region} | ({"ZONE": group.zone} if group.zone is not None else {})
    return [{"name": f"SWIFTLET_PROXY__{name}", "value": value} for name, value in known.items()]


def _object(site: Site, pool: Pool) -> dict[str, Any]:
    return service_container(
        site,
        "object",
        "object",
        OBJECT_PORT,
        pool.resources,
        env=[
            {"name": "SWIFTLET_OBJECT__DEVICES", "value": _listed(devices_of(pool))},
            {"name": "SWIFTLET_OBJECT__RING_HOST", "value": _host(site)},
        ],
        more_ports={"object-native": OBJECT_NATIVE_PORT},
        mounts=[{"name": name, "mountPath": f"{DEVICES_DIRECTORY}/{name}"} for name in devices_of(pool)],
        # Only the process that owns a device mounts it; the pod's others keep their rings elsewhere.
        ring_cache=f"{DEVICES_DIRECTORY}/{devices_of(pool)[0]}/{RING_CACHE}",
    )


def replicator(
    site: Site, setting: str, addresses: list[str], more_mounts: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the replicator beside a server of devices; `setting` is the one that names them."""
    env = [{"name": f"SWIFTLET_REPLICATOR__{setting}", "value": _listed(addresses)}]
    mounts = [{"name": REDIS, "mountPath": settings.REDIS_DIRECTORY, "readOnly": True}] if redis_files(site) else []
    mounts += more_mounts
    asked = site.spec.replicator.resources
    return service_container(site, "replicator", "replicator", REPLICATOR_PORT, asked, env=env, mounts=mounts)


def _host(site: Site) -> str:
    """Return the pod's host as in the rings; see `Site.host`."""
    return site.host_of("$(POD_NAME)", STORAGE)


def _listed(values: list[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def claim(site: Site, group: Group, name: str, size: str, class_name: str | None) -> Manifest:
    """Return a claim for a volume per pod. Its labels can't change later, so only lasting ones are used."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": {**site.labels, **group.labels}},
        "spec": spec,
    }


def stateful_set(site: Site, group: Group, pod: dict[str, Any], claims: list[Manifest]) -> Manifest:
    """Return a StatefulSet whose pods start at once, and whose volumes stay unless the cluster's deletion
    removes all.
    """
    when_deleted = "Delete" if site.spec.deletion_policy == "Delete" else "Retain"
    spec = {
        "serviceName": site.child(group.component),
        "replicas": site.replicas.get(group.name, group.replicas),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 3,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": "Retain"},
        "selector": {"matchLabels": pod_labels(site, group)},
        "template": pod,
        "volumeClaimTemplates": claims,
    }
    return site.object(STATEFUL_SET, group.name, group.component, {"spec": spec}, labels=group.labels)
