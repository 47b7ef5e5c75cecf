"""Backups: what is in the file, what is refused, and what a restore decides about objects that are there already."""

from __future__ import annotations

import base64
import copy
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from swiftlet_operator import recovery
from swiftlet_operator.plugin import backup as backups
from swiftlet_operator.plugin import restore
from swiftlet_operator.plugin.archive import Backup, BackupError, Saved, pack, unpack
from swiftlet_operator.plugin.kubectl import Kubectl
from swiftlet_operator.plugin.main import main
from swiftlet_operator.plugin.picture import Object
from swiftlet_operator.plugin.sealed_file import read, write
from swiftlet_operator.rings import split
from swiftlet_operator.sealing import encrypt, new_identity, parse_identities, public_key

LABELS = {"app.kubernetes.io/instance": "store"}
FIRST, SECOND = new_identity(), new_identity()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def thing(kind: str, name: str, namespace: str = "data", **rest: Any) -> Object:
    """An object as an API server shows it."""
    version = "v1" if kind in ("Secret", "ConfigMap", "PersistentVolumeClaim") else "swiftlet.io/v1alpha1"
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7", "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": {**metadata, **rest.pop("metadata", {})}, **rest}


def recovery_secret(*identities: str, namespace: str = "system") -> Object:
    data = {"identities": encoded("".join(f"{one}\n" for one in identities))}
    return thing("Secret", "swiftlet-recovery-key", namespace, metadata={"labels": recovery.LABELS}, data=data)


def keys() -> Object:
    data = {"cluster-key": encoded("k" * 32), "hash-path-suffix": encoded("suffix")}
    return thing("Secret", "store-keys", metadata={"finalizers": ["swiftlet.io/data"]}, data=data)


def ring_map(version: int, content: str = "ring") -> Object:
    labels = {**LABELS, "swiftlet.io/ring": "object-0", "swiftlet.io/ring-version": str(version)}
    chunk = {"chunk": encoded(f"{content} {version}")}
    return thing("ConfigMap", "store-ring-object-0-0", metadata={"labels": labels}, binaryData=chunk)


def builder(content: bytes = b"builder") -> Object:
    [piece] = split(content)
    labels = {**LABELS, "swiftlet.io/builder": "object-0"}
    data = {"piece": base64.b64encode(piece).decode()}
    return thing("ConfigMap", "store-builder-object-0-0", metadata={"labels": labels}, binaryData=data)


def claim() -> Object:
    return thing("PersistentVolumeClaim", "d0-store-disks-0", spec={"volumeName": "pv-1"}, status={"phase": "Bound"})


def cluster() -> Object:
    return thing("StorageCluster", "store", spec={"pools": []}, metadata={"finalizers": ["swiftlet.io/cluster"]})


def user() -> Object:
    return thing("StorageUser", "alice", spec={"clusterRef": {"name": "store"}, "account": "a", "user": "alice"})


def credentials() -> Object:
    owner = {"apiVersion": "swiftlet.io/v1alpha1", "kind": "StorageUser", "name": "alice", "uid": "uid-alice"}
    return thing("Secret", "alice-credentials", metadata={"ownerReferences": [owner]}, data={"key": encoded("secret")})


PLURALS = {plural.split(".")[0]: kind for kind, plural in restore.RESOURCES.items()} | {
    "persistentvolumes": "PersistentVolume",
    "namespaces": "Namespace",
}


def place(one: Object) -> tuple[str, str | None, str]:
    """Kind, namespace and name."""
    return one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]


def volume_of(namespace: str, name: str) -> Object:
    """A volume that is still promised to a claim that is gone."""
    reference = {"namespace": namespace, "name": name, "uid": "of the claim that is gone"}
    made_it = thing("PersistentVolume", "pv-1", spec={"claimRef": reference})
    del made_it["metadata"]["namespace"]
    return made_it


class Cluster:
    """What kubectl shows and writes, in memory."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {
            (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in objects
        }
        self.written: list[str] = []

    def list(self, resource: str, namespace: str | None, labels: str = "") -> list[Object]:
        wanted = [one.partition("=") for one in filter(None, labels.split(","))]
        return [
            copy.deepcopy(one)
            for (kind, where, _), one in self.objects.items()
            if kind == PLURALS[resource.split(".")[0]]
            and namespace in (None, where)
            and all(
                key in one["metadata"]["labels"] and value in ("", one["metadata"]["labels"][key])
                for key, _, value in wanted
            )
        ]

    def find(self, resource: str, namespace: str | None, name: str) -> Object | None:
        return copy.deepcopy(self.objects.get((PLURALS[resource.split(".")[0]], namespace, name)))

    def create(self, manifest: Object) -> None:
        metadata = manifest["metadata"]
        assert place(manifest) not in self.objects
        assert "uid" not in metadata
        self.objects[place(manifest)] = copy.deepcopy(manifest)
        self.objects[place(manifest)]["metadata"]["uid"] = f"new-{metadata['name']}"
        self.written.append(f"{manifest['kind']}/{metadata['name']}")

    def replace(self, manifest: Object) -> None:
        metadata = manifest["metadata"]
        assert metadata["resourceVersion"] == "7"
        self.objects[manifest["kind"], metadata["namespace"], metadata["name"]] = copy.deepcopy(manifest)
        self.written.append(f"{manifest['kind']}/{metadata['name']}")

    def merge(self, resource: str, namespace: str | None, name: str, change: Object) -> None:
        live = self.objects[PLURALS[resource.split(".")[0]], namespace, name]
        for part, fields in change.items():
            for key, value in fields.items():
                if isinstance(value, dict):
                    kept = {**live[part].get(key, {}), **value}
                    live[part][key] = {one: text for one, text in kept.items() if text is not None}
                else:
                    live[part][key] = value
        self.written.append(f"patch {name}")


ALL = (recovery_secret(FIRST), keys(), builder(), ring_map(3), user(), credentials(), claim(), cluster())


def as_kubectl(fake: Cluster) -> Kubectl:
    return cast(Kubectl, fake)


def made(*objects: Object) -> Backup:
    return backups.make(as_kubectl(Cluster(*(objects or ALL))), cluster(), None)


def restored(target: Cluster, mode: str = "refuse", saved: Backup | None = None) -> dict[str, str]:
    """What a restore does about each object, which is done unless something differs."""
    steps = restore.plan(as_kubectl(target), saved or made(), None, mode)
    if not restore.conflicts(steps):
        restore.carry_out(as_kubectl(target), steps)
    return {f"{one.saved.kind}/{one.saved.name}": one.what for one in steps}


def test_a_backup_has_all_in_the_order_in_which_it_is_restored() -> None:
    saved = made()
    assert [f"{one.kind}/{one.name}" for one in saved.objects] == [
        "Secret/swiftlet-recovery-key",
        "Secret/store-keys",
        "ConfigMap/store-builder-object-0-0",
        "ConfigMap/store-ring-object-0-0",
        "StorageUser/alice",
        "Secret/alice-credentials",
        "PersistentVolumeClaim/d0-store-disks-0",
        "StorageCluster/store",
    ]
    assert unpack(pack(saved)) == saved
    assert {one.manifest["metadata"].get("uid") for one in saved.objects} == {None}
    assert "status" not in saved.objects[6].manifest
    assert saved.objects[1].manifest["metadata"]["finalizers"] == ["swiftlet.io/data"]
    assert "finalizers" not in saved.objects[7].manifest["metadata"]


@pytest.mark.parametrize("missing", [keys(), {**keys(), "data": {"cluster-key": encoded("k" * 32)}}])
def test_without_whole_keys_there_is_no_backup(missing: Object) -> None:
    rest = [one for one in ALL if one["metadata"]["name"] != "store-keys"]
    with pytest.raises(BackupError, match="store-keys is not there or not whole"):
        made(*rest, *([missing] if len(missing["data"]) == 1 else []))


def test_a_torn_builder_is_not_backed_up() -> None:
    torn = builder()
    torn["binaryData"]["piece"] = encoded("torn")
    with pytest.raises(BackupError, match="object-0 is damaged"):
        made(*(torn if one["metadata"]["name"] == torn["metadata"]["name"] else one for one in ALL))


def test_a_secret_that_a_user_names_must_be_there() -> None:
    named = user()
    named["spec"]["secretRef"] = {"name": "of-alice"}
    with pytest.raises(BackupError, match="of-alice"):
        made(*(named if one["kind"] == "StorageUser" else one for one in ALL))


def test_everything_is_made_in_order_and_has_its_owner_and_again_nothing_is_written() -> None:
    target = Cluster(volume_of("data", "d0-store-disks-0"))
    did = restored(target)
    assert set(did.values()) == {"create"}
    made_there = [one for one in target.written if not one.startswith(("patch", "Namespace"))]
    assert made_there == list(did)
    [owner] = target.objects["Secret", "data", "alice-credentials"]["metadata"]["ownerReferences"]
    assert owner["uid"] == "new-alice"
    assert target.objects["PersistentVolume", None, "pv-1"]["spec"]["claimRef"] == {
        "namespace": "data",
        "name": "d0-store-disks-0",
    }
    target.written.clear()
    assert set(restored(target).values()) == {"unchanged"}
    assert target.written == []


def test_a_restore_that_ended_in_between_goes_on() -> None:
    target = Cluster()
    steps = restore.plan(as_kubectl(target), made(), None, "refuse")
    restore.carry_out(as_kubectl(target), steps[:5])
    did = restored(target)
    assert list(did.values())[:5] == ["unchanged"] * 5
    assert did["Secret/alice-credentials"] == did["StorageCluster/store"] == "create"
    assert did["PersistentVolumeClaim/d0-store-disks-0"] == "leave out"


def test_what_differs_is_refused_kept_or_overwritten_as_the_user_says() -> None:
    other = keys()
    other["data"]["hash-path-suffix"] = encoded("another")
    target = Cluster(other)
    assert restored(target)["Secret/store-keys"] == "differs"
    assert target.written == []
    assert restored(Cluster(copy.deepcopy(other)), "keep")["Secret/store-keys"] == "keep"
    assert restored(target, "overwrite")["Secret/store-keys"] == "overwrite"
    live = target.objects["Secret", "data", "store-keys"]
    assert live["data"] == keys()["data"]
    assert live["metadata"]["uid"] == "uid-store-keys"


@pytest.mark.parametrize("mode", ["refuse", "overwrite"])
def test_a_newer_ring_stays_whatever_is_said(mode: str) -> None:
    target = Cluster(ring_map(4))
    did = restored(target, mode)
    assert did["ConfigMap/store-ring-object-0-0"] == did["ConfigMap/store-builder-object-0-0"] == "keep"
    assert ("ConfigMap", "data", "store-builder-object-0-0") not in target.objects


def test_an_older_ring_is_replaced_when_told() -> None:
    target = Cluster(ring_map(2))
    assert restored(target)["ConfigMap/store-ring-object-0-0"] == "differs"
    assert restored(target, "overwrite")["ConfigMap/store-ring-object-0-0"] == "overwrite"


def test_a_recovery_key_is_added_behind_the_one_that_is_there() -> None:
    target = Cluster(recovery_secret(SECOND, namespace="elsewhere"))
    assert restored(target)["Secret/swiftlet-recovery-key"] == "add key"
    text = base64.b64decode(
        target.objects["Secret", "elsewhere", "swiftlet-recovery-key"]["data"]["identities"]
    ).decode()
    assert parse_identities(text) == (SECOND, FIRST)
    assert restored(target)["Secret/swiftlet-recovery-key"] == "unchanged"


def test_a_claim_whose_volume_is_anothers_is_left_out() -> None:
    assert restored(Cluster(volume_of("data", "another")))["PersistentVolumeClaim/d0-store-disks-0"] == "leave out"


def test_names_are_those_of_the_operator() -> None:
    assert backups.RECOVERY == recovery.NAME
    assert restore.IDENTITIES == recovery.ENTRY
    assert f"app.kubernetes.io/component={recovery.COMPONENT}" == backups.RECOVERY_LABEL


# --- the file -------------------------------------------------------------------------------------------------------


def files_of(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {one.name: cast(Any, tar.extractfile(one)).read() for one in tar}


def tar_of(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


HEAD = "swiftlet-backup/backup.json"


def changed(change: Callable[[dict[str, bytes]], None]) -> bytes:
    files = files_of(pack(made()))
    change(files)
    return tar_of(files)


def in_head(**fields: object) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files[HEAD] = json.dumps({**json.loads(files[HEAD]), **fields}).encode()

    return change


def flip(files: dict[str, bytes]) -> None:
    name = next(one for one in files if "store-keys" in one)
    files[name] = files[name].replace(b"store", b"stole")


def lose(files: dict[str, bytes]) -> None:
    del files[next(one for one in files if "store-keys" in one)]


BAD: dict[str, tuple[bytes, str]] = {
    "cut off": (pack(made())[:3000], "damaged|does not name|no backup"),
    "nothing": (b"", "no backup of Swiftlet"),
    "another tar": (tar_of({"etc/passwd": b"root"}), "which no backup has"),
    "a path upwards": (changed(lambda files: files.update({"swiftlet-backup/objects/../x": b""})), "which no backup"),
    "a link": (tar_of({HEAD: b""}, tarfile.SYMTYPE), "which no backup has"),
    "a later format": (changed(in_head(version=2)), "format version 2, this program understands 1: use the plugin of"),
    "no version": (changed(in_head(version=None)), "the backup has format version None"),
    "another format": (changed(in_head(format="velero")), "no backup of Swiftlet"),
    "another cluster": (changed(in_head(cluster="../x")), "of which cluster"),
    "an object changed": (changed(flip), "is not what it was"),
    "an object lost": (changed(lose), "does not name the files"),
    "another namespace": (changed(in_head(namespace="other")), "is of another namespace"),
    "no json": (changed(lambda files: files.update({HEAD: b"{"})), "no JSON"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_or_foreign_file_is_refused(what: str) -> None:
    content, told = BAD[what]
    with pytest.raises(BackupError, match=told):
        unpack(content)


@pytest.mark.parametrize(
    "one",
    [
        {**keys(), "kind": "ClusterRole"},
        {**keys(), "metadata": {"name": "store-keys", "namespace": "kube-system"}},
        {**builder(), "metadata": {"name": "coredns", "namespace": "data"}},
        {**keys(), "metadata": {"name": "../x", "namespace": "data"}},
    ],
)
def test_an_object_that_no_backup_has_is_refused(one: Object) -> None:
    bad = Backup("store", "data", "system", "now", (Saved(one),))
    with pytest.raises(BackupError):
        unpack(pack(bad))


def test_a_file_is_opened_by_a_recipient_and_not_by_another(tmp_path: Path) -> None:
    path = tmp_path / "store.age"
    saved = made()
    write(saved, path, [public_key(FIRST)], None)
    assert path.stat().st_mode & 0o077 == 0
    for name, identity in (("mine", FIRST), ("other", SECOND)):
        (tmp_path / name).write_text(f"# created by a test\n{identity}\n")
    assert read(path, tmp_path / "mine", None) == saved
    with pytest.raises(BackupError, match="can't be opened"):
        read(path, tmp_path / "other", None)
    with pytest.raises(BackupError, match="give --identity"):
        read(path, None, None)
    (tmp_path / "later.age").write_bytes(path.read_bytes().replace(b"encryption.org/v1", b"encryption.org/v2", 1))
    with pytest.raises(BackupError, match="age format, has format version 2, this program understands 1"):
        read(tmp_path / "later.age", tmp_path / "mine", None)
    (tmp_path / "cut.age").write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BackupError, match="can't be opened"):
        read(tmp_path / "cut.age", tmp_path / "mine", None)


def test_a_file_is_opened_by_its_passphrase(tmp_path: Path) -> None:
    path, right, wrong, short = (tmp_path / name for name in ("store.age", "right", "wrong", "short"))
    right.write_text("correct horse battery\n")
    wrong.write_text("correct horse\n")
    short.write_text("short\n")
    with pytest.raises(BackupError, match="shorter than"):
        write(made(), path, [], short)
    assert not path.exists()
    saved = made()
    write(saved, path, [], right)
    assert read(path, None, right) == saved
    with pytest.raises(BackupError, match="can't be opened"):
        read(path, None, wrong)
    with pytest.raises(BackupError, match="is there already"):
        write(made(), path, [], right)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"-----BEGIN AGE ENCRYPTED FILE-----\n"])
def test_what_is_not_in_the_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.age").write_bytes(content)
    with pytest.raises(BackupError, match=r"x\.age"):
        read(tmp_path / "x.age", None, None)


def test_a_recipient_that_is_none_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="not a recipient"):
        write(made(), tmp_path / "x.age", ["age1nonsense"], None)
    assert list(tmp_path.iterdir()) == []


def test_restore_of_a_foreign_file_ends_with_one_and_asks_kubectl_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("kubectl was asked")

    monkeypatch.setattr(subprocess, "run", never)
    (tmp_path / "key").write_text(FIRST)
    (tmp_path / "x.age").write_bytes(encrypt(b"something else", [public_key(FIRST)]))
    assert main(["restore", str(tmp_path / "x.age"), "--identity", str(tmp_path / "key")]) == 1
    assert "no backup of Swiftlet" in capsys.readouterr().err
