"""Growing volumes, lost nodes, maintenance, drains and restarts pod by pod, as a real API server takes them."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet_operator.manifests import (
    BUDGET,
    CLUSTER,
    NODE,
    NODE_LOST_SINCE,
    POD,
    PV,
    PVC,
    STATEFUL_SET,
    STORAGE_CLASS,
    Kind,
    Manifest,
)
from swiftlet_operator.reports import RingReport
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver


async def settled(apiserver: ApiServer, kube: Counting, spec: str, storage_class: str = "fixed") -> Cluster:
    """A cluster at rest."""
    cluster = Cluster(apiserver, kube, spec)
    cluster.storage_class = storage_class
    await cluster.make()
    await cluster.settle()
    return cluster


async def find(cluster: Cluster, kind: Kind, name: str) -> Manifest:
    """A live object."""
    found = await cluster.kube.get(kind, cluster.namespace, name)
    assert found is not None, name
    return found


async def condition(cluster: Cluster, type_: str) -> tuple[str, str]:
    """Status and reason of one of the cluster's conditions."""
    live = await find(cluster, CLUSTER, "store")
    found = next(one for one in live["status"]["conditions"] if one["type"] == type_)
    return found["status"], found["reason"]


async def change(cluster: Cluster, spec: dict[str, Any]) -> None:
    """Edit the cluster's spec."""
    await cluster.kube.patch(CLUSTER, cluster.namespace, "store", {"spec": spec})


OF_ZONE = (("fast", 0), ("fast", 1), ("container", 0))
"""Pools and numbers of the pods that a zone of `three-zones` has."""


async def budget(cluster: Cluster) -> tuple[int, set[str]]:
    """How many pods with data may be away, and those that may go besides."""
    spec = (await find(cluster, BUDGET, "store-data"))["spec"]
    chosen = spec["selector"]["matchExpressions"]
    freed = {pod for one in chosen if one["operator"] == "NotIn" for pod in one["values"]}
    return spec["maxUnavailable"], freed


@pytest.mark.parametrize("may_grow", [True, False])
async def test_volumes_grow_where_their_class_lets_them(apiserver: ApiServer, kube: Counting, may_grow: bool) -> None:
    name = f"grows-{may_grow}".lower()
    head = {"apiVersion": STORAGE_CLASS.api_version, "kind": STORAGE_CLASS.kind, "metadata": {"name": name}}
    await kube.create({**head, "provisioner": "example.org/disks", "allowVolumeExpansion": may_grow})
    cluster = await settled(apiserver, kube, "minimal", name)
    pool = {"name": "disks", "replicas": 3, "storage": {"size": "20Gi"}}
    await change(cluster, {"pools": [pool]})
    written = await cluster.step()

    grown = [one for one in written if "persistentvolumeclaims" in one]
    claim = await find(cluster, PVC, "d0-store-disks-0")
    if not may_grow:
        assert grown == []
        assert await condition(cluster, "VolumesResized") == ("False", "ExpansionNotAllowed")
        assert await cluster.step() == []
        # What the message advises.
        await change(cluster, {"pools": [{**pool, "storage": {"size": "10Gi"}}]})
        await cluster.step()
        assert await condition(cluster, "VolumesResized") == ("True", "AsAsked")
        assert await condition(cluster, "SpecValid") == ("True", "Valid")
        return
    assert len(grown) == 3
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    await cluster.settle()
    assert await condition(cluster, "VolumesResized") == ("False", "Resizing")
    for ordinal in range(3):
        status = {"capacity": {"storage": "20Gi"}}
        await kube.patch(PVC, cluster.namespace, f"d0-store-disks-{ordinal}", {"status": status}, "status")
    await cluster.settle()
    assert await condition(cluster, "VolumesResized") == ("True", "AsAsked")


async def _bind_to_nodes(cluster: Cluster) -> None:
    """Volumes of the claims, each on the node of its pod."""
    for claim in await cluster.kube.list(PVC, cluster.namespace):
        pod = await find(cluster, POD, claim["metadata"]["name"].partition("-")[2])
        node = pod["spec"]["nodeName"]
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fixed",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        metadata = {"name": claim["spec"]["volumeName"]}
        await cluster.kube.create({"apiVersion": "v1", "kind": PV.kind, "metadata": metadata, "spec": spec})


async def test_pods_of_a_lost_node_are_made_anew_with_new_claims(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "minimal")
    await _bind_to_nodes(cluster)
    assert await cluster.step() == []
    node = await kube.get(NODE, "", "node-b")
    assert node is not None
    await kube.delete(NODE, "", "node-b", node["metadata"]["uid"])
    cluster.told.silent = {"store-disks-1", "store-container-1"}
    await cluster.step()

    claim = await find(cluster, PVC, "d0-store-disks-1")
    assert NODE_LOST_SINCE in claim["metadata"]["annotations"]
    assert await condition(cluster, "Degraded") == ("True", "NodeLost")
    cluster.now_s += 899
    assert await cluster.step() == []
    cluster.now_s += 1
    await cluster.step()

    for name in ("d0-store-disks-1", "db-store-container-1"):
        gone = await kube.get(PVC, cluster.namespace, name)
        assert gone is None or gone["metadata"].get("deletionTimestamp")
    assert await kube.get(POD, cluster.namespace, "store-disks-1") is None
    assert await kube.get(POD, cluster.namespace, "store-container-1") is None
    assert await kube.get(POD, cluster.namespace, "store-disks-0") is not None
    kept = await find(cluster, PVC, "d0-store-disks-0")
    assert not kept["metadata"].get("deletionTimestamp")


async def test_maintenance_opens_one_zone_and_closes_it_again(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "three-zones")
    await change(cluster, {"maintenance": {"zone": "b"}})
    await cluster.settle()
    assert await budget(cluster) == (0, {f"store-{pool}-b-{n}" for pool, n in OF_ZONE})
    assert await cluster.step() == []
    assert await condition(cluster, "Maintenance") == ("True", "ZoneMayBeDrained")

    await change(cluster, {"maintenance": None})
    await cluster.settle()
    assert await budget(cluster) == (1, set())


async def test_levels_and_transports_that_are_over_leave_the_status(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "minimal")
    cluster.told.full = {"store-disks-0/d0": 0.97, "store-disks-1/d0": 0.86}
    cluster.told.transports = {"store-disks-0": {"rdma": 1}}
    await cluster.step()
    status = (await find(cluster, CLUSTER, "store"))["status"]
    assert status["filling"] == {"store-disks-0/d0": "Full", "store-disks-1/d0": "NearFull"}
    assert status["transports"]["rdma"] == 1
    assert await condition(cluster, "CapacityAvailable") == ("False", "Full")
    assert await cluster.step() == []

    cluster.told.full, cluster.told.transports = {}, {}
    await cluster.step()
    status = (await find(cluster, CLUSTER, "store"))["status"]
    assert not status["filling"]
    assert "rdma" not in status["transports"]
    assert await cluster.step() == []


async def test_a_restart_goes_pod_by_pod_as_they_are_in_sync(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "minimal")
    await change(cluster, {"image": "swiftlet:next"})
    await cluster.step()
    sets = [await find(cluster, STATEFUL_SET, name) for name in ("store-container", "store-disks")]
    changed = [
        one["metadata"]["name"] for one in sets if "swiftlet:next" in str(one["spec"]["template"]["spec"]["containers"])
    ]
    assert len(changed) == 1
    name = changed[0]
    ring, device = ("object-0", "d0") if name == "store-disks" else ("container", "db")
    steps = []
    for updated in (1, 2, 3):
        await _revised(cluster, name, updated)
        cluster.told.said[f"{name}-{3 - updated}/{device}", ring] = RingReport(synced_at_s=0.0)
        await cluster.step()
        before = await _partition(cluster, name)
        cluster.told.said.clear()
        await cluster.step()
        steps.append((before, await _partition(cluster, name)))
    assert steps == [(2, 1), (1, 0), (0, 0)]


async def _partition(cluster: Cluster, name: str) -> int:
    live = await find(cluster, STATEFUL_SET, name)
    return int(live["spec"]["updateStrategy"]["rollingUpdate"]["partition"])


async def _revised(cluster: Cluster, name: str, updated: int) -> None:
    """What the StatefulSet's controller does: so many pods, from the last, are of the new revision."""
    for ordinal in range(3):
        label = {"controller-revision-hash": "new" if ordinal >= 3 - updated else "old"}
        change_ = {"metadata": {"labels": label}}
        await cluster.kube.patch(POD, cluster.namespace, f"{name}-{ordinal}", change_)
    live = await find(cluster, STATEFUL_SET, name)
    status = {
        "observedGeneration": live["metadata"]["generation"],
        "replicas": 3,
        "readyReplicas": 3,
        "updatedReplicas": updated,
        "currentRevision": "new" if updated == 3 else "old",
        "updateRevision": "new",
    }
    await cluster.kube.patch(STATEFUL_SET, cluster.namespace, name, {"status": status}, "status")


async def test_what_is_drained_is_told_and_then_at_rest(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "three-zones")
    await change(cluster, {"drain": ["store-fast-a-0/d1"]})
    cluster.now_s += 3600
    await cluster.settle()
    assert await condition(cluster, "Drained") == ("False", "Draining")
    assert await cluster.step() == []
    cluster.told.said["store-fast-a-0/d1", "object-0"] = RingReport(
        held=0, misplaced=0, behind=0, unchecked=0, ring_version=IN_SYNC.ring_version
    )
    await cluster.step()
    assert await condition(cluster, "Drained") == ("True", "Empty")
    assert await cluster.step() == []


async def cordon(cluster: Cluster, node: str, on: bool) -> None:
    """As kubectl does it."""
    await cluster.kube.patch(NODE, "", node, {"spec": {"unschedulable": on or None}})


async def test_cordoned_nodes_open_one_zone_after_the_other(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, "three-zones")
    assert await budget(cluster) == (1, set())
    nodes = {one["metadata"]["name"] for one in await kube.nodes(cordoned_only=False)}
    assert {"node-a", "node-b", "node-c"} <= nodes
    try:
        await cordon(cluster, "node-b", True)
        assert [one["metadata"]["name"] for one in await kube.nodes(cordoned_only=True)] == ["node-b"]
        await cluster.settle()
        opened = await budget(cluster)
        assert opened == (0, {f"store-{pool}-b-{n}" for pool, n in OF_ZONE})
        assert await condition(cluster, "NodesCordoned") == ("True", "DomainOpen")
        assert await cluster.step() == []

        await cordon(cluster, "node-a", True)
        await cluster.settle()
        assert await budget(cluster) == opened
        assert "zone a (node-a) waits for zone b" in await message(cluster, "NodesCordoned")

        await cordon(cluster, "node-b", False)
        await cluster.settle()
        assert (await budget(cluster))[1] >= {"store-fast-a-0", "store-fast-a-1", "store-fast-a-2"}
        await cordon(cluster, "node-a", False)
        await cluster.settle()
        assert await budget(cluster) == (1, set())
        assert await condition(cluster, "NodesCordoned") == ("False", "NoneCordoned")
    finally:
        for node in ("node-a", "node-b"):
            await cordon(cluster, node, False)


async def message(cluster: Cluster, type_: str) -> str:
    """What one of the cluster's conditions says to people."""
    live = await find(cluster, CLUSTER, "store")
    return str(next(one["message"] for one in live["status"]["conditions"] if one["type"] == type_))
