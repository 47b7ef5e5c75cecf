"""What one node, zone or region would take away."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet_operator.manifests import name_of
from swiftlet_operator.tests import worlds
from swiftlet_operator.tests.worlds import Scene

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"


async def settled(pods: int = 3) -> Scene:
    return await worlds.settled({"pools": [{"name": "disks", "replicas": pods, "storage": {"size": "10Gi"}}]})


def stand(scene: Scene, *nodes: str) -> None:
    """Put the pods with data on these nodes in turn."""
    for (kind, _, name), one in scene.kube.objects.items():
        if kind == "Pod" and name.startswith(("store-disks-", "store-container-")):
            one["spec"]["nodeName"] = nodes[int(name.rpartition("-")[2]) % len(nodes)]


def label(scene: Scene, key: str, **values: str) -> None:
    for node in [one for (kind, _, _), one in scene.kube.objects.items() if kind == "Node"]:
        node["metadata"].setdefault("labels", {})[key] = values[name_of(node)]


async def test_three_nodes_in_three_zones_are_spread() -> None:
    scene = await settled()
    assert scene.condition("ReplicasSpread") == ("True", "Spread")
    assert scene.message("ReplicasSpread") == "no node has the majority of any partition's replicas"


async def test_all_pods_on_one_node_are_told_with_the_ring_and_what_to_change() -> None:
    scene = await settled()
    stand(scene, "n1")
    await scene.step()
    assert scene.condition("ReplicasSpread") == ("False", "OneNodeTakesAll")
    assert "node n1 has all replicas of 64 of 64 partitions of ring object-0" in scene.message("ReplicasSpread")
    assert "spec.placement: required" in scene.message("ReplicasSpread")
    assert scene.condition("Ready") == ("True", "Available")


async def test_two_pods_on_one_node_take_the_majority() -> None:
    scene = await settled()
    stand(scene, "n1", "n1", "n2")
    await scene.step()
    assert scene.condition("ReplicasSpread") == ("False", "OneNodeTakesMajority")
    assert "node n1 has the majority of the replicas of 64 of 64 partitions" in scene.message("ReplicasSpread")


@pytest.mark.parametrize(
    ("zones", "told", "said"),
    [
        # One zone has everything, and that is how it was wanted.
        ("aaa", ("True", "Spread"), "zone a has all replicas"),
        # With two zones one of them has two of three replicas.
        ("aab", ("True", "Spread"), "zone a has the majority"),
        ("abc", ("True", "Spread"), "no node has the majority of any partition's replicas"),
    ],
)
async def test_of_zones_as_much_is_asked_as_there_are(zones: str, told: tuple[str, str], said: str) -> None:
    scene = await settled()
    label(scene, ZONE, **{f"n{index}": zone for index, zone in enumerate(zones)})
    await scene.step()
    assert scene.condition("ReplicasSpread") == told
    assert said in scene.message("ReplicasSpread")


async def test_a_zone_that_could_have_less_is_told() -> None:
    scene = await settled(6)
    for index, zone in enumerate("aabc"):
        metadata: dict[str, Any] = {"name": f"m{index}", "labels": {ZONE: zone}}
        scene.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    label(scene, ZONE, n0="a", n1="a", n2="a", m0="a", m1="a", m2="b", m3="c")
    stand(scene, "n0", "n1", "n2", "m0", "m2", "m3")
    await scene.step()
    assert scene.condition("ReplicasSpread")[0] == "False"
    assert scene.condition("ReplicasSpread")[1].startswith("OneZoneTakes")


async def test_a_region_that_has_everything_is_named_beside_the_verdict() -> None:
    scene = await settled()
    label(scene, REGION, n0="west", n1="west", n2="west")
    await scene.step()
    assert scene.condition("ReplicasSpread") == ("True", "Spread")
    assert "region west has all replicas of 64 of 64 partitions" in scene.message("ReplicasSpread")


async def test_required_placement_lets_no_two_pods_of_a_pool_share_a_node() -> None:
    scene = Scene({"pools": [{"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}], "placement": "required"})
    await scene.settle()
    for name, labels in (("store-disks", {"swiftlet.io/pool": "disks"}), ("store-container", {})):
        pod = scene.kube.find("StatefulSet", name)["spec"]["template"]["spec"]
        (alone,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert alone["topologyKey"] == "kubernetes.io/hostname"
        assert (
            alone["labelSelector"]["matchLabels"].items() >= {"app.kubernetes.io/instance": "store", **labels}.items()
        )
    proxy = scene.kube.find("Deployment", "store-proxy")["spec"]["template"]["spec"]
    assert "affinity" not in proxy
