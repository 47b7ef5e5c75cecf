"""What the operator does with what pods report: whole reconciles against an API server in memory.

The faults: pods that say nothing, devices that are behind or failed, nodes that are gone, and one pod that is broken
for good, which must never stop what would cure it.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from swiftlet.crd.conditions import rfc3339
from swiftlet.ring import codec
from swiftlet_operator.manifests import NODE_LOST_SINCE, PV, Kind, Manifest
from swiftlet_operator.problems import KubeForbidden
from swiftlet_operator.reports import RingReport
from swiftlet_operator.tests import worlds
from swiftlet_operator.tests.reporters import IN_SYNC, NEWEST
from swiftlet_operator.tests.worlds import SMALL_RINGS, START, Scene

HOUR = 3600
POOL: Manifest = {"name": "disks", "replicas": 5, "storage": {"size": "10Gi"}}
EMPTY = RingReport(held=0, misplaced=0, behind=0, unchecked=0, ring_version=NEWEST)
FILLING = RingReport(held=9, misplaced=0, behind=7, unchecked=0, ring_version=NEWEST)
ALONE = RingReport(held=9, misplaced=0, behind=0, unchecked=4, ring_version=NEWEST, synced_at_s=START + 1.0)
"""In order but for a peer that can't be reached."""
ZONES = "abc"


async def settled(spec: Any = None) -> Scene:
    """A cluster that runs."""
    return await worlds.settled(spec or {"pools": [POOL]})


def in_ring(scene: Scene, ring: str = "object-0") -> dict[str, float]:
    """Weights of the published ring's devices that have partitions, by name."""
    chunk = scene.kube.find("ConfigMap", f"store-ring-{ring}-0")["binaryData"]["chunk"]
    found = codec.join([base64.b64decode(chunk)])
    held = {id_ for row in found.rows for id_ in row}
    return {one.name: one.weight for one in found.devices if one is not None and one.id in held}


def members(scene: Scene, ring: str = "object-0") -> set[str]:
    """All devices of the published ring."""
    chunk = scene.kube.find("ConfigMap", f"store-ring-{ring}-0")["binaryData"]["chunk"]
    return {one.name for one in codec.join([base64.b64decode(chunk)]).devices if one is not None}


def version(scene: Scene, ring: str = "object-0") -> int:
    """The ring's version as it is told."""
    return int(scene.kube.find("Ring", f"store-{ring}")["status"]["version"])


def break_pod(scene: Scene, name: str, *, silent: bool = True) -> None:
    """A pod that is not ready, and says nothing."""
    pod = scene.kube.find("Pod", name)
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    owner = scene.kube.find("StatefulSet", name.rpartition("-")[0])
    owner["status"]["readyReplicas"] = owner["spec"]["replicas"] - 1
    if silent:
        scene.told.silent.add(name)


def applied(written: list[str]) -> list[str]:
    """The StatefulSets among what was written."""
    return [one.partition("/")[2] for one in written if one.startswith("apply StatefulSet")]


# --- rebalances ---------------------------------------------------------------------------------------------------


async def test_a_rebalance_waits_for_devices_that_are_behind_and_names_them() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["weight"] = 20
    scene.cluster["spec"]["pools"].append({**POOL, "name": "more", "weight": 40})
    for index in range(5):
        scene.told.said[f"store-disks-{index}/d0", "object-0"] = FILLING
    scene.now_s += 2 * HOUR
    for _ in range(2):
        await scene.step()
        scene.live()
    assert version(scene) == 1
    assert "store-disks-0/d0, store-disks-1/d0, store-disks-2/d0 and 2 more" in scene.message("RingsBalanced")

    scene.told.said.clear()
    scene.told.silent = {"store-disks-3"}
    await scene.step()
    assert version(scene) == 1
    assert "until store-disks-3/d0 are in sync" in scene.message("RingsBalanced")

    scene.told.silent.clear()
    await scene.step()
    assert version(scene) == 2


async def test_reports_of_an_older_ring_or_an_older_round_do_not_count() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["weight"] = 20
    scene.cluster["spec"]["pools"][0]["replicas"] = 6
    await scene.step()
    scene.live()
    scene.now_s += 2 * HOUR
    for report in (replace(IN_SYNC, ring_version=0), replace(IN_SYNC, synced_at_s=START - 1.0)):
        scene.told.rounds = report
        await scene.step()
        assert version(scene) == 1

    scene.told.rounds = IN_SYNC
    await scene.step()
    assert version(scene) == 2


@pytest.mark.parametrize("cure", ["drain", "spec"])
async def test_a_pod_that_is_broken_for_good_is_drained_away(cure: str) -> None:
    scene = await settled()
    scene.told.rounds = ALONE
    break_pod(scene, "store-disks-4")
    if cure == "drain":
        scene.cluster["spec"]["drain"] = ["store-disks-4"]
    else:
        scene.cluster["spec"]["pools"][0]["replicas"] = 4
    scene.now_s += 2 * HOUR
    await scene.step()

    assert version(scene) == 2
    assert "store-disks-4/d0" not in in_ring(scene)
    assert len(in_ring(scene)) == 4


async def test_a_broken_pod_that_nobody_named_stops_rebalances_and_is_named_first() -> None:
    scene = await settled()
    scene.told.rounds = ALONE
    break_pod(scene, "store-disks-4")
    scene.cluster["spec"]["pools"].append({**POOL, "name": "more"})
    await scene.step()
    scene.live()
    break_pod(scene, "store-disks-4")
    scene.now_s += 2 * HOUR
    await scene.step()

    assert version(scene) == 1
    assert "until store-disks-4/d0, store-disks-0/d0" in scene.message("RingsBalanced")


async def test_draining_away_waits_for_peers_that_lack_something() -> None:
    scene = await settled()
    break_pod(scene, "store-disks-4")
    scene.told.rounds = replace(ALONE, behind=3)
    scene.cluster["spec"]["drain"] = ["store-disks-4"]
    scene.now_s += 2 * HOUR
    await scene.step()
    assert version(scene) == 1


# --- devices and pods that go -------------------------------------------------------------------------------------


async def shrunk(scene: Scene) -> None:
    """Five pods become four, the fifth is drained."""
    scene.cluster["spec"]["pools"][0]["replicas"] = 4
    for _ in range(3):
        scene.now_s += HOUR
        await scene.step()
        scene.live()
    assert "store-disks-4/d0" not in in_ring(scene)


async def test_a_device_leaves_when_it_says_that_it_is_empty() -> None:
    scene = await settled()
    await shrunk(scene)
    device = "store-disks-4/d0"
    for wrong in (replace(EMPTY, held=1), replace(EMPTY, ring_version=version(scene) - 1)):
        scene.told.said[device, "object-0"] = wrong
        scene.now_s += HOUR
        await scene.step()
        assert device in members(scene)
    scene.told.said[device, "object-0"] = EMPTY
    scene.told.pending[device] = 2
    await scene.step()
    assert device in members(scene)
    assert scene.condition("ScaleInBlocked") == ("True", "AwaitingEmpty")

    scene.told.pending[device] = 0
    await scene.step()
    assert device not in members(scene)


async def test_a_pod_goes_when_all_services_use_the_ring_without_it() -> None:
    scene = await settled()
    await shrunk(scene)
    scene.told.said["store-disks-4/d0", "object-0"] = EMPTY
    scene.now_s += HOUR
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5

    scene.told.versions["store-disks-1"] = version(scene) - 1
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5
    assert scene.condition("ScaleInBlocked") == ("True", "AwaitingServices")
    assert "store-disks-1" in scene.message("ScaleInBlocked")

    scene.told.versions["store-disks-1"] = version(scene)
    scene.told.silent = {"store-disks-2"}
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5

    scene.told.silent = set()
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 4
    await scene.settle()
    assert scene.condition("ScaleInBlocked") == ("False", "NothingToDrain")


async def test_a_broken_pod_elsewhere_does_not_stop_scale_in() -> None:
    scene = await settled()
    await shrunk(scene)
    scene.told.said["store-disks-4/d0", "object-0"] = EMPTY
    scene.now_s += HOUR
    await scene.step()
    break_pod(scene, "store-container-2")
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 4


# --- spec.drain ---------------------------------------------------------------------------------------------------


async def test_what_is_named_is_drained_while_it_is_named_and_comes_back_step_by_step() -> None:
    scene = await settled()
    scene.cluster["spec"]["drain"] = ["store-disks-1/d0"]
    scene.now_s += HOUR
    await scene.step()
    assert "store-disks-1/d0" not in in_ring(scene)
    assert "store-disks-1/d0" in members(scene)
    assert scene.condition("Drained") == ("False", "Draining")

    scene.told.said["store-disks-1/d0", "object-0"] = EMPTY
    await scene.step()
    assert scene.condition("Drained") == ("True", "Empty")
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5
    for _ in range(5):
        scene.now_s += HOUR
        assert applied(await scene.step()) == []

    scene.told.said.clear()
    scene.cluster["spec"]["drain"] = []
    weights = []
    for _ in range(4):
        scene.now_s += HOUR
        await scene.step()
        weights.append(in_ring(scene)["store-disks-1/d0"])
    assert weights == [2.5, 5, 7.5, 10]
    assert scene.condition("Drained") == ("False", "NotWanted")


async def test_not_more_is_drained_than_replicas_need() -> None:
    scene = await settled()
    scene.cluster["spec"]["drain"] = [f"store-disks-{index}" for index in range(3)]
    scene.now_s += HOUR
    await scene.step()
    assert len(in_ring(scene)) == 5
    assert scene.condition("RingsBalanced") == ("False", "TooFewDevices")


async def test_a_name_that_nobody_has_is_told() -> None:
    scene = await settled()
    scene.cluster["spec"]["drain"] = ["store-disks-9"]
    await scene.step()
    assert scene.condition("Drained") == ("False", "NameUnknown")


# --- restarts -----------------------------------------------------------------------------------------------------


async def test_a_pod_that_says_nothing_stops_the_next_zone_and_is_named() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    scene.live()
    scene.told.silent = {"store-fast-a-0"}
    assert applied(await scene.step()) == []
    assert "store-fast-a-0 does not say how it is" in scene.message("Progressing")
    assert scene.condition("Degraded") == ("True", "NotInSync")

    scene.told.silent = set()
    assert applied(await scene.step()) == ["store-fast-b"]


async def test_a_broken_zone_is_changed_first_and_stops_the_others_until_it_is_cured() -> None:
    scene = await settled("three-zones")
    break_pod(scene, "store-fast-b-1")
    scene.told.rounds = ALONE
    scene.cluster["spec"]["image"] = "swiftlet:next"
    assert applied(await scene.step()) == ["store-fast-b"]
    scene.live()
    break_pod(scene, "store-fast-b-1")
    assert applied(await scene.step()) == []
    assert "store-fast-b-1 is not ready" in scene.message("Progressing")


async def test_a_broken_pod_that_was_drained_stops_nobody() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["drain"] = ["store-fast-b-1"]
    break_pod(scene, "store-fast-b-1")
    scene.told.rounds = ALONE
    scene.now_s += HOUR
    await scene.step()
    assert not any(name.startswith("store-fast-b-1/") for name in in_ring(scene))
    scene.told.rounds = IN_SYNC
    scene.cluster["spec"]["image"] = "swiftlet:next"
    order = []
    for _ in range(8):
        order += applied(await scene.step())
        scene.live()
        break_pod(scene, "store-fast-b-1")
    assert sorted(order) == sorted([*(f"store-fast-{z}" for z in ZONES), *(f"store-container-{z}" for z in ZONES)])


async def test_pods_too_old_to_report_are_changed_one_domain_after_the_other() -> None:
    scene = await settled("three-zones")
    pods = {name for name in scene.kube.names("Pod") if "-fast-" in name or "-container-" in name}
    scene.told.silent = set(pods)
    scene.cluster["spec"]["image"] = "swiftlet:next"
    order = []
    for _ in range(8):
        written = applied(await scene.step())
        assert len(written) <= 1
        order += written
        scene.live()
        if written:
            assert applied(await scene.step()) == []
            scene.told.silent -= {name for name in pods if name.rpartition("-")[0] == written[0]}
    assert len(order) == 6


async def test_pods_in_different_zones_of_one_statefulset_go_one_by_one() -> None:
    scene = await settled({"pools": [{**POOL, "replicas": 3}], "rings": SMALL_RINGS})
    scene.cluster["spec"]["image"] = "swiftlet:next"
    first = await scene.step()
    assert "store-disks" in applied(first) or "store-container" in applied(first)
    name = applied(first)[0]
    live = scene.kube.find("StatefulSet", name)

    def partition() -> int:
        return int(live_now()["spec"]["updateStrategy"]["rollingUpdate"]["partition"])

    def live_now() -> Manifest:
        return scene.kube.find("StatefulSet", name)

    def revisions(*found: str) -> None:
        for ordinal, revision in enumerate(found):
            pod = scene.kube.find("Pod", f"{name}-{ordinal}")
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "controller-revision-hash": revision}
        live_now()["status"] = {
            "observedGeneration": live_now()["metadata"]["generation"],
            "readyReplicas": 3,
            "updatedReplicas": found.count("new"),
            "currentRevision": "new" if found.count("new") == 3 else "old",
            "updateRevision": "new",
        }

    assert live is not None
    assert partition() == 2
    ring, device = ("object-0", "d0") if name == "store-disks" else ("container", "db")
    revisions("old", "old", "new")
    scene.told.said[f"{name}-2/{device}", ring] = replace(IN_SYNC, synced_at_s=0.0)
    await scene.step()
    assert partition() == 2
    scene.told.said.clear()
    await scene.step()
    assert partition() == 1
    revisions("old", "new", "new")
    await scene.step()
    assert partition() == 0
    revisions("new", "new", "new")
    await scene.step()
    assert partition() == 0


async def test_pods_that_never_started_are_changed_though_the_first_to_start_can_t_be_in_sync_without_them() -> None:
    scene = await settled({"pools": [{**POOL, "replicas": 3}], "rings": SMALL_RINGS})
    scene.cluster["spec"]["image"] = "swiftlet:mended"
    name = applied(await scene.step())[0]
    ring, device = ("object-0", "d0") if name == "store-disks" else ("container", "db")

    def revisions(*found: str, unready: int) -> None:
        for ordinal, revision in enumerate(found):
            pod = scene.kube.find("Pod", f"{name}-{ordinal}")
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "controller-revision-hash": revision}
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True" if ordinal >= unready else "False"}]
        live = scene.kube.find("StatefulSet", name)
        live["status"] = {
            "observedGeneration": live["metadata"]["generation"],
            "readyReplicas": 3 - unready,
            "updatedReplicas": found.count("new"),
            "currentRevision": "old",
            "updateRevision": "new",
        }
        scene.told.silent = {f"{name}-{ordinal}" for ordinal in range(unready)}

    async def partition() -> int:
        await scene.step()
        return int(scene.kube.find("StatefulSet", name)["spec"]["updateStrategy"]["rollingUpdate"]["partition"])

    scene.told.said[f"{name}-2/{device}", ring] = replace(IN_SYNC, synced_at_s=0.0)
    revisions("old", "old", "new", unready=3)
    assert await partition() == 2, "the new revision has not shown that it starts"
    revisions("old", "old", "new", unready=2)
    assert await partition() == 1
    revisions("old", "new", "new", unready=1)
    assert await partition() == 0


async def test_pods_that_no_node_took_are_deleted_when_what_they_asked_for_is_mended() -> None:
    """The first mended pod is not ready without a ring, which lacks the others' devices, so nobody else goes on."""
    scene = Scene({"pools": [{**POOL, "replicas": 3, "resources": {"requests": {"cpu": "500"}}}], "rings": SMALL_RINGS})

    def pods(*revisions: str, scheduled: int) -> None:
        scene.live()
        for ordinal, revision in enumerate(revisions):
            pod = scene.kube.find("Pod", f"store-disks-{ordinal}")
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "controller-revision-hash": revision}
            pod["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
            if ordinal < 3 - scheduled:
                del pod["spec"]["nodeName"]
                claim = scene.kube.find("PersistentVolumeClaim", f"d0-store-disks-{ordinal}")
                claim["spec"].pop("volumeName", None)
        live = scene.kube.find("StatefulSet", "store-disks")
        updated = revisions.count("new")
        live["status"] |= {"readyReplicas": 0, "updatedReplicas": updated, "currentRevision": "old"}
        live["status"]["updateRevision"] = "new" if scheduled else "old"
        scene.told.silent = {f"store-disks-{ordinal}" for ordinal in range(3)}

    async def deleted() -> list[str]:
        return [what for what in await scene.step() if what.startswith("delete Pod")]

    await scene.step()
    for _ in range(3):
        pods("old", "old", "old", scheduled=0)
        assert await deleted() == []
    scene.cluster["spec"]["pools"][0]["resources"] = {"requests": {"cpu": "10m"}}
    pods("old", "old", "old", scheduled=0)
    assert await deleted() == []
    pods("old", "old", "new", scheduled=1)
    assert await deleted() == [], "its turn has not come"
    pods("old", "old", "new", scheduled=1)
    assert await deleted() == ["delete Pod/store-disks-1"]
    pods("old", "new", "new", scheduled=2)
    assert await deleted() == [], "its turn has not come"
    pods("old", "new", "new", scheduled=2)
    assert await deleted() == ["delete Pod/store-disks-0"]


# --- maintenance --------------------------------------------------------------------------------------------------


def budget(scene: Scene, name: str) -> int | str:
    """What the budget allows of the pods of a StatefulSet: so many of all, or any of them."""
    spec = scene.kube.find("PodDisruptionBudget", "store-data")["spec"]
    freed = [pod for one in spec["selector"]["matchExpressions"] if one["operator"] == "NotIn" for pod in one["values"]]
    allowed: int = spec["maxUnavailable"]
    return "100%" if any(pod.rpartition("-")[0] == name for pod in freed) else allowed


async def test_one_zone_may_be_drained_and_nothing_goes_on_elsewhere() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["maintenance"] = {"zone": "b"}
    await scene.step()
    assert [budget(scene, f"store-fast-{zone}") for zone in ZONES] == [0, "100%", 0]
    assert [budget(scene, f"store-container-{zone}") for zone in ZONES] == [0, "100%", 0]
    assert scene.condition("Maintenance") == ("True", "ZoneMayBeDrained")

    break_pod(scene, "store-fast-b-0")
    scene.told.rounds = ALONE
    scene.cluster["spec"]["image"] = "swiftlet:next"
    scene.cluster["spec"]["pools"][0]["replicas"] = 9
    scene.now_s += 2 * HOUR
    assert "store-fast-a" not in applied(await scene.step())
    assert budget(scene, "store-fast-b") == "100%"
    scene.live()
    await scene.step()
    assert version(scene) == 1
    assert "zone b is in maintenance" in scene.message("RingsBalanced")

    scene.told.rounds = IN_SYNC
    scene.told.silent.clear()
    scene.live()
    del scene.cluster["spec"]["maintenance"]
    await scene.step()
    assert scene.condition("Maintenance") == ("False", "NotWanted")
    assert version(scene) == 2


async def test_maintenance_waits_while_another_zone_is_not_whole() -> None:
    scene = await settled("three-zones")
    break_pod(scene, "store-fast-a-0")
    scene.cluster["spec"]["maintenance"] = {"zone": "b"}
    await scene.step()
    assert budget(scene, "store-fast-b") == 0
    assert scene.condition("Maintenance") == ("False", "OtherZonesNotWhole")


async def test_a_zone_that_is_not_there_is_told() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["maintenance"] = {"zone": "d"}
    await scene.step()
    assert scene.condition("Maintenance") == ("False", "ZoneUnknown")


# --- lost nodes ---------------------------------------------------------------------------------------------------


def local_volumes(scene: Scene) -> None:
    """Every claim is bound to a volume on the node of its pod."""
    for (kind, _, name), claim in list(scene.kube.objects.items()):
        if kind != "PersistentVolumeClaim":
            continue
        node = scene.kube.find("Pod", name.partition("-")[2])["spec"]["nodeName"]
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim["spec"]["volumeName"]}}
        scene.kube.put({**head, "spec": {"nodeAffinity": {"required": required}}})


def lose_node(scene: Scene, name: str) -> None:
    """The Node object goes; its pods are made anew by their StatefulSets and find no place."""
    del scene.kube.objects["Node", "", name]
    for pod in scene.kube.names("Pod"):
        found = scene.kube.find("Pod", pod)
        if found["spec"].get("nodeName") == name:
            scene.told.silent.add(pod)
            found["spec"].pop("nodeName")
            found["status"] = {"phase": "Pending"}


async def with_local_volumes(spec: Any = "three-zones") -> Scene:
    """A cluster on local volumes; nodes know their names."""
    scene = await settled(spec)
    for node in scene.kube.names("Node"):
        scene.kube.find("Node", node)["metadata"]["labels"]["kubernetes.io/hostname"] = node
    local_volumes(scene)
    return scene


def zone_per_node(scene: Scene) -> None:
    """Pods of zone a stand on n0 and so on."""
    for name in scene.kube.names("Pod"):
        found = scene.kube.find("Pod", name)
        zone = found["metadata"]["labels"].get("swiftlet.io/zone")
        if zone:
            found["spec"]["nodeName"] = f"n{ZONES.index(zone)}"


async def lost_zone() -> Scene:
    """The node of zone b is gone, and with it its volumes."""
    scene = await settled("three-zones")
    for node in scene.kube.names("Node"):
        scene.kube.find("Node", node)["metadata"]["labels"]["kubernetes.io/hostname"] = node
    zone_per_node(scene)
    local_volumes(scene)
    await scene.step()
    scene.told.rounds = ALONE
    lose_node(scene, "n1")
    return scene


def claims(scene: Scene, pod: str) -> list[Manifest]:
    """The pod's claims."""
    names = [name for name in scene.kube.names("PersistentVolumeClaim") if name.partition("-")[2] == pod]
    return [scene.kube.find("PersistentVolumeClaim", name) for name in sorted(names)]


async def test_pods_of_a_lost_node_are_made_anew_after_the_time() -> None:
    scene = await lost_zone()
    gone_at = scene.now_s
    await scene.step()
    marks = {claim["metadata"]["annotations"][NODE_LOST_SINCE] for claim in claims(scene, "store-fast-b-0")}
    assert len(marks) == 1
    assert scene.condition("Degraded") == ("True", "NodeLost")
    scene.now_s = gone_at + 899
    assert not any("delete" in one or "force" in one for one in await scene.step())

    scene.now_s = gone_at + 900
    written = await scene.step()
    assert "delete PersistentVolumeClaim/d0-store-fast-b-0" in written
    assert "delete PersistentVolumeClaim/d1-store-fast-b-1" in written
    assert "delete PersistentVolumeClaim/db-store-container-b-0" in written
    assert "force Pod/store-fast-b-0" in written
    assert not any("-a-" in one or "-c-" in one for one in written if one.startswith(("delete", "force")))

    scene.told.silent.clear()
    scene.told.rounds = IN_SYNC
    head = {"apiVersion": "v1", "kind": "Node"}
    labels = {"topology.kubernetes.io/zone": "b", "kubernetes.io/hostname": "n9"}
    scene.kube.put({**head, "metadata": {"name": "n9", "labels": labels}})
    scene.live()
    zone_per_node(scene)
    for name in scene.kube.names("Pod"):
        if "-b-" in name:
            scene.kube.find("Pod", name)["spec"]["nodeName"] = "n9"
    await scene.step()
    assert scene.condition("Degraded") == ("False", "AllReady")
    assert version(scene) == 1


async def test_a_node_that_returns_costs_nothing() -> None:
    scene = await lost_zone()
    await scene.step()
    labels = {"topology.kubernetes.io/zone": "b", "kubernetes.io/hostname": "n1"}
    scene.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}})
    scene.now_s += 2000
    written = await scene.step()
    assert not any(one.startswith(("delete", "force")) for one in written)
    notes = claims(scene, "store-fast-b-0")[0]["metadata"]["annotations"]
    assert notes.get(NODE_LOST_SINCE) is None


@pytest.mark.parametrize("against", ["other zone", "behind", "never", "maintenance", "no nodes", "two zones"])
async def test_nothing_is_made_anew_when_something_speaks_against_it(against: str) -> None:
    scene = await lost_zone()
    if against == "other zone":
        break_pod(scene, "store-fast-a-0")
    elif against == "behind":
        scene.told.rounds = replace(ALONE, behind=1)
    elif against == "never":
        scene.cluster["spec"]["replaceLostNodesAfterSeconds"] = 0
    elif against == "maintenance":
        scene.cluster["spec"]["maintenance"] = {"zone": "b"}
    elif against == "two zones":
        lose_node(scene, "n2")
    else:
        for node in list(scene.kube.names("Node")):
            del scene.kube.objects["Node", "", node]
    for _ in range(3):
        written = await scene.step()
        assert not any(one.startswith(("delete", "force")) for one in written)
        scene.now_s += 1000


async def test_a_volume_of_a_zone_is_not_lost_with_the_last_node_of_the_zone() -> None:
    scene = await lost_zone()
    for name in scene.kube.names("PersistentVolume"):
        term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}
        scene.kube.find("PersistentVolume", name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = [term]
    for _ in range(3):
        assert not any(one.startswith(("delete", "force")) for one in await scene.step())
        scene.now_s += 1000


async def test_a_pod_that_never_ends_on_a_node_that_is_gone_is_ended() -> None:
    scene = await settled("three-zones")
    zone_per_node(scene)
    await scene.step()
    del scene.kube.objects["Node", "", "n1"]
    for name in ("store-fast-b-0", "store-fast-b-1"):
        scene.kube.find("Pod", name)["metadata"]["deletionTimestamp"] = rfc3339(_moment(scene.now_s))
        break_pod(scene, name)
    await scene.step()
    scene.now_s += 900
    written = await scene.step()
    assert "force Pod/store-fast-b-0" in written
    assert not any("PersistentVolumeClaim" in one for one in written if one.startswith("delete"))


async def test_a_new_pod_whose_claim_went_after_it_was_made_is_made_again() -> None:
    scene = await settled("three-zones")
    pod = scene.kube.find("Pod", "store-fast-b-0")
    pod["spec"].pop("nodeName")
    pod["status"] = {"phase": "Pending"}
    pod["metadata"]["creationTimestamp"] = rfc3339(_moment(scene.now_s))
    del scene.kube.objects["PersistentVolumeClaim", "data", "d0-store-fast-b-0"]
    assert not any("Pod/" in one for one in await scene.step())
    scene.now_s += 60
    assert "force Pod/store-fast-b-0" in await scene.step()


def _moment(now_s: int) -> datetime:
    return datetime.fromtimestamp(now_s, UTC)


# --- space --------------------------------------------------------------------------------------------------------


async def test_levels_are_told_without_numbers_and_left_with_slack() -> None:
    scene = await settled()
    device = "store-disks-2/d0"
    seen = []
    for used in (0.84, 0.86, 0.84, 0.91, 0.885, 0.96, 0.94, 0.92, 0.84, 0.82):
        scene.told.full[device] = used
        await scene.step()
        seen.append(scene.condition("CapacityAvailable")[1])
    assert seen == [
        *("Enough", "NearFull", "NearFull", "BackfillFull", "BackfillFull"),
        *("Full", "Full", "BackfillFull", "NearFull", "Enough"),
    ]
    scene.told.full[device] = 0.86
    await scene.step()
    assert scene.cluster["status"]["filling"] == {device: "NearFull"}
    assert device in scene.message("CapacityAvailable")
    for used in (0.861, 0.869, 0.85, 0.84):
        scene.told.full[device] = used
        assert await scene.step() == []
    scene.told.silent = {"store-disks-2"}
    await scene.step()
    assert scene.condition("CapacityAvailable") == ("False", "NearFull")
    scene.told.silent, scene.told.full = set(), {}
    await scene.step()
    assert not scene.cluster["status"]["filling"]


async def test_no_weight_rises_on_a_device_that_is_too_full() -> None:
    scene = await settled()
    scene.told.full["store-disks-0/d0"] = 0.93
    scene.cluster["spec"]["pools"][0]["weight"] = 100
    scene.now_s += HOUR
    await scene.step()
    weights = in_ring(scene)
    assert weights["store-disks-0/d0"] == 10
    assert weights["store-disks-1/d0"] == 35

    scene.cluster["spec"]["pools"][0]["weight"] = 5
    scene.now_s += HOUR
    await scene.step()
    assert in_ring(scene)["store-disks-0/d0"] == 5


async def test_volumes_of_a_class_that_can_not_grow_are_told_and_keep_their_weight() -> None:
    scene = await settled()
    scene.storage_class("standard", may_grow=False)
    scene.cluster["spec"]["pools"][0]["storage"]["size"] = "20Gi"
    scene.now_s += HOUR
    written = await scene.step()
    assert not any("PersistentVolumeClaim" in one for one in written)
    assert scene.condition("VolumesResized") == ("False", "ExpansionNotAllowed")
    assert in_ring(scene)["store-disks-0/d0"] == 10

    scene.storage_class("standard", may_grow=True)
    await scene.step()
    await scene.step()
    assert scene.condition("VolumesResized") == ("True", "AsAsked")
    await scene.settle()
    assert version(scene) == 2


# --- telling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["paused", "invalid"])
async def test_what_serves_is_told_truthfully_while_hands_are_kept_off(spoil: str) -> None:
    scene = await settled("three-zones")
    if spoil == "paused":
        scene.cluster["spec"]["paused"] = True
    else:
        scene.cluster["spec"]["pools"][0]["storage"]["size"] = "1Gi"
    await scene.step()
    assert scene.condition("StorageAvailable") == ("True", "AllReady")
    assert scene.condition("ProxiesAvailable") == ("True", "Ready")
    assert scene.condition("Ready")[0] == ("True" if spoil == "paused" else "False")

    for zone in ZONES:
        break_pod(scene, f"store-fast-{zone}-0")
    await scene.step()
    assert scene.condition("StorageAvailable") == ("False", "PodsNotReady")
    assert scene.condition("Degraded") == ("True", "PodsNotReady")
    assert scene.condition("Ready")[0] == "False"


async def test_transports_are_counted_and_a_pod_that_fell_back_is_named() -> None:
    spec = {"pools": [{**POOL, "replicas": 3, "rdma": {"mode": "required", "resource": "rdma/hca"}}]}
    scene = await settled(spec)
    for index in range(3):
        scene.kube.find("Node", f"n{index}")["status"] = {"allocatable": {"rdma/hca": "1"}}
        scene.told.transports[f"store-disks-{index}"] = {"rdma": 2, "http": 1}
    await scene.step()
    assert scene.condition("RDMAAvailable") == ("True", "Available")
    assert scene.cluster["status"]["transports"] == {"http": 3, "rdma": 3}

    scene.told.transports["store-disks-1"] = {"http": 3}
    await scene.step()
    assert scene.condition("RDMAAvailable") == ("False", "FellBack")
    assert "store-disks-1 " in scene.message("RDMAAvailable")
    assert "see its log" in scene.message("RDMAAvailable")
    scene.told.rdma_missing["store-disks-1"] = "the pool can't be registered" + "!" * 1000
    await scene.step()
    assert "the pool can't be registered!" in scene.message("RDMAAvailable")
    assert len(scene.message("RDMAAvailable")) < 500
    scene.told.transports = {key: {"rdma": 2} for key in scene.told.transports}
    await scene.step()
    assert scene.cluster["status"]["transports"] == {"rdma": 3}


async def test_an_evicted_pod_is_not_ready_and_stops_only_what_needs_it() -> None:
    scene = await settled("three-zones")
    pod = scene.kube.find("Pod", "store-fast-a-0")
    pod["status"]["phase"] = "Failed"
    scene.told.silent = {"store-fast-a-0"}
    await scene.step()
    assert scene.condition("StorageAvailable")[0] == "True"
    scene.cluster["spec"]["proxy"]["replicas"] = 5
    assert "apply Deployment/store-proxy" in await scene.step()


async def test_a_failed_device_is_named() -> None:
    scene = await settled()
    scene.told.failed = {"store-disks-3/d0"}
    await scene.step()
    assert scene.condition("Degraded") == ("True", "DeviceFailed")
    assert "store-disks-3/d0" in scene.message("Degraded")


async def test_without_the_right_to_read_volumes_nothing_is_replaced_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await lost_zone()
    get = scene.kube.get

    async def refusing(kind: Kind, namespace: str, name: str) -> Manifest | None:
        if kind == PV:
            raise KubeForbidden("persistentvolumes is forbidden")
        return await get(kind, namespace, name)

    monkeypatch.setattr(scene.kube, "get", refusing)
    scene.cluster["spec"]["proxy"]["replicas"] = 5
    scene.now_s += 5000
    written = await scene.step()
    assert "apply Deployment/store-proxy" in written
    assert not any(one.startswith(("delete", "force")) for one in written)
