"""`kubectl drain` of a node under load, with nothing said to the StorageCluster: no client has an error.

The pods' volumes are on their nodes, so pods with data wait until the node is back; proxies go elsewhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.kube import Failed, Namespace, eventually, run
from e2e.kubernetes.lab import DONE_WITHIN_S, NAME, lab_client, new_lab

DRAINED_NODE = "n2"
OTHER_NODE = "n3"
DRAINED_WITHIN_S = 300


@pytest.fixture
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store that is Ready."""
    with new_lab() as made:
        yield made


@pytest.fixture
def client(namespace: Namespace) -> Iterator[ClientPod]:
    with lab_client(namespace) as pod:
        yield pod


def condition(namespace: Namespace, type_: str) -> tuple[str, str, str]:
    """Status, reason and message."""
    found = namespace.get("storagecluster", NAME).get("status", {}).get("conditions", [])
    one: dict[str, Any] = next((one for one in found if one["type"] == type_), {})
    return one.get("status", ""), one.get("reason", ""), one.get("message", "")


def budget(namespace: Namespace) -> tuple[int, set[str]]:
    """Pods with data that may be away, and those that may go besides."""
    spec = namespace.get("poddisruptionbudget", f"{NAME}-data")["spec"]
    freed = [pod for one in spec["selector"]["matchExpressions"] if one["operator"] == "NotIn" for pod in one["values"]]
    return spec["maxUnavailable"], set(freed)


def pods_with_data(namespace: Namespace, node: str) -> set[str]:
    """Names of those that stand on a node."""
    found = namespace.list("pods", "app.kubernetes.io/component in (storage,container)")
    return {one["metadata"]["name"] for one in found if one["spec"].get("nodeName") == node}


def whole(namespace: Namespace) -> str | None:
    """What is wrong, as conditions say it."""
    said = {type_: condition(namespace, type_) for type_ in ("Degraded", "Ready", "NodesCordoned")}
    good = said["Degraded"][0] == "False" and said["Ready"][0] == "True" and said["NodesCordoned"][0] == "False"
    return None if good and budget(namespace) == (1, set()) else f"{said} {budget(namespace)}"


@contextmanager
def cordons_removed(*nodes: str) -> Iterator[None]:
    """The nodes take pods again afterwards."""
    try:
        yield
    finally:
        for node in nodes:
            run("kubectl", "uncordon", node)


def drain(namespace: Namespace, node: str, within_s: int = DRAINED_WITHIN_S) -> subprocess.Popen[str]:
    """`kubectl drain` of this store's pods, under way."""
    command = ["kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force"]
    command += [f"--pod-selector=app.kubernetes.io/instance={NAME}", f"--timeout={within_s}s"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(drained: subprocess.Popen[str]) -> str:
    """What a drain has written, once it is over and well."""
    text, _ = drained.communicate(timeout=DRAINED_WITHIN_S + 60)
    assert drained.returncode == 0, text
    return text


def test_a_drain_under_load_is_noticed_by_no_client(namespace: Namespace, client: ClientPod) -> None:
    eventually("the store is whole", DONE_WITHIN_S, lambda: whole(namespace))
    there = pods_with_data(namespace, DRAINED_NODE)
    assert there, f"no pod with data is on {DRAINED_NODE}"
    with client.load() as load, cordons_removed(DRAINED_NODE, OTHER_NODE):
        drained = drain(namespace, DRAINED_NODE)
        eventually("the domain opens", 60, lambda: _opened(namespace, there))
        text = ended(drained)
        print(text)
        # A second one waits for the first, whose pods wait for their volumes.
        run("kubectl", "cordon", OTHER_NODE)
        eventually("the second node waits", 60, lambda: _waits(namespace, there))
        run("kubectl", "uncordon", OTHER_NODE)
        run("kubectl", "uncordon", DRAINED_NODE)
        eventually("the pods are back and in sync", DONE_WITHIN_S, lambda: whole(namespace))
        seen: dict[str, Any] = load.finish()
    assert seen["failed_writes"] == {}
    assert seen["failed_reads"] == {}


def test_a_drain_begun_in_two_places_goes_one_after_the_other(namespace: Namespace, client: ClientPod) -> None:
    eventually("the store is whole", DONE_WITHIN_S, lambda: whole(namespace))
    with client.load() as load, cordons_removed(DRAINED_NODE, OTHER_NODE):
        first = drain(namespace, DRAINED_NODE)
        eventually(
            "the domain opens", 60, lambda: None if budget(namespace)[1] else str(condition(namespace, "NodesCordoned"))
        )
        second = drain(namespace, OTHER_NODE, within_s=30)
        ended(first)
        second.communicate(timeout=90)
        kept = pods_with_data(namespace, OTHER_NODE)
        assert kept, "pods went in two domains at a time"
        run("kubectl", "uncordon", DRAINED_NODE)
        eventually("the second opens", DONE_WITHIN_S, lambda: _opened(namespace, kept))
        ended(drain(namespace, OTHER_NODE))
        run("kubectl", "uncordon", OTHER_NODE)
        eventually("the pods are back and in sync", DONE_WITHIN_S, lambda: whole(namespace))
        seen: dict[str, Any] = load.finish()
    assert seen["failed_writes"] == {}
    assert seen["failed_reads"] == {}


def _opened(namespace: Namespace, pods: set[str]) -> str | None:
    try:
        allowed, freed = budget(namespace)
    except Failed as error:
        return str(error)
    return None if allowed == 0 and pods <= freed else f"{allowed} {freed} {condition(namespace, 'NodesCordoned')}"


def _waits(namespace: Namespace, pods: set[str]) -> str | None:
    status, reason, message = condition(namespace, "NodesCordoned")
    waits = (status, reason) == ("True", "DomainOpen") and "waits for" in message and OTHER_NODE in message
    return None if waits and budget(namespace)[1] >= pods else f"{status} {reason}: {message}"
