"""A store with a policy of 4+2 over six pods loses a pod with its volume while it is used: everything becomes whole
again, and until it is, the conditions say so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.conftest import READY_WITHIN_S, new_namespace
from e2e.kubernetes.kube import Failed, Namespace, eventually
from e2e.kubernetes.lab import (
    DONE_WITHIN_S,
    NAME,
    administrator,
    claims,
    cluster_of_three,
    conditions,
    in_sync,
    is_ready,
    lab_client,
    settled,
    status_of,
    storage_pods,
)

PODS = 6
POLICY = "cold"
SMALL, BIG_BYTES = 200, 50_000_000
_POLICY = f"""
apiVersion: swiftlet.io/v1alpha1
kind: StoragePolicy
metadata: {{name: {POLICY}}}
spec: {{clusterRef: {{name: {NAME}}}, index: 0, name: {POLICY}, default: true, erasureCoding: {{data: 4, parity: 2}}}}
"""


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store of six storage pods, whose only policy has erasure coding."""
    with new_namespace() as made:
        cluster = cluster_of_three(NAME, 1).replace("replicas: 3\n      storage", f"replicas: {PODS}\n      storage")
        made.apply(f"{_POLICY}---{cluster}---{administrator(NAME, 'ann')}")
        made.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        made.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
        yield made


@pytest.fixture(scope="module")
def client(namespace: Namespace) -> Iterator[ClientPod]:
    with lab_client(namespace) as pod:
        yield pod


def redundancy(namespace: Namespace) -> dict[str, int]:
    """How many partitions of the policy have how many fragments, by what all replicators say."""
    found: dict[str, int] = {}
    for name in storage_pods(namespace):
        said = (status_of(namespace, name, 6400)["repairs"] or {}).get("redundancy", {}).get(POLICY)
        for fragments, count in (said or {"partitions": {}})["partitions"].items():
            found[fragments] = found.get(fragments, 0) + count
    return found


def is_whole(namespace: Namespace) -> str | None:
    """Return None when replicators have proved it: all devices in sync, no object with less than all fragments."""
    if problem := in_sync(namespace):
        return problem
    counts = redundancy(namespace)
    return None if counts.get("6") and sum(counts.values()) == counts["6"] else f"fragments of partitions: {counts}"


def test_the_policy_says_what_it_survives(namespace: Namespace, client: ClientPod) -> None:
    report = client.python("/tmp/client/load.py", "stage", str(SMALL), str(BIG_BYTES))
    assert json.loads(report.splitlines()[-1]) == {"small": SMALL, "big_bytes": BIG_BYTES}
    status: dict[str, Any] = namespace.get("storagepolicy", POLICY)["status"]
    assert (status["keptAs"], status["bytesPerByte"]) == ("4+2", 1.5)
    assert status["mayBeLost"]["devices"] == 2
    assert conditions(namespace)["SpecValid"].startswith("True")
    eventually("all fragments", DONE_WITHIN_S, lambda: is_whole(namespace))


def test_a_pod_and_its_volume_are_destroyed_and_its_fragments_are_made_anew(
    namespace: Namespace, client: ClientPod
) -> None:
    lost = f"{NAME}-main-2"
    before = claims(namespace)[f"d0-{lost}"]

    def degraded() -> bool:
        return conditions(namespace)["Degraded"].startswith("True")

    def replaced() -> str | None:
        pod = storage_pods(namespace).get(lost)
        is_new = claims(namespace).get(f"d0-{lost}", before) != before
        return None if is_new and pod is not None and is_ready(pod) else "it is not back"

    with client.load() as load:
        namespace.kubectl("delete", "persistentvolumeclaim", f"d0-{lost}", "--wait=false")
        namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        eventually("the condition", DONE_WITHIN_S, lambda: None if degraded() else "nothing is Degraded")
        eventually("the new volume", DONE_WITHIN_S, replaced)
        # Never is it said that all is well before that is proved.
        eventually("the end of Degraded", DONE_WITHIN_S, lambda: str(conditions(namespace)) if degraded() else None)
        assert not was_empty(namespace, lost)
        eventually("all fragments", DONE_WITHIN_S, lambda: is_whole(namespace))
        load.finish()
    eventually("the store", DONE_WITHIN_S, settled(namespace, PODS, lambda: is_whole(namespace)))


def was_empty(namespace: Namespace, pod: str) -> bool:
    """Whether a pod's device holds nothing of the policy, or nobody has proved what it holds."""
    try:
        ring = status_of(namespace, pod, 6400)["devices"][f"{pod}/d0"]["rings"]["object-0"]
    except (Failed, KeyError):
        return True
    return not (ring["held"] and ring["syncedAt"])
