"""Whole reconciles of keys, certificates and quotas: what is rolled out, what is held, what outlives a failure."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.main.tests.certificates import make_pair
from swiftlet.settings.secret import key_id, parse_keys
from swiftlet_operator.problems import KubeUnavailable, NotLeader
from swiftlet_operator.tests.worlds import Scene, own, settled, text_of

TLS = {"pools": [{"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}], "tls": {"secretRef": {"name": "cert"}}}
QUOTA = {"levels": [{"name": "default", "containerCount": 3}], "assignments": []}


class Kubelets:
    """Pods with containers, that report the keys that the Secret had when they were last synced."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.silent: set[str] = set()
        for (kind, _, name), pod in scene.kube.objects.items():
            if kind == "Pod":
                service = next((one for one in ("container", "redis") if one in name), "object")
                pod["spec"]["containers"] = [{"name": service}]

    def sync(self) -> None:
        self.scene.told.keys = tuple(map(key_id, keys_of(self.scene)))
        self.scene.told.silent = self.silent


def keys_of(scene: Scene) -> tuple[bytes, ...]:
    return parse_keys(text_of(scene.kube.find("Secret", "store-keys"), "cluster-key").encode(), "the Secret")


async def test_a_new_generation_is_reached_step_by_step() -> None:
    scene = await settled()
    old, suffix = keys_of(scene), scene.kube.find("Secret", "store-keys")["data"]["hash-path-suffix"]
    kubelets = Kubelets(scene)
    kubelets.sync()
    assert scene.cluster["status"]["keyGeneration"] == 1
    scene.cluster["spec"]["keys"] = {"generation": 2}

    kubelets.silent = {"store-disks-1"}
    for _ in range(5):
        await scene.step()
        kubelets.sync()
        scene.now_s += 100_000
    assert keys_of(scene)[0] == old[0]
    assert scene.condition("KeysRotated") == ("False", "NewKeyAccepted")

    kubelets.silent = set()
    reasons = []
    for _ in range(12):
        kubelets.sync()
        await scene.step()
        reasons.append(scene.condition("KeysRotated")[1])
        scene.now_s += 100_000
    assert list(dict.fromkeys(reasons)) == ["NewKeyAccepted", "NewKeySigns", "OldKeyForgotten", "Current"]
    assert len(keys_of(scene)) == 1
    assert keys_of(scene) != old
    assert scene.cluster["status"]["keyGeneration"] == 2
    assert scene.kube.find("Secret", "store-keys")["data"]["hash-path-suffix"] == suffix
    kubelets.sync()
    assert await scene.step() == []


async def test_a_failing_write_or_a_lost_lease_delays_the_rotation_and_loses_nothing() -> None:
    scene = await settled()
    kubelets = Kubelets(scene)
    scene.cluster["spec"]["keys"] = {"generation": 2}
    held: list[tuple[bytes, ...]] = [keys_of(scene)]
    for number in range(60):
        kubelets.sync()
        # Every step is first tried without the API server, then without the lease, then in peace.
        scene.kube.failing = {"store-keys"} if number % 3 == 0 else set()
        scene.leads = number % 3 != 1
        before = keys_of(scene)
        try:
            await scene.step()
        except (KubeUnavailable, NotLeader):
            assert number % 3 != 2
            assert keys_of(scene) == before
        if keys_of(scene) != held[-1]:
            held.append(keys_of(scene))
        scene.now_s += 40_000

    old, new = held[0][0], held[-1][0]
    assert held == [(old,), (old, new), (new, old), (new,)]
    assert scene.cluster["status"]["keyGeneration"] == 2


async def test_a_new_cluster_begins_with_its_generation() -> None:
    scene = await settled({**TLS, "tls": {}, "keys": {"generation": 7}})

    assert scene.condition("KeysRotated") == ("True", "Current")
    assert scene.cluster["status"]["keyGeneration"] == 7
    assert len(keys_of(scene)) == 1


def certificate(**data: str) -> dict[str, Any]:
    """The Secret that spec.tls names."""
    metadata = {"name": "cert", "namespace": "data"}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}


def pair_of(cert: bytes, key: bytes) -> dict[str, Any]:
    """A Secret with these two."""
    return certificate(**{"tls.crt": base64.b64encode(cert).decode(), "tls.key": base64.b64encode(key).decode()})


async def test_tls_is_rolled_out_when_its_secret_is_whole(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "store")
    scene = await settled()
    scene.kube.put(own("StorageUser", "anna", {"account": "test", "user": "anna"}))
    await scene.step()
    scene.cluster["spec"]["tls"] = {"secretRef": {"name": "cert"}}
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "TLSSecretMissing")
    pod = scene.kube.find("Deployment", "store-proxy")["spec"]["template"]["spec"]
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTP"

    scene.kube.put(certificate(**{"tls.crt": "eA==", "tls.key": ""}))
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "TLSSecretIncomplete")

    scene.kube.put(pair_of(pair.cert, pair.key))
    await scene.step()
    pod = scene.kube.find("Deployment", "store-proxy")["spec"]["template"]["spec"]
    settings = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["settings.yaml"])
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert settings["proxy"]["tls_cert_file"] == "/etc/swiftlet/tls/tls.crt"
    assert scene.kube.find("Service", "store")["spec"]["ports"][0]["port"] == 443
    assert scene.cluster["status"]["endpoint"] == "https://store.data.svc"
    # Who takes the address from the generated Secret finds the new one there.
    assert text_of(scene.kube.find("Secret", "anna-credentials"), "authUrl") == "https://store.data.svc/auth/v1.0"


async def test_realms_reach_who_reads_them_when_their_secret_is_there() -> None:
    scene = await settled()
    scene.cluster["spec"]["containerSync"] = {"realmsSecretRef": {"name": "realms", "key": "file"}}
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "RealmsSecretMissing")

    def mounting() -> set[tuple[str, str]]:
        found = set()
        for kind, name in (
            ("Deployment", "store-proxy"),
            ("Deployment", "store-metadata"),
            ("StatefulSet", "store-disks"),
            ("StatefulSet", "store-container"),
        ):
            pod = scene.kube.find(kind, name)["spec"]["template"]["spec"]
            mounts = {
                (name, one["name"])
                for one in pod["containers"]
                if any(mount["mountPath"] == "/etc/swiftlet/realms" for mount in one["volumeMounts"])
            }
            assert bool(mounts) == any(volume["name"] == "realms" for volume in pod["volumes"])
            found |= mounts
        return found

    assert mounting() == set()
    metadata = {"name": "realms", "namespace": "data"}
    scene.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"file": "eA=="}})
    await scene.step()
    assert scene.condition("SpecValid") == ("True", "Valid")
    settings = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["settings.yaml"])
    assert settings["realms"] == {"file": "/etc/swiftlet/realms/realms.conf"}
    assert mounting() == {("store-proxy", "proxy"), ("store-disks", "replicator")}


async def test_direct_access_is_available_while_a_metadata_server_is_ready() -> None:
    scene = await settled("minimal")
    assert scene.condition("DirectAccessAvailable") == ("False", "NotWanted")
    scene.cluster["spec"]["directAccess"] = {"enabled": True}
    told = []
    for ready in (0, 1, 0):
        scene.kube.find("Deployment", "store-metadata")["status"] = {"replicas": 1, "readyReplicas": ready}
        await scene.step()
        told.append(scene.condition("DirectAccessAvailable"))
    assert told == [("False", "PodsNotReady"), ("True", "Ready"), ("False", "PodsNotReady")]
    assert "clients use the proxies" in scene.message("DirectAccessAvailable")
    assert scene.condition("Ready")[0] == "True"


async def test_direct_access_is_turned_on_and_off_with_all_that_it_needs() -> None:
    scene = await settled()
    scene.kube.put(own("StorageUser", "anna", {"account": "test", "user": "anna"}))
    await scene.step()
    key = text_of(scene.kube.find("Secret", "anna-credentials"), "key")

    def facts() -> tuple[object, bool, str | None]:
        settings = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["settings.yaml"])
        pod = scene.kube.find("Deployment", "store-metadata")["spec"]["template"]["spec"]
        secret = scene.kube.find("Secret", "anna-credentials")
        assert text_of(secret, "key") == key
        mounted = any(one["mountPath"] == "/etc/swiftlet/users" for one in pod["containers"][0]["volumeMounts"])
        assert mounted == any(one["name"] == "users" for one in pod["volumes"])
        place = text_of(secret, "metadataUrl") if "metadataUrl" in secret["data"] else None
        return settings["cluster"].get("direct_access"), mounted, place

    assert facts() == (None, False, None)
    scene.cluster["spec"]["directAccess"] = {"enabled": True}
    await scene.step()
    assert facts() == (True, True, "http://store-metadata.data.svc:8090")
    scene.cluster["spec"]["directAccess"] = {"enabled": False}
    await scene.step()
    assert facts() == (None, False, None)


def encrypted_key(key: bytes) -> bytes:
    """The key with a password around it."""
    made = ["openssl", "pkey", "-aes256", "-passout", "pass:secret"]
    return subprocess.run(made, input=key, check=True, capture_output=True).stdout


async def test_a_certificate_that_can_not_be_served_with_is_told(tmp_path: Path) -> None:
    pair, other = make_pair(tmp_path, "store"), make_pair(tmp_path, "other")
    encrypted = encrypted_key(pair.key)
    scene = await settled()
    scene.cluster["spec"]["tls"] = {"secretRef": {"name": "cert"}}
    for secret, problem in (
        (certificate(**{"tls.crt": "eA==", "tls.key": "eA=="}), "in PEM"),
        (certificate(**{"tls.crt": "%%%", "tls.key": "eA=="}), "not base64"),
        (pair_of(pair.cert, other.key), "mismatch"),
        (pair_of(pair.cert, encrypted), "encrypted"),
        (pair_of(pair.cert[:200], pair.key), ""),
    ):
        scene.kube.put(secret)
        await scene.step()
        assert scene.condition("SpecValid") == ("False", "TLSSecretUnusable")
        message = next(one["message"] for one in scene.cluster["status"]["conditions"] if one["type"] == "SpecValid")
        assert problem in message, message
        assert "\n" not in message
    scene.kube.put(pair_of(pair.cert, pair.key))
    await scene.step()
    assert scene.condition("SpecValid") == ("True", "Valid")


async def test_a_new_cluster_waits_for_its_certificate() -> None:
    scene = Scene(TLS)
    await scene.step()

    assert scene.kube.names("Deployment") == set()
    assert scene.condition("SpecValid") == ("False", "TLSSecretMissing")


async def test_quotas_follow_the_storage_quota() -> None:
    scene = await settled()

    def levels() -> Any:
        return yaml.safe_load(scene.kube.find("ConfigMap", "store-quotas")["data"]["quotas.yaml"])["levels"]

    assert levels() == {"default": {}}
    scene.kube.put(own("StorageQuota", "limits", QUOTA))
    assert "apply ConfigMap/store-quotas" in await scene.step()
    assert levels() == {"default": {"container_count": 3}}
    # No pod restarts for it.
    assert await scene.step() == []

    scene.kube.put(own("StorageQuota", "more", {"levels": [{"name": "default", "containerCount": 99}]}))
    await scene.step()
    assert levels() == {"default": {"container_count": 3}}
    condition = scene.kube.find("StorageQuota", "more")["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "QuotaTwice")
    del scene.kube.objects["StorageQuota", "data", "more"]

    del scene.kube.objects["StorageQuota", "data", "limits"]
    await scene.step()
    assert levels() == {"default": {}}


@pytest.mark.parametrize(
    "damage",
    [{"levels": "none"}, {"assignments": [{"account": "press", "level": "L9"}]}],
    ids=["unreadable", "refused"],
)
async def test_a_damaged_storage_quota_leaves_the_limits_in_force(damage: dict[str, Any]) -> None:
    scene = await settled()
    scene.kube.put(own("StorageQuota", "limits", QUOTA))
    await scene.step()
    before = scene.kube.find("ConfigMap", "store-quotas")["data"]
    scene.kube.put(own("StorageQuota", "limits", {**QUOTA, **damage}))
    await scene.step()

    assert scene.kube.find("ConfigMap", "store-quotas")["data"] == before
    assert scene.kube.find("StorageQuota", "limits")["status"]["conditions"][0]["status"] == "False"
