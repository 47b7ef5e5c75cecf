"""Whole reconciles against an API server in memory: making, resting, repairing, growing, draining, refusing."""

from __future__ import annotations

import base64
import time
from dataclasses import replace

import pytest
import yaml

from swiftlet.ring import Ring, codec
from swiftlet_operator.manifests import FINALIZER
from swiftlet_operator.observe import observe
from swiftlet_operator.plan import decide
from swiftlet_operator.plan.ring_tasks import PATIENCE_S
from swiftlet_operator.problems import KubeUnavailable, NotLeader
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.tests.worlds import KEY, SMALL_RINGS, START, Scene, own, settled, text_of
from swiftlet_operator.world import Defaults

HOUR = 3600
POOL = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}


async def test_a_new_cluster_becomes_ready() -> None:
    scene = await settled()

    assert scene.condition("Ready") == ("True", "Available")
    assert scene.condition("RingsBalanced") == ("True", "Balanced")
    assert scene.cluster["status"]["endpoint"] == "http://store.data.svc"
    assert scene.cluster["status"]["zones"] == ["a", "b", "c"]
    assert scene.cluster["metadata"]["finalizers"] == [FINALIZER]
    assert {"store-account", "store-container", "store-object-0"} == scene.kube.names("Ring")
    assert scene.kube.find("Ring", "store-object-0")["status"]["version"] == 1


async def test_every_condition_is_there_after_the_first_visit() -> None:
    scene = Scene()
    await scene.step()

    types = {one["type"] for one in scene.cluster["status"]["conditions"]}
    assert types == {
        *("Ready", "SpecValid", "RingsBalanced", "StorageAvailable", "ContainersAvailable", "ProxiesAvailable"),
        *("Progressing", "Degraded", "ScaleInBlocked", "DeletionBlocked", "RDMAAvailable", "KeysRotated"),
        *("CapacityAvailable", "Maintenance", "Drained", "VolumesResized", "FailureTableShared"),
        *("ReplicasSpread", "PodsHealthy", "NodesCordoned", "CertificateReady", "APIExposed"),
        *("PoliciesRetired", "TransportEncrypted", "KeysSealed", "DirectAccessAvailable", "FragmentsWhole"),
        *("RegionsEqual", "FederationReady"),
    }
    assert scene.condition("Ready")[0] == "False"


async def test_nothing_is_written_in_fifty_reconciles() -> None:
    scene = await settled("three-zones")
    for _ in range(50):
        scene.now_s += 600
        assert await scene.step() == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ConfigMap", "store-settings"),
        ("ConfigMap", "store-ring-object-0-0"),
        ("Service", "store-storage"),
        ("StatefulSet", "store-container"),
        ("Deployment", "store-proxy"),
        ("NetworkPolicy", "store-storage"),
        ("PodDisruptionBudget", "store-data"),
    ],
)
async def test_a_deleted_child_comes_back(kind: str, name: str) -> None:
    scene = await settled()
    del scene.kube.objects[kind, "data", name]

    assert f"apply {kind}/{name}" in await scene.step()


async def test_a_vandalised_child_is_repaired_and_what_others_added_stays() -> None:
    scene = await settled()
    service = scene.kube.find("Service", "store")
    service["spec"]["ports"] = [{"name": "api", "port": 666}]
    service["metadata"]["annotations"]["example.org/theirs"] = "kept"

    assert await scene.step() == ["apply Service/store"]
    service = scene.kube.find("Service", "store")
    assert service["spec"]["ports"][0]["port"] == 80
    assert service["metadata"]["annotations"]["example.org/theirs"] == "kept"


async def test_keys_are_never_written_twice() -> None:
    scene = await settled()
    before = scene.kube.find("Secret", "store-keys")["data"]
    scene.cluster["spec"]["proxy"] = {"workers": 2}
    await scene.step()

    assert scene.kube.find("Secret", "store-keys")["data"] == before


async def test_lost_keys_are_not_replaced_while_there_are_volumes() -> None:
    scene = await settled()
    for name in ("store-keys", "store-keys-copy"):
        del scene.kube.objects["Secret", "data", name]
    await scene.step()

    assert "store-keys" not in scene.kube.names("Secret")
    assert scene.condition("SpecValid") == ("False", "KeysLost")


async def test_without_keys_nothing_else_is_made() -> None:
    scene = Scene()
    scene.kube.failing = {"store-keys"}
    with pytest.raises(KubeUnavailable, match="store-keys"):
        await scene.step()

    assert scene.kube.names("StatefulSet") == set()


async def test_one_failing_child_does_not_stop_the_rest() -> None:
    scene = Scene()
    scene.kube.failing = {"store-container"}
    with pytest.raises(KubeUnavailable, match="store-container"):
        await scene.step()

    assert {"store-disks", "store-redis"} <= scene.kube.names("StatefulSet")
    assert scene.condition("Progressing") == ("False", "ApplyFailed")


async def test_a_ring_is_not_published_before_its_builder_is_safe() -> None:
    scene = Scene()
    await scene.step()
    scene.live()
    scene.kube.failing = {"store-builder-object-0-0"}
    with pytest.raises(KubeUnavailable):
        await scene.step()

    assert "store-ring-object-0-0" not in scene.kube.names("ConfigMap")
    assert "store-ring-account-0" in scene.kube.names("ConfigMap")


async def test_nothing_is_written_without_the_lease() -> None:
    scene = Scene()
    scene.leads = False
    with pytest.raises(NotLeader):
        await scene.step()

    assert scene.kube.writes == []


async def test_the_first_ring_waits_for_pods_but_not_for_ever() -> None:
    scene = Scene({"pools": [{**POOL, "replicas": 4}]})
    await scene.step()
    scene.live()
    scene.kube.find("Pod", "store-disks-3")["spec"] = {}
    scene.now_s = 1_800_000_000 - 10
    created = scene.cluster["metadata"]
    created["creationTimestamp"] = "2027-01-15T07:59:00Z"
    await scene.step()
    assert "store-ring-object-0-0" not in scene.kube.names("ConfigMap")

    scene.now_s += PATIENCE_S
    await scene.step()
    assert scene.kube.find("Ring", "store-object-0")["status"]["devices"] == 3


async def test_new_pods_enter_the_ring_step_by_step() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["replicas"] = 4
    versions = []
    for _ in range(8):
        await scene.step()
        scene.live()
        versions.append(scene.kube.find("Ring", "store-object-0")["status"]["version"])
        scene.now_s += HOUR

    assert versions[-1] == 5
    assert await scene.step() == []


async def test_scale_in_drains_then_waits_for_word_then_goes() -> None:
    scene = await settled({"pools": [{**POOL, "replicas": 5}]})
    scene.cluster["spec"]["pools"][0]["replicas"] = 4
    for _ in range(8):
        scene.now_s += HOUR
        await scene.step()
        scene.live()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5
    assert scene.condition("ScaleInBlocked") == ("True", "AwaitingEmpty")

    scene.cluster["metadata"]["annotations"] = {"swiftlet.io/allow-scale-in": "store-disks-4"}
    scene.now_s += 2 * HOUR
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 5
    await scene.step()
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 4


async def test_fewer_devices_than_replicas_are_refused() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["replicas"] = 2
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "TooFewDevices")
    assert scene.kube.find("StatefulSet", "store-disks")["spec"]["replicas"] == 3


async def test_a_removed_pool_stays_until_it_is_drained() -> None:
    scene = await settled({"pools": [POOL, {**POOL, "name": "old"}]})
    scene.cluster["spec"]["pools"].pop()
    scene.now_s += HOUR
    await scene.step()

    assert "store-old" in scene.kube.names("StatefulSet")
    for _ in range(8):
        scene.now_s += HOUR
        await scene.step()
    allowed = ",".join(f"store-old-{index}" for index in range(3))
    scene.cluster["metadata"]["annotations"] = {"swiftlet.io/allow-scale-in": allowed}
    for _ in range(3):
        scene.now_s += HOUR
        await scene.step()
    assert "store-old" not in scene.kube.names("StatefulSet")


async def test_zones_restart_one_after_the_other() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    written = await scene.step()
    assert [one for one in written if "StatefulSet/store-fast" in one] == ["apply StatefulSet/store-fast-a"]
    assert scene.condition("Progressing") == ("True", "RollingOut")

    busy = await scene.step()
    assert [one for one in busy if "StatefulSet" in one] == []
    assert scene.kube.find("PodDisruptionBudget", "store-data")["spec"]["maxUnavailable"] == 0

    scene.live()
    assert [one for one in await scene.step() if "StatefulSet" in one] == ["apply StatefulSet/store-fast-b"]


async def test_volumes_grow_and_never_shrink() -> None:
    scene = await settled()
    scene.cluster["spec"]["pools"][0]["storage"]["size"] = "20Gi"
    await scene.step()
    sizes = {
        one["spec"]["resources"]["requests"]["storage"]
        for (kind, _, name), one in scene.kube.objects.items()
        if kind == "PersistentVolumeClaim" and name.startswith("d0-")
    }
    template = scene.kube.find("StatefulSet", "store-disks")["spec"]["volumeClaimTemplates"][0]
    assert sizes == {"20Gi"}
    assert template["spec"]["resources"]["requests"]["storage"] == "10Gi"

    scene.cluster["spec"]["pools"][0]["storage"]["size"] = "5Gi"
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "StorageShrunk")


async def test_users_get_credentials_and_enter_the_users_file() -> None:
    scene = await settled()
    scene.kube.put(own("StorageUser", "anna", {"account": "test", "user": "anna", "roles": ["admin"]}))
    await scene.step()

    secret = scene.kube.find("Secret", "anna-credentials")
    users = yaml.safe_load(text_of(scene.kube.find("Secret", "store-users"), "users.yaml"))
    assert text_of(secret, "user") == "test:anna"
    assert text_of(secret, "authUrl") == "http://store.data.svc/auth/v1.0"
    assert users == [
        {"account": "test", "user": "anna", "roles": ["admin"], "secret_hash": f"hash({text_of(secret, 'key')})"}
    ]
    assert scene.kube.find("StorageUser", "anna")["status"]["secretName"] == "anna-credentials"
    assert await scene.step() == []


async def test_a_user_without_the_named_secret_is_told_so() -> None:
    scene = await settled()
    scene.kube.put(own("StorageUser", "bo", {"account": "test", "user": "bo", "secretRef": {"name": "mine"}}))
    await scene.step()

    condition = scene.kube.find("StorageUser", "bo")["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "SecretMissing")
    assert scene.condition("Ready")[0] == "True"


async def test_objects_without_their_cluster_are_told_so() -> None:
    scene = Scene()
    del scene.kube.objects["StorageCluster", "data", "store"]
    scene.kube.put(own("StorageUser", "anna", {"account": "test", "user": "anna"}))

    assert await scene.reconciler.reconcile(KEY) is None
    assert scene.kube.find("StorageUser", "anna")["status"]["conditions"][0]["reason"] == "ClusterMissing"


async def test_two_default_policies_stop_changes_only() -> None:
    scene = await settled()
    for index, name in enumerate(("gold", "silver")):
        scene.kube.put(own("StoragePolicy", name, {"index": index, "name": name, "default": True}))
    written = await scene.step()

    assert scene.condition("SpecValid") == ("False", "TwoDefaultPolicies")
    assert all(one.startswith(("patch-status", "create Event")) for one in written)


async def test_a_second_policy_gets_a_ring_of_its_own() -> None:
    scene = await settled()
    scene.kube.put(own("StoragePolicy", "gold", {"index": 0, "name": "gold", "default": True}))
    scene.kube.put(own("StoragePolicy", "twice", {"index": 1, "name": "twice", "replicas": 2}))
    await scene.step()

    assert scene.kube.find("Ring", "store-object-1")["spec"]["replicas"] == 2
    assert "store-ring-object-1-0" in scene.kube.names("ConfigMap")


async def test_a_first_policy_of_ones_own_leaves_the_implicit_one_the_default() -> None:
    scene = await settled()
    scene.kube.put(own("StoragePolicy", "wide", {"index": 1, "name": "wide", "replicas": 2}))
    await scene.step()

    assert scene.condition("SpecValid") == ("True", "Valid")
    policies = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["policies.yaml"])
    assert policies == [
        {"index": 0, "name": "Policy-0", "default": True, "deprecated": False},
        {"index": 1, "name": "wide", "default": False, "deprecated": False},
    ]


async def test_how_objects_of_a_policy_are_stored_changes_without_a_restart() -> None:
    scene = await settled()
    usual = {"index": 0, "name": "gold", "default": True, "deprecated": False}
    templates = {
        name: scene.kube.find("StatefulSet", name)["spec"]["template"] for name in scene.kube.names("StatefulSet")
    }
    for more, setting in (
        ({}, {}),
        ({"aggregateBelow": "1Mi", "etag": "md5"}, {}),
        ({"aggregateBelow": "0"}, {"aggregate_below": 0}),
        ({"aggregateBelow": "64Ki"}, {"aggregate_below": 65536}),
        ({"aggregateBelow": "4Mi", "etag": "xxh3"}, {"aggregate_below": 4194304, "etag": "xxh3"}),
        ({"aggregateBelow": "64Mi"}, {"aggregate_below": 4194304}),
        ({"etag": "xxh3"}, {"etag": "xxh3"}),
        ({"writeQuorum": "majority"}, {}),
    ):
        scene.kube.put(own("StoragePolicy", "gold", {"index": 0, "name": "gold", "default": True, **more}))
        await scene.settle()
        policies = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["policies.yaml"])
        assert policies == [usual | setting], more
    assert templates == {name: scene.kube.find("StatefulSet", name)["spec"]["template"] for name in templates}


async def test_who_comes_while_the_cluster_is_paused_is_told_to_wait() -> None:
    scene = await settled()
    scene.kube.find("StorageCluster", "store")["spec"]["paused"] = True
    scene.kube.put(own("StorageUser", "late", {"account": "test", "user": "late", "roles": ["admin"]}))
    await scene.step()
    conditions = scene.kube.find("StorageUser", "late")["status"]["conditions"]
    assert [(one["status"], one["reason"]) for one in conditions] == [("False", "ClusterWaits")]

    scene.kube.find("StorageCluster", "store")["spec"]["paused"] = False
    await scene.step()
    conditions = scene.kube.find("StorageUser", "late")["status"]["conditions"]
    assert [(one["status"], one["reason"]) for one in conditions] == [("Unknown", "ProxiesSilent")]
    assert "late-credentials" in scene.kube.names("Secret")

    scene.kube.find("StorageCluster", "store")["spec"]["paused"] = True
    await scene.step()
    conditions = scene.kube.find("StorageUser", "late")["status"]["conditions"]
    assert [(one["status"], one["reason"]) for one in conditions] == [("Unknown", "ProxiesSilent")]


async def test_an_index_is_not_given_to_another_policy() -> None:
    scene = await settled()
    scene.kube.put(own("StoragePolicy", "gold", {"index": 0, "name": "gold", "default": True}))
    await scene.step()
    del scene.kube.objects["StoragePolicy", "data", "gold"]
    scene.kube.put(own("StoragePolicy", "lead", {"index": 0, "name": "lead", "default": True}))
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "PolicyIndexReused")


async def test_a_lost_builder_is_made_from_the_ring() -> None:
    scene = await settled()
    before = scene.kube.find("ConfigMap", "store-ring-object-0-0")["binaryData"]
    for kind in ("ConfigMap", "Secret"):
        del scene.kube.objects[kind, "data", "store-builder-object-0-0"]
    await scene.step()

    assert "store-builder-object-0-0" in scene.kube.names("ConfigMap")
    assert scene.kube.find("ConfigMap", "store-ring-object-0-0")["binaryData"] == before


RING_MAPS = ("store-builder-object-0-0", "store-ring-object-0-0")


def lose_ring(scene: Scene) -> None:
    """Have no object that knows of the ring object-0."""
    for name in RING_MAPS:
        del scene.kube.objects["ConfigMap", "data", name]
    del scene.kube.objects["Secret", "data", RING_MAPS[0]]


def ring_in(scene: Scene) -> Ring:
    """The ring object-0 as its ConfigMap has it."""
    return codec.join([base64.b64decode(scene.kube.find("ConfigMap", RING_MAPS[1])["binaryData"]["chunk"])])


async def grown() -> Scene:
    """A cluster that went from three pods to five, so that its ring is not what a first layout would give."""
    scene = await settled({"pools": [POOL], "rings": SMALL_RINGS})
    scene.cluster["spec"]["pools"][0]["replicas"] = 5
    for _ in range(10):
        scene.now_s += HOUR
        scene.live()
        await scene.step()
    return scene


async def test_a_ring_without_its_configmaps_comes_back_from_the_pods() -> None:
    scene = await grown()
    before = ring_in(scene)
    assert before.version > 1
    scene.told.kept["object-0"] = before
    lose_ring(scene)
    await scene.settle()

    after = ring_in(scene)
    assert after.version == before.version
    assert [bytes(row) for row in after.rows] == [bytes(row) for row in before.rows]
    assert scene.condition("RingsBalanced") == ("True", "Balanced")


async def test_a_ring_that_is_lost_is_not_laid_out_anew() -> None:
    scene = await grown()
    lose_ring(scene)
    for _ in range(3):
        await scene.step()
        assert not set(RING_MAPS) & scene.kube.names("ConfigMap")
    assert scene.condition("RingsBalanced") == ("False", "BuilderUnreadable")
    assert "swiftlet.io/allow-new-ring=object-0" in scene.message("RingsBalanced")
    assert scene.kube.find("Ring", "store-object-0")["status"]["version"] > 1


async def test_a_lost_ring_is_not_laid_out_anew_while_no_pod_answers() -> None:
    scene = await grown()
    scene.told.silent = scene.kube.names("Pod")
    lose_ring(scene)
    await scene.step()

    assert not set(RING_MAPS) & scene.kube.names("ConfigMap")


async def test_a_person_may_allow_a_new_ring() -> None:
    scene = await grown()
    lose_ring(scene)
    scene.cluster["metadata"]["annotations"] = {"swiftlet.io/allow-new-ring": "object-0"}
    await scene.step()

    assert ring_in(scene).version == 1


async def test_a_cluster_over_older_volumes_waits_for_what_its_pods_had() -> None:
    scene = Scene()
    await scene.step()
    scene.live()
    for (kind, _, _), one in scene.kube.objects.items():
        if kind == "PersistentVolumeClaim":
            one["metadata"]["creationTimestamp"] = "2026-12-01T00:00:00Z"
    scene.told.silent = {"store-disks-1"}
    await scene.step()
    assert RING_MAPS[1] not in scene.kube.names("ConfigMap")
    assert "older than the cluster" in scene.message("RingsBalanced")
    assert "store-disks-1" in scene.message("RingsBalanced")

    scene.told.silent = set()
    await scene.settle()
    assert ring_in(scene).version == 1


async def test_a_ring_that_nobody_can_read_is_left_alone() -> None:
    scene = await settled()
    scene.kube.find("ConfigMap", "store-builder-object-0-0")["binaryData"]["piece"] = "bm9uc2Vuc2U="
    scene.kube.find("Secret", "store-builder-object-0-0")["data"]["piece"] = "bm9uc2Vuc2U="
    scene.kube.find("ConfigMap", "store-ring-object-0-0")["binaryData"]["chunk"] = "bm9uc2Vuc2U="
    await scene.step()

    assert scene.condition("RingsBalanced") == ("False", "BuilderUnreadable")
    assert scene.kube.find("ConfigMap", "store-ring-object-0-0")["binaryData"]["chunk"] == "bm9uc2Vuc2U="


async def test_a_cluster_with_data_does_not_go_by_accident() -> None:
    scene = await settled()
    scene.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
    await scene.step()

    assert scene.condition("DeletionBlocked") == ("True", "DataExists")
    scene.cluster["metadata"]["annotations"] = {"swiftlet.io/allow-deletion": "true"}
    await scene.step()
    assert "store" not in scene.kube.names("StorageCluster")
    assert "store-keys" in scene.kube.names("Secret")
    assert scene.kube.names("PersistentVolumeClaim")


async def test_a_cluster_that_may_take_everything_does() -> None:
    scene = await settled({"pools": [POOL], "deletionPolicy": "Delete", "rings": SMALL_RINGS})
    scene.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
    await scene.step()

    assert "store" not in scene.kube.names("StorageCluster")
    assert "store-keys" not in scene.kube.names("Secret")
    assert scene.kube.names("PersistentVolumeClaim") == set()


async def test_a_paused_cluster_is_left_as_it_is() -> None:
    scene = await settled()
    scene.cluster["spec"]["paused"] = True
    del scene.kube.objects["Service", "data", "store"]
    await scene.step()

    assert "store" not in scene.kube.names("Service")
    assert scene.condition("Progressing") == ("False", "Paused")


async def test_what_nobody_wants_any_more_goes() -> None:
    scene = await settled()
    scene.cluster["spec"]["metadata"] = {"replicas": 0}
    scene.cluster["spec"]["redis"] = {"mode": "external", "address": "redis:6379"}
    await scene.step()

    assert "store-metadata" not in scene.kube.names("Deployment")
    assert "store-redis" not in scene.kube.names("StatefulSet")
    assert "store-disks" in scene.kube.names("StatefulSet")


async def test_proxies_serve_until_those_of_each_region_do() -> None:
    scene = await settled({"pools": [POOL | {"region": "east"}, POOL | {"name": "far", "region": "west"}]})
    assert proxies_of(scene) == ["store-proxy"]
    scene.cluster["spec"]["proxy"] = {"replicas": 2, "regions": ["east", "west"]}
    for _ in range(3):
        await scene.step()
    assert proxies_of(scene) == ["store-proxy", "store-proxy-east", "store-proxy-west"]
    assert scene.condition("ProxiesAvailable")[0] == "True"
    scene.kube.find("Deployment", "store-proxy-east")["status"] = {"readyReplicas": 1, "replicas": 1}
    await scene.step()
    assert "store-proxy" in proxies_of(scene)

    scene.live()
    await scene.step()
    assert proxies_of(scene) == ["store-proxy-east", "store-proxy-west"]
    scene.kube.find("Deployment", "store-proxy-west")["status"] |= {"replicas": 1}
    scene.kube.find("Deployment", "store-proxy-east")["status"] |= {"replicas": 1}
    await scene.step()
    assert scene.condition("ProxiesAvailable")[0] == "True"
    assert scene.cluster["status"]["proxy"]["replicas"] == 2


def proxies_of(scene: Scene) -> list[str]:
    """Return the names of the Deployments of proxies."""
    return sorted(name for name in scene.kube.names("Deployment") if name.startswith("store-proxy"))


async def test_a_thousand_pods_are_decided_about_in_less_than_a_second() -> None:
    pools = [{"name": "disks", "replicas": 999, "zones": ["a", "b", "c"], "storage": {"size": "1Ti"}}]
    scene = Scene({"pools": pools, "rings": {"partPower": 12}})
    await scene.settle()
    world = await observe(scene.kube, scene.told, scene.cluster, scene.now_s)

    began_s = time.thread_time()
    actions = decide(world, Defaults("swiftlet:test", "redis:test"), scene.fresh)
    took_s = time.thread_time() - began_s

    assert len(world.pods) > 999
    assert {fact.type: fact.status for fact in actions.status[0].facts}["RingsBalanced"] == "True"
    assert took_s < 1


async def test_the_published_ring_names_the_pods() -> None:
    scene = await settled()
    chunk = scene.kube.find("ConfigMap", "store-ring-object-0-0")["binaryData"]["chunk"]
    ring = codec.join([base64.b64decode(chunk)])

    assert {one.address for one in ring.devices if one} == {
        f"store-disks-{index}.store-storage.data.svc:6200/d0" for index in range(3)
    }
    assert {one.zone for one in ring.devices if one} == {"a", "b", "c"}


async def test_databases_are_in_the_regions_of_their_nodes_that_pools_name() -> None:
    scene = Scene({"pools": [POOL | {"region": "north"}, POOL | {"name": "far", "region": "south"}]})
    for node, region in (("n0", "north"), ("n1", "south"), ("n2", "elsewhere")):
        scene.kube.find("Node", node)["metadata"]["labels"]["topology.kubernetes.io/region"] = region
    await scene.settle()

    assert regions_of(scene, "container") == regions_of(scene, "account") == ["north", "south", "default"]
    assert regions_of(scene, "object-0") == ["north"] * 3 + ["south"] * 3

    scene.kube.find("Node", "n2")["metadata"]["labels"]["topology.kubernetes.io/region"] = "south"
    scene.now_s += HOUR
    await scene.settle()
    assert regions_of(scene, "container") == ["north", "south", "south"]


def regions_of(scene: Scene, ring: str) -> list[str]:
    """Return the regions of a ring's devices, in the order of the devices' names."""
    chunk = scene.kube.find("ConfigMap", f"store-ring-{ring}-0")["binaryData"]["chunk"]
    devices = codec.join([base64.b64decode(chunk)]).devices
    return [device.region for device in sorted([one for one in devices if one], key=lambda one: one.name)]


async def test_a_finalizer_that_somebody_added_meanwhile_stays() -> None:
    scene = await settled({"pools": [POOL], "deletionPolicy": "Delete", "rings": SMALL_RINGS})
    scene.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
    scene.cluster["metadata"]["finalizers"] = [FINALIZER, "example.org/backup"]
    await scene.step()

    assert scene.cluster["metadata"]["finalizers"] == ["example.org/backup"]
    assert await scene.step() == []


async def test_the_next_zone_waits_until_the_last_has_caught_up() -> None:
    scene = await settled("three-zones")
    scene.cluster["spec"]["image"] = "swiftlet:next"
    await scene.step()
    scene.live()
    pod = scene.kube.find("Pod", "store-fast-a-0")
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T08:00:00Z"
    scene.told.said["store-fast-a-0/d0", "object-0"] = replace(IN_SYNC, synced_at_s=START - 1.0)
    assert [one for one in await scene.step() if "StatefulSet" in one] == []
    assert "store-fast-a-0 is not back in sync" in scene.message("Progressing")
    assert scene.condition("Degraded") == ("True", "NotInSync")

    scene.told.said["store-fast-a-0/d0", "object-0"] = replace(IN_SYNC, synced_at_s=START + 0.0)
    assert [one for one in await scene.step() if "StatefulSet" in one] == ["apply StatefulSet/store-fast-b"]
