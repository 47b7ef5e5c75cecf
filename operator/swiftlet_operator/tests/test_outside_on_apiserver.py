"""cert-manager's and the Gateway API's kinds on a real API server: what is made of ours, told and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swiftlet_operator.manifests import (
    CERTIFICATE,
    CLUSTER,
    HTTP_ROUTE,
    INGRESS,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Manifest,
    name_of,
)
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.others_kinds import OthersKinds
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

pytestmark = pytest.mark.apiserver

__all__ = ["kube"]

ISSUER = {"issuerRef": {"name": "ours", "kind": "ClusterIssuer"}}


@pytest.fixture
def kinds(apiserver: ApiServer, tmp_path: Path) -> Iterator[OthersKinds]:
    """Not installed yet."""
    found = OthersKinds(apiserver, tmp_path, (CERTIFICATE, HTTP_ROUTE))
    yield found
    found.remove()


class Case:
    """A cluster at rest."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.kube, self.namespace = cluster, cluster.kube, cluster.namespace

    async def edit(self, spec: Manifest) -> None:
        await self.kube.patch(CLUSTER, self.namespace, "store", {"spec": spec})

    async def find(self, kind: Any, name: str = "store") -> Manifest:
        found = await self.kube.get(kind, self.namespace, name)
        assert found is not None, name
        return found

    async def told(self, type_: str) -> tuple[str, str, str]:
        conditions = (await self.find(CLUSTER))["status"]["conditions"]
        found = next(one for one in conditions if one["type"] == type_)
        return found["status"], found["reason"], found["message"]

    async def says(self, kind: Any, name: str, status: Manifest) -> None:
        """What another project's controller writes."""
        await self.kube.patch(kind, self.namespace, name, {"status": status}, "status")

    async def rests(self) -> None:
        await self.cluster.settle()
        for _ in range(3):
            self.cluster.now_s += 61
            assert await self.cluster.step() == []


async def settled(apiserver: ApiServer, kube: Counting, spec: str = "minimal") -> Case:
    cluster = Cluster(apiserver, kube, spec)
    await cluster.make()
    await cluster.settle()
    return Case(cluster)


async def test_a_certificate_is_asked_for_taken_up_and_given_up(
    apiserver: ApiServer, kube: Counting, kinds: OthersKinds
) -> None:
    case = await settled(apiserver, kube)
    await case.edit({"tls": {"certManager": {**ISSUER, "duration": "720h", "renewBefore": "90m"}}})
    await case.cluster.step()
    assert (await case.told("CertificateReady"))[:2] == ("False", "CertManagerMissing")
    assert (await case.told("SpecValid"))[:2] == ("False", "CertificateNotIssued")

    kinds.install()
    await case.cluster.step()
    made = await case.find(CERTIFICATE, "store-tls")
    service = f"store.{case.namespace}.svc"
    assert made["spec"]["dnsNames"] == ["store", service.removesuffix(".svc"), service, f"{service}.cluster.local"]
    assert (made["spec"]["duration"], made["spec"]["renewBefore"]) == ("720h0m0s", "1h30m0s")
    waiting = {"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "no ClusterIssuer ours"}
    await case.says(CERTIFICATE, "store-tls", {"conditions": [waiting]})
    await case.cluster.step()
    status, reason, message = await case.told("CertificateReady")
    assert (status, reason) == ("False", "DoesNotExist")
    assert "no ClusterIssuer ours" in message
    assert (await case.find(SERVICE))["spec"]["ports"][0]["port"] == 80, "not before there is a certificate"
    await case.rests()

    await case.cluster._certificate("store-tls")
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "valid"}
    await case.says(CERTIFICATE, "store-tls", {"conditions": [ready], "notAfter": "2027-04-15T08:00:00Z"})
    await case.rests()
    assert (await case.told("CertificateReady"))[:2] == ("True", "Issued")
    assert (await case.told("SpecValid"))[0] == "True"
    assert (await case.find(SERVICE))["spec"]["ports"][0]["port"] == 443

    await case.cluster._certificate("mine")
    await case.edit({"tls": {"certManager": None, "secretRef": {"name": "mine"}}})
    await case.rests()
    assert (await case.told("CertificateReady"))[:2] == ("False", "NotWanted")
    assert await kube.get(CERTIFICATE, case.namespace, "store-tls") is None
    assert await kube.get(SECRET, case.namespace, "store-tls") is not None


async def test_a_route_and_an_ingress_come_and_go(apiserver: ApiServer, kube: Counting, kinds: OthersKinds) -> None:
    case = await settled(apiserver, kube)
    route = {"parentRefs": [{"name": "edge", "namespace": "gateways"}], "hostnames": ["o.example.org"]}
    await case.edit({"proxy": {"route": route}})
    await case.cluster.settle()
    assert (await case.told("APIExposed"))[:2] == ("False", "GatewayAPIMissing")

    kinds.install()
    await case.cluster.settle()
    made = await case.find(HTTP_ROUTE)
    assert made["spec"]["rules"][0]["backendRefs"][0]["port"] == 80
    assert (await case.told("APIExposed"))[:2] == ("False", "NotAttached")
    await case.rests()
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "fine"}
    await case.says(HTTP_ROUTE, "store", {"parents": [{"parentRef": {"name": "edge"}, "conditions": [accepted]}]})
    await case.rests()
    assert (await case.told("APIExposed"))[:2] == ("True", "Exposed")
    assert (await case.find(CLUSTER))["status"]["endpoint"] == "https://o.example.org"

    ingress = {"className": "nginx", "hosts": ["i.example.org"], "annotations": {"example.org/body": "0"}}
    await case.edit({"proxy": {"route": None, "ingress": ingress}})
    await case.rests()
    assert await kube.get(HTTP_ROUTE, case.namespace, "store") is None
    live = await case.find(INGRESS)
    assert live["spec"]["rules"][0]["host"] == "i.example.org"
    assert (await case.find(CLUSTER))["status"]["endpoint"] == "http://i.example.org"

    await case.edit({"proxy": {"ingress": None}})
    await case.rests()
    assert await kube.get(INGRESS, case.namespace, "store") is None


async def test_what_is_added_by_the_api_server_is_left_alone(
    apiserver: ApiServer, kube: Counting, kinds: OthersKinds
) -> None:
    """Everything that can be said of pods, with all kinds there."""
    kinds.install()
    case = await settled(apiserver, kube, "shaped")
    await case.rests()
    for one in await kube.list(STATEFUL_SET, case.namespace):
        pod = one["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == ("theirs" if name_of(one) == "store-slow" else "store-pods")
        assert pod["priorityClassName"] == "system-cluster-critical"


async def test_scaled_proxies_are_what_the_deployment_gets(apiserver: ApiServer, kube: Counting) -> None:
    case = await settled(apiserver, kube)
    path = f"/apis/swiftlet.io/v1alpha1/namespaces/{case.namespace}/storageclusters/store/scale"
    scale = apiserver.get(path).body
    assert scale["spec"]["replicas"] == 2
    assert "app.kubernetes.io/component=proxy" in scale["status"]["selector"]

    assert apiserver.request("PUT", path, {**scale, "spec": {"replicas": 5}}).status == 200
    await case.rests()
    deployment = f"/apis/apps/v1/namespaces/{case.namespace}/deployments/store-proxy"
    assert apiserver.get(deployment).body["spec"]["replicas"] == 5
    apiserver.patch(f"{deployment}/status", {"status": {"replicas": 5}})
    await case.rests()
    assert apiserver.get(path).body["status"]["replicas"] == 5
