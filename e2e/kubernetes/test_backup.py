"""Lost keys come back from volumes; a store of which only the volumes are left comes back with a backup."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from swiftclient.client import Connection

from e2e.kubernetes.conftest import READY_WITHIN_S, RELEASE, SYSTEM, new_namespace
from e2e.kubernetes.kube import Failed, Namespace, eventually, run
from e2e.kubernetes.lab import administrator, cluster_of_three
from swiftlet_operator.plugin.main import main
from swiftlet_operator.sealing import new_identity, public_key

NAME = "kept"
OBJECTS = 40
SEALED_WITHIN_S = 240
"""A ConfigMap reaches a volume of a pod after about a minute, and services look every few seconds."""
GONE_WITHIN_S = 240
KEYS = (f"{NAME}-keys", f"{NAME}-keys-copy")
RECOVERY = ("swiftlet-recovery-key", "swiftlet-recovery-key-copy")

_STORE = f"""{cluster_of_three(NAME)}---{administrator(NAME, "ann")}---
apiVersion: swiftlet.io/v1alpha1
kind: StorageQuota
metadata: {{name: quotas}}
spec:
  clusterRef: {{name: kept}}
  levels: [{{name: default, containerCount: 3}}]
"""


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with a store that is Ready, whose volumes have the sealed keys, and with objects in it."""
    with new_namespace() as made:
        made.apply(_STORE)
        made.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        made.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
        made.wait_until_true("storagecluster", NAME, "KeysSealed", SEALED_WITHIN_S)
        with_client(made, write)
        yield made
        # What was kept for the test goes with its claims.
        for volume in volumes(made):
            reclaim(volume, "Delete")


def with_client(namespace: Namespace, use: Any) -> None:
    """Give python-swiftclient, logged in with the user's Secret, to `use`."""
    credentials = namespace.secret("ann-credentials")
    with (
        namespace.forwarded(f"service/{NAME}", 80) as port,
        closing(Connection(f"http://127.0.0.1:{port}/auth/v1.0", credentials["user"], credentials["key"])) as swift,
    ):
        use(swift)


def body(number: int) -> bytes:
    """An object's content: small ones, and a few that are not."""
    return hashlib.sha256(b"%d" % number).digest() * (64 if number % 8 else 65536)


def write(swift: Connection) -> None:
    swift.put_container("photos")
    for number in range(OBJECTS):
        swift.put_object("photos", f"object-{number}", body(number))


def check(swift: Connection) -> None:
    """All objects are there, as the listing says, and the quota is in force."""
    _, listed = swift.get_container("photos", full_listing=True)
    assert sorted(one["name"] for one in listed) == sorted(f"object-{number}" for number in range(OBJECTS))
    for number in range(OBJECTS):
        assert swift.get_object("photos", f"object-{number}")[1] == body(number)


def volumes(namespace: Namespace) -> list[str]:
    """The volumes of the store's claims."""
    claims = namespace.list("persistentvolumeclaims", f"app.kubernetes.io/instance={NAME}")
    return sorted(one["spec"]["volumeName"] for one in claims)


def reclaim(volume: str, policy: str) -> None:
    """Say what becomes of a volume without its claim."""
    change = json.dumps({"spec": {"persistentVolumeReclaimPolicy": policy}})
    run("kubectl", "patch", "persistentvolume", volume, "--type", "merge", "--patch", change)


def kept(namespace: Namespace) -> dict[str, Any]:
    """Keys, credentials, and the bytes of builders and rings."""
    found: dict[str, Any] = {name: namespace.secret(name) for name in (*KEYS, "ann-credentials")}
    for one in namespace.list("configmaps", f"app.kubernetes.io/instance={NAME}"):
        if one["metadata"]["labels"]["app.kubernetes.io/component"] in ("builder", "ring"):
            found[one["metadata"]["name"]] = one["binaryData"]
    return found


def delete_by_force(namespace: Namespace, kind: str, *names: str) -> None:
    """Take finalizers away, and delete."""
    for name in names:
        namespace.kubectl("patch", kind, name, "--type", "merge", "--patch", '{"metadata":{"finalizers":null}}')
        namespace.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


def test_keys_that_are_deleted_by_force_come_back_from_the_pods(namespace: Namespace) -> None:
    before = kept(namespace)
    delete_by_force(namespace, "secret", *KEYS)

    def probe() -> str | None:
        try:
            found = {name: namespace.secret(name) for name in KEYS}
        except Failed as error:
            return str(error)
        return None if found == {name: before[name] for name in KEYS} else "other keys were made"

    eventually("keys are back", SEALED_WITHIN_S, probe)
    namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
    with_client(namespace, check)


def test_only_volumes_are_left_and_a_backup_brings_the_store_back(namespace: Namespace, tmp_path: Path) -> None:
    before, kept_volumes = kept(namespace), volumes(namespace)
    for volume in kept_volumes:
        reclaim(volume, "Retain")
    identity = new_identity()
    (tmp_path / "key.txt").write_text(identity)
    file, where = str(tmp_path / "kept.age"), ["--operator-namespace", SYSTEM]
    backup = ["backup", NAME, "--namespace", namespace.name, "--output", file, "--recipient", public_key(identity)]
    assert main([*backup, *where]) == 0

    note = '{"metadata":{"annotations":{"swiftlet.io/allow-deletion":"true"}}}'
    namespace.kubectl("patch", "storagecluster", NAME, "--type", "merge", "--patch", note)
    run("kubectl", "delete", "namespace", namespace.name, "--timeout", f"{GONE_WITHIN_S}s")
    system = Namespace(SYSTEM)
    system.kubectl("delete", "secret", *RECOVERY)
    system.kubectl("rollout", "restart", f"deployment/{RELEASE}-operator")
    system.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "--timeout", "120s")

    restore = ["restore", file, "--identity", str(tmp_path / "key.txt"), *where]
    assert main([*restore, "--dry-run"]) == 0
    assert main(restore) == 0
    namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
    assert volumes(namespace) == kept_volumes
    assert kept(namespace) == before
    with_client(namespace, check)
    assert main(restore) == 0
