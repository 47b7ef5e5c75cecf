"""A store in use while it grows, shrinks, is upgraded, loses a node and its operator, is deleted and comes back.

One store for all tests of the module, in their order. What a client was promised is read back after each.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.kubernetes.client_pod import ClientPod, client_pod
from e2e.kubernetes.conftest import READY_WITHIN_S, RELEASE, SYSTEM, new_namespace
from e2e.kubernetes.kube import Failed, Namespace, eventually, run

NAME = "lab"
CLIENT_NODE = "n1"
LOST_NODE = "n3"
DONE_WITHIN_S = 600
"""A rollout or a drain: each pod takes tens of seconds to come back on a computer that they all share."""
FAILED_WRITES = 0.001
KILL_PAUSES_S = (20.0, 60.0)
"""Between an operator that begins to act and its end."""

_STORE = """
apiVersion: swiftlet.io/v1alpha1
kind: StorageCluster
metadata: {name: lab}
spec:
  pools:
    - name: main
      replicas: 3
      storage: {className: fast, size: 1Gi}
  rings: {partPower: 6, minPartHours: 0}
  container: {replicas: 3, storage: {className: fast, size: 1Gi}}
  proxy: {replicas: 2}
  metadata: {replicas: 1}
  replaceLostNodesAfterSeconds: 30
---
apiVersion: swiftlet.io/v1alpha1
kind: StorageUser
metadata: {name: ann}
spec: {clusterRef: {name: lab}, account: science, user: ann, roles: [admin]}
"""


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store that is Ready."""
    with new_namespace() as made:
        made.apply(_STORE)
        made.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        made.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
        yield made


@pytest.fixture(scope="module")
def client(namespace: Namespace) -> Iterator[ClientPod]:
    """A pod that knows how to log in."""
    credentials = namespace.secret("ann-credentials")
    with client_pod(namespace, "ann-credentials", credentials["authUrl"], CLIENT_NODE) as pod:
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


def change(namespace: Namespace, patch: dict[str, Any], kind: str = "storagecluster", name: str = NAME) -> None:
    """A merge patch, as `kubectl edit` would."""
    namespace.kubectl("patch", kind, name, "--type", "merge", "--patch", json.dumps(patch))


def pools(namespace: Namespace, **fields: Any) -> list[dict[str, Any]]:
    """The pools with other fields."""
    found = namespace.get("storagecluster", NAME)["spec"]["pools"]
    return [{**pool, **fields} for pool in found]


def storage_pods(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """By name."""
    return {one["metadata"]["name"]: one for one in namespace.list("pods", "app.kubernetes.io/component=storage")}


def all_pods(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """All of the store's pods by name."""
    return {one["metadata"]["name"]: one for one in namespace.list("pods", f"app.kubernetes.io/instance={NAME}")}


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether its condition says so, and it is not on its way out."""
    conditions = pod["status"].get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def conditions(namespace: Namespace) -> dict[str, str]:
    """The cluster's, in one line each."""
    found = namespace.get("storagecluster", NAME).get("status", {}).get("conditions", [])
    return {one["type"]: f"{one['status']} {one['reason']}: {one['message']}" for one in found}


def settled(
    namespace: Namespace, pods: int, check: Callable[[], str | None] = lambda: None
) -> Callable[[], str | None]:
    """A probe: as many ready storage pods as said, nothing in progress, rings balanced, and `check`."""

    def probe() -> str | None:
        cluster = namespace.get("storagecluster", NAME)
        state = {one["type"]: one for one in cluster["status"]["conditions"]}
        text = json.dumps(conditions(namespace), indent=1)
        if any(one.get("observedGeneration") != cluster["metadata"]["generation"] for one in state.values()):
            return f"not seen yet: {text}"
        wanted = {"Ready": "True", "Progressing": "False", "RingsBalanced": "True", "ScaleInBlocked": "False"}
        wrong = [name for name, status in wanted.items() if state[name]["status"] != status]
        ready = [name for name, pod in storage_pods(namespace).items() if is_ready(pod)]
        if wrong or len(ready) != pods or len(storage_pods(namespace)) != pods:
            return f"{wrong} {ready} {text}"
        return check()

    return probe


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
    before = all_pods(namespace)

    def upgraded() -> str | None:
        images = {name: pod["spec"]["containers"][0]["image"] for name, pod in all_pods(namespace).items()}
        old = {name: found for name, found in images.items() if found != image and not name.startswith(f"{NAME}-redis")}
        return f"{old}" if old else None

    with client.load() as load, operator_killed_at_random(seed=2) as killed:
        change(namespace, {"spec": {"image": image}})
        together = watch_away(namespace, before, settled(namespace, 3, upgraded))
        seen = load.finish()
    assert killed
    assert together <= 1, "storage pods of two failure domains were away at the same time"
    assert seen["failed_reads"] == {}
    assert failed_share(seen) < FAILED_WRITES


def watch_away(namespace: Namespace, before: dict[str, dict[str, Any]], done: Callable[[], str | None]) -> int:
    """Wait until `done`; the most storage pods that were not ready at one time meanwhile."""
    most = 0

    def probe() -> str | None:
        nonlocal most
        pods = storage_pods(namespace)
        names = [name for name in before if name.startswith(f"{NAME}-main-")]
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


def test_a_node_loses_its_power_and_comes_back(namespace: Namespace, client: ClientPod) -> None:
    with client.load() as load:
        cluster("down", LOST_NODE)
        eventually("the node's loss", DONE_WITHIN_S, lambda: None if not node_is_ready(LOST_NODE) else "it is Ready")
        during = load.seen()["writes"]
        eventually("writes", 120, lambda: None if load.seen()["writes"] > during + 50 else "nothing is written")
        cluster("up")
        eventually("the node", DONE_WITHIN_S, lambda: None if node_is_ready(LOST_NODE) else "it is not Ready")
        eventually("the store", DONE_WITHIN_S, settled(namespace, 3))
        load.finish()


def test_a_node_is_lost_for_good_and_its_pod_gets_a_new_device(namespace: Namespace, client: ClientPod) -> None:
    before = claims(namespace)
    gone = [name for name, pod in storage_pods(namespace).items() if pod["spec"].get("nodeName") == LOST_NODE]
    assert gone

    def replaced() -> str | None:
        kept = [name for name in gone if claims(namespace).get(f"d0-{name}") == before[f"d0-{name}"]]
        return f"{kept} have their old volumes" if kept else in_sync(namespace)

    try:
        with client.load() as load:
            cluster("down", LOST_NODE)
            run("kubectl", "delete", "node", LOST_NODE)
            eventually("the store on the other nodes", DONE_WITHIN_S, settled(namespace, 3, replaced))
            load.finish()
    finally:
        cluster("up")


def claims(namespace: Namespace) -> dict[str, str]:
    """The volumes that pods asked for, by name; another one of the same name has another identity."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in namespace.list("persistentvolumeclaims")}


def in_sync(namespace: Namespace) -> str | None:
    """Return None when all replicators have reported that they lack nothing."""
    behind = []
    for name in storage_pods(namespace):
        path = f"/api/v1/namespaces/{namespace.name}/pods/http:{name}:6400/proxy/statusz"
        try:
            report = json.loads(run("kubectl", "get", "--raw", path))
        except Failed as error:
            return str(error)[-200:]
        for device, found in report["devices"].items():
            rings = found["rings"].values()
            behind += [device for ring in rings if ring["behind"] or ring["unchecked"] or not ring["syncedAt"]]
    return f"{behind} are behind" if behind else None


def node_is_ready(name: str) -> bool:
    """Return whether the control plane considers the node ready."""
    nodes = json.loads(run("kubectl", "get", "nodes", "--output", "json"))["items"]
    return any(one["metadata"]["name"] == name and is_ready(one) for one in nodes)


def cluster(*command: str) -> None:
    """hack/cluster; the test environment's own variables would lead it to another cache."""
    done = subprocess.run(["hack/cluster", *command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_it_is_deleted_and_restored_from_its_volumes(namespace: Namespace, client: ClientPod) -> None:
    client.python("-c", _KEEP)
    before = claims(namespace)
    namespace.kubectl("delete", "storagecluster", NAME, "--wait=false")
    eventually("the refusal", 60, lambda: None if conditions(namespace)["DeletionBlocked"].startswith("True") else "")
    assert is_ready(next(iter(storage_pods(namespace).values())))
    namespace.kubectl("annotate", "storagecluster", NAME, "swiftlet.io/allow-deletion=true")

    def pods_are_gone() -> str | None:
        return ", ".join(all_pods(namespace)) or None

    eventually("the deletion", DONE_WITHIN_S, pods_are_gone)
    assert claims(namespace) == before
    namespace.apply(_STORE)
    namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
    eventually("the objects", DONE_WITHIN_S, lambda: objects_are_back(client))


def objects_are_back(client: ClientPod) -> str | None:
    """Return None when the objects that were stored before can be read."""
    try:
        client.python("-c", _BACK)
    except Failed as error:
        return str(error)[-300:]
    return None


_LOGIN = """
import os
from swiftclient.client import Connection
swift = Connection(os.environ["AUTH_URL"], os.environ["SWIFT_USER"], os.environ["SWIFT_KEY"], retries=2)
"""
_KEEP = f"""{_LOGIN}
swift.put_container("kept")
for number in range(50):
    swift.put_object("kept", str(number), str(number) * 1000)
"""
_BACK = f"""{_LOGIN}
assert len(swift.get_container("kept")[1]) == 50
for number in range(50):
    assert swift.get_object("kept", str(number))[1] == (str(number) * 1000).encode()
assert len(swift.get_container("stage", full_listing=True)[1]) == 1001
"""
