"""What a cluster gets for Prometheus on a real API server, when Prometheus' kinds come and when they are not wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftlet_operator.manifests import CLUSTER, MONITORING_KINDS, PROMETHEUS_RULE, SERVICE_MONITOR
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.others_kinds import OthersKinds
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

pytestmark = pytest.mark.apiserver

__all__ = ["kube"]


@pytest.fixture
def kinds(apiserver: ApiServer, tmp_path: Path) -> Iterator[OthersKinds]:
    """Not installed yet."""
    found = OthersKinds(apiserver, tmp_path, MONITORING_KINDS)
    yield found
    found.remove()


async def test_alerts_come_with_prometheus_kinds_and_go_when_they_are_not_wanted(
    apiserver: ApiServer, kube: Counting, kinds: OthersKinds
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()

    kinds.install()
    written = await cluster.step()

    assert {one.partition("?")[0].split("/")[-2] for one in written} >= {kind.plural for kind in MONITORING_KINDS}
    rule = await kube.get(PROMETHEUS_RULE, cluster.namespace, "store")
    monitor = await kube.get(SERVICE_MONITOR, cluster.namespace, "store")
    assert rule is not None
    assert monitor is not None
    (group,) = rule["spec"]["groups"]
    assert all(f'namespace="{cluster.namespace}"' in one["expr"] for one in group["rules"])
    for _ in range(3):
        cluster.now_s += 61
        assert await cluster.step() == []

    await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"monitoring": {"enabled": False}}})
    await cluster.settle()
    for kind in MONITORING_KINDS:
        assert await kube.get(kind, cluster.namespace, "store") is None
