"""What conditions say of pods that don't run, the first start, and what is read and written meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from swiftlet_operator.manifests import Manifest
from swiftlet_operator.plan.trouble import START_LIMIT_S
from swiftlet_operator.plugin.findings import NOTE, Finding, findings, worst
from swiftlet_operator.plugin.picture import Picture
from swiftlet_operator.tests.test_trouble import NO_IMAGE, NO_MATCH, NO_ROOM, OVER_QUOTA, UNBOUND
from swiftlet_operator.tests.troubles import waiting
from swiftlet_operator.tests.worlds import KEY, START, Scene, settled

POOL = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi", "className": "nope"}}


def put_event(scene: Scene, kind: str, name: str, reason: str, message: str) -> None:
    """An event in the fake API server."""
    about = {"kind": kind, "name": name, "namespace": "data"}
    head = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.{reason}", "namespace": "data"}}
    scene.kube.put(
        {**head, "involvedObject": about, "reason": reason, "message": message, "lastTimestamp": moment(scene.now_s)}
    )


def moment(now_s: int) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def not_ready(scene: Scene, pod: str, **status: Any) -> Manifest:
    """Have a pod not be ready; `node=False` takes it off its node."""
    live = scene.kube.find("Pod", pod)
    if not status.pop("node", True):
        live["spec"].pop("nodeName", None)
    live["status"] = {"phase": "Pending", **status}
    return live


def unscheduled(message: str) -> list[dict[str, str]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def events_of_type(scene: Scene, type_: str) -> list[str]:
    """What was announced of the cluster."""
    found = [one for (kind, _, _), one in scene.kube.objects.items() if kind == "Event"]
    return [one["reason"] for one in found if one.get("type") == type_]


def starting(scene: Scene, **status: Any) -> None:
    """Pods and claims as they are shortly after they were made."""
    scene.live()
    for name in scene.kube.names("Pod"):
        not_ready(scene, name, **status)
    for name in [name for (kind, _, name) in scene.kube.objects if kind in ("StatefulSet", "Deployment")]:
        for kind in ("StatefulSet", "Deployment"):
            if live := scene.kube.objects.get((kind, "data", name)):
                live["status"]["readyReplicas"] = 0


async def test_the_first_start_is_told_as_starting_without_an_alarm() -> None:
    scene = Scene()
    for _ in range(2):
        await scene.step()
        assert scene.condition("PodsHealthy") == ("Unknown", "Starting")
        assert scene.condition("Degraded")[0] == "False"
    starting(scene, containerStatuses=[waiting("ContainerCreating")])
    for name in ("store-disks-0", "store-disks-1"):
        put_event(scene, "Pod", name, "Pulling", 'Pulling image "swiftlet:test"')
    await scene.step()

    assert scene.condition("Ready") == ("False", "Starting")
    assert scene.condition("StorageAvailable") == ("False", "Starting")
    assert scene.condition("PodsHealthy") == ("Unknown", "Starting")
    assert scene.condition("Degraded") == ("False", "Starting")
    assert "2 of 3 pods of pool disks are pulling the image" in scene.message("Ready")
    assert "3 of 3 container servers are being started" in scene.message("ContainersAvailable")
    assert events_of_type(scene, "Warning") == []

    await scene.settle()
    assert scene.condition("Ready") == ("True", "Available")
    assert scene.condition("PodsHealthy") == ("True", "NoneInTrouble")
    assert events_of_type(scene, "Warning") == []


def picture(scene: Scene) -> Picture:
    """The cluster as the plugin would see it."""

    def all_of(kind: str) -> tuple[Manifest, ...]:
        return tuple(one for (k, _, _), one in scene.kube.objects.items() if k == kind)

    return Picture(
        cluster=scene.cluster,
        ring_objects=all_of("Ring"),
        stateful_sets=all_of("StatefulSet"),
        deployments=all_of("Deployment"),
        pods=all_of("Pod"),
        nodes=all_of("Node"),
        claims=all_of("PersistentVolumeClaim"),
    )


def about_pods(scene: Scene) -> list[Finding]:
    """What the plugin finds, but for what stays so without a recovery key."""
    return [one for one in findings(picture(scene)) if "NoRecoveryKey" not in one.text]


async def test_the_plugin_finds_nothing_wrong_with_a_first_start_and_nothing_at_all_afterwards() -> None:
    scene = Scene()
    await scene.step()
    for _ in range(2):
        found = about_pods(scene)
        assert {one.severity for one in found} == {NOTE}, found
        assert worst(found) == 0
        starting(scene, containerStatuses=[waiting("ContainerCreating")])
        await scene.step()
    await scene.settle()
    assert [one for one in about_pods(scene) if "report" not in one.text] == []


async def test_a_node_that_is_lost_during_the_first_start_is_told_all_the_same() -> None:
    scene = Scene()
    await scene.step()
    starting(scene, containerStatuses=[waiting("ContainerCreating")])
    del scene.kube.objects["Node", "", "n1"]
    await scene.step()
    assert scene.condition("Degraded") == ("True", "NodeLost")


async def test_after_the_cluster_was_ready_once_pods_that_are_away_are_no_start() -> None:
    scene = await settled()
    assert scene.cluster["status"]["firstReadyTime"] == moment(START)

    scene.now_s += 100
    starting(scene, containerStatuses=[waiting("ContainerCreating")])
    # As another operator, which remembers nothing.
    await scene.step()

    assert scene.condition("Degraded") == ("True", "PodsNotReady")
    assert scene.condition("Ready") == ("False", "PodsNotReady")
    assert scene.cluster["status"]["firstReadyTime"] == moment(START)
    assert "3 of 3 pods of pool disks are being started" in scene.message("PodsHealthy")


@pytest.mark.parametrize("damaged", [None, "", 5, ["x"]])
async def test_a_status_that_has_lost_its_first_time_gets_it_again_once_the_cluster_is_ready(damaged: object) -> None:
    scene = await settled()
    scene.now_s += 60
    scene.cluster["status"]["firstReadyTime"] = damaged
    await scene.step()
    assert scene.condition("Ready")[0] == "True"
    assert scene.cluster["status"]["firstReadyTime"] == moment(scene.now_s)


async def test_a_start_that_takes_too_long_is_none_any_more() -> None:
    scene = Scene()
    await scene.step()
    starting(scene, containerStatuses=[waiting("ContainerCreating")])
    scene.now_s += START_LIMIT_S - 1
    await scene.step()
    assert scene.condition("Ready") == ("False", "Starting")

    scene.now_s += 1
    await scene.step()
    assert scene.condition("Ready")[0] == "False"
    assert scene.condition("Ready")[1] != "Starting"
    assert scene.condition("PodsHealthy")[0] == "True"


async def test_a_start_that_waits_for_a_correction_begins_with_that() -> None:
    scene = Scene({"pools": [{**POOL, "replicas": 2}]})
    await scene.step()
    assert scene.condition("SpecValid")[0] == "False"
    assert scene.condition("PodsHealthy")[0] == "True"

    scene.now_s += 2 * START_LIMIT_S
    scene.cluster["spec"]["pools"][0]["replicas"] = 3
    await scene.step()
    scene.now_s += 60
    await scene.step()
    assert scene.condition("PodsHealthy") == ("Unknown", "Starting")


async def test_a_class_that_is_not_there_is_told_at_once_and_gone_when_it_is_there() -> None:
    scene = Scene({"pools": [POOL]})
    await scene.step()
    without_volumes(scene)
    put_event(
        scene,
        "PersistentVolumeClaim",
        "d0-store-disks-0",
        "ProvisioningFailed",
        'storageclass.storage.k8s.io "nope" not found',
    )
    await scene.step()

    for type_ in ("Ready", "StorageAvailable", "PodsHealthy"):
        assert scene.condition(type_) == ("False", "NoSuchStorageClass")
        assert 'storageclass.storage.k8s.io "nope" not found' in scene.message(type_)
        assert "spec.pools[name=disks].storage.className to one that exists (standard)" in scene.message(type_)
        assert "d0-store-disks-0, d0-store-disks-1, d0-store-disks-2" in scene.message(type_)
    assert scene.condition("ContainersAvailable") == ("False", "Starting")
    assert scene.condition("Degraded") == ("False", "Starting")

    scene.storage_class("nope", may_grow=True)
    for name in scene.kube.names("PersistentVolumeClaim"):
        scene.kube.find("PersistentVolumeClaim", name)["status"] = {"phase": "Bound"}
    await scene.settle()
    assert scene.condition("Ready") == ("True", "Available")
    assert scene.condition("PodsHealthy") == ("True", "NoneInTrouble")


def without_volumes(scene: Scene) -> None:
    """No claim has got a volume, and no pod a node."""
    starting(scene, node=False, conditions=unscheduled(UNBOUND))
    for name in scene.kube.names("PersistentVolumeClaim"):
        live = scene.kube.find("PersistentVolumeClaim", name)
        live["status"] = {"phase": "Pending"}
        live["spec"].pop("volumeName", None)


async def test_a_class_can_be_corrected_until_there_is_a_volume() -> None:
    scene = Scene({"pools": [POOL]})
    await scene.step()
    without_volumes(scene)
    await scene.step()
    scene.cluster["spec"]["pools"][0]["storage"]["className"] = "standard"

    written = await scene.step()
    assert scene.condition("SpecValid")[0] == "True"
    claims = [f"delete PersistentVolumeClaim/d0-store-disks-{index}" for index in range(3)]
    assert [one for one in written if one.startswith("delete ")] == ["delete StatefulSet/store-disks", *claims]
    assert "apply StatefulSet/store-disks" not in written
    # The set's pods go with it.
    for index in range(3):
        del scene.kube.objects["Pod", "data", f"store-disks-{index}"]

    assert "apply StatefulSet/store-disks" in await scene.step()
    await scene.settle()
    template = scene.kube.find("StatefulSet", "store-disks")["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["storageClassName"] == "standard"
    assert scene.condition("Ready") == ("True", "Available")


async def test_a_class_of_volumes_that_there_are_is_not_changed() -> None:
    scene = await settled({"pools": [POOL]})
    scene.cluster["spec"]["pools"][0]["storage"]["className"] = "standard"
    written = await scene.step()

    assert scene.condition("SpecValid") == ("False", "StorageClassChanged")
    assert "storage.className of pool disks can't change, for there are volumes: set it to nope" in scene.message(
        "SpecValid"
    )
    assert not [one for one in written if "StatefulSet" in one or "Claim" in one]


async def test_a_pod_on_a_node_keeps_its_class_even_when_nobody_knows_its_claims() -> None:
    scene = await settled({"pools": [POOL]})
    for name in scene.kube.names("PersistentVolumeClaim"):
        del scene.kube.objects["PersistentVolumeClaim", "data", name]
    scene.cluster["spec"]["pools"][0]["storage"]["className"] = "standard"
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "StorageClassChanged")


async def test_a_zone_that_no_node_has_is_named_with_those_that_there_are() -> None:
    scene = Scene({"pools": [{**POOL, "zones": ["a", "b", "c"]}]})
    scene.kube.find("Node", "n2")["metadata"]["labels"] = {"topology.kubernetes.io/zone": "d"}
    await scene.step()
    starting(scene)
    live = not_ready(scene, "store-disks-c-0", node=False, conditions=unscheduled(NO_MATCH))
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["c"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    live["spec"]["affinity"] = {"nodeAffinity": required}
    await scene.step()

    assert scene.condition("StorageAvailable") == ("False", "NoSuchZone")
    assert "spec.pools[name=disks].zones (those are a, b, d)" in scene.message("Ready")


async def test_a_running_cluster_says_why_a_copy_is_missing() -> None:
    scene = await settled()
    scene.now_s += 1000
    scene.live()
    not_ready(scene, "store-disks-1", node=False, conditions=unscheduled(NO_ROOM))
    scene.kube.find("StatefulSet", "store-disks")["status"]["readyReplicas"] = 2
    again_in_s = await scene.reconciler.reconcile(KEY)

    assert scene.condition("Ready") == ("True", "Available")
    assert scene.condition("StorageAvailable") == ("True", "MajorityReady")
    assert scene.condition("Degraded") == ("True", "PodsNotReady")
    assert scene.condition("PodsHealthy") == ("False", "Unschedulable")
    for type_ in ("StorageAvailable", "Degraded", "PodsHealthy"):
        assert "lower spec.pools[name=disks].resources (requests of cpu, memory)" in scene.message(type_)
    assert "Unschedulable" in events_of_type(scene, "Warning")
    assert again_in_s is not None
    assert again_in_s <= 30


async def test_proxies_that_find_no_image_are_told_by_the_condition_of_proxies() -> None:
    scene = await settled()
    labels = {"app.kubernetes.io/name": "swiftlet", "app.kubernetes.io/instance": "store"}
    labels |= {"app.kubernetes.io/managed-by": "swiftlet-operator", "app.kubernetes.io/component": "proxy"}
    status = {"phase": "Pending", "containerStatuses": [waiting("ErrImagePull", NO_IMAGE, "proxy")]}
    metadata = {"name": "store-proxy-1", "namespace": "data", "labels": labels}
    scene.kube.put(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n0"}, "status": status}
    )
    scene.kube.find("Deployment", "store-proxy")["status"] = {"readyReplicas": 0}
    await scene.step()

    assert scene.condition("ProxiesAvailable") == ("False", "ImagePull")
    assert scene.condition("StorageAvailable") == ("True", "AllReady")
    assert scene.message("Ready").startswith("ProxiesAvailable: ImagePull (store-proxy-1): failed to pull")
    assert "spec.imagePullSecrets" in scene.message("Ready")


async def test_a_refused_pod_is_told_by_its_statefulset() -> None:
    scene = await settled()
    del scene.kube.objects["Pod", "data", "store-disks-2"]
    scene.kube.find("StatefulSet", "store-disks")["status"]["readyReplicas"] = 2
    text = f"create Pod store-disks-2 in StatefulSet store-disks failed error: {OVER_QUOTA}"
    put_event(scene, "StatefulSet", "store-disks", "FailedCreate", text)
    await scene.step()

    assert scene.condition("PodsHealthy") == ("False", "QuotaExceeded")
    assert f"QuotaExceeded (store-disks): {OVER_QUOTA}" in scene.message("PodsHealthy")


async def test_at_rest_nothing_is_asked_and_a_lasting_trouble_is_written_once() -> None:
    scene = await settled()
    scene.kube.asked.clear()
    assert await scene.step() == []
    assert scene.kube.asked == []

    not_ready(scene, "store-disks-1", containerStatuses=[waiting("ContainerCreating")])
    scene.kube.find("StatefulSet", "store-disks")["status"]["readyReplicas"] = 2
    assert await scene.step() != []
    assert scene.kube.asked == ["Pod/store-disks-1"]
    scene.now_s += 60
    assert await scene.step() == []
