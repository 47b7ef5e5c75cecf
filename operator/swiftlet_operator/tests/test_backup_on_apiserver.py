"""Backup and restore against real API servers, by kubectl: all but the volumes is lost, and a move to another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swiftlet_operator import recovery
from swiftlet_operator.kube import connected
from swiftlet_operator.manifests import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    POLICY,
    PV,
    PVC,
    QUOTA,
    RING,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    USER,
    Kind,
    Manifest,
    annotations_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plugin.main import main
from swiftlet_operator.recovery import Recovery
from swiftlet_operator.sealing import new_identity, parse_identities, public_key
from swiftlet_operator.tests.apiserver import ApiServer, hyperkube, running
from swiftlet_operator.tests.conftest import CRDS
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_reconcile_on_apiserver import kube as kube
from swiftlet_operator.tests.worlds import text_of

pytestmark = pytest.mark.apiserver
OWN = (POLICY, QUOTA, USER, RING)
CHILDREN = (SECRET, CONFIG_MAP, STATEFUL_SET, DEPLOYMENT, SERVICE, POD)
DATA = ("data", "binaryData", "spec")


def custom(kind: Kind, name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    body = {"clusterRef": {"name": "store"}, **spec}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": body}


async def a_store(apiserver: ApiServer, kube: Counting, system: str) -> Cluster:
    """A cluster that runs, with a policy, a quota, users of both kinds, and volumes behind its claims."""
    cluster = Cluster(apiserver, kube, "minimal")
    with_recovery(cluster, system)
    await cluster.make()
    namespace = cluster.namespace
    for one in (
        custom(POLICY, "main", namespace, {"index": 0, "name": "main", "default": True}),
        custom(POLICY, "gold", namespace, {"index": 1, "name": "gold"}),
        custom(QUOTA, "quotas", namespace, {"levels": [{"name": "default", "containerCount": 1}]}),
        custom(USER, "alice", namespace, {"account": "AUTH_a", "user": "alice", "roles": ["admin"]}),
    ):
        await kube.create(one)
    await cluster.settle()
    for claim in await kube.list(PVC, namespace):
        await make_volume(kube, claim)
    return cluster


def with_recovery(cluster: Cluster, system: str) -> None:
    keeper = Recovery(cluster.kube, system, lambda: None, lambda: 0.0)
    cluster.reconciler = replace(cluster.reconciler, recovery=keeper)


async def make_volume(kube: Counting, claim: Manifest) -> None:
    """A volume with Retain, promised to the claim."""
    reference = {"namespace": claim["metadata"]["namespace"], "name": name_of(claim), "uid": claim["metadata"]["uid"]}
    spec = {
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
    }
    metadata = {"name": claim["spec"]["volumeName"]}
    await kube.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})


async def kept(kube: Counting, namespace: str) -> dict[tuple[str, str], Any]:
    """What has to be the same afterwards: keys, builders, rings, credentials, and what users wrote."""
    found: dict[tuple[str, str], Any] = {}
    for kind in (SECRET, CONFIG_MAP, CLUSTER, *OWN):
        for one in await kube.list(kind, namespace):
            component = labels_of(one).get("app.kubernetes.io/component")
            if kind in (CLUSTER, *OWN) or component in ("keys", "builder", "ring", "credentials"):
                found[kind.kind, name_of(one)] = {key: one[key] for key in DATA if key in one}
    return found


async def destroy(kube: Counting, namespace: str) -> None:
    """Everything but the volumes, finalizers or not."""
    for kind in (CLUSTER, *OWN, *CHILDREN, PVC):
        for one in await kube.list(kind, namespace):
            await kube.patch(kind, namespace, name_of(one), {"metadata": {"finalizers": None}})
            await kube.delete(kind, namespace, name_of(one), one["metadata"]["uid"], 0)
        assert await kube.list(kind, namespace) == []


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Where the backup goes, and the key that opens it."""
    (tmp_path / "key").write_text(new_identity())
    return tmp_path / "store.age", tmp_path / "key"


def backup(namespace: str, system: str, files: tuple[Path, Path]) -> None:
    path, key = files
    where = ["--namespace", namespace, "--operator-namespace", system, "--output", str(path)]
    assert main(["backup", "store", *where, "--recipient", public_key(key.read_text())]) == 0


def restore(system: str, files: tuple[Path, Path], *more: str) -> int:
    path, key = files
    return main(["restore", str(path), "--identity", str(key), "--operator-namespace", system, *more])


async def test_all_but_the_volumes_is_lost_and_comes_back_as_it_was(
    apiserver: ApiServer, kube: Counting, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    system = apiserver.namespace("system")
    cluster = await a_store(apiserver, kube, system)
    namespace = cluster.namespace
    before = await kept(kube, namespace)
    assert {("Secret", "store-keys"), ("Secret", "alice-credentials"), ("Ring", "store-object-1")} <= before.keys()
    backup(namespace, system, files)
    await destroy(kube, namespace)
    await destroy(kube, system)

    assert restore(system, files, "--dry-run") == 0
    assert await kept(kube, namespace) == {}
    assert restore(system, files) == 0
    assert await kept(kube, namespace) == before
    for claim in await kube.list(PVC, namespace):
        volume = await kube.get(PV, "", claim["spec"]["volumeName"])
        assert volume is not None
        assert "uid" not in volume["spec"]["claimRef"]
    capsys.readouterr()
    assert restore(system, files) == 0
    assert "\n0 objects written" in capsys.readouterr().out

    with_recovery(cluster, system)
    await cluster.settle()
    after = await kept(kube, namespace)
    assert {place: after[place] for place in before} == before
    store = await kube.get(CLUSTER, namespace, "store")
    assert store is not None
    valid = next(one for one in store["status"]["conditions"] if one["type"] == "SpecValid")
    assert valid["status"] == "True", valid
    ring, user_secret = (
        await kube.get(RING, namespace, "store-object-1"),
        await kube.get(SECRET, namespace, "alice-credentials"),
    )
    assert ring is not None
    assert user_secret is not None
    assert [one["uid"] for one in ring["metadata"]["ownerReferences"]] == [store["metadata"]["uid"]]
    alice = await kube.get(USER, namespace, "alice")
    assert alice is not None
    assert [one["uid"] for one in user_secret["metadata"]["ownerReferences"]] == [alice["metadata"]["uid"]]


async def test_what_differs_stops_a_restore_before_anything_is_written(
    apiserver: ApiServer, kube: Counting, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    system = apiserver.namespace("system")
    cluster = await a_store(apiserver, kube, system)
    namespace = cluster.namespace
    backup(namespace, system, files)
    await kube.patch(QUOTA, namespace, "quotas", {"spec": {"levels": [{"name": "default", "containerCount": 2}]}})
    gold = await kube.get(POLICY, namespace, "gold")
    assert gold is not None
    await kube.patch(POLICY, namespace, "gold", {"metadata": {"finalizers": None}})
    await kube.delete(POLICY, namespace, "gold", gold["metadata"]["uid"])

    assert restore(system, files) == 1
    assert "differs    StorageQuota" in (said := capsys.readouterr()).out
    assert "nothing was written" in said.err
    assert await kube.get(POLICY, namespace, "gold") is None

    assert restore(system, files, "--keep") == 0
    quota = await kube.get(QUOTA, namespace, "quotas")
    assert quota is not None
    assert quota["spec"]["levels"][0]["containerCount"] == 2
    assert await kube.get(POLICY, namespace, "gold") is not None

    assert restore(system, files, "--overwrite") == 0
    quota = await kube.get(QUOTA, namespace, "quotas")
    assert quota is not None
    assert quota["spec"]["levels"][0]["containerCount"] == 1


@asynccontextmanager
async def another_kubernetes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ApiServer, Counting]]:
    """A second API server, which kubectl talks to from now on."""
    binary = hyperkube()
    assert binary is not None
    with running(binary) as server:
        server.install_crds(CRDS)
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        async with connected(30.0) as plain:
            counting = Counting(plain._client, plain._timeout_s)
            counting.writes = []
            yield server, counting


async def test_a_cluster_moves_to_another_kubernetes(
    apiserver: ApiServer, kube: Counting, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = apiserver.namespace("system")
    first = await a_store(apiserver, kube, system)
    namespace = first.namespace
    before = await kept(kube, namespace)
    claims = await kube.list(PVC, namespace)
    copies = await kube.get(CONFIG_MAP, namespace, "store-sealed-keys")
    assert copies is not None
    old = await kube.get(SECRET, system, recovery.NAME)
    assert old is not None
    backup(namespace, system, files)

    async with another_kubernetes(monkeypatch) as (server, there):
        home = server.namespace("home")
        # Its operator has made a recovery key of its own, and somebody has brought the volumes.
        own = (await Recovery(there, home, lambda: None, lambda: 0.0).known()).keys
        assert own is not None
        for claim in claims:
            await make_volume(there, claim)
        assert restore(home, files) == 0

        assert await kept(there, namespace) == before
        assert {name_of(one) for one in await there.list(PVC, namespace)} == {name_of(one) for one in claims}
        merged = await there.get(SECRET, home, recovery.NAME)
        assert merged is not None
        assert parse_identities(text_of(merged, recovery.ENTRY)) == (
            *own.identities,
            *parse_identities(text_of(old, recovery.ENTRY)),
        )
        second = Cluster.__new__(Cluster)
        second.__dict__.update(first.__dict__)
        second.kube = there
        second.reconciler = replace(first.reconciler, kube=there)
        with_recovery(second, home)
        for zone in "abc":
            labels = {"topology.kubernetes.io/zone": zone}
            await there.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{zone}", "labels": labels}}
            )
        await second.settle()
        after = await kept(there, namespace)
        assert {place: after[place] for place in before} == before
        store = await there.get(CLUSTER, namespace, "store")
        assert store is not None
        assert next(one for one in store["status"]["conditions"] if one["type"] == "SpecValid")["status"] == "True"
        # Sealed to the new operator's key now.
        sealed = await there.get(CONFIG_MAP, namespace, "store-sealed-keys")
        assert sealed is not None
        assert annotations_of(sealed) != annotations_of(copies)
