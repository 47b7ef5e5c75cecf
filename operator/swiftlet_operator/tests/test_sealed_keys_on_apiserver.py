"""Sealed keys against a real API server: both Secrets are deleted by force, and the keys are back as they were."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from swiftlet_operator import recovery
from swiftlet_operator.manifests import CONFIG_MAP, DATA_FINALIZER, SECRET, Manifest, finalizers_of, name_of
from swiftlet_operator.recovery import Recovery
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_reconcile_on_apiserver import kube as kube

pytestmark = pytest.mark.apiserver
KEYS = ("store-keys", "store-keys-copy")


def with_recovery(cluster: Cluster, namespace: str) -> None:
    """Give the cluster's operator a namespace of its own, and forget what it remembers."""
    keeper = Recovery(cluster.kube, namespace, lambda: None, lambda: 0.0)
    cluster.reconciler = replace(cluster.reconciler, recovery=keeper)


async def secret(cluster: Cluster, name: str) -> Manifest:
    live = await cluster.kube.get(SECRET, cluster.namespace, name)
    assert live is not None
    return live


async def copies(cluster: Cluster) -> list[bytes]:
    """The sealed copies that the cluster's pods are given."""
    live = await cluster.kube.get(CONFIG_MAP, cluster.namespace, "store-sealed-keys")
    assert live is not None
    return [base64.b64decode(text) for text in live["binaryData"].values()]


async def delete_by_force(cluster: Cluster, *names: str) -> None:
    """As somebody does who takes the finalizers away."""
    for name in names:
        live = await secret(cluster, name)
        await cluster.kube.patch(SECRET, cluster.namespace, name, {"metadata": {"finalizers": None}})
        await cluster.kube.delete(SECRET, cluster.namespace, name, live["metadata"]["uid"])
        assert await cluster.kube.get(SECRET, cluster.namespace, name) is None


async def test_both_secrets_are_deleted_by_force_and_pods_give_the_keys_back(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    system = apiserver.namespace("system")
    with_recovery(cluster, system)
    await cluster.make()
    await cluster.settle()
    before = {name: (await secret(cluster, name))["data"] for name in KEYS}
    cluster.told.sealed["store-disks-1"] = await copies(cluster)
    assert len(await copies(cluster)) == 1
    await delete_by_force(cluster, *KEYS)

    with_recovery(cluster, system)
    await cluster.settle()
    for name in KEYS:
        live = await secret(cluster, name)
        assert live["data"] == before[name]
        assert DATA_FINALIZER in finalizers_of(live)
    # What was sealed is sealed no more than once.
    assert await copies(cluster) == cluster.told.sealed["store-disks-1"]
    assert await cluster.step() == []


async def test_an_entry_of_an_older_copy_goes(apiserver: ApiServer, kube: Counting) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    with_recovery(cluster, apiserver.namespace("system"))
    await cluster.make()
    await cluster.settle()
    [first] = await copies(cluster)
    live = await secret(cluster, "store-keys")
    more = base64.b64encode(base64.b64decode(live["data"]["cluster-key"]) + b"\nanother key of enough bytes").decode()
    for name in KEYS:
        await kube.patch(SECRET, cluster.namespace, name, {"data": {"cluster-key": more}})
    cluster.now_s += 10
    await cluster.settle()
    [second] = await copies(cluster)
    assert second != first


async def test_the_recovery_key_is_made_once_and_comes_back(apiserver: ApiServer, kube: Counting) -> None:
    system = apiserver.namespace("system")
    known = await Recovery(kube, system, lambda: None, lambda: 0.0).known()
    assert known.keys is not None
    for lost in (recovery.NAME, recovery.COPY):
        live = await kube.get(SECRET, system, lost)
        assert live is not None
        await kube.delete(SECRET, system, lost, live["metadata"]["uid"])
        assert (await Recovery(kube, system, lambda: None, lambda: 0.0).known()) == known
        assert {name_of(one) for one in await kube.list(SECRET, system)} == {recovery.NAME, recovery.COPY}
