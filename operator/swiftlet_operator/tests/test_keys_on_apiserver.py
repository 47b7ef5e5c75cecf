"""The rotation of the cluster key against a real API server: how its Secret changes, and other hands on it."""

from __future__ import annotations

import base64

import pytest

from swiftlet.settings.secret import key_id, parse_keys
from swiftlet_operator.manifests import CLUSTER, SECRET, Manifest
from swiftlet_operator.plan.keys import PHASE
from swiftlet_operator.problems import KubeUnavailable
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_reconcile_on_apiserver import kube as kube

pytestmark = pytest.mark.apiserver


async def secret(cluster: Cluster) -> Manifest:
    """The keys' Secret."""
    live = await cluster.kube.get(SECRET, cluster.namespace, "store-keys")
    assert live is not None
    return live


def keys_in(live: Manifest) -> tuple[bytes, ...]:
    return parse_keys(base64.b64decode(live["data"]["cluster-key"]), "the Secret")


async def test_a_key_is_changed_and_nothing_but_it(apiserver: ApiServer, kube: Counting) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    before = await secret(cluster)
    await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"keys": {"generation": 2}}})

    phases = []
    for _ in range(12):
        cluster.told.keys = tuple(map(key_id, keys_in(await secret(cluster))))
        await cluster.step()
        live = await secret(cluster)
        phases.append((live["metadata"]["annotations"][PHASE], len(keys_in(live))))
        cluster.now_s += 100_000
    assert list(dict.fromkeys(phases)) == [("accept", 2), ("sign", 2), ("forget", 1), ("done", 1)]
    after = await secret(cluster)
    assert keys_in(after) != keys_in(before)
    assert after["data"]["hash-path-suffix"] == before["data"]["hash-path-suffix"]
    store = await kube.get(CLUSTER, cluster.namespace, "store")
    assert store is not None
    assert store["status"]["keyGeneration"] == 2
    assert await cluster.step() == []


async def test_a_secret_that_somebody_changed_meanwhile_is_not_written_over(
    apiserver: ApiServer, kube: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"keys": {"generation": 2}}})
    mine = keys_in(await secret(cluster))[0]
    theirs = b"a key that somebody put there"
    made = cluster.reconciler.fresh.token

    def meanwhile() -> str:
        # Between the look at the Secret and the write: another operator that has just lost its lease, say.
        data = {"cluster-key": base64.b64encode(mine + b"\n" + theirs).decode()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store-keys"}, "data": data}
        answer = apiserver.patch(f"/api/v1/namespaces/{cluster.namespace}/secrets/store-keys", body)
        assert answer.status == 200, answer.message
        return made()

    monkeypatch.setattr(cluster.reconciler.fresh, "token", meanwhile)
    with pytest.raises(KubeUnavailable, match="store-keys"):
        await cluster.step()
    assert keys_in(await secret(cluster)) == (mine, theirs)

    monkeypatch.undo()
    await cluster.step()
    assert keys_in(await secret(cluster))[:2] == (mine, theirs)
    assert len(keys_in(await secret(cluster))) == 3
