"""Sealed copies of the keys: what is sealed, who can open it, what lost keys come back from, and the recovery key."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from swiftlet.settings.secret import suffix_id
from swiftlet_operator import recovery
from swiftlet_operator.build.sealed import SEALED_OF
from swiftlet_operator.manifests import SECRET, Manifest
from swiftlet_operator.problems import SealError
from swiftlet_operator.recovery import Recovery
from swiftlet_operator.sealing import (
    MAX_IDENTITIES,
    RecoveryKeys,
    decrypt,
    encrypt,
    new_identity,
    open_secret,
    parse_copy_name,
    parse_identities,
    public_key,
    seal_secret,
)
from swiftlet_operator.tests.fake_kube import FakeKube
from swiftlet_operator.tests.worlds import Scene, text_of

SYSTEM = "swiftlet-system"
PODS = ("store-disks-0", "store-disks-1", "store-disks-2")


async def sealed_scene(spec: dict[str, Any] | str = "minimal") -> Scene:
    """A cluster that runs, with a recovery key, whose pods hand out what they were given."""
    scene = Scene(spec)
    with_recovery(scene)
    await scene.step()
    await scene.settle()
    keep(scene, *PODS)
    return scene


def with_recovery(scene: Scene) -> None:
    """Give the operator a new process: it remembers nothing, and looks at once."""
    scene.reconciler = replace(scene.reconciler, recovery=keeper_of(scene.kube))


def keeper_of(kube: FakeKube) -> Recovery:
    """A new operator's, for which much time passes between any two questions."""
    minutes = itertools.count()
    return Recovery(kube, SYSTEM, lambda: None, lambda: next(minutes) * recovery.LOOK_AGAIN_S)


def copy_in(scene: Scene) -> tuple[str, bytes]:
    """Name and content of the sealed copy."""
    entries = scene.kube.find("ConfigMap", "store-sealed-keys")["binaryData"]
    # The fake API server does not know who owns which entry, and leaves older ones.
    name = max(entries, key=lambda one: int(one.removesuffix(".age").partition("-")[2]))
    return name, base64.b64decode(entries[name])


def keep(scene: Scene, *pods: str) -> None:
    """Have pods write the present copy onto their volumes."""
    for pod in pods:
        scene.told.sealed[pod] = (copy_in(scene)[1],)


def lose_keys(scene: Scene) -> Manifest:
    """Take both Secrets away, finalizers or not; what the first one was."""
    lost = scene.kube.objects.pop(("Secret", "data", "store-keys"))
    del scene.kube.objects["Secret", "data", "store-keys-copy"]
    return lost


def identities(scene: Scene) -> tuple[str, ...]:
    """The operator's recovery keys."""
    return parse_identities(text_of(scene.kube.find("Secret", recovery.NAME), recovery.ENTRY))


async def test_keys_are_sealed_once_and_volumes_say_that_they_have_them() -> None:
    scene = await sealed_scene()
    name, content = copy_in(scene)
    live = scene.kube.find("Secret", "store-keys")
    assert parse_copy_name(name) == (suffix_id(text_of(live, "hash-path-suffix").encode()), scene.now_s)
    assert scene.condition("KeysSealed") == ("True", "Kept")

    opened = open_secret(content, RecoveryKeys(identities(scene)))
    assert opened["data"] == live["data"]
    assert (opened["metadata"]["name"], opened["metadata"]["namespace"]) == ("store-keys", "data")
    scene.now_s += 1000
    assert await scene.step() == []
    with_recovery(scene)
    assert await scene.step() == []


async def test_until_all_volumes_have_the_newest_copy_it_is_pending() -> None:
    scene = await sealed_scene()
    scene.told.sealed_generation = scene.now_s - 1
    await scene.step()
    assert scene.condition("KeysSealed") == ("False", "Pending")
    assert "store-container-0" in scene.message("KeysSealed")
    scene.told.sealed_generation = scene.now_s
    await scene.step()
    assert scene.condition("KeysSealed") == ("True", "Kept")


async def test_a_rotation_is_sealed_anew() -> None:
    scene = await sealed_scene()
    before, _ = copy_in(scene)
    scene.cluster["spec"]["keys"] = {"generation": 2}
    await scene.step()
    await scene.step()

    name, content = copy_in(scene)
    assert parse_copy_name(name)[1] > parse_copy_name(before)[1]  # type: ignore[index]
    opened = open_secret(content, RecoveryKeys(identities(scene)))
    assert opened["data"] == scene.kube.find("Secret", "store-keys")["data"]
    assert opened["metadata"]["annotations"]["swiftlet.io/key-phase"] == "accept"


async def test_a_recipient_of_the_users_opens_it_with_age_alone() -> None:
    mine = new_identity()
    scene = await sealed_scene()
    scene.cluster["spec"]["keys"] = {"recoveryRecipients": [public_key(mine)]}
    await scene.step()
    document = json.loads(decrypt(copy_in(scene)[1], [mine]))
    assert document["kind"] == "Secret"
    assert document["data"] == scene.kube.find("Secret", "store-keys")["data"]


async def test_a_recipient_that_is_none_is_told_and_left_out() -> None:
    scene = await sealed_scene()
    right = public_key(new_identity())
    wrong = right[:-1] + ("q" if right[-1] != "q" else "p")
    scene.cluster["spec"]["keys"] = {"recoveryRecipients": [wrong]}
    await scene.step()
    assert scene.condition("KeysSealed") == ("False", "RecipientInvalid")
    assert wrong in scene.message("KeysSealed")
    assert open_secret(copy_in(scene)[1], RecoveryKeys(identities(scene)))


async def test_a_copy_that_somebody_replaced_is_sealed_anew() -> None:
    scene = await sealed_scene()
    live = scene.kube.find("ConfigMap", "store-sealed-keys")
    name, _ = copy_in(scene)
    live["binaryData"][name] = base64.b64encode(encrypt(b"{}", [public_key(new_identity())])).decode()
    code = live["metadata"]["annotations"][SEALED_OF]
    await scene.step()
    live = scene.kube.find("ConfigMap", "store-sealed-keys")
    assert live["metadata"]["annotations"][SEALED_OF] != code
    made = live["binaryData"][f"{name[:8]}-{scene.now_s + 1}.age"]
    assert open_secret(base64.b64decode(made), RecoveryKeys(identities(scene)))


async def test_lost_keys_come_back_from_pods() -> None:
    scene = await sealed_scene()
    lost = lose_keys(scene)
    await scene.settle()
    for name in ("store-keys", "store-keys-copy"):
        assert scene.kube.find("Secret", name)["data"] == lost["data"]
        assert scene.kube.find("Secret", name)["metadata"]["finalizers"] == ["swiftlet.io/data"]
    assert scene.kube.find("Secret", "store-keys")["metadata"]["annotations"] == lost["metadata"]["annotations"]
    assert scene.condition("SpecValid") == ("True", "Valid")


async def test_the_newest_of_several_copies_counts() -> None:
    scene = await sealed_scene()
    old = scene.told.sealed["store-disks-0"]
    scene.cluster["spec"]["keys"] = {"generation": 2}
    await scene.step()
    await scene.step()
    keep(scene, *PODS)
    scene.told.sealed["store-disks-0"] = old
    lost = lose_keys(scene)
    await scene.step()
    assert scene.kube.find("Secret", "store-keys")["data"] == lost["data"]


async def test_a_cluster_made_anew_over_volumes_begins_without_keys_and_waits_for_its_pods() -> None:
    """As after a move to another Kubernetes: claims, the StorageCluster and the recovery key are there, no more."""
    before = await sealed_scene()
    scene = Scene()
    for name in (recovery.NAME, recovery.COPY):
        scene.kube.put(before.kube.find("Secret", name))
    for (kind, _, _), one in list(before.kube.objects.items()):
        if kind == "PersistentVolumeClaim":
            scene.kube.put(one)
    with_recovery(scene)
    scene.told.silent = set(PODS)
    scene.kube.put({**own_user(), "apiVersion": "swiftlet.io/v1alpha1"})
    await scene.step()
    await scene.step()
    assert "store-disks" in scene.kube.names("StatefulSet")
    assert {"store-keys", "alice-credentials"} & scene.kube.names("Secret") == set()
    assert not [name for name in scene.kube.names("ConfigMap") if "-ring-" in name]
    assert scene.condition("SpecValid") == ("False", "KeysLost")
    assert "no pod that runs has handed out a sealed copy yet" in scene.message("SpecValid")
    assert "kubectl swiftlet restore" in scene.message("SpecValid")

    scene.live()
    scene.told.silent, scene.told.sealed = set(), before.told.sealed
    await scene.settle()
    kept = before.kube.find("Secret", "store-keys")["data"]
    assert scene.kube.find("Secret", "store-keys")["data"] == kept
    assert scene.condition("SpecValid") == ("True", "Valid")


def own_user() -> Manifest:
    """A user whose credentials are not there."""
    return {
        "kind": "StorageUser",
        "metadata": {"name": "alice", "namespace": "data", "uid": "uid-of-alice", "generation": 1},
        "spec": {"clusterRef": {"name": "store"}, "account": "AUTH_a", "user": "alice", "roles": ["user"]},
    }


def of_another_cluster(secret: Manifest) -> Manifest:
    return {**secret, "metadata": {**secret["metadata"], "namespace": "elsewhere"}}


def without_suffix(secret: Manifest) -> Manifest:
    return {**secret, "data": {"cluster-key": secret["data"]["cluster-key"]}}


@pytest.mark.parametrize(
    ("change", "told"),
    [(of_another_cluster, "it is of another cluster"), (without_suffix, "it lacks hash-path-suffix")],
)
async def test_what_can_not_serve_is_refused(change: Callable[[Manifest], Manifest], told: str) -> None:
    scene = await sealed_scene()
    keys = RecoveryKeys(identities(scene))
    bad = seal_secret(change(open_secret(copy_in(scene)[1], keys)), keys)
    scene.told.sealed = {"store-disks-0": (bad,)}
    lose_keys(scene)
    await scene.step()
    assert "store-keys" not in scene.kube.names("Secret")
    assert scene.condition("SpecValid") == ("False", "KeysLost")
    assert told in scene.message("SpecValid")


async def test_keys_that_somebody_else_sealed_are_refused() -> None:
    """Anybody can seal to a public key, and put the file onto a volume."""
    scene = await sealed_scene()
    mine = RecoveryKeys(identities(scene))
    content = open_secret(copy_in(scene)[1], mine)
    content["data"]["hash-path-suffix"] = base64.b64encode(b"of the attacker").decode()
    forger = RecoveryKeys((new_identity(),))
    forged = encrypt(decrypt(seal_secret(content, forger), forger.identities), [mine.recipient])
    scene.told.sealed = {"store-disks-0": (forged, b"nonsense")}
    lose_keys(scene)
    await scene.step()
    assert "store-keys" not in scene.kube.names("Secret")
    assert "it was not sealed by this operator" in scene.message("SpecValid")


async def test_copies_with_different_suffixes_are_not_chosen_between() -> None:
    scene = await sealed_scene()
    keys = RecoveryKeys(identities(scene))
    other = open_secret(copy_in(scene)[1], keys)
    other["data"]["hash-path-suffix"] = base64.b64encode(b"another suffix").decode()
    scene.told.sealed["store-disks-1"] = (seal_secret(other, keys),)
    lose_keys(scene)
    await scene.step()
    assert "store-keys" not in scene.kube.names("Secret")
    assert "different hash suffixes" in scene.message("SpecValid")


async def test_without_the_recovery_key_nothing_is_made_up_and_with_it_the_keys_are_back() -> None:
    scene = await sealed_scene()
    lost, old = lose_keys(scene), identities(scene)
    for name in (recovery.NAME, recovery.COPY):
        del scene.kube.objects["Secret", SYSTEM, name]
    with_recovery(scene)
    await scene.step()
    assert "store-keys" not in scene.kube.names("Secret")
    assert scene.condition("SpecValid") == ("False", "KeysLost")

    # As `kubectl swiftlet restore` puts the old one back, behind the new one.
    text = "".join(f"{one}\n" for one in (*identities(scene), *old))
    scene.kube.find("Secret", recovery.NAME)["data"] = {recovery.ENTRY: base64.b64encode(text.encode()).decode()}
    await scene.step()
    assert scene.kube.find("Secret", "store-keys")["data"] == lost["data"]


async def test_both_recovery_secrets_are_kept_alike_and_an_added_identity_opens() -> None:
    kube = FakeKube()
    keeper = keeper_of(kube)
    first = (await keeper.known()).keys
    assert first is not None
    added = new_identity()
    text = base64.b64encode(f"# made by hand\n{first.identities[0]}\n{added}\n".encode()).decode()
    kube.find("Secret", recovery.NAME)["data"] = {recovery.ENTRY: text}
    keeper = keeper_of(kube)
    assert (await keeper.known()).keys == RecoveryKeys((first.identities[0], added))
    for name in (recovery.NAME, recovery.COPY):
        assert parse_identities(text_of(kube.find("Secret", name), recovery.ENTRY)) == (first.identities[0], added)


@pytest.mark.parametrize("name", [recovery.NAME, recovery.COPY])
@pytest.mark.parametrize("damage", [None, "!!", base64.b64encode(b"no identity").decode()])
async def test_a_lost_or_damaged_recovery_secret_comes_back_from_the_other(name: str, damage: str | None) -> None:
    kube = FakeKube()
    before = (await keeper_of(kube).known()).keys
    if damage is None:
        del kube.objects["Secret", SYSTEM, name]
    else:
        kube.find("Secret", name)["data"] = {recovery.ENTRY: damage}
    assert (await keeper_of(kube).known()).keys == before
    assert kube.find("Secret", recovery.NAME)["data"] == kube.find("Secret", recovery.COPY)["data"]


async def test_a_running_operator_makes_both_again_and_asks_only_now_and_then() -> None:
    kube, now = FakeKube(), [0.0]
    keeper = Recovery(kube, SYSTEM, lambda: None, lambda: now[0])
    before = await keeper.known()
    kube.objects.clear()
    assert await keeper.known() == before
    assert kube.names("Secret") == set()
    now[0] += recovery.LOOK_AGAIN_S
    assert await keeper.known() == before
    assert kube.names("Secret") == {recovery.NAME, recovery.COPY}


async def test_a_secret_that_can_not_be_made_is_told() -> None:
    kube = FakeKube()
    kube.failing = {recovery.NAME}
    known = await Recovery(kube, SYSTEM, lambda: None, lambda: 0.0).known()
    assert known.keys is None
    assert "out of order" in known.problem
    assert await kube.get(SECRET, SYSTEM, recovery.COPY) is None


@pytest.mark.parametrize("text", ["", "# only a comment\n", "AGE-SECRET-KEY-1NONSENSE\n", "x"])
def test_what_is_no_identity_is_refused(text: str) -> None:
    with pytest.raises(SealError):
        parse_identities(text)


def test_too_many_identities_are_refused() -> None:
    with pytest.raises(SealError, match="at most"):
        parse_identities("\n".join(new_identity() for _ in range(MAX_IDENTITIES + 1)))
