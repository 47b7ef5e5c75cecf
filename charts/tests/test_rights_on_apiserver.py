"""The operator's rights are what it uses, no more and no less: every request is audited and held to the chart's roles.

The API server refuses what a role lacks, so that a right which is taken away from the chart fails the scenarios here;
and a right that no request used fails the comparison. Updating `finalizers` is no request: it is what the admission
plugin OwnerReferencesPermissionEnforcement asks of whoever names an owner, as OpenShift does.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tests.releases import Cluster as Helm
from charts.tests.releases import until
from swiftlet_operator.kube import HttpKube, connected
from swiftlet_operator.manifests import (
    CERTIFICATE,
    CLUSTER,
    CONFIG_MAP,
    HTTP_ROUTE,
    INGRESS,
    MONITORING_KINDS,
    NODE,
    OTHERS_KINDS,
    POLICY,
    PVC,
    QUOTA,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    STORAGE_CLASS,
    USER,
    Kind,
    Manifest,
)
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.plan.policy_use import SKEW_S
from swiftlet_operator.reconcile import Reconciler
from swiftlet_operator.reports import PolicyUse
from swiftlet_operator.tests.apiserver import FIX, Answer, ApiServer, hyperkube, running
from swiftlet_operator.tests.conftest import CRDS
from swiftlet_operator.tests.others_kinds import OthersKinds
from swiftlet_operator.tests.test_lifecycle_on_apiserver import _bind_to_nodes
from swiftlet_operator.tests.test_reconcile_on_apiserver import DEFAULTS, Cluster, Counting
from swiftlet_operator.tests.test_retire_on_apiserver import GOLD, delete, made, say
from swiftlet_operator.tests.test_trouble_on_apiserver import Stage

pytestmark = pytest.mark.apiserver

Right = tuple[str, str]
"""A resource with its group, and a verb."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS = ("storageclusters", "rings", "storagepolicies", "storagequotas", "storageusers")
CHANGED = {"list", "watch", "create", "patch", "delete"}
"""What is done to children that are made, watched, repaired, and deleted when nobody wants them."""
NEEDED: dict[str, tuple[set[str], str]] = {
    "storageclusters.swiftlet.io": ({"get", "list", "watch", "patch"}, "read, swept, watched; its finalizer is ours"),
    "rings.swiftlet.io": ({"get", "list", "watch", "create", "delete"}, "each ring of a cluster has one"),
    "storagepolicies.swiftlet.io": ({"get", "list", "watch", "patch"}, "read before its status; its finalizer is ours"),
    "storagequotas.swiftlet.io": ({"get", "list", "watch"}, "read before its status is written"),
    "storageusers.swiftlet.io": ({"get", "list", "watch"}, "read before its status is written"),
    **{f"{plural}/status.swiftlet.io": ({"patch"}, "conditions") for plural in OURS},
    "storageclusters/finalizers.swiftlet.io": ({"update"}, "owner of nearly all children"),
    "storageusers/finalizers.swiftlet.io": ({"update"}, "owner of generated credentials"),
    "statefulsets.apps": (CHANGED, "pods with data, Redis"),
    "deployments.apps": (CHANGED, "proxies and metadata servers"),
    "services": (CHANGED, "the API, and names of pods"),
    "poddisruptionbudgets.policy": (CHANGED, "one per failure domain"),
    "networkpolicies.networking.k8s.io": (CHANGED, "one per component"),
    "ingresses.networking.k8s.io": (CHANGED, "the API from outside"),
    "serviceaccounts": (CHANGED - {"delete"} | {"get"}, "the pods'; those that a spec names are read"),
    "httproutes.gateway.networking.k8s.io": (CHANGED - {"watch"}, "the API from outside"),
    "certificates.cert-manager.io": (CHANGED - {"watch"}, "the API's, issued by cert-manager"),
    "priorityclasses.scheduling.k8s.io": ({"get"}, "whether there is the one that a spec names"),
    "configmaps": ({"get", *CHANGED}, "settings, rings, builders; what was restored without labels is read by name"),
    "secrets": ({"get", *CHANGED}, "keys, users, credentials, copies of builders; those that a spec names are read"),
    "persistentvolumeclaims": ({"list", "patch", "delete"}, "growth; volumes that went with their node"),
    "pods": ({"list", "watch", "delete"}, "asked how they are; those of a lost node"),
    "events": ({"create", "list"}, "what a person should see; why a pod does not run"),
    **{
        f"{kind.plural}.monitoring.coreos.com": ({"list", "create", "patch", "delete"}, "for Prometheus")
        for kind in MONITORING_KINDS
    },
    "leases.coordination.k8s.io": ({"list", "create", "get", "update"}, "who leads, here and elsewhere"),
    "nodes": ({"list"}, "zones, and whether a node is gone"),
    "persistentvolumes": ({"get"}, "whether a volume stands on a lost node"),
    "storageclasses.storage.k8s.io": (
        {"get", "list"},
        "whether volumes may grow; which there are for a claim that waits",
    ),
    "customresourcedefinitions.apiextensions.k8s.io": ({"list", "watch"}, "kopf looks which kinds there are"),
}
"""Each right of the chart, and what it is for."""
CERTAIN_NAMESPACES = {"namespaces": ({"list", "watch"}, "kopf waits for those that it is to watch")}
"""What an operator of certain namespaces needs besides."""


@pytest.fixture
def helm_there(helm: str) -> Iterator[Helm]:
    """A Kubernetes of its own, which writes down who asked for what."""
    binary = hyperkube()
    if binary is None:
        pytest.skip(f"no hyperkube: {FIX}")
    with running(binary, audited=True) as server:
        server.install_crds(CRDS)
        yield Helm(server, helm)


async def _client(monkeypatch: pytest.MonkeyPatch, kubeconfig: str) -> AsyncIterator[Counting]:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    async with connected(30.0) as plain:
        found = Counting(plain._client, plain._timeout_s)
        found.writes = []
        yield found


def granted(rules: list[Manifest]) -> set[Right]:
    return {
        (f"{resource}.{group}" if group else resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def roles(server: ApiServer, release: str) -> list[Manifest]:
    """The rules of all roles that a release's operator has."""
    found = []
    for plural in ("roles", "clusterroles"):
        for one in server.get(f"{RBAC}/{plural}?labelSelector=app.kubernetes.io/instance={release}").body["items"]:
            if one["metadata"]["labels"]["app.kubernetes.io/component"] == "operator":
                found += one["rules"]
    return found


def _lines(server: ApiServer) -> list[str]:
    assert server.audit_log is not None
    return server.audit_log.read_text("utf-8").splitlines()


def used(server: ApiServer, account: str, since: int) -> tuple[set[Right], list[str]]:
    """What an account did, and what it was refused for want of a right after so many lines of the log."""
    rights, refused = set(), []
    for number, line in enumerate(_lines(server)):
        event = json.loads(line)
        about = event.get("objectRef") or {}
        if event["user"]["username"] != account or "resource" not in about or "apiVersion" not in about:
            continue
        code = (event.get("responseStatus") or {}).get("code")
        resource = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
        resource += f".{about['apiGroup']}" if "apiGroup" in about else ""
        if code == 403 and number < since:
            continue
        if code == 403:
            refused.append(f"{event['verb']} {event['requestURI']}: {event['responseStatus'].get('message')}")
        else:
            # What is applied is made when it is not there, for which the API server wants the right to create.
            rights.add((resource, "create" if code == 201 else event["verb"]))
    return rights, refused


async def scenarios(server: ApiServer, admin: Counting, operator: HttpKube, folder: Path, namespace: str) -> None:
    """All that the operator writes, made necessary by an administrator."""
    name = f"grows-{namespace}"
    head = {"apiVersion": STORAGE_CLASS.api_version, "kind": STORAGE_CLASS.kind, "metadata": {"name": name}}
    await admin.create({**head, "provisioner": "example.org/disks", "allowVolumeExpansion": True})
    cluster = Cluster(server, admin, "minimal")
    cluster.namespace, cluster.storage_class = namespace, name
    cluster.key = cluster.key.__class__(namespace, "store")
    cluster.reconciler = Reconciler(operator, DEFAULTS, Passwords(), lambda: None, lambda: cluster.now_s, cluster.told)

    async def settle() -> None:
        for _ in range(6):
            await cluster.step()
            await cluster.live()

    OthersKinds(server, folder, OTHERS_KINDS).install()
    await cluster.make()
    await cluster.step()
    # A pod that does not run, for want of a volume.
    stage = Stage(cluster)
    await stage.claim("store-disks-0", "gone")
    await stage.pod("store-disks-0", None, {})
    cluster.now_s += 600
    await cluster.step()
    await admin.patch(PVC, namespace, "d0-store-disks-0", {"metadata": {"finalizers": None}})
    await stage.without_pods("store-disks")
    spec = {"deletionPolicy": "Delete", "monitoring": {"enabled": True}}
    await admin.patch(CLUSTER, namespace, "store", {"spec": spec})
    await _make(admin, namespace, POLICY, "main", {"index": 0, "name": "main", "default": True})
    await _make(admin, namespace, QUOTA, "limits", {"levels": [{"name": "default"}]})
    await _make(admin, namespace, USER, "anna", {"account": "test", "user": "anna"})
    secret = {"metadata": {"name": "mine", "namespace": namespace}, "data": {"key": base64.b64encode(b"x").decode()}}
    await admin.create({"apiVersion": "v1", "kind": "Secret", **secret})
    await _make(admin, namespace, USER, "otto", {"account": "test", "user": "otto", "secretRef": {"name": "mine"}})
    await settle()
    # What others make for it, and how pods should be.
    outside = {
        "podDefaults": {"priorityClassName": "system-cluster-critical"},
        "redis": {"serviceAccountName": "theirs"},
        "proxy": {"ingress": {"hosts": ["a.org"]}, "route": {"parentRefs": [{"name": "edge"}], "hostnames": ["b.org"]}},
        "tls": {"certManager": {"issuerRef": {"name": "ours"}}},
    }
    await admin.patch(CLUSTER, namespace, "store", {"spec": outside})
    await cluster._certificate("store-tls")
    await settle()
    # A StoragePolicy goes, of which nothing is left.
    await made(cluster, POLICY, "gold", GOLD)
    await settle()
    since = cluster.now_s - 3 * SKEW_S
    say(cluster, PolicyUse(0, 0, 0, (), 0, since), 0, since)
    await delete(cluster, POLICY, "gold")
    await settle()
    assert await admin.get(POLICY, namespace, "gold") is None
    # Somebody edits children, and asks for larger volumes.
    edited = {SERVICE: "store", STATEFUL_SET: "store-disks", SERVICE_ACCOUNT: "store-pods", CERTIFICATE: "store-tls"}
    for kind, child in (edited | {INGRESS: "store", HTTP_ROUTE: "store"}).items():
        change: Manifest = {"metadata": {"labels": {"app.kubernetes.io/component": "stolen"}}}
        await admin.patch(kind, namespace, child, change)
    pool = {"name": "disks", "replicas": 3, "storage": {"size": "20Gi"}}
    await admin.patch(CLUSTER, namespace, "store", {"spec": {"pools": [pool], "proxy": {"replicas": 3}}})
    await settle()
    # Parts that nobody wants any more.
    unwanted = {"monitoring": {"enabled": False}, "metadata": {"replicas": 0}, "network": {"policies": "disabled"}}
    unwanted["redis"] = {"mode": "external", "address": "redis:6379"}
    unwanted |= {"tls": None, "proxy": {"ingress": None, "route": None}}
    await admin.patch(CLUSTER, namespace, "store", {"spec": unwanted})
    await settle()
    # A node goes, with what stands on it.
    await _bind_to_nodes(cluster)
    node = await admin.get(NODE, "", "node-b")
    assert node is not None
    await admin.delete(NODE, "", "node-b", node["metadata"]["uid"])
    cluster.told.silent = {"store-disks-1", "store-container-1"}
    await cluster.step()
    cluster.now_s += 1000
    await cluster.step()
    # The end, with all data.
    live = await admin.get(CLUSTER, namespace, "store")
    assert live is not None
    await admin.delete(CLUSTER, namespace, "store", live["metadata"]["uid"])
    await cluster.step()
    assert await admin.get(CLUSTER, namespace, "store") is None
    left = [one["metadata"]["name"] for one in await admin.list(CONFIG_MAP, namespace) if "-builder-" in str(one)]
    assert left == []


async def _make(kube: HttpKube, namespace: str, kind: Kind, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    await kube.create({**body, "spec": {"clusterRef": {"name": "store"}, **spec}})


@pytest.mark.parametrize("everywhere", [True, False])
async def test_the_operator_uses_all_its_rights_and_lacks_none(
    helm_there: Helm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, everywhere: bool
) -> None:
    server = helm_there.server
    system, first, second = (server.namespace(name) for name in ("system", "first", "second"))
    watched = () if everywhere else ("--set", f"watchNamespaces={{{first},{second}}}")
    helm_there.install("one", system, "--set", "crds.install=false", *watched)
    account = f"system:serviceaccount:{system}:one-swiftlet-operator"

    body = yaml.safe_load(_EXAMPLE)
    path = f"{CLUSTER.path}/namespaces/{first}/{CLUSTER.plural}"
    assert server.create(path, body).status == 201
    with helm_there.operator("one", system) as log:
        until("it says what it wrote", lambda: " were written" in log.read_text())
    # A Role counts some moments after it was made; what was refused until then is none of ours.
    since = len(_lines(server))
    with helm_there.operator("one", system) as log:
        until("it leads", lambda: "one-0_one leads" in log.read_text())
        server.delete(f"/api/v1/namespaces/{first}/services/store")
        until("a Service is back", lambda: server.get(f"/api/v1/namespaces/{first}/services/store").status == 200)

    with tempfile.TemporaryDirectory() as folder:
        pod = {"serviceAccountName": "one-swiftlet-operator"}
        theirs = helm_there._login(system, pod, Path(folder))
        async for admin in _client(monkeypatch, str(server.kubeconfig)):
            async for operator in _client(monkeypatch, theirs):
                await scenarios(server, admin, operator, tmp_path, second)

    rights, refused = used(server, account, since)
    assert refused == []
    has = granted(roles(server, "one"))
    implied = {right for right in has if "/finalizers" in right[0]}
    assert has - rights - implied == set(), "rights that nothing uses"
    assert rights - has == set(), "rights from elsewhere"
    table = NEEDED | ({} if everywhere else CERTAIN_NAMESPACES)
    assert has == {(resource, verb) for resource, (verbs, _) in table.items() for verb in verbs}


_EXAMPLE = """
apiVersion: swiftlet.io/v1alpha1
kind: StorageCluster
metadata: {name: store}
spec:
  pools: [{name: disks, replicas: 3, storage: {size: 10Gi}}]
  rings: {partPower: 6}
"""


def without(rules: list[Manifest], right: Right) -> list[Manifest]:
    """The rules, each for one resource, without one right."""
    apart = [
        {**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs}
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if (verbs := [one for one in rule["verbs"] if (f"{resource}.{group}" if group else resource, one) != right])
    ]
    assert granted(apart) == granted(rules) - {right}
    return apart


@pytest.mark.parametrize("kind", [CLUSTER, USER], ids=["StorageCluster", "StorageUser"])
def test_who_may_not_update_finalizers_names_no_owner(helm_there: Helm, kind: Kind) -> None:
    server = helm_there.server
    system, namespace = server.namespace("system"), server.namespace("first")
    helm_there.install("one", system, "--set", "crds.install=false")
    (role,) = (
        one
        for one in server.get(f"{RBAC}/clusterroles?labelSelector=app.kubernetes.io/instance=one").body["items"]
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"
    )
    path = f"/api/v1/namespaces/{system}/serviceaccounts/one-swiftlet-operator/token"
    operator = replace(server, token=server.request("POST", path, {"spec": {}}).body["status"]["token"])
    spec = {"clusterRef": {"name": "store"}, "account": "test", "user": "anna"}
    body = yaml.safe_load(_EXAMPLE) if kind == CLUSTER else {"metadata": {"name": "anna"}, "spec": spec}
    body |= {"apiVersion": kind.api_version, "kind": kind.kind}
    owner = server.create(f"{kind.path}/namespaces/{namespace}/{kind.plural}", body).body

    def child() -> Answer:
        reference = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
        reference |= {"apiVersion": kind.api_version, "kind": kind.kind, "controller": True}
        metadata = {"generateName": "child-", "ownerReferences": [reference]}
        return operator.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": metadata})

    until("its role counts", lambda: child().status == 201)
    rules = without(role["rules"], (f"{kind.plural}/finalizers.swiftlet.io", "update"))
    assert server.patch(f"{RBAC}/clusterroles/{role['metadata']['name']}", {"rules": rules}).status == 200
    until("the role that lacks it counts", lambda: "cannot set blockOwnerDeletion" in child().message)
