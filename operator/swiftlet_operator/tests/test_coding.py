"""Policies with erasure coding: what of them is refused, what services are told, and what the conditions say of them.

Fault model: pods are away, one more than may be; a StoragePolicy is replaced by one with another coding behind the API
server's back, which refuses that; replicators say nothing of the policy's ring.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from swiftlet.ring.model import MAX_CODED_PART_POWER, Coding
from swiftlet.settings.sections import PolicySection
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.reports import RingReport
from swiftlet_operator.rings import STEPS
from swiftlet_operator.tests import worlds
from swiftlet_operator.tests.test_checks import policy, violated, world
from swiftlet_operator.tests.worlds import Scene, own

CODING = {"data": 4, "parity": 2}
SIX = {"pools": [{"name": "disks", "replicas": 6, "storage": {"size": "10Gi"}}]}
HOUR_S = 3600


def cold(**more: Any) -> Manifest:
    """A StoragePolicy with 4+2, or another coding."""
    return own("StoragePolicy", "cold", {"index": 1, "name": "cold", "erasureCoding": CODING, **more})


async def settled() -> Scene:
    """Six pods on three nodes in three zones, and a policy with 4+2 beside one with copies."""
    scene = await worlds.settled(SIX)
    scene.told.devices_per_pod = 1
    scene.kube.put(cold())
    await scene.step()
    await scene.settle()
    return scene


def away(scene: Scene, *pods: str) -> None:
    """These pods are not ready."""
    for pod in pods:
        scene.kube.find("Pod", pod)["status"]["conditions"][0]["status"] = "False"
    live = scene.kube.find("StatefulSet", "store-disks")
    live["status"]["readyReplicas"] = live["spec"]["replicas"] - len(pods)


def files(scene: Scene) -> list[dict[str, Any]]:
    """The policies as services read them."""
    text = scene.kube.find("ConfigMap", "store-settings")["data"]["policies.yaml"]
    return list(yaml.safe_load(text))


async def test_services_and_rings_are_told_of_the_fragments() -> None:
    scene = await settled()
    assert scene.condition("SpecValid") == ("True", "Valid")
    (usual, coded) = TypeAdapter(tuple[PolicySection, ...]).validate_python(files(scene))
    assert usual.coding is None
    assert coded.coding is not None
    assert coded.coding.coding == Coding(4, 2, 65536)
    assert scene.condition("FragmentsWhole") == ("Unknown", "NotReported")
    assert scene.kube.find("Ring", "store-object-1")["spec"]["replicas"] == 6
    assert scene.kube.find("Ring", "store-object-0")["spec"]["replicas"] == 3


async def test_the_status_says_what_is_kept_and_what_may_be_lost() -> None:
    scene = await settled()
    status = scene.kube.find("StoragePolicy", "cold")["status"]
    assert (status["keptAs"], status["bytesPerByte"]) == ("4+2", 1.5)
    lost = {"devices": 2, "nodes": 1, "zones": 1}
    assert status["mayBeLost"] == {**lost, "text": "2 devices, or 1 node, or 1 zone"}
    scene.kube.put(own("StoragePolicy", "usual", {"index": 0, "name": "usual", "default": True}))
    await scene.settle()
    status = scene.kube.find("StoragePolicy", "usual")["status"]
    assert (status["keptAs"], status["bytesPerByte"]) == ("3 copies", 3)
    assert status["mayBeLost"]["devices"] == 2


async def test_nodes_with_more_fragments_than_parity_are_told() -> None:
    scene = await settled()
    assert scene.condition("ReplicasSpread") == ("True", "Spread")
    assert "or more fragments than may be lost" in scene.message("ReplicasSpread")
    for ordinal in range(6):
        scene.kube.find("Pod", f"store-disks-{ordinal}")["spec"]["nodeName"] = f"n{ordinal % 2}"
    await scene.step()
    assert scene.condition("ReplicasSpread") == ("False", "OneNodeTakesAll")
    told = "has more than 2 fragments, the most that may be lost with 4+2, of 64 of 64 partitions"
    assert told in scene.message("ReplicasSpread")
    assert scene.kube.find("StoragePolicy", "cold")["status"]["mayBeLost"]["nodes"] == 0


async def test_storage_is_available_while_objects_are_read_and_written() -> None:
    scene = await settled()
    away(scene, "store-disks-1")
    await scene.step()
    assert scene.condition("StorageAvailable") == ("True", "MajorityReady")
    assert scene.message("StorageAvailable").endswith("every partition has a majority, or fragments enough")
    # Five devices acknowledge a write, and there is no other to stand in.
    away(scene, "store-disks-1", "store-disks-2")
    await scene.step()
    assert scene.condition("StorageAvailable") == ("False", "PodsNotReady")


async def test_another_coding_is_refused_and_the_one_before_stays() -> None:
    scene = await settled()
    before = files(scene)
    for more in ({"data": 2, "parity": 4}, {**CODING, "cellSize": "128Ki"}):
        scene.kube.put(cold(erasureCoding=more))
        await scene.step()
        assert scene.condition("SpecValid") == ("False", "PolicyCodingChanged")
        assert "cold (index 1) has objects with erasureCoding 4+2" in scene.message("SpecValid")
        assert "make another StoragePolicy with an index of its own" in scene.message("SpecValid")
        assert "to which `swiftlet policy move` brings the containers" in scene.message("SpecValid")
        assert files(scene) == before
    without = cold()
    del without["spec"]["erasureCoding"]
    scene.kube.put(without)
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "PolicyCodingChanged")
    scene.kube.put(cold(erasureCoding={**CODING, "cellSize": "65536", "packBelow": "64Ki"}))
    await scene.step()
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert [policy.get("pack_below") for policy in files(scene)] == [None, 65536]


async def test_a_policy_with_copies_does_not_become_another_one() -> None:
    scene = await worlds.settled(SIX)
    scene.kube.put(cold(index=0, default=True))
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "PolicyCodingChanged")
    assert "cold (index 0) has objects with copies" in scene.message("SpecValid")


async def test_the_first_policy_may_be_coded_before_there_is_a_ring() -> None:
    scene = Scene(SIX)
    scene.told.devices_per_pod = 1
    await scene.step()
    scene.kube.put(cold(index=0, default=True))
    await scene.step()
    await scene.settle()
    assert scene.condition("SpecValid") == ("True", "Valid")
    status = scene.kube.find("StoragePolicy", "cold")["status"]
    assert (status["keptAs"], status["mayBeLost"]["devices"]) == ("4+2", 2)


async def test_no_device_may_go_while_nobody_says_what_it_has_of_a_coded_policy() -> None:
    scene = await settled()
    scene.told.said = {(f"store-disks-{ordinal}/d0", "object-1"): RingReport() for ordinal in range(6)}
    scene.cluster["spec"]["pools"][0]["replicas"] = 7
    await scene.settle()
    scene.cluster["spec"]["drain"] = ["store-disks-0"]
    for _ in range(3 * STEPS):
        scene.now_s += 2 * HOUR_S
        scene.live()
        await scene.step()
    assert scene.condition("Drained") == ("False", "Draining")
    assert scene.message("Drained") == "store-disks-0/d0 may still hold data"
    assert "ring object-1: the next rebalance waits until" in scene.message("RingsBalanced")


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ([{"replicas": 5}], "TooFewDevices"),
        ([{"replicas": 2, "devicesPerPod": 4}], "TooFewPods"),
        ([{"replicas": 3, "devicesPerPod": 2}], None),
        ([{"replicas": 1, "devicesPerPod": 12}, {"replicas": 4}], None),
        ([{"replicas": 1, "devicesPerPod": 12}, {"replicas": 3}], "TooFewPods"),
    ],
)
def test_pools_that_can_not_carry_the_fragments(pools: list[dict[str, Any]], reason: str | None) -> None:
    made = [{"name": f"p{index}", "storage": {"size": "10Gi"}, **one} for index, one in enumerate(pools)]
    coded = policy("cold", 1, default=True, erasureCoding=CODING)
    assert violated(world({"pools": made}, policies=(coded,))) == ({reason} if reason else set())


def test_part_powers_of_rings_fit_coded_policies() -> None:
    for part_power in (1, 22):
        Coding(4, 2, 65536).check_ring(part_power, 6)
    assert MAX_CODED_PART_POWER >= 22


@pytest.mark.parametrize(
    ("data", "parity", "quorum"), [(2, 1, 3), (2, 4, 4), (4, 2, 5), (6, 3, 7), (8, 3, 9), (10, 4, 11)]
)
def test_a_quorum_leaves_one_fragment_more_than_are_read(data: int, parity: int, quorum: int) -> None:
    assert Coding(data, parity, 65536).quorum == quorum
