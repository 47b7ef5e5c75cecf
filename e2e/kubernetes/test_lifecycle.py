"""A store in use while it grows, shrinks, is upgraded and gets users, and while its operator is killed.

One store for all tests of the module, in their order. What a client was promised is read back after each.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.conftest import READY_WITHIN_S, RELEASE, SYSTEM
from e2e.kubernetes.kube import Failed, Namespace, eventually
from e2e.kubernetes.lab import (
    DONE_WITHIN_S,
    NAME,
    all_pods,
    change,
    is_ready,
    lab_client,
    new_lab,
    pools,
    settled,
    storage_pods,
)

FAILED_WRITES = 0.001
KILL_PAUSES_S = (20.0, 60.0)
"""Between an operator that begins to act and its end."""


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store that is Ready."""
    with new_lab() as made:
        yield made


@pytest.fixture(scope="module")
def client(namespace: Namespace) -> Iterator[ClientPod]:
    with lab_client(namespace) as pod:
        yield pod


@contextmanager
def operator_killed_at_random(seed: int) -> Iterator[list[str]]:
    """Its pods at random times within the block, each some time after it took the lease; who was killed."""
    system = Namespace(SYSTEM)
    over = threading.Event()
    killed: list[str] = []
    labels = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"

    def leader() -> str | None:
        """Return the holder of the lease, if it has changed."""
        [lease] = system.list("lease")
        holder = str(lease["spec"].get("holderIdentity"))
        return None if killed and killed[-1] == holder else holder

    def work() -> None:
        chosen = random.Random(seed)
        while not over.wait(chosen.uniform(*KILL_PAUSES_S)):
            try:
                holder = leader()
                if holder is not None:
                    system.kubectl("delete", "pod", "--selector", labels, "--grace-period=0", "--force", "--wait=false")
                    killed.append(holder)
            except Failed as error:
                # The API server may be busy; the next look comes.
                print("the operator was not killed:", error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def failed_share(seen: dict[str, Any]) -> float:
    """Return the share of writes that failed at a client before it tried again."""
    return float(sum(seen["failed_writes"].values()) / max(1, seen["writes"]))


def test_a_client_in_the_cluster_stores_and_reads(client: ClientPod) -> None:
    report = client.python("/tmp/client/load.py", "stage", "1000", "500000000")
    assert json.loads(report.splitlines()[-1]) == {"small": 1000, "big_bytes": 500_000_000}


def test_it_grows_and_shrinks_in_use(namespace: Namespace, client: ClientPod) -> None:
    with client.load() as load, operator_killed_at_random(seed=1) as killed:
        change(namespace, {"spec": {"pools": pools(namespace, replicas=4)}})
        eventually("four pods", DONE_WITHIN_S, settled(namespace, 4, lambda: devices(namespace, 4)))
        change(namespace, {"spec": {"pools": pools(namespace, replicas=3)}})
        eventually("three pods", DONE_WITHIN_S, settled(namespace, 3, lambda: devices(namespace, 3)))
        seen = load.finish()
    assert killed
    assert seen["failed_reads"] == {}
    assert failed_share(seen) < FAILED_WRITES


def devices(namespace: Namespace, count: int) -> str | None:
    """Return None when the object ring has that many devices."""
    status = namespace.get("ring", f"{NAME}-object-0")["status"]
    return None if status["devices"] == count else json.dumps(status)


def test_it_is_upgraded_in_use(namespace: Namespace, client: ClientPod) -> None:
    image = os.environ["SWIFTLET_E2E_NEXT_IMAGE"]

    def upgraded() -> str | None:
        images = {name: pod["spec"]["containers"][0]["image"] for name, pod in all_pods(namespace).items()}
        old = {name: found for name, found in images.items() if found != image and not name.startswith(f"{NAME}-redis")}
        return f"{old}" if old else None

    with client.load() as load, operator_killed_at_random(seed=2) as killed:
        change(namespace, {"spec": {"image": image}})
        together = watch_away(namespace, settled(namespace, 3, upgraded))
        seen = load.finish()
    assert killed
    assert together <= 1, "storage pods of two failure domains were away at the same time"
    assert seen["failed_reads"] == {}
    assert failed_share(seen) < FAILED_WRITES


def watch_away(namespace: Namespace, done: Callable[[], str | None]) -> int:
    """Wait until `done`; the most storage pods that were not ready at one time meanwhile.

    A pod beyond the pool's replicas is none of them: it goes for good.
    """
    [pool] = pools(namespace)
    names = [f"{NAME}-main-{number}" for number in range(pool["replicas"])]
    most = 0

    def probe() -> str | None:
        nonlocal most
        pods = storage_pods(namespace)
        most = max(most, sum(not (name in pods and is_ready(pods[name])) for name in names))
        return done()

    eventually("the rollout", DONE_WITHIN_S, probe)
    return most


def test_users_policies_and_quotas_take_effect_without_restarts(namespace: Namespace, client: ClientPod) -> None:
    before = runs(namespace)
    namespace.apply(_MORE)
    namespace.wait_until_true("storageuser", "ben", "Ready", READY_WITHIN_S)
    namespace.wait_until_true("storagepolicy", "wide", "Ready", READY_WITHIN_S)
    namespace.wait_until_true("storagequota", "levels", "Ready", READY_WITHIN_S)
    secret = namespace.secret("ben-credentials")

    def ben_stores() -> str | None:
        try:
            client.python("-c", _BEN, secret["authUrl"], secret["user"], secret["key"])
        except Failed as error:
            return str(error)[-300:]
        return None

    eventually("the new user stores with the new policy", DONE_WITHIN_S, ben_stores)
    delivered = namespace.get("configmap", f"{NAME}-quotas")["data"]["quotas.yaml"]
    assert "L1" in delivered

    def usage_is_told() -> str | None:
        # At rest the operator looks every few minutes; a changed object makes it look now.
        namespace.kubectl("annotate", "--overwrite", "storagequota", "levels", f"looked={time.monotonic()}")
        statuses = [
            namespace.get(*one).get("status", {}) for one in (("storagequota", "levels"), ("storageuser", "ben"))
        ]
        told = [one.get("usage", {}) for one in statuses]
        (listed,) = [one for one in told[0].get("accounts", []) if one["account"] == "arts"] or [{}]
        good = listed.get("level") == "L1" and listed["objects"] >= 1 and listed["percent"] == 10 * listed["containers"]
        return None if good and told[1].get("objects", 0) >= 1 else f"the statuses tell {told}"

    eventually("usage is told", DONE_WITHIN_S, usage_is_told)
    namespace.kubectl("delete", "storageuser", "ben")

    def ben_is_refused() -> str | None:
        try:
            ben_stores_once = client.python("-c", _BEN, secret["authUrl"], secret["user"], secret["key"])
        except Failed as error:
            return None if "401" in str(error) else str(error)[-300:]
        return f"ben still logs in {ben_stores_once}"

    eventually("the user that was removed is refused", DONE_WITHIN_S, ben_is_refused)
    assert runs(namespace) == before


_MORE = """
apiVersion: swiftlet.io/v1alpha1
kind: StorageUser
metadata: {name: ben}
spec: {clusterRef: {name: lab}, account: arts, user: ben, roles: [admin]}
---
apiVersion: swiftlet.io/v1alpha1
kind: StoragePolicy
metadata: {name: wide}
spec: {clusterRef: {name: lab}, index: 1, name: wide, replicas: 2}
---
apiVersion: swiftlet.io/v1alpha1
kind: StorageQuota
metadata: {name: levels}
spec:
  clusterRef: {name: lab}
  usageSeconds: 60
  levels: [{name: default}, {name: L1, containerCount: 10, containerUsage: 1Gi}]
  assignments: [{account: arts, level: L1}]
"""
_BEN = """
import sys
from swiftclient.client import Connection
swift = Connection(*sys.argv[1:], retries=0)
swift.put_container("wide", headers={"X-Storage-Policy": "wide"})
swift.put_object("wide", "thing", b"content")
assert swift.get_object("wide", "thing")[1] == b"content"
assert swift.head_container("wide")["x-storage-policy"] == "wide"
"""


def runs(namespace: Namespace) -> dict[str, tuple[str, int]]:
    """Who runs, and how often it was started."""
    return {
        name: (pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"].get("containerStatuses", [])))
        for name, pod in all_pods(namespace).items()
    }
