"""Keys, builders and rings against people who delete them, restore older ones, or restore them without labels."""

from __future__ import annotations

import base64
import copy

import pytest

from swiftlet_operator.manifests import CONFIG_MAP, DATA_FINALIZER, SECRET, Kind, Manifest
from swiftlet_operator.tests.test_reconcile import RING_MAPS, grown, lose_ring, ring_in
from swiftlet_operator.tests.worlds import Scene, settled, text_of

BUILDER, RING = RING_MAPS
GUARDED = (
    (CONFIG_MAP, BUILDER),
    (SECRET, BUILDER),
    (CONFIG_MAP, RING),
    (SECRET, "store-keys"),
    (SECRET, "store-keys-copy"),
)


def content(one: Manifest) -> dict[str, str]:
    """What must not get lost."""
    return dict(one.get("data") or one.get("binaryData") or {})


async def delete(scene: Scene, *which: tuple[Kind, str]) -> None:
    """As `kubectl delete` does."""
    for kind, name in which:
        await scene.kube.delete(kind, "data", name, scene.kube.find(kind.kind, name)["metadata"]["uid"])


@pytest.mark.parametrize(("kind", "name"), GUARDED)
async def test_what_somebody_deleted_stays_until_it_can_be_made_again(kind: Kind, name: str) -> None:
    scene = await grown()
    before = {(k, n): content(scene.kube.find(k.kind, n)) for k, n in GUARDED}
    await delete(scene, (kind, name))
    assert scene.kube.find(kind.kind, name)["metadata"]["deletionTimestamp"]

    await scene.settle()
    assert "deletionTimestamp" not in scene.kube.find(kind.kind, name)["metadata"]
    assert scene.kube.find(kind.kind, name)["metadata"]["finalizers"] == [DATA_FINALIZER]
    assert {(k, n): content(scene.kube.find(k.kind, n)) for k, n in GUARDED} == before


async def test_everything_is_deleted_at_once_and_nothing_is_lost_at_any_moment() -> None:
    scene = await grown()
    before = {(k, n): content(scene.kube.find(k.kind, n)) for k, n in GUARDED}
    await delete(scene, *GUARDED)

    for _ in range(8):
        await scene.step()
        secrets, maps = scene.kube.names("Secret"), scene.kube.names("ConfigMap")
        assert {"store-keys", "store-keys-copy"} & secrets
        assert BUILDER in secrets | maps
    for kind, name in GUARDED:
        live = scene.kube.find(kind.kind, name)
        assert "deletionTimestamp" not in live["metadata"]
        assert content(live) == before[kind, name]


async def test_nothing_is_let_go_while_the_cluster_itself_is_deleted_but_holds_data() -> None:
    """So it is when the namespace is deleted: nothing could be made again in it."""
    scene = await grown()
    scene.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
    await delete(scene, *GUARDED)
    for _ in range(3):
        await scene.step()

    for kind, name in GUARDED:
        assert scene.kube.find(kind.kind, name)["metadata"]["finalizers"] == [DATA_FINALIZER]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_cluster_that_goes_leaves_no_finalizer_behind(policy: str) -> None:
    scene = await settled()
    scene.cluster["spec"]["deletionPolicy"] = policy
    await scene.settle()
    scene.cluster["metadata"]["annotations"] = {"swiftlet.io/allow-deletion": "true"}
    scene.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T10:00:00Z"
    await scene.step()

    assert "store" not in scene.kube.names("StorageCluster")
    assert not [name for (_, _, name), one in scene.kube.objects.items() if one["metadata"].get("finalizers")]
    assert ("store-keys" in scene.kube.names("Secret")) == (policy == "Retain")


async def test_an_older_builder_from_a_backup_gives_way_to_the_copy() -> None:
    scene = await settled()
    old = content(scene.kube.find("ConfigMap", BUILDER))
    scene = await grown()
    newer = ring_in(scene)
    scene.kube.find("ConfigMap", BUILDER)["binaryData"] = old
    await scene.settle()

    assert ring_in(scene).version == newer.version
    assert content(scene.kube.find("ConfigMap", BUILDER)) == content(scene.kube.find("Secret", BUILDER))


async def test_only_older_rings_are_left_and_a_pod_gives_the_newer_one() -> None:
    early = await settled()
    old, old_ring = content(early.kube.find("ConfigMap", BUILDER)), content(early.kube.find("ConfigMap", RING))
    scene = await grown()
    newer = ring_in(scene)
    scene.kube.find("ConfigMap", BUILDER)["binaryData"] = old
    scene.kube.find("Secret", BUILDER)["data"] = old
    scene.kube.find("ConfigMap", RING)["binaryData"] = old_ring

    await scene.step()
    assert scene.condition("RingsBalanced") == ("False", "BuilderUnreadable")
    assert f"version {newer.version} is in use" in scene.message("RingsBalanced")
    assert ring_in(scene).version == 1

    scene.told.kept["object-0"] = newer
    await scene.settle()
    assert [bytes(row) for row in ring_in(scene).rows] == [bytes(row) for row in newer.rows]
    assert ring_in(scene).version == newer.version


async def test_an_older_ring_is_not_taken_while_no_pod_answers() -> None:
    early = await settled()
    old = early.kube.find("ConfigMap", BUILDER)["binaryData"]
    scene = await grown()
    lose_ring(scene)
    metadata = copy.deepcopy(early.kube.find("ConfigMap", BUILDER)["metadata"])
    scene.kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": old})
    scene.told.silent = scene.kube.names("Pod")
    await scene.step()

    assert RING not in scene.kube.names("ConfigMap")
    assert "older than what services use" in scene.message("RingsBalanced")


async def test_what_was_restored_without_labels_is_found_by_its_name() -> None:
    scene = await grown()
    before = ring_in(scene)
    for kind, name in ((CONFIG_MAP, BUILDER), (SECRET, "store-keys")):
        live = scene.kube.find(kind.kind, name)
        live["metadata"] = {"name": name, "namespace": "data"}
        scene.kube.put(live)
    for kind, name in ((CONFIG_MAP, RING), (SECRET, BUILDER), (SECRET, "store-keys-copy")):
        del scene.kube.objects[kind.kind, "data", name]
    await scene.settle()

    assert ring_in(scene).version == before.version
    assert scene.condition("SpecValid") == ("True", "Valid")
    for kind, name in GUARDED:
        metadata = scene.kube.find(kind.kind, name)["metadata"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == "store"
        assert metadata["finalizers"] == [DATA_FINALIZER]


async def test_an_entry_that_the_keys_have_lost_comes_back() -> None:
    scene = await settled()
    before = dict(scene.kube.find("Secret", "store-keys")["data"])
    del scene.kube.find("Secret", "store-keys")["data"]["hash-path-suffix"]
    await scene.settle()

    assert scene.kube.find("Secret", "store-keys")["data"] == before


async def test_keys_with_another_suffix_are_refused_and_not_copied() -> None:
    scene = await settled()
    before = dict(scene.kube.find("Secret", "store-keys-copy")["data"])
    scene.kube.find("Secret", "store-keys")["data"]["hash-path-suffix"] = base64.b64encode(b"another").decode()
    await scene.step()

    assert scene.condition("SpecValid") == ("False", "KeysDiffer")
    assert scene.kube.find("Secret", "store-keys-copy")["data"] == before


async def test_the_copy_follows_a_rotation() -> None:
    scene = await settled()
    scene.cluster["spec"]["keys"] = {"generation": 2}
    await scene.step()
    await scene.step()

    keys, kept = (scene.kube.find("Secret", name) for name in ("store-keys", "store-keys-copy"))
    assert text_of(keys, "cluster-key").count("\n") == 2
    assert text_of(kept, "cluster-key") == text_of(keys, "cluster-key")
    assert kept["metadata"]["annotations"]["swiftlet.io/key-phase"] == "accept"
