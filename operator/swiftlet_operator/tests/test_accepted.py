"""What goes on while the specs don't fit together: what is wrong stays as it was accepted last, the rest is healed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from swiftlet_operator.tests.worlds import Scene, own

POOL = {"name": "fast", "replicas": 3, "roles": ["object"], "storage": {"className": "standard", "size": "10Gi"}}
GOLD = {"index": 1, "name": "gold", "default": True}


async def settled(*objects: tuple[str, str, dict[str, Any]], spec: str | dict[str, Any] = "minimal") -> Scene:
    scene = Scene(spec)
    for kind, name, body in objects:
        scene.kube.put(own(kind, name, body))
    await scene.settle()
    assert scene.condition("SpecValid") == ("True", "Valid")
    return scene


def lose(scene: Scene, kind: str, name: str) -> None:
    del scene.kube.objects[kind, "data", name]


def policies(scene: Scene) -> list[str]:
    text = scene.kube.find("ConfigMap", "store-settings")["data"]["policies.yaml"]
    return [one["name"] for one in yaml.safe_load(text)]


def replicas(scene: Scene, name: str) -> int:
    count: int = scene.kube.find("StatefulSet", name)["spec"]["replicas"]
    return count


async def test_a_policy_that_is_gone_stays_in_force_and_everything_else_goes_on() -> None:
    scene = await settled(("StoragePolicy", "gold", GOLD))
    before = policies(scene)
    lose(scene, "StoragePolicy", "gold")
    lose(scene, "Service", "store")
    scene.kube.find("StatefulSet", "store-container")["spec"]["replicas"] = 0
    scene.cluster["spec"]["proxy"] = {"replicas": 4}
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "PolicyRemoved")
    assert "StoragePolicies and Rings stay in force as they were accepted last" in scene.message("SpecValid")
    assert scene.condition("Ready") == ("False", "PolicyRemoved")
    assert policies(scene) == before
    assert "store" in scene.kube.names("Service")
    assert replicas(scene, "store-container") == 3
    assert scene.kube.find("Deployment", "store-proxy")["spec"]["replicas"] == 4

    scene.kube.put(own("StoragePolicy", "gold", GOLD))
    await scene.settle()
    assert scene.condition("SpecValid") == ("True", "Valid")


async def test_a_spec_that_is_wrong_stays_as_it_was_and_policies_go_on() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["storage"]["size"] = "1Gi"
    scene.cluster["spec"]["proxy"] = {"replicas": 4}
    scene.kube.put(own("StoragePolicy", "gold", {"index": 1, "name": "gold"}))
    lose(scene, "PodDisruptionBudget", "store-data")
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "StorageShrunk")
    assert "spec of the StorageCluster" in scene.message("SpecValid")
    assert scene.kube.find("Deployment", "store-proxy")["spec"]["replicas"] == 2
    assert policies(scene) == ["Policy-0", "gold"]
    assert "store-data" in scene.kube.names("PodDisruptionBudget")


async def test_policies_that_are_new_wait_while_policies_are_wrong() -> None:
    scene = await settled(("StoragePolicy", "gold", GOLD))
    scene.kube.put(own("StoragePolicy", "tin", {"index": 2, "name": "tin", "default": True}))
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "TwoDefaultPolicies")
    assert policies(scene) == ["gold"]
    told = {
        name: scene.kube.find("StoragePolicy", name)["status"]["conditions"][0]["reason"] for name in ("gold", "tin")
    }
    assert told == {"gold": "Accepted", "tin": "ClusterWaits"}


async def test_with_lost_keys_no_new_ones_are_made_and_the_rest_is_healed() -> None:
    scene = await settled()
    lose(scene, "Secret", "store-keys")
    lose(scene, "Secret", "store-keys-copy")
    lose(scene, "Service", "store")
    scene.kube.find("StatefulSet", "store-container")["spec"]["replicas"] = 1
    rings = {name: scene.kube.find("ConfigMap", name) for name in scene.kube.names("ConfigMap") if "-ring-" in name}
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "KeysLost")
    assert "no pod with data is restarted" in scene.message("SpecValid")
    assert scene.condition("KeysRotated") == ("Unknown", "NotObserved")
    assert not {"store-keys", "store-keys-copy"} & scene.kube.names("Secret")
    assert "store" in scene.kube.names("Service")
    assert replicas(scene, "store-container") == 3
    assert rings == {name: scene.kube.find("ConfigMap", name) for name in rings}


async def test_no_pod_with_data_is_restarted_while_keys_are_lost() -> None:
    scene = await settled()
    image = scene.kube.find("StatefulSet", "store-container")["spec"]["template"]["spec"]["containers"][0]["image"]
    lose(scene, "Secret", "store-keys")
    lose(scene, "Secret", "store-keys-copy")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()

    live = scene.kube.find("StatefulSet", "store-container")
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert scene.condition("Progressing") == ("True", "RollingOut")
    assert "keys or certificates are wrong" in scene.message("Progressing")


async def test_a_ring_object_that_is_gone_comes_back_as_it_was() -> None:
    spec = {"pools": [{**POOL, "replicas": 4}], "container": {"replicas": 4}}
    scene = await settled(spec=spec)
    name = "store-object-0"
    scene.kube.find("Ring", name)["spec"]["replicas"] = 4
    await scene.settle(12)
    laid_out = scene.rings_laid_out()["object-0"]
    lose(scene, "Ring", name)
    await scene.step()

    assert scene.kube.find("Ring", name)["spec"]["replicas"] == 4
    assert scene.rings_laid_out()["object-0"] == laid_out


async def test_a_cluster_that_is_made_again_without_its_part_power_takes_up_its_rings() -> None:
    scene = await settled()
    laid_out = dict(scene.rings_laid_out())
    for name in ("store-account", "store-container", "store-object-0"):
        lose(scene, "Ring", name)
    lose(scene, "ConfigMap", "store-accepted")
    scene.cluster["spec"]["rings"] = {"partPower": 14}
    await scene.settle()

    assert scene.condition("RingsBalanced") == ("True", "Balanced")
    assert scene.kube.find("Ring", "store-object-0")["spec"]["partPower"] == 6
    assert scene.rings_laid_out() == laid_out


@pytest.mark.parametrize("text", [None, "", "[]", '{"storageclusters": {}}'])
async def test_without_accepted_specs_a_cluster_whose_specs_are_wrong_is_left_as_it_is(text: str | None) -> None:
    scene = await settled(("StoragePolicy", "gold", GOLD))
    lose(scene, "StoragePolicy", "gold")
    if text is None:
        lose(scene, "ConfigMap", "store-accepted")
    else:
        scene.kube.find("ConfigMap", "store-accepted")["data"]["specs.json"] = text
    lose(scene, "Service", "store")
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "PolicyRemoved")
    assert "store" not in scene.kube.names("Service")


async def test_what_is_accepted_is_what_is_in_force() -> None:
    scene = await settled(("StoragePolicy", "gold", GOLD))
    lose(scene, "StoragePolicy", "gold")
    scene.cluster["spec"]["proxy"] = {"replicas": 4}
    await scene.step()
    specs = json.loads(scene.kube.find("ConfigMap", "store-accepted")["data"]["specs.json"])
    assert set(specs["storagepolicies"]) == {"gold"}
    assert specs["storageclusters"]["proxy"] == {"replicas": 4}
    assert set(specs["rings"]) == {f"store-{ring}" for ring in ("account", "container", "object-1")}


# --- what serves is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["scaled", "deleted"])
async def test_pods_that_somebody_took_away_are_missed_even_while_nothing_may_be_changed(how: str) -> None:
    scene = await settled()
    scene.cluster["spec"]["paused"] = True
    if how == "scaled":
        scene.kube.find("StatefulSet", "store-container")["spec"]["replicas"] = 0
        scene.live()
    else:
        lose(scene, "StatefulSet", "store-container")
    await scene.step()

    assert scene.condition("ContainersAvailable") == ("False", "PodsNotReady")
    assert scene.condition("Degraded") == ("True", "PodsNotReady")
    assert scene.condition("Ready")[0] == "False"

    scene.cluster["spec"]["paused"] = False
    await scene.settle()
    assert scene.condition("Ready") == ("True", "Available")
