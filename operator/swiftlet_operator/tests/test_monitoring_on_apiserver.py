"""What a cluster gets for Prometheus on a real API server, when Prometheus' kinds come and when they are not wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from swiftlet_operator.manifests import CLUSTER, MONITORING_KINDS, PROMETHEUS_RULE, SERVICE_MONITOR
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

pytestmark = pytest.mark.apiserver

__all__ = ["kube"]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Kinds:
    """The two kinds of the Prometheus operator, of any content; other tests' clusters do not know them."""

    def __init__(self, apiserver: ApiServer, folder: Path) -> None:
        self._apiserver = apiserver
        self._folder = folder

    def install(self) -> None:
        """Make the API server know them."""
        for kind in MONITORING_KINDS:
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            group = kind.api_version.partition("/")[0]
            names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
            definition = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{kind.plural}.{group}"},
                "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
            }
            (self._folder / f"{kind.plural}.yaml").write_text(yaml.safe_dump(definition))
        self._apiserver.install_crds(self._folder)

    def remove(self) -> None:
        """Make it forget them."""
        for kind in MONITORING_KINDS:
            self._apiserver.delete(f"{DEFINITIONS}/{kind.plural}.{kind.api_version.partition('/')[0]}")


@pytest.fixture
def kinds(apiserver: ApiServer, tmp_path: Path) -> Iterator[Kinds]:
    """Not installed yet."""
    found = Kinds(apiserver, tmp_path)
    yield found
    found.remove()


async def test_alerts_come_with_prometheus_kinds_and_go_when_they_are_not_wanted(
    apiserver: ApiServer, kube: Counting, kinds: Kinds
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
