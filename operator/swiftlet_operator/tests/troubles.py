"""Pods, claims, nodes and events as schedulers, kubelets and controllers write them, for tests."""

from __future__ import annotations

from typing import Any

from swiftlet_operator.manifests import Manifest
from swiftlet_operator.trouble import Evidence, Seen

NOW_S = 1_800_000_000
LONG_AGO = "2027-01-15T07:00:00Z"
"""An hour before NOW_S."""
JUST_NOW = "2027-01-15T07:59:50Z"
ZONE = "topology.kubernetes.io/zone"


def labels(component: str = "storage", pool: str | None = "disks") -> dict[str, str]:
    """The operator's labels."""
    found = {"app.kubernetes.io/instance": "store", "app.kubernetes.io/component": component}
    return found | ({"swiftlet.io/pool": pool} if pool and component == "storage" else {})


def node(name: str, zone: str | None = "a", ready: str = "True", **more: str) -> Manifest:
    """A node; one that is not ready has not said anything for long."""
    about = {"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}
    found = {**({ZONE: zone} if zone else {}), "kubernetes.io/hostname": name, **more}
    return {"kind": "Node", "metadata": {"name": name, "labels": found}, "status": {"conditions": [about]}}


def stateful_set(name: str = "store-disks", replicas: int = 3, component: str = "storage") -> Manifest:
    """A StatefulSet."""
    metadata = {"name": name, "labels": labels(component), "uid": f"uid-of-{name}"}
    return {"kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": replicas}, "status": {}}


def deployment(name: str = "store-proxy", ready: int = 0, failure: str = "") -> Manifest:
    """A Deployment of proxies; `failure` is why it can't make pods."""
    about = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}]
    status: Manifest = {"readyReplicas": ready, "conditions": about if failure else []}
    metadata = {"name": name, "labels": labels("proxy"), "uid": f"uid-of-{name}"}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}, "status": status}


def pod(name: str = "store-disks-0", component: str = "storage", **status: Any) -> Manifest:
    """A pod on node n0 that is an hour old, and not ready; `zone` is where it must be."""
    spec: Manifest = {"nodeName": "n0", "containers": []}
    if zone := status.pop("zone", None):
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    if selected := status.pop("selector", None):
        spec["nodeSelector"] = selected
    made = {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": status.pop("made", LONG_AGO)}
    return {
        "kind": "Pod",
        "metadata": {**made, "labels": labels(component)},
        "spec": spec,
        "status": {"phase": "Pending", **status},
    }


def homeless(message: str, name: str = "store-disks-0", **more: Any) -> Manifest:
    """A pod for which the scheduler finds no node."""
    fact = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    found = pod(name, conditions=[fact], **more)
    del found["spec"]["nodeName"]
    return found


def waiting(reason: str, message: str = "", name: str = "object", **more: Any) -> Manifest:
    """The status of a container that waits."""
    about = {"reason": reason, **({"message": message} if message else {})}
    return {"name": name, "ready": False, "image": "swiftlet:9", "state": {"waiting": about}, **more}


def claim(pod_name: str = "store-disks-0", class_name: str | None = "fast", phase: str = "Pending") -> Manifest:
    """A pod's claim d0, bound to pv-POD when it is."""
    spec: Manifest = {"storageClassName": class_name} if class_name else {}
    if phase == "Bound":
        spec["volumeName"] = f"pv-{pod_name}"
    metadata = {"name": f"d0-{pod_name}", "labels": labels(), "uid": f"uid-of-d0-{pod_name}"}
    metadata["creationTimestamp"] = LONG_AGO
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def volume(key: str = ZONE, value: str = "a") -> Manifest:
    """A volume that is where nodes have this label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"kind": "PersistentVolume", "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}


def storage_class(name: str, *, default: bool = False) -> Manifest:
    """A StorageClass."""
    notes = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"kind": "StorageClass", "metadata": {"name": name, "annotations": notes}}


def event(kind: str, name: str, reason: str, message: str, at: str = LONG_AGO, uid: str | None = None) -> Manifest:
    """An event."""
    about = {"kind": kind, "name": name, "uid": uid if uid is not None else f"uid-of-{name}"}
    return {"kind": "Event", "metadata": {}, "involvedObject": about, "reason": reason, "message": message} | {
        "lastTimestamp": at
    }


def seen(*objects: Manifest, classes: tuple[Manifest, ...] | None = None, volumes: Any = None) -> Seen:
    """What is looked at: three nodes in zones a, b and c unless some are given."""
    kinds = {kind: [one for one in objects if one["kind"] == kind] for kind in {one["kind"] for one in objects}}
    nodes = kinds.get("Node") or [node(f"n{index}", zone) for index, zone in enumerate("abc")]
    return Seen(
        now_s=NOW_S,
        workloads=[*kinds.get("StatefulSet", []), *kinds.get("Deployment", [])],
        pods=kinds.get("Pod", []),
        claims=kinds.get("PersistentVolumeClaim", []),
        nodes=nodes,
        volumes=volumes or {},
        evidence=Evidence(classes, tuple(kinds.get("Event", []))),
    )
