"""A federation of two clusters in real API servers, which read each other with tokens for ConfigMaps alone."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from swiftlet_operator.kube import connected
from swiftlet_operator.manifests import CLUSTER, CONFIG_MAP, RING_VERSION_LABEL, SERVICE, STATEFUL_SET
from swiftlet_operator.members import Access, MemberAway, access_of, read_over_https
from swiftlet_operator.reconcile import Key
from swiftlet_operator.tests.apiserver import ApiServer, hyperkube, running
from swiftlet_operator.tests.conftest import CRDS
from swiftlet_operator.tests.federations import KEY, kubeconfig, secret, spec_of
from swiftlet_operator.tests.reporters import RINGS
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ApiServer]:
    """A second API server, with authorities of its own."""
    binary = hyperkube()
    assert binary is not None
    with running(binary) as server:
        server.install_crds(CRDS)
        yield server


class Member(Cluster):
    """A member in a namespace of an API server."""

    def __init__(self, apiserver: ApiServer, kube: Counting, name: str) -> None:
        super().__init__(apiserver, kube, "minimal")
        self.apiserver = apiserver
        self.name = name
        self.key = Key(self.namespace, name)
        self.reconciler = replace(self.reconciler, read=read_over_https)

    async def join(self, leader: str, others: list[Member]) -> None:
        """The StorageCluster, the keys, and a kubeconfig for each other member."""
        spec = spec_of(self.name, leader, tuple(one.name for one in others))
        for entry, other in zip(spec["federation"]["members"], others, strict=True):
            entry["namespace"] = other.namespace
            text = kubeconfig(other.apiserver.url, other.reader(), other.apiserver.ca_file.read_text("utf-8"))
            await self._secret(secret(f"to-{other.name}", "kubeconfig", text))
        spec["federation"]["podServices"] = {"annotations": {"example.org/name": "{host}"}}
        keys = secret(f"{self.name}-keys", "cluster-key", KEY.decode())
        keys["data"]["hash-path-suffix"] = base64.b64encode(b"a suffix of names").decode()
        await self._secret(keys)
        head = {"apiVersion": "swiftlet.io/v1alpha1", "kind": "StorageCluster"}
        await self.kube.create({**head, "metadata": {"name": self.name, "namespace": self.namespace}, "spec": spec})
        for zone in "abc":
            node = {"metadata": {"name": f"node-{zone}", "labels": {"topology.kubernetes.io/zone": zone}}}
            self.apiserver.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
        self.apiserver.create(
            f"/api/v1/namespaces/{self.namespace}/serviceaccounts",
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        )

    async def _secret(self, manifest: dict[str, Any]) -> None:
        await self.kube.create({**manifest, "metadata": {**manifest["metadata"], "namespace": self.namespace}})

    def reader(self) -> str:
        """A token that may get ConfigMaps of the namespace, as the guide has it made."""
        within = f"/namespaces/{self.namespace}"
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "federation"}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "federation"}}
        role = {"kind": "Role", "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}
        binding = {
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "federation"},
            "subjects": [{"kind": "ServiceAccount", "name": "federation", "namespace": self.namespace}],
        }
        self.apiserver.create(f"/api/v1{within}/serviceaccounts", account)
        self.apiserver.create(f"/apis/rbac.authorization.k8s.io/v1{within}/roles", rbac | role)
        self.apiserver.create(f"/apis/rbac.authorization.k8s.io/v1{within}/rolebindings", rbac | binding)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = self.apiserver.create(f"/api/v1{within}/serviceaccounts/federation/token", asked)
        assert answer.status == 201, answer.message
        return str(answer.body["status"]["token"])

    async def visit(self) -> list[str]:
        """Pods come alive, and the operator looks once; what was written."""
        await self.live()
        await self.serve()
        self._laid_out = await self.versions()
        self.kube.writes.clear()
        await self.reconciler.reconcile(self.key)
        return list(self.kube.writes)

    async def versions(self) -> dict[str, int]:
        """The versions of the rings that it has published."""
        found = {}
        for ring in RINGS:
            live = await self.kube.get(CONFIG_MAP, self.namespace, f"{self.name}-ring-{ring}-0")
            if live is not None:
                found[ring] = int(live["metadata"]["labels"][RING_VERSION_LABEL])
        return found

    async def condition(self, type_: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        live = await self.kube.get(CLUSTER, self.namespace, self.name)
        assert live is not None
        found = next(one for one in live["status"]["conditions"] if one["type"] == type_)
        return found["status"], found["reason"], found["message"]


async def client(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    """A client of an API server that counts."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    async with connected(30.0) as plain:
        counting = Counting(plain._client, plain._timeout_s)
        counting.writes = []
        yield counting


@pytest.fixture
async def east(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Member]:
    """The leader."""
    async for kube in client(apiserver, monkeypatch):
        yield Member(apiserver, kube, "east")


@pytest.fixture
async def west(elsewhere: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Member]:
    """Another member, in another API server."""
    async for kube in client(elsewhere, monkeypatch):
        yield Member(elsewhere, kube, "west")


async def settle(*members: Member) -> None:
    for _ in range(12):
        if not [line for one in members for line in await one.visit()]:
            return
    raise AssertionError("the federation never comes to rest")


async def test_two_api_servers_have_one_store(east: Member, west: Member) -> None:
    await east.join("east", [west])
    await west.join("east", [east])
    await settle(east, west)

    for one in (east, west):
        assert (await one.condition("FederationReady"))[:2] == ("True", "AllHeard"), one.name
    assert (await west.condition("Ready"))[0] == "True"
    assert await east.versions() == await west.versions() != {}
    live = await east.kube.get(CLUSTER, east.namespace, "east")
    assert live is not None
    (told,) = live["status"]["federation"]["members"]
    assert told["name"] == "west"
    assert told["rings"] == await west.versions()
    service = await west.kube.get(SERVICE, west.namespace, "west-disks-2")
    assert service is not None
    assert service["metadata"]["annotations"]["example.org/name"] == "west-disks-2.west.example.org"
    assert service["spec"]["type"] == "LoadBalancer"
    # All of this at rest is written once: nothing more comes of further looks.
    for _ in range(3):
        assert await east.visit() == await west.visit() == []


async def test_a_pool_that_grows_in_one_cluster_reaches_the_rings_of_both(east: Member, west: Member) -> None:
    await east.join("east", [west])
    await west.join("east", [east])
    await settle(east, west)
    before = await west.versions()
    live = await west.kube.get(CLUSTER, west.namespace, "west")
    assert live is not None
    pools = live["spec"]["pools"]
    pools[0]["replicas"] = 4
    await west.kube.patch(CLUSTER, west.namespace, "west", {"spec": {"pools": pools}})
    for _ in range(4):
        east.now_s += 7200
        west.now_s = east.now_s
        await settle(east, west)

    sets = await west.kube.get(STATEFUL_SET, west.namespace, "west-disks")
    assert sets is not None
    assert sets["spec"]["replicas"] == 4
    assert (await west.versions())["object-0"] > before["object-0"]
    assert await east.versions() == await west.versions()


async def test_the_token_reads_config_maps_of_its_namespace_alone(east: Member, apiserver: ApiServer) -> None:
    token, authorities = east.reader(), apiserver.ca_file.read_text("utf-8")
    access = Access(apiserver.url, token, authorities)

    assert await read_over_https(access, east.namespace, "east-federation") is None
    with pytest.raises(MemberAway, match="answers 403"):
        await read_over_https(access, "kube-system", "east-federation")
    with pytest.raises(MemberAway, match="answers 401"):
        await read_over_https(replace(access, token="another"), east.namespace, "east-federation")


def test_a_kubeconfig_of_the_api_server_is_read(apiserver: ApiServer) -> None:
    text = kubeconfig(apiserver.url, "letmein", apiserver.ca_file.read_text("utf-8"))
    found = access_of(yaml.safe_load(text))
    assert found.server == apiserver.url
    assert ssl.create_default_context(cadata=found.authorities).cert_store_stats()["x509_ca"] == 1
