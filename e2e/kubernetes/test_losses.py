"""A store in use loses a node for a while and for good, is deleted, and comes back from its volumes.

One store for all tests of the module, in their order. What a client was promised is read back after each.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.conftest import READY_WITHIN_S
from e2e.kubernetes.kube import Failed, Namespace, eventually, run
from e2e.kubernetes.lab import (
    DONE_WITHIN_S,
    NAME,
    all_pods,
    claims,
    conditions,
    in_sync,
    is_ready,
    lab,
    lab_client,
    new_lab,
    settled,
    storage_pods,
)

LOST_NODE = "n3"
SMALL, BIG_BYTES = 1000, 100_000_000
REPLACING = "replaceLostNodesAfterSeconds: 30"


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store that is Ready."""
    with new_lab(REPLACING) as made:
        yield made


@pytest.fixture(scope="module")
def client(namespace: Namespace) -> Iterator[ClientPod]:
    with lab_client(namespace) as pod:
        yield pod


def test_objects_are_stored_before_anything_is_lost(client: ClientPod) -> None:
    report = client.python("/tmp/client/load.py", "stage", str(SMALL), str(BIG_BYTES))
    assert json.loads(report.splitlines()[-1]) == {"small": SMALL, "big_bytes": BIG_BYTES}


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
    namespace.apply(lab(REPLACING))
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
assert len(swift.get_container("stage", full_listing=True)[1]) == {SMALL + 1}
"""
