"""Pods, claims and events on a real API server, written as schedulers, kubelets and controllers write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.kube import connected
from swiftlet_operator.manifests import CLUSTER, POD, PVC, STATEFUL_SET, Manifest, name_of
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.reconcile import Reconciler
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.middleman import Middleman
from swiftlet_operator.tests.test_reconcile_on_apiserver import DEFAULTS, Cluster, Counting, kube
from swiftlet_operator.tests.test_robust_on_apiserver import _granted, chart_rules, role, without
from swiftlet_operator.tests.test_trouble import NO_IMAGE, NO_ROOM, NO_SECRET, OVER_QUOTA, UNBOUND
from swiftlet_operator.tests.troubles import waiting

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver

IMAGE = {"image": "swiftlet:test", "imageID": "", "restartCount": 0}
"""What the status of a container has to have besides its state."""


class Stage:
    """A cluster, and what is written about its pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.kube, self.namespace = cluster, cluster.kube, cluster.namespace

    async def condition(self, type_: str) -> dict[str, Any]:
        """A condition of the cluster."""
        live = await self.kube.get(CLUSTER, self.namespace, "store")
        assert live is not None
        found: dict[str, Any] = next(one for one in live["status"]["conditions"] if one["type"] == type_)
        return found

    async def told(self, type_: str) -> tuple[str, str]:
        """Its status and reason."""
        found = await self.condition(type_)
        return found["status"], found["reason"]

    async def without_pods(self, name: str) -> None:
        """A StatefulSet whose pods and claims are gone."""
        for kind in (POD, PVC):
            for one in await self.kube.list(kind, self.namespace):
                if name_of(one).partition("-")[2].startswith(name) or name_of(one).startswith(name):
                    await self.kube.delete(kind, self.namespace, name_of(one), one["metadata"]["uid"], 0)
        await self.ready_replicas(name, 0)

    async def ready_replicas(self, name: str, count: int) -> None:
        await self.kube.patch(STATEFUL_SET, self.namespace, name, {"status": {"readyReplicas": count}}, "status")

    async def pod(self, name: str, node: str | None, status: Manifest) -> Manifest:
        """A new pod of a StatefulSet."""
        owner = await self.kube.get(STATEFUL_SET, self.namespace, name.rpartition("-")[0])
        assert owner is not None
        labels = owner["spec"]["template"]["metadata"]["labels"]
        spec = {"containers": [{"name": "object", "image": "swiftlet:test"}], **({"nodeName": node} if node else {})}
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        made = await self.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await self.kube.patch(POD, self.namespace, name, {"status": {"phase": "Pending", **status}}, "status")
        return made

    async def claim(self, pod: str, class_name: str) -> Manifest:
        """A pod's claim without a volume."""
        owner = await self.kube.get(STATEFUL_SET, self.namespace, pod.rpartition("-")[0])
        assert owner is not None
        template = owner["spec"]["volumeClaimTemplates"][0]
        metadata = {**template["metadata"], "name": f"d0-{pod}", "namespace": self.namespace}
        spec = {**template["spec"], "storageClassName": class_name}
        return await self.kube.create(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )

    async def event(self, about: Manifest, kind: str, reason: str, message: str, number: int = 0) -> None:
        """An event as a component of Kubernetes writes it."""
        name, now = name_of(about), rfc3339(datetime.fromtimestamp(self.cluster.now_s, UTC))
        await self.kube.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{reason.lower()}.{number}", "namespace": self.namespace},
                "involvedObject": {
                    "kind": kind,
                    "name": name,
                    "namespace": self.namespace,
                    "uid": about["metadata"]["uid"],
                },
                "type": "Warning",
                "reason": reason,
                "message": message,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )


def unscheduled(message: str) -> Manifest:
    fact = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [fact]}


def container(found: Manifest) -> Manifest:
    return {"containerStatuses": [{**IMAGE, **found}]}


async def stage(apiserver: ApiServer, kube: Counting) -> Stage:
    """A new cluster that has been looked at twice: its StatefulSets are there, and no pod."""
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    for _ in range(2):
        await cluster.step()
    return Stage(cluster)


async def test_the_first_start_is_told_and_remembered(apiserver: ApiServer, kube: Counting) -> None:
    scene = await stage(apiserver, kube)
    assert await scene.told("Ready") == ("False", "Starting")
    assert await scene.told("PodsHealthy") == ("Unknown", "Starting")
    assert "3 of 3 pods of pool disks have not been created yet" in (await scene.condition("PodsHealthy"))["message"]

    await scene.cluster.live()
    await scene.cluster.settle()
    await scene.cluster.serve()
    await scene.cluster.step()
    assert await scene.told("Ready") == ("True", "Available")
    live = await kube.get(CLUSTER, scene.namespace, "store")
    assert live is not None
    assert live["status"]["firstReadyTime"] == rfc3339(datetime.fromtimestamp(scene.cluster.now_s, UTC))

    await scene.without_pods("store-disks")
    scene.cluster.now_s += 60
    again = Reconciler(kube, DEFAULTS, Passwords(), lambda: None, lambda: scene.cluster.now_s, scene.cluster.told)
    await again.reconcile(scene.cluster.key)
    assert await scene.told("Degraded") == ("True", "PodsNotReady")
    assert await scene.told("Ready") == ("False", "PodsNotReady")


async def test_a_class_that_is_not_there_an_image_that_is_not_there_and_no_room(
    apiserver: ApiServer, kube: Counting
) -> None:
    scene = await stage(apiserver, kube)
    claim = await scene.claim("store-disks-0", "nope")
    await scene.event(
        claim, "PersistentVolumeClaim", "ProvisioningFailed", 'storageclass.storage.k8s.io "nope" not found'
    )
    await scene.pod("store-disks-0", None, unscheduled(UNBOUND))
    await scene.pod("store-disks-1", "node-b", container(waiting("ErrImagePull", NO_IMAGE)))
    await scene.pod("store-disks-2", None, unscheduled(NO_ROOM))
    await scene.cluster.step()

    for type_ in ("StorageAvailable", "PodsHealthy", "Ready"):
        found = await scene.condition(type_)
        assert (found["status"], found["reason"]) == ("False", "NoSuchStorageClass")
        for text in ('"nope" not found', "spec.pools[name=disks].storage.className", "ImagePull (store-disks-1)"):
            assert text in found["message"], type_
    message = (await scene.condition("PodsHealthy"))["message"]
    assert "spec.imagePullSecrets" in message
    assert "Unschedulable (store-disks-2)" in message
    assert await scene.told("Degraded") == ("False", "Starting")
    assert await scene.told("ContainersAvailable") == ("False", "Starting")
    for _ in range(3):
        scene.cluster.now_s += 15
        assert await scene.cluster.step() == []


async def test_what_only_events_say_is_found_among_many_others(apiserver: ApiServer, kube: Counting) -> None:
    scene = await stage(apiserver, kube)
    creating = container(waiting("ContainerCreating"))
    pod = await scene.pod("store-disks-0", "node-a", creating)
    other = await scene.pod("store-container-0", "node-a", creating)
    for number in range(120):
        await scene.event(other, "Pod", "Scheduled", "Successfully assigned", number)
    await scene.event(pod, "Pod", "FailedMount", NO_SECRET)
    owner = await kube.get(STATEFUL_SET, scene.namespace, "store-container")
    assert owner is not None
    text = f"create Pod store-container-1 in StatefulSet store-container failed error: {OVER_QUOTA}"
    await scene.event(owner, "StatefulSet", "FailedCreate", text)

    # Long enough after the pods were made, which the API server has dated.
    scene.cluster.now_s += 120
    await scene.cluster.step()

    assert await scene.told("StorageAvailable") == ("False", "Mount")
    assert NO_SECRET in (await scene.condition("StorageAvailable"))["message"]
    assert await scene.told("ContainersAvailable") == ("False", "QuotaExceeded")
    assert "spec.container.resources" in (await scene.condition("ContainersAvailable"))["message"]
    assert len(await kube.events(scene.namespace, "Pod", "store-container-0")) == 100


@pytest.mark.parametrize("may_list", [True, False])
async def test_with_the_charts_rule_events_are_read_and_without_it_the_rest_goes_on(
    apiserver: ApiServer, kube: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_list: bool
) -> None:
    scene = await stage(apiserver, kube)
    pod = await scene.pod("store-disks-0", "node-a", container(waiting("ContainerCreating")))
    await scene.event(pod, "Pod", "FailedMount", NO_SECRET)
    await scene.pod("store-disks-1", None, unscheduled(NO_ROOM))
    scene.cluster.now_s += 120
    rules = chart_rules() if may_list else without(chart_rules(), "events", "list")
    token = await role(apiserver, scene.namespace, rules)
    await _granted(apiserver, scene.namespace)

    async with Middleman(apiserver, tmp_path / "limited", token).running() as limited:
        monkeypatch.setenv("KUBECONFIG", str(limited.kubeconfig))
        async with connected(30.0) as theirs:
            clock = scene.cluster
            reconciler = Reconciler(theirs, DEFAULTS, Passwords(), lambda: None, lambda: clock.now_s, clock.told)
            await reconciler.reconcile(scene.cluster.key)

    message = (await scene.condition("PodsHealthy"))["message"]
    assert "Unschedulable (store-disks-1)" in message
    assert ("Mount (store-disks-0)" in message) == may_list


async def test_a_class_that_is_corrected_has_the_statefulset_made_anew(apiserver: ApiServer, kube: Counting) -> None:
    scene = await stage(apiserver, kube)
    before = await kube.get(STATEFUL_SET, scene.namespace, "store-disks")
    assert before is not None
    await scene.claim("store-disks-0", "nope")
    await scene.pod("store-disks-0", None, unscheduled(UNBOUND))
    pool = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi", "className": "fast"}}
    await kube.patch(CLUSTER, scene.namespace, "store", {"spec": {"pools": [pool]}})

    for _ in range(3):
        await scene.cluster.step()

    made = await kube.get(STATEFUL_SET, scene.namespace, "store-disks")
    assert made is not None
    assert made["metadata"]["uid"] != before["metadata"]["uid"]
    assert made["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    # Without controllers nobody takes its finalizer away.
    claim = await kube.get(PVC, scene.namespace, "d0-store-disks-0")
    assert claim is None or claim["metadata"]["deletionTimestamp"]
    assert await scene.told("SpecValid") == ("True", "Valid")
    assert await scene.cluster.step() == []
