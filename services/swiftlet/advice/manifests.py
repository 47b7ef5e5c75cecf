"""The custom resources of a plan: a StorageCluster and its StoragePolicy, as plain data."""

from __future__ import annotations

import math
from typing import Any

from swiftlet.advice.plan import Plan, PoolPlan

API_VERSION = "swiftlet.io/v1alpha1"
POLICY_NAME = "standard"
_GIB, _MIB = 2**30, 2**20
_LEAST_CPU_M = 100
_STEP_CPU_M = 100
_STEP_MEMORY_MIB = 64
_LEAST_MEMORY_MIB = 128


def manifests(plan: Plan, name: str, namespace: str | None = None) -> list[dict[str, Any]]:
    """Return the custom resources of a plan, for `kubectl apply`."""
    place = {"namespace": namespace} if namespace else {}
    cluster = {
        "apiVersion": API_VERSION,
        "kind": "StorageCluster",
        "metadata": {"name": name, **place},
        "spec": {
            "rings": {"partPower": plan.part_power, "replicas": plan.rules.replicas},
            "placement": "required",
            "pools": [_pool(plan, pool) for pool in plan.pools],
            "container": _container(plan),
            "proxy": _proxy(plan),
        },
    }
    policy: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "StoragePolicy",
        "metadata": {"name": f"{name}-{POLICY_NAME}", **place},
        "spec": {
            "clusterRef": {"name": name},
            "index": 0,
            "name": POLICY_NAME,
            "default": True,
            "aggregateBelow": quantity(plan.rules.aggregate_below),
            "etag": plan.rules.etag,
        },
    }
    if plan.rules.coding is not None:
        policy["spec"]["erasureCoding"] = {"data": plan.rules.coding.data, "parity": plan.rules.coding.parity}
    return [cluster, policy]


def _pool(plan: Plan, pool: PoolPlan) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": pool.name,
        "roles": ["object", "proxy"] if pool.has_proxy else ["object"],
        "replicas": pool.pods,
        "zones": list(plan.zones),
        "devicesPerPod": pool.disks,
        "storage": _storage(pool.disk.class_name, pool.disk.size_bytes),
        "resources": _resources(plan, pool.name),
    }
    if pool.weight is not None:
        found["weight"] = pool.weight
    if pool.node.labels:
        found["nodeSelector"] = dict(pool.node.labels)
    return found if plan.zones else {name: value for name, value in found.items() if name != "zones"}


def _container(plan: Plan) -> dict[str, Any]:
    servers = plan.databases
    zones = {"zones": list(plan.zones)} if plan.zones else {}
    return {
        "replicas": servers.pods,
        **zones,
        "storage": _storage(servers.disk.class_name, math.ceil(servers.size_bytes / _GIB) * _GIB),
        "resources": _resources(plan, "container"),
    }


def _proxy(plan: Plan) -> dict[str, Any]:
    proxies = plan.proxies
    found: dict[str, Any] = {
        # Those in the pods of a pool are besides these.
        "replicas": proxies.pods if proxies.node is not None else 0,
        "workers": proxies.workers,
        "resources": _resources(plan, "proxy"),
    }
    if plan.rules.is_outside:
        found["service"] = {"type": "LoadBalancer"}
    if proxies.node is not None and proxies.node.labels:
        found["nodeSelector"] = dict(proxies.node.labels)
    return found


def _storage(class_name: str | None, size_bytes: float) -> dict[str, Any]:
    return ({"className": class_name} if class_name else {}) | {"size": quantity(math.floor(size_bytes))}


def _resources(plan: Plan, component: str) -> dict[str, Any]:
    cpu_m = max(_LEAST_CPU_M, math.ceil(plan.cpu_requests[component] * 1000 / _STEP_CPU_M) * _STEP_CPU_M)
    mebibytes = max(
        _LEAST_MEMORY_MIB, math.ceil(plan.memory_requests[component] / _MIB / _STEP_MEMORY_MIB) * _STEP_MEMORY_MIB
    )
    return {
        "requests": {"cpu": f"{cpu_m}m" if cpu_m % 1000 else str(cpu_m // 1000), "memory": quantity(mebibytes * _MIB)}
    }


def quantity(size_bytes: int) -> str:
    """Return bytes as a quantity, in the largest unit of which it has at least ten, or a whole number; rounded down."""
    for unit, suffix in ((_GIB, "Gi"), (_MIB, "Mi"), (1024, "Ki")):
        if size_bytes >= 10 * unit or (size_bytes and size_bytes % unit == 0):
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)
