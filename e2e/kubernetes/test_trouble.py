"""Stores that can't start, on a real scheduler and kubelet: conditions name the cause and the field, and the fix helps.

Each store is small and has a namespace of its own. What is wrong is put right as the condition's message says, and the
store becomes Ready.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.kubernetes.conftest import EXAMPLES, READY_WITHIN_S, new_namespace
from e2e.kubernetes.kube import Namespace, eventually, run

TOLD_WITHIN_S = 180
"""The kubelet tries an image several times, and a controller's first event comes after its first failure."""


@pytest.fixture
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace for one store."""
    with new_namespace() as found:
        yield found


def small(**changes: Any) -> dict[str, Any]:
    """The first store of the README without its user, with other fields of its pool, and of its spec."""
    found: dict[str, Any] = next(iter(yaml.safe_load_all((EXAMPLES / "minimal.yaml").read_text())))
    spec = found["spec"]
    spec["pools"][0] |= {"name": "main", "storage": {"size": "1Gi", "className": "fast"}} | changes.pop("pool", {})
    spec["container"] = {"storage": {"size": "1Gi", "className": "fast"}}
    spec["deletionPolicy"] = "Delete"
    spec |= changes
    return found


def conditions(namespace: Namespace, name: str) -> dict[str, dict[str, str]]:
    """Return the conditions of a StorageCluster by their type."""
    status = namespace.get("storagecluster", name).get("status", {})
    return {one["type"]: one for one in status.get("conditions", [])}


def told(namespace: Namespace, name: str, reason: str, *texts: str) -> None:
    """Until PodsHealthy and StorageAvailable have this reason, and they and Ready these texts in their messages."""

    def probe() -> str | None:
        found = conditions(namespace, name)
        for type_ in ("PodsHealthy", "StorageAvailable", "Ready"):
            one = found.get(type_, {})
            missing = [text for text in texts if text not in one.get("message", "")]
            if one.get("reason") != reason or missing:
                return f"{type_} without {missing}: {json.dumps(found)}"
        return None

    eventually(reason, TOLD_WITHIN_S, probe)
    # Nothing has been stored, so nothing is degraded.
    assert conditions(namespace, name)["Degraded"]["status"] == "False"


def mended(namespace: Namespace, store: dict[str, Any]) -> None:
    """Apply the store as it should be, and wait until it is Ready and nothing is told of its pods any more."""
    name = store["metadata"]["name"]
    namespace.apply(yaml.safe_dump(store))
    namespace.wait_until_true("storagecluster", name, "Ready", READY_WITHIN_S)
    namespace.wait_until_true("storagecluster", name, "PodsHealthy", READY_WITHIN_S)
    assert namespace.get("storagecluster", name)["status"]["firstReadyTime"]


def test_a_storage_class_that_does_not_exist(namespace: Namespace) -> None:
    store = small(pool={"storage": {"size": "1Gi", "className": "nope"}})
    namespace.apply(yaml.safe_dump(store))
    texts = ('storageclass.storage.k8s.io "nope" not found', "spec.pools[name=main].storage.className", "fast")
    told(namespace, store["metadata"]["name"], "NoSuchStorageClass", *texts)
    mended(namespace, small())


def test_a_zone_that_no_node_has(namespace: Namespace) -> None:
    zones = ["zone-a", "zone-b", "zone-nowhere"]
    store = small(pool={"zones": zones})
    namespace.apply(yaml.safe_dump(store))
    texts = ("no node is in zone zone-nowhere", "spec.pools[name=main].zones", "zone-c")
    told(namespace, store["metadata"]["name"], "NoSuchZone", *texts)
    mended(namespace, small(pool={"zones": [*zones[:2], "zone-c"]}))


def test_an_image_that_does_not_exist(namespace: Namespace) -> None:
    store = small(image="swiftlet:there-is-no-such-image", imagePullPolicy="IfNotPresent")
    namespace.apply(yaml.safe_dump(store))
    told(namespace, store["metadata"]["name"], "ImagePull", "there-is-no-such-image", "correct spec.image")
    mended(namespace, small())


def test_a_request_that_no_node_can_meet(namespace: Namespace) -> None:
    store = small(pool={"resources": {"requests": {"cpu": "500"}}})
    namespace.apply(yaml.safe_dump(store))
    texts = ("Insufficient cpu", "lower spec.pools[name=main].resources (requests of cpu)")
    told(namespace, store["metadata"]["name"], "Unschedulable", *texts)
    mended(namespace, small(pool={"resources": {"requests": {"cpu": "10m"}}}))


def test_a_quota_that_leaves_no_room(namespace: Namespace) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"persistentvolumeclaims": "1"}},
    }
    namespace.apply(yaml.safe_dump(quota))
    store = small()
    namespace.apply(yaml.safe_dump(store))
    told(namespace, store["metadata"]["name"], "QuotaExceeded", "exceeded quota: few", "spec.pools[name=main]")
    namespace.kubectl("delete", "resourcequota", "few")
    mended(namespace, store)


def test_a_relabelled_node_is_named_while_its_pod_has_no_place(namespace: Namespace) -> None:
    """Volumes of the test's class are bound to their node, so that a pod of zone-a has no place when that leaves it."""
    store = small(pool={"zones": ["zone-a", "zone-b", "zone-c"]})
    mended(namespace, store)
    name = store["metadata"]["name"]
    pod = f"{name}-main-zone-a-0"
    node = namespace.get("pod", pod)["spec"]["nodeName"]
    label = "topology.kubernetes.io/zone"
    run("kubectl", "label", "node", node, f"{label}=zone-b", "--overwrite")
    try:
        namespace.kubectl("delete", "pod", pod)

        def probe() -> str | None:
            one = conditions(namespace, name)["PodsHealthy"]
            texts = (f"label {node} {label}=zone-a again", pod)
            named = one["reason"] == "NodeRelabelled" and all(text in one["message"] for text in texts)
            return None if named else json.dumps(one)

        eventually("NodeRelabelled", TOLD_WITHIN_S, probe)
    finally:
        run("kubectl", "label", "node", node, f"{label}=zone-a", "--overwrite")
    namespace.wait_until_true("storagecluster", name, "PodsHealthy", READY_WITHIN_S)
