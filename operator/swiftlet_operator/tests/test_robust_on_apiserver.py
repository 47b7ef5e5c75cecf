"""What goes wrong between the operator and a real API server: cuts, restarts, refusals, other hands.

The fault model, each injected here: connections end in the middle of a watch; the API server goes away and comes back
without its watch cache; the operator's role lacks a verb; other field managers and people write to the same objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet_operator.kube import Kube, connected
from swiftlet_operator.leader import Leader
from swiftlet_operator.main import Options, run
from swiftlet_operator.manifests import (
    CHILD_KINDS,
    CLUSTER,
    CONFIG_MAP,
    LEASE,
    MANAGER,
    RING,
    SERVICE,
    STATEFUL_SET,
    USER,
    Kind,
    Manifest,
    name_of,
)
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.problems import KubeForbidden
from swiftlet_operator.reconcile import Reconciler
from swiftlet_operator.tests.apiserver import APPLY_PATCH, ApiServer
from swiftlet_operator.tests.middleman import Middleman
from swiftlet_operator.tests.test_reconcile_on_apiserver import DEFAULTS, Cluster, Counting
from swiftlet_operator.world import Defaults

pytestmark = pytest.mark.apiserver

LEASE_S = 4.0
PATIENCE_S = 90.0
RULES = Path(__file__).resolve().parents[3] / "charts" / "swiftlet" / "templates" / "_rules.tpl"


@pytest.fixture
async def kube(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    """A client of the test's own, straight to the API server."""
    monkeypatch.setenv("KUBECONFIG", str(apiserver.kubeconfig))
    async with connected(30.0) as plain:
        counting = Counting(plain._client, plain._timeout_s)
        counting.writes = []
        yield counting


@pytest.fixture
async def middleman(apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[Middleman]:
    """A proxy that a test does harm with."""
    async with Middleman(apiserver, tmp_path / "through-middleman").running() as one:
        yield one


@contextlib.asynccontextmanager
async def operating(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, middleman: Middleman
) -> AsyncIterator[asyncio.Task[None]]:
    """The whole operator in this process, behind the middleman."""
    monkeypatch.setenv("KUBECONFIG", str(middleman.kubeconfig))
    options = Options(
        DEFAULTS, "one", cluster.namespace, (cluster.namespace,), "http://127.0.0.1:0/healthz", None, LEASE_S
    )
    task = asyncio.create_task(run(options))
    try:
        yield task
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(what: str, holds: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + patience_s
    while not await holds():
        assert time.monotonic() < deadline, f"not in {patience_s} s: {what}"
        await asyncio.sleep(0.1)


async def at_rest(cluster: Cluster, *middlemen: Middleman, quiet_s: float = 2.0) -> None:
    """Pods live, every ring is published, and nothing has been written for a while."""
    deadline, since, before = time.monotonic() + PATIENCE_S, time.monotonic(), -1
    while True:
        await cluster.live()
        rings = [(one.get("status") or {}).get("version") for one in await cluster.kube.list(RING, cluster.namespace)]
        count = sum(len(one.writes) for one in middlemen)
        if count != before or len(rings) < 3 or None in rings:
            before, since = count, time.monotonic()
        if time.monotonic() - since > quiet_s:
            return
        assert time.monotonic() < deadline, (rings, [one.writes[-5:] for one in middlemen])
        await asyncio.sleep(0.2)


async def children(cluster: Cluster) -> dict[str, Manifest]:
    """All children by kind and name."""
    found = {}
    for kind in CHILD_KINDS:
        for one in await cluster.kube.list(kind, cluster.namespace):
            if one["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "swiftlet-operator":
                found[f"{kind.kind}/{name_of(one)}"] = one
    return found


def versions(found: dict[str, Manifest]) -> dict[str, str]:
    """Their resource versions, of which nobody else changes those that are taken here."""
    playing = ("StatefulSet/", "Deployment/")
    return {name: one["metadata"]["resourceVersion"] for name, one in found.items() if not name.startswith(playing)}


async def add_user(cluster: Cluster, name: str, of: str = "store") -> None:
    """A StorageUser."""
    await cluster.kube.create(
        {
            "apiVersion": USER.api_version,
            "kind": USER.kind,
            "metadata": {"name": name, "namespace": cluster.namespace},
            "spec": {"clusterRef": {"name": of}, "account": "test", "user": name},
        }
    )


def told(cluster: Cluster, name: str) -> Callable[[], Awaitable[bool]]:
    """Whether a StorageUser has a status."""

    async def look() -> bool:
        return bool((await cluster.kube.get(USER, cluster.namespace, name) or {}).get("status"))

    return look


async def test_cut_watches_are_taken_up_again(
    apiserver: ApiServer, kube: Counting, middleman: Middleman, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    async with operating(cluster, monkeypatch, middleman):
        await cluster.make()
        for _ in range(10):
            await asyncio.sleep(0.3)
            middleman.cut()
        await at_rest(cluster, middleman)

        assert middleman.cut() >= 10  # the watches of all kinds
        await add_user(cluster, "anna")
        await until("anna is served", told(cluster, "anna"))
        middleman.cut()
        service = await kube.get(SERVICE, cluster.namespace, "store")
        assert service is not None
        await kube.delete(SERVICE, cluster.namespace, "store", service["metadata"]["uid"])
        await until("the Service is back", lambda: _there(cluster, "store"))


async def _there(cluster: Cluster, service: str) -> bool:
    return await cluster.kube.get(SERVICE, cluster.namespace, service) is not None


async def test_the_operator_outlives_a_restart_of_the_api_server(
    apiserver: ApiServer, kube: Counting, middleman: Middleman, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    async with operating(cluster, monkeypatch, middleman):
        await cluster.make()
        await at_rest(cluster, middleman)
        before, written = versions(await children(cluster)), len(middleman.writes)

        apiserver.restart()
        await asyncio.to_thread(apiserver.wait_until_ready)

        await add_user(cluster, "anna")
        await until("anna is served", told(cluster, "anna"))
        await at_rest(cluster, middleman)
        after = versions(await children(cluster))
        changed = {name for name in before if before[name] != after.get(name)}
        assert changed == {"Secret/store-users"}
        assert len(middleman.writes) - written < 10


def chart_rules(which: str = "namespaceRules") -> list[dict[str, Any]]:
    """The rules of the chart's role in a namespace, or of its ClusterRole."""
    text = RULES.read_text("utf-8")
    found = re.search(rf'define "swiftlet.{which}" -}}}}\n(.*?){{{{- end', text, re.DOTALL)
    assert found is not None
    rules: list[dict[str, Any]] = yaml.safe_load(found[1])
    return rules


def without(rules: list[dict[str, Any]], resource: str, verb: str) -> list[dict[str, Any]]:
    """The same rules without a verb on a resource."""
    kept = []
    for rule in rules:
        others = [one for one in rule["resources"] if one != resource]
        verbs = [one for one in rule["verbs"] if one != verb]
        # A rule without a verb is none.
        if len(others) < len(rule["resources"]) and verbs:
            kept.append({**rule, "resources": [resource], "verbs": verbs})
        if others:
            kept.append({**rule, "resources": others})
    return kept


async def role(apiserver: ApiServer, namespace: str, rules: list[dict[str, Any]]) -> str:
    """A service account with these rules in the namespace, and reading nodes everywhere; its token."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    subject = {"kind": "ServiceAccount", "name": "op", "namespace": namespace}

    def make() -> str:
        apiserver.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "op"}})
        apiserver.create(f"{rbac}/roles", {"metadata": {"name": "op"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "op"}
        binding = {"metadata": {"name": "op"}, "roleRef": reference, "subjects": [subject]}
        apiserver.create(f"{rbac}/rolebindings", binding)
        everywhere = "/apis/rbac.authorization.k8s.io/v1"
        nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
        apiserver.create(f"{everywhere}/clusterroles", {"metadata": {"name": namespace}, "rules": [nodes]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace}
        binding = {"metadata": {"name": namespace}, "roleRef": reference, "subjects": [subject]}
        apiserver.create(f"{everywhere}/clusterrolebindings", binding)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/op/token"
        return str(apiserver.request("POST", path, {"spec": {}}).body["status"]["token"])

    return await asyncio.to_thread(make)


DENIED = {
    ("services", "patch"): ("Progressing", "ApplyFailed"),
    ("statefulsets", "patch"): ("Progressing", "ApplyFailed"),
    ("networkpolicies", "patch"): ("Progressing", "ApplyFailed"),
    ("secrets", "create"): ("Progressing", "ApplyFailed"),
    ("rings", "create"): ("Progressing", "ApplyFailed"),
    ("pods", "list"): ("Ready", "Forbidden"),
    ("configmaps", "list"): ("Ready", "Forbidden"),
}


@pytest.mark.parametrize(("resource", "verb"), DENIED)
async def test_a_missing_rule_is_named_and_the_rest_goes_on(
    apiserver: ApiServer, kube: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resource: str, verb: str
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    token = await role(apiserver, cluster.namespace, without(chart_rules(), resource, verb))
    async with Middleman(apiserver, tmp_path / "limited", token).running() as limited:
        monkeypatch.setenv("KUBECONFIG", str(limited.kubeconfig))
        async with connected(30.0) as theirs:
            reconciler = Reconciler(
                theirs, Defaults("swiftlet:test", "r:1"), Passwords(), lambda: None, lambda: 1, cluster.told
            )
            await _granted(apiserver, cluster.namespace)
            for _ in range(3):
                with contextlib.suppress(Exception):
                    await reconciler.reconcile(cluster.key)
                await cluster.live()

            type_, reason = DENIED[resource, verb]
            live = await kube.get(CLUSTER, cluster.namespace, "store")
            assert live is not None
            fact = next(one for one in live["status"]["conditions"] if one["type"] == type_)
            assert (fact["status"], fact["reason"]) == ("False", reason)
            assert f'cannot {verb} resource "{resource}"' in fact["message"]
            if verb == "patch":
                kinds = {STATEFUL_SET, SERVICE, CONFIG_MAP}
                there = {kind.plural for kind in kinds if await kube.list(kind, cluster.namespace)}
                assert there == {kind.plural for kind in kinds} - {resource}

            rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}/roles/op"
            await asyncio.to_thread(apiserver.patch, rbac, {"rules": chart_rules()})
            await until("with the rule all is written", lambda: _clean(reconciler, cluster))


async def test_with_the_charts_rule_an_operator_sees_others_and_without_it_it_leads_by_its_own_lease(
    apiserver: ApiServer,
    kube: Counting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, there, shared = (apiserver.namespace("lease") for _ in range(3))
    other = Leader(kube, there, "other", time.monotonic, watched=[shared])
    await other.attempt()
    assert other.leads
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]}
    token = await role(apiserver, here, [leases, *chart_rules()])
    await _granted(apiserver, here)

    async with Middleman(apiserver, tmp_path / "limited", token).running() as limited:
        monkeypatch.setenv("KUBECONFIG", str(limited.kubeconfig))
        async with connected(30.0) as theirs:
            blind = Leader(theirs, here, "blind", time.monotonic, watched=[shared])
            await blind.attempt()
            assert blind.leads
            assert f"no other operator watches {shared}" in caplog.text
            assert 'cannot list resource "leases"' in caplog.text
            await blind._give_back()

            path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{here}"
            await asyncio.to_thread(apiserver.patch, path, {"rules": chart_rules("clusterRules")})
            await until("the leases of all are shown", lambda: _shows_leases(theirs))
            seeing = Leader(theirs, here, "seeing", time.monotonic, watched=[shared])
            await seeing.attempt()
            assert not seeing.leads
            assert f"other in namespace {there} looks after" in caplog.text


async def _shows_leases(kube: Kube) -> bool:
    with contextlib.suppress(KubeForbidden):
        return bool(await kube.named(LEASE, MANAGER))
    return False


async def _granted(apiserver: ApiServer, namespace: str) -> None:
    """Until the authorizer, which watches roles itself, knows the new ones."""
    review = {
        "spec": {
            "user": f"system:serviceaccount:{namespace}:op",
            "resourceAttributes": {"namespace": namespace, "verb": "get", "group": "swiftlet.io", "resource": "rings"},
        }
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    async def allowed() -> bool:
        answer = await asyncio.to_thread(apiserver.request, "POST", path, review)
        return bool(answer.body["status"]["allowed"])

    await until("the role counts", allowed)


async def _clean(reconciler: Reconciler, cluster: Cluster) -> bool:
    with contextlib.suppress(Exception):
        await reconciler.reconcile(cluster.key)
        return True
    return False


async def test_a_field_that_another_manager_owns_is_taken_back_and_its_own_fields_are_left(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    path = f"/api/v1/namespaces/{cluster.namespace}/services/store"
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "store", "labels": {"team": "blue"}},
        "spec": {"selector": {"stolen": "yes"}, "externalTrafficPolicy": None, "sessionAffinity": "ClientIP"},
    }
    query = "?fieldManager=other&force=true"
    answer = await asyncio.to_thread(apiserver.request, "PATCH", path + query, theirs, APPLY_PATCH)
    assert answer.status == 200, answer.message

    assert [one for one in await cluster.step() if one.endswith("/services/store")]

    service = await kube.get(SERVICE, cluster.namespace, "store")
    assert service is not None
    assert service["metadata"]["labels"]["team"] == "blue"
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["spec"]["selector"]["app.kubernetes.io/instance"] == "store"
    for _ in range(3):
        assert await cluster.step() == []


async def test_an_edit_in_the_middle_of_a_reconcile_is_neither_lost_nor_missed(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()

    class Interrupted(Counting):
        """A person edits the cluster just before the first write."""

        edited = False

        async def _ask(self, method: str, kind: Kind, path: str, *arguments: Any, **named: Any) -> Manifest | None:
            if method != "GET" and not self.edited:
                self.edited = True
                change: Manifest = {
                    "metadata": {"finalizers": ["example.org/mine"]},
                    "spec": {"proxy": {"replicas": 5}},
                }
                await kube.patch(CLUSTER, cluster.namespace, "store", change)
            return await super()._ask(method, kind, path, *arguments, **named)

    interrupted = Interrupted(kube._client, kube._timeout_s)
    interrupted.writes = []
    reconciler = Reconciler(interrupted, DEFAULTS, Passwords(), lambda: None, lambda: cluster.now_s, cluster.told)
    with pytest.raises(Exception, match="modified"):
        await reconciler.reconcile(cluster.key)
    await cluster.settle()

    live = await kube.get(CLUSTER, cluster.namespace, "store")
    assert live is not None
    assert live["spec"]["proxy"]["replicas"] == 5
    assert set(live["metadata"]["finalizers"]) == {"example.org/mine", "swiftlet.io/cluster"}
    deployment = await asyncio.to_thread(
        apiserver.get, f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments/store-proxy"
    )
    assert deployment.body["spec"]["replicas"] == 5
