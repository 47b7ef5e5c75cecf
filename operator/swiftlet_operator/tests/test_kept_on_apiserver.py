"""Finalizers and copies of keys, builders and rings against a real API server: everything is deleted at once."""

from __future__ import annotations

import pytest

from swiftlet_operator.manifests import (
    CLUSTER,
    CONFIG_MAP,
    DATA_FINALIZER,
    SECRET,
    Manifest,
    cluster_labels,
    finalizers_of,
    is_going,
    name_of,
)
from swiftlet_operator.plan.guard import is_guarded
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_reconcile_on_apiserver import kube as kube

pytestmark = pytest.mark.apiserver


async def guarded(cluster: Cluster) -> dict[tuple[str, str], Manifest]:
    """All objects with the finalizer, by kind and name."""
    found = [
        one
        for kind in (CONFIG_MAP, SECRET)
        for one in await cluster.kube.list(kind, cluster.namespace, cluster_labels("store"))
    ]
    return {(one["kind"], name_of(one)): one for one in found if is_guarded(one)}


async def test_configmaps_and_secrets_are_deleted_at_once_and_come_back_as_they_were(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    before = await guarded(cluster)
    # Keys and rings: account, container and one policy; each builder twice.
    assert len(before) == 2 + 3 * 3
    for kind in (CONFIG_MAP, SECRET):
        for one in await kube.list(kind, cluster.namespace, cluster_labels("store")):
            await kube.delete(kind, cluster.namespace, name_of(one), one["metadata"]["uid"])
    held = await guarded(cluster)
    assert held.keys() == before.keys()
    assert all(map(is_going, held.values()))

    await cluster.settle()
    after = await guarded(cluster)
    assert after.keys() == before.keys()
    for place, one in after.items():
        assert not is_going(one)
        assert one["metadata"]["uid"] != before[place]["metadata"]["uid"]
        assert one.get("data") == before[place].get("data")
        assert one.get("binaryData") == before[place].get("binaryData")


async def test_a_cluster_that_is_let_go_leaves_keys_and_builders_without_finalizers(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    live = await kube.get(CLUSTER, cluster.namespace, "store")
    assert live is not None
    notes = {"metadata": {"annotations": {"swiftlet.io/allow-deletion": "true"}}}
    await kube.patch(CLUSTER, cluster.namespace, "store", notes)
    await kube.delete(CLUSTER, cluster.namespace, "store", live["metadata"]["uid"])
    await cluster.step()

    assert await kube.get(CLUSTER, cluster.namespace, "store") is None
    keys = await kube.get(SECRET, cluster.namespace, "store-keys")
    assert keys is not None
    assert DATA_FINALIZER not in finalizers_of(keys)
    assert await guarded(cluster) == {}
