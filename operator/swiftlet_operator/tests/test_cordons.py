"""Nodes that are drained by themselves: which pods may go, whose turn it is, and what does not begin meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swiftlet_operator.manifests import CORDONS, Manifest
from swiftlet_operator.plan.cordoned import LEAVING, is_leaving
from swiftlet_operator.plan.cordons import FORGOTTEN_S
from swiftlet_operator.reports import RingReport
from swiftlet_operator.tests.worlds import Scene, settled

HOUR = 3600
LATE = RingReport(held=1, misplaced=0, behind=3, unchecked=0, ring_version=1, synced_at_s=1.0)


def cordon(scene: Scene, node: str, on: bool = True) -> None:
    """As kubectl does it."""
    scene.kube.find("Node", node).setdefault("spec", {})["unschedulable"] = on


def evict(scene: Scene, pod: str) -> None:
    """The pod is gone, and one of its name waits for a node."""
    live = scene.kube.find("Pod", pod)
    live["spec"].pop("nodeName", None)
    live["status"] = {"phase": "Pending", "conditions": []}
    count(scene, pod.rpartition("-")[0])


def come_back(scene: Scene, pod: str, node: str) -> None:
    """It is ready on a node."""
    live = scene.kube.find("Pod", pod)
    live["spec"]["nodeName"] = node
    moment = "2027-01-15T08:00:00Z"
    live["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}]}
    count(scene, pod.rpartition("-")[0])


def count(scene: Scene, name: str) -> None:
    """What the StatefulSet's controller sees."""
    pods = [scene.kube.find("Pod", pod) for pod in scene.kube.names("Pod") if pod.rpartition("-")[0] == name]
    ready = sum(bool(pod["status"].get("conditions")) for pod in pods)
    scene.kube.find("StatefulSet", name)["status"]["readyReplicas"] = ready


def budget(scene: Scene) -> tuple[int, list[str]]:
    """How many pods may be away, and those that may go besides."""
    spec = scene.kube.find("PodDisruptionBudget", "store-data")["spec"]
    chosen = spec["selector"]["matchExpressions"]
    return spec["maxUnavailable"], [pod for one in chosen if one["operator"] == "NotIn" for pod in one["values"]]


def of_zone(zone: str) -> list[str]:
    """All pods with data there."""
    fast = [f"store-fast-{zone}-{number}" for number in range(3 if zone == "a" else 2)]
    return [f"store-container-{zone}-0", *fast]


def memory(scene: Scene) -> dict[str, Any]:
    """What the budget remembers."""
    notes = scene.kube.find("PodDisruptionBudget", "store-data")["metadata"].get("annotations") or {}
    found: dict[str, Any] = json.loads(notes.get(CORDONS) or "{}")
    return found


async def test_at_rest_one_of_all_pods_with_data_may_go() -> None:
    scene = await settled("three-zones")
    assert budget(scene) == (1, [])
    assert scene.condition("NodesCordoned") == ("False", "NoneCordoned")
    spec = scene.kube.find("PodDisruptionBudget", "store-data")["spec"]
    assert spec["selector"]["matchExpressions"][0]["values"] == ["container", "storage"]
    assert scene.kube.names("PodDisruptionBudget") == {"store-data", "store-proxy", "store-metadata"}


async def test_a_cordoned_zone_opens_until_its_pods_are_back_and_in_sync() -> None:
    scene = await settled("three-zones")
    cordon(scene, "n1")
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    assert scene.condition("NodesCordoned") == ("True", "DomainOpen")
    assert "zone b is being drained (n1)" in scene.message("NodesCordoned")
    assert await scene.step() == []

    for pod in of_zone("b"):
        evict(scene, pod)
    await scene.step()
    cordon(scene, "n1", on=False)
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    assert "store-fast-b-0" in scene.message("NodesCordoned")

    for pod in of_zone("b"):
        come_back(scene, pod, "n1")
    scene.told.said = {("store-fast-b-0/d0", "object-0"): LATE}
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    scene.told.said.clear()
    await scene.step()
    assert budget(scene) == (1, [])
    assert scene.condition("NodesCordoned") == ("False", "NoneCordoned")


async def test_pods_that_are_back_on_other_nodes_close_it_although_their_node_stays_cordoned() -> None:
    scene = await settled("three-zones")
    scene.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "spare", "labels": {}}})
    cordon(scene, "n1")
    await scene.step()
    for pod in of_zone("b"):
        come_back(scene, pod, "spare")
    await scene.step()
    assert budget(scene) == (1, [])


async def test_a_second_zone_waits_for_the_first() -> None:
    scene = await settled("three-zones")
    cordon(scene, "n1")
    await scene.step()
    scene.now_s += 60
    cordon(scene, "n0")
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    assert "zone a (n0) waits for zone b" in scene.message("NodesCordoned")
    # Also when the first is uncordoned before its pods are back.
    evict(scene, "store-fast-b-0")
    await scene.step()
    cordon(scene, "n1", on=False)
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    come_back(scene, "store-fast-b-0", "n1")
    await scene.step()
    assert budget(scene) == (0, of_zone("a"))


async def test_nothing_opens_while_something_elsewhere_is_not_whole() -> None:
    scene = await settled("three-zones")
    evict(scene, "store-fast-a-0")
    cordon(scene, "n1")
    await scene.step()
    assert budget(scene) == (1, [])  # Which is away already.
    assert scene.condition("NodesCordoned") == ("True", "NotInSync")
    assert "store-fast-a-0 is not whole" in scene.message("NodesCordoned")
    come_back(scene, "store-fast-a-0", "n0")
    scene.told.said = {("store-fast-a-0/d0", "object-0"): LATE}
    await scene.step()
    assert budget(scene) == (0, [])
    scene.told.said.clear()
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    # What fails while it is open closes it.
    evict(scene, "store-fast-c-0")
    await scene.step()
    assert budget(scene)[1] == []


async def test_no_restart_and_no_rebalance_begin_while_a_zone_is_open() -> None:
    scene = await settled("three-zones")
    scene.now_s += 2 * HOUR
    cordon(scene, "n1")
    await scene.step()
    scene.cluster["spec"]["pools"][0]["replicas"] = 9
    await scene.step()
    scene.live()
    await scene.step()
    assert "zone b is open for a drain" in scene.message("RingsBalanced")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    assert not [one for one in await scene.step() if "StatefulSet" in one]
    assert "zone b is being drained (n1)" in scene.message("Progressing")
    cordon(scene, "n1", on=False)
    assert [one for one in await scene.step() if "StatefulSet" in one] == ["apply StatefulSet/store-fast-a"]


async def test_a_forgotten_cordon_holds_up_nobody_for_ever() -> None:
    scene = await settled("three-zones")
    cordon(scene, "n1")
    await scene.step()
    cordon(scene, "n0")
    scene.now_s += FORGOTTEN_S
    await scene.step()
    assert budget(scene) == (0, of_zone("a"))
    scene.now_s += FORGOTTEN_S
    await scene.step()
    assert budget(scene) == (1, [])
    assert scene.condition("NodesCordoned") == ("True", "CordonForgotten")
    assert "n0, n1 has been cordoned for 2 hours" in scene.message("NodesCordoned")
    assert await scene.step() == []
    scene.cluster["spec"]["image"] = "swiftlet:next"
    assert [one for one in await scene.step() if "StatefulSet/store-" in one]

    # Who drains it after all goes first.
    scene = await settled("three-zones")
    cordon(scene, "n1")
    await scene.step()
    scene.now_s += FORGOTTEN_S
    await scene.step()
    assert budget(scene) == (1, [])
    evict(scene, "store-fast-b-1")
    await scene.step()
    assert budget(scene) == (0, of_zone("b"))
    assert memory(scene)["domain"] == "zone b"


async def test_without_enough_zones_a_node_is_the_domain() -> None:
    scene = Scene("minimal")
    for node in ("n0", "n1", "n2"):
        scene.kube.find("Node", node)["metadata"]["labels"] = {}
    await scene.settle()
    cordon(scene, "n2")
    await scene.step()
    assert budget(scene) == (0, ["store-container-2", "store-disks-2"])
    evict(scene, "store-container-2")
    evict(scene, "store-disks-2")
    cordon(scene, "n1")
    await scene.step()
    assert budget(scene) == (0, ["store-container-2", "store-disks-2"])
    assert "node n1 (n1) waits for node n2" in scene.message("NodesCordoned")
    for pod in ("store-container-2", "store-disks-2"):
        come_back(scene, pod, "n0")
    await scene.step()
    assert budget(scene) == (0, ["store-container-1", "store-disks-1"])


@pytest.mark.parametrize("evicted", [("store-disks-2",), ("store-disks-2", "store-container-2")])
async def test_what_was_evicted_before_anybody_looked_belongs_to_the_node(evicted: tuple[str, ...]) -> None:
    """Or else what is left on it would wait for a pod that waits for the node."""
    scene = Scene("minimal")
    for node in ("n0", "n1", "n2"):
        scene.kube.find("Node", node)["metadata"]["labels"] = {}
    await scene.settle()
    cordon(scene, "n2")
    for pod in evicted:
        evict(scene, pod)
    await scene.step()
    assert budget(scene) == (0, ["store-container-2", "store-disks-2"])
    assert scene.condition("NodesCordoned") == ("True", "DomainOpen")


async def test_a_node_with_the_majority_of_a_partition_is_drained_pod_by_pod() -> None:
    scene = Scene("minimal")
    for node in ("n0", "n1", "n2"):
        scene.kube.find("Node", node)["metadata"]["labels"] = {}
    await scene.settle()
    for pod in ("store-disks-0", "store-disks-1"):
        come_back(scene, pod, "n1")
    cordon(scene, "n1")
    await scene.step()
    assert budget(scene) == (1, [])
    assert scene.condition("NodesCordoned") == ("True", "OnePodAtATime")
    evict(scene, "store-disks-0")
    await scene.step()
    assert budget(scene) == (1, [])


async def test_nodes_without_data_are_nobodys_concern() -> None:
    scene = await settled("three-zones")
    scene.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "spare", "labels": {}}})
    cordon(scene, "spare")
    assert await scene.step() == []


async def test_an_annotation_that_can_not_be_read_is_as_none() -> None:
    scene = await settled("three-zones")
    cordon(scene, "n1")
    await scene.step()
    for broken in ("{", "[]", '{"nodes": {"n1": {}}}', '{"nodes": 3}'):
        scene.kube.find("PodDisruptionBudget", "store-data")["metadata"]["annotations"][CORDONS] = broken
        await scene.step()
        assert budget(scene) == (0, of_zone("b"))


@pytest.mark.parametrize("key", sorted(LEAVING))
def test_taints_of_autoscalers_count(key: str) -> None:
    node: Manifest = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
    assert is_leaving(node)
    assert not is_leaving({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "dedicated"}]}})
    assert is_leaving({"metadata": {"name": "n"}, "spec": {"unschedulable": True}})
