"""A store of three pods on three nodes for tests that change it while it is used, and what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import Template
from typing import Any

from e2e.kubernetes.client_pod import ClientPod, client_pod
from e2e.kubernetes.conftest import READY_WITHIN_S, new_namespace
from e2e.kubernetes.kube import Failed, Namespace

NAME = "lab"
CLIENT_NODE = "n1"
DONE_WITHIN_S = 600
"""A rollout or a drain: each pod takes tens of seconds to come back on a computer that they all share."""

_CLUSTER = Template("""
apiVersion: swiftlet.io/v1alpha1
kind: StorageCluster
metadata: {name: $name}
spec:
  pools:
    - name: main
      replicas: 3
      storage: {className: fast, size: 1Gi}
  rings: {partPower: 6, minPartHours: 0}
  container: {replicas: 3, storage: {className: fast, size: 1Gi}}
  proxy: {replicas: $proxies}
  metadata: {replicas: 1}
$more""")
_USER = Template("""
apiVersion: swiftlet.io/v1alpha1
kind: StorageUser
metadata: {name: $user}
spec: {clusterRef: {name: $name}, account: science, user: $user, roles: [admin]}
""")


def cluster_of_three(name: str, proxies: int = 1, more: str = "") -> str:
    """A StorageCluster of three storage pods and three container pods, as YAML; `more` is a line of its spec."""
    return _CLUSTER.substitute(name=name, proxies=proxies, more=f"  {more}\n" if more else "")


def administrator(name: str, user: str) -> str:
    """A StorageUser of the cluster with this name, as YAML."""
    return _USER.substitute(name=name, user=user)


def lab(more: str = "") -> str:
    """The store `lab` and its user `ann`, as YAML; `more` is a line of the cluster's spec."""
    return f"{cluster_of_three(NAME, 2, more)}---{administrator(NAME, 'ann')}"


@contextmanager
def new_lab(more: str = "") -> Iterator[Namespace]:
    """A namespace with what `lab` describes, Ready."""
    with new_namespace() as made:
        made.apply(lab(more))
        made.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        made.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
        yield made


@contextmanager
def lab_client(namespace: Namespace) -> Iterator[ClientPod]:
    """A pod that knows how to log in, on a node that stays."""
    credentials = namespace.secret("ann-credentials")
    with client_pod(namespace, "ann-credentials", credentials["authUrl"], CLIENT_NODE) as pod:
        yield pod


def change(namespace: Namespace, patch: dict[str, Any], kind: str = "storagecluster", name: str = NAME) -> None:
    """A merge patch, as `kubectl edit` would."""
    namespace.kubectl("patch", kind, name, "--type", "merge", "--patch", json.dumps(patch))


def pools(namespace: Namespace, **fields: Any) -> list[dict[str, Any]]:
    """The pools with other fields."""
    found = namespace.get("storagecluster", NAME)["spec"]["pools"]
    return [{**pool, **fields} for pool in found]


def storage_pods(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """Return the pods of the storage pools by name."""
    return {one["metadata"]["name"]: one for one in namespace.list("pods", "app.kubernetes.io/component=storage")}


def all_pods(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """All of the store's pods by name."""
    return {one["metadata"]["name"]: one for one in namespace.list("pods", f"app.kubernetes.io/instance={NAME}")}


def claims(namespace: Namespace) -> dict[str, str]:
    """The volumes that pods asked for, by name; another one of the same name has another identity."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in namespace.list("persistentvolumeclaims")}


def status_of(namespace: Namespace, pod: str, port: int) -> dict[str, Any]:
    """Return what a service of a pod says of itself at /statusz."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/http:{pod}:{port}/proxy/statusz"
    found: dict[str, Any] = json.loads(namespace.kubectl("get", "--raw", path))
    return found


def in_sync(namespace: Namespace) -> str | None:
    """Return None when all replicators have reported that they lack nothing."""
    behind = []
    for name in storage_pods(namespace):
        try:
            report = status_of(namespace, name, 6400)
        except Failed as error:
            return str(error)[-200:]
        for device, found in report["devices"].items():
            rings = found["rings"].values()
            behind += [device for ring in rings if ring["behind"] or ring["unchecked"] or not ring["syncedAt"]]
    return f"{behind} are behind" if behind else None


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether its condition says so, and it is not on its way out."""
    conditions = pod["status"].get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def conditions(namespace: Namespace, name: str = NAME) -> dict[str, str]:
    """The cluster's, in one line each."""
    found = namespace.get("storagecluster", name).get("status", {}).get("conditions", [])
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
