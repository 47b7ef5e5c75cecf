"""How objects of a policy are stored, on a real API server: its `etag` and `aggregateBelow` reach the services."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet_operator.manifests import POLICY, STATEFUL_SET
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube
from swiftlet_operator.tests.test_retire_on_apiserver import found, made, settings

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver


async def generation(cluster: Cluster) -> int:
    """How often the pods of disks were to be others."""
    value: int = (await found(cluster, STATEFUL_SET, "store-disks"))["metadata"]["generation"]
    return value


async def test_both_fields_reach_the_services_and_restart_nothing(apiserver: ApiServer, kube: Counting) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    await made(cluster, POLICY, "fast", {"index": 1, "name": "fast"})
    await cluster.settle()
    before = await generation(cluster)
    usual: dict[str, Any] = {"index": 1, "name": "fast", "default": False, "deprecated": False}
    assert (await settings(cluster))[1] == usual, "the API server's defaults are as usual"
    for change, more in (
        ({"etag": "xxh3", "aggregateBelow": "64Ki"}, {"aggregate_below": 65536, "etag": "xxh3"}),
        ({"etag": "md5", "aggregateBelow": "1Mi"}, {}),
    ):
        await cluster.kube.patch(POLICY, cluster.namespace, "fast", {"spec": change})
        await cluster.settle()
        assert (await settings(cluster))[1] == usual | more
    assert await generation(cluster) == before
