"""What the API server itself says of risky changes: each rule of the chart is tried, and so are harmless edits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from charts.make import CHART
from charts.tests.conftest import find_helm
from charts.tests.releases import Cluster as Helm
from charts.tests.releases import until
from swiftlet.crd.tests.openapi import load_examples
from swiftlet_operator.manifests import CLUSTER, POLICY, RING, USER, Kind, Manifest
from swiftlet_operator.tests.apiserver import Answer, ApiServer, hyperkube, running
from swiftlet_operator.tests.conftest import CRDS

pytestmark = pytest.mark.apiserver

POOL = {"name": "a", "replicas": 6, "storage": {"size": "10Gi"}}
OTHER = {**POOL, "name": "b"}
BASE: Manifest = {"pools": [POOL, OTHER], "container": {"replicas": 5}, "proxy": {"replicas": 2}}
ADMISSION = CHART / "files" / "admission"
FIRST = "first"
"""The release that the tests begin with; it warns."""


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """A Kubernetes with the chart's policies in it."""
    binary, helm = hyperkube(), find_helm()
    if binary is None or helm is None:
        pytest.skip("neither hyperkube nor helm may be missing")
    with running(binary) as found:
        found.install_crds(CRDS)
        cluster = Helm(found, helm)
        cluster.install(FIRST, found.namespace("system"), "--set", "crds.install=false")
        namespace = found.namespace("try")
        spec = {**BASE, "deletionPolicy": "Delete"}
        until("the policies count", lambda: bool(make(found, namespace, spec, dry_run=True).warnings))
        yield found


def path(namespace: str, kind: Kind = CLUSTER, name: str = "") -> str:
    return f"{kind.path}/namespaces/{namespace}/{kind.plural}" + (f"/{name}" if name else "")


def make(
    server: ApiServer, namespace: str, spec: Manifest, *, dry_run: bool = False, annotations: Manifest | None = None
) -> Answer:
    """Create a StorageCluster."""
    body = {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.kind, "spec": spec}
    body["metadata"] = {"name": "store", **({"annotations": annotations} if annotations else {})}
    return server.request("POST", path(namespace) + ("?dryRun=All" if dry_run else ""), body)


def rules(name: str) -> list[Manifest]:
    found: list[Manifest] = yaml.safe_load((ADMISSION / f"{name}.yaml").read_text())["validations"]
    return found


def said(answer: Answer) -> list[str]:
    """The sentences, without the policies' names."""
    assert answer.status in (200, 201), answer.message
    return [one.split("': ", 1)[-1] for one in answer.warnings]


MADE: list[tuple[Manifest, str]] = [
    ({"rings": {"replicas": 2}}, "spec.rings.replicas is below 3"),
    ({"pools": [{**POOL, "zones": ["x"]}, {**OTHER, "zones": ["x"]}]}, "all pools are in one zone"),
    ({"deletionPolicy": "Delete"}, "spec.deletionPolicy is Delete"),
    ({"proxy": {"replicas": 1}}, "spec.proxy.replicas is below 2"),
    ({"auth": {"allowedRoles": ["user", "reseller_admin"]}}, "spec.auth.allowedRoles has reseller_admin"),
    ({"network": {"policies": "disabled"}}, "spec.network.policies is disabled"),
    ({"paused": True}, "spec.paused is true"),
]
"""What is told of a new StorageCluster."""
EDITED: list[tuple[Manifest, Manifest, str]] = [
    *(({}, change, words) for change, words in MADE if "pools" not in change),
    (
        {"pools": [{**POOL, "zones": ["x", "y"]}]},
        {"pools": [{**POOL, "zones": ["x"]}]},
        "all pools are in one zone",
    ),
    ({"image": "s:1"}, {"image": "s:2", "keys": {"generation": 2}}, "spec.keys.generation is raised together"),
    ({}, {"pools": [{**POOL, "replicas": 4}, OTHER]}, "spec.pools[].replicas of a is lowered by more than one"),
    ({}, {"container": {"replicas": 3}}, "spec.container.replicas is lowered by more than one"),
    (
        {"pools": [POOL, OTHER, {**POOL, "name": "c"}]},
        {"pools": [{**POOL, "weight": 0}, {**OTHER, "weight": 0}, {**POOL, "name": "c"}]},
        "spec.pools[].weight becomes 0 for a, b together",
    ),
    ({}, {"pools": [POOL]}, "pool b is removed from spec.pools before it was drained"),
    ({"tls": {"secretRef": {"name": "pair"}}}, {"tls": {"secretRef": None}}, "spec.tls has no certificate"),
    ({"rings": {"replicas": 2.5}}, {"rings": {"replicas": 2}}, "spec.rings.replicas is below 3"),
    ({"encryption": "transport"}, {"encryption": "none"}, "spec.encryption is taken back to none"),
]
"""What is told of an edit: the spec before, the change, and the words."""
HARMLESS: list[tuple[Manifest, Manifest]] = [
    ({}, {"image": "s:2"}),
    ({}, {"keys": {"generation": 2}}),
    ({}, {"pools": [{**POOL, "replicas": 5}, OTHER]}),
    ({}, {"pools": [{**POOL, "replicas": 9}, OTHER]}),
    ({}, {"pools": [{**POOL, "weight": 0}, OTHER]}),
    ({"pools": [{**POOL, "weight": 0}, OTHER]}, {"pools": [OTHER]}),
    ({}, {"pools": [OTHER, POOL]}),
    ({}, {"container": {"replicas": 4}}),
    ({}, {"proxy": {"replicas": 4}}),
    ({}, {"auth": {"users": [{"account": "a", "user": "root", "roles": ["reseller_admin"]}]}}),
    ({}, {"network": {"policies": "ingress"}}),
    ({}, {"encryption": "transport"}),
    ({}, {"maintenance": {"zone": "x"}}),
    (
        {"tls": {"secretRef": {"name": "pair"}}},
        {"tls": {"secretRef": None, "certManager": {"issuerRef": {"name": "ours"}}}},
    ),
    ({"paused": True}, {"paused": False}),
    # What was said when it came in is not said again.
    ({"rings": {"replicas": 2}, "deletionPolicy": "Delete", "paused": True}, {"image": "s:2"}),
    ({"proxy": {"replicas": 1}, "network": {"policies": "disabled"}}, {"image": "s:2"}),
    ({"pools": [{**POOL, "zones": ["x"]}]}, {"image": "s:2"}),
    ({"auth": {"allowedRoles": ["reseller_admin"]}}, {"image": "s:2"}),
    ({"rings": {"replicas": 2}}, {"rings": {"replicas": 2.5}}),
]


@pytest.mark.parametrize(("change", "words"), MADE, ids=[words for _, words in MADE])
def test_a_risky_new_store_is_told(server: ApiServer, change: Manifest, words: str) -> None:
    (sentence,) = said(make(server, server.namespace("made"), BASE | change))
    assert sentence.startswith(words)


def test_an_ordinary_new_store_is_not(server: ApiServer) -> None:
    assert said(make(server, server.namespace("made"), BASE)) == []
    sumo = {**BASE, "pools": [{**POOL, "roles": ["object", "proxy"]}], "proxy": {"replicas": 0}}
    assert said(make(server, server.namespace("made"), sumo)) == []
    zones = {**BASE, "pools": [{**POOL, "zones": ["x", "y", "z"]}]}
    assert said(make(server, server.namespace("made"), zones)) == []


@pytest.mark.parametrize(
    ("file", "manifest"),
    [(file, one) for file, one in load_examples() if one["kind"] == CLUSTER.kind],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_examples_are_told_of_only_where_they_mean_it(server: ApiServer, file: str, manifest: Manifest) -> None:
    assert said(make(server, server.namespace("example"), manifest["spec"])) == []


@pytest.mark.parametrize(("before", "change", "words"), EDITED, ids=[one[-1] for one in EDITED])
def test_a_risky_edit_is_told(server: ApiServer, before: Manifest, change: Manifest, words: str) -> None:
    (sentence,) = said(edited(server, BASE | before, {"spec": change}))
    assert sentence.startswith(words)


@pytest.mark.parametrize(("before", "change"), HARMLESS, ids=[str(index) for index in range(len(HARMLESS))])
def test_a_harmless_edit_is_not(server: ApiServer, before: Manifest, change: Manifest) -> None:
    assert said(edited(server, BASE | before, {"spec": change})) == []


def edited(server: ApiServer, spec: Manifest, change: Manifest) -> Answer:
    """The answer to an edit of a new StorageCluster."""
    namespace = server.namespace("edited")
    assert make(server, namespace, spec).status == 201
    return server.patch(path(namespace, name="store"), change)


@pytest.mark.parametrize("mark", ["allow-deletion", "allow-scale-in", "allow-new-ring"])
def test_an_annotation_that_takes_a_guard_away_is_told_once(server: ApiServer, mark: str) -> None:
    namespace = server.namespace("marked")
    assert make(server, namespace, BASE, annotations={"example.org/note": "x"}).warnings == ()
    where = path(namespace, name="store")
    change: Any = {"metadata": {"annotations": {f"swiftlet.io/{mark}": "true"}}}
    (sentence,) = said(server.patch(where, change))
    assert sentence.startswith(f"annotation swiftlet.io/{mark} takes a guard of the data away")
    assert said(server.patch(where, {"metadata": {"labels": {"a": "b"}}})) == []
    assert said(server.patch(where, {"metadata": {"annotations": {f"swiftlet.io/{mark}": None}}})) == []


def test_each_deletion_is_told_what_it_means(server: ApiServer) -> None:
    for spec, marks, words in (
        (BASE, {}, "a deletion can't be taken back"),
        ({**BASE, "deletionPolicy": "Delete"}, {}, "spec.deletionPolicy is Delete: the volumes"),
        (BASE, {"swiftlet.io/allow-deletion": "true"}, None),
    ):
        namespace = server.namespace("deleted")
        assert make(server, namespace, spec, annotations=marks).status == 201
        found = said(server.delete(path(namespace, name="store")))
        assert [one.startswith(words) for one in found if words] == ([True] if words else [])
    namespace = server.namespace("deleted")
    spec = {"clusterRef": {"name": "store"}, "index": 0, "name": "gold"}
    assert created(server, namespace, POLICY, "gold", spec).warnings == ()
    (sentence,) = said(server.delete(path(namespace, POLICY, "gold")))
    assert sentence.startswith("this can't be taken back: the StoragePolicy takes no new containers")


def created(server: ApiServer, namespace: str, kind: Kind, name: str, spec: Manifest) -> Answer:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    answer = server.create(path(namespace, kind), body)
    assert answer.status == 201, answer.message
    return answer


@pytest.mark.parametrize("kind", [RING, POLICY], ids=["Ring", "StoragePolicy"])
def test_few_replicas_are_told_of_rings_and_policies(server: ApiServer, kind: Kind) -> None:
    namespace = server.namespace("few")
    spec: Manifest = {"clusterRef": {"name": "store"}}
    spec |= {"type": "object", "policyIndex": 0} if kind == RING else {"index": 0, "name": "gold"}
    (sentence,) = said(created(server, namespace, kind, "few", spec | {"replicas": 2}))
    assert sentence.startswith("spec.replicas is below 3")
    assert said(created(server, namespace, kind, "enough", spec | {"replicas": 3})) == []
    assert said(created(server, namespace, kind, "default", spec)) == []
    where = path(namespace, kind, "few")
    assert said(server.patch(where, {"metadata": {"labels": {"a": "b"}}})) == []
    assert said(server.patch(where, {"spec": {"replicas": 2.5}})) == []
    (sentence,) = said(server.patch(where, {"spec": {"replicas": 1}}))
    assert sentence.startswith("spec.replicas is below 3")


def test_users_that_ask_for_more_than_their_own_cluster_allows_are_told(server: ApiServer) -> None:
    namespace = server.namespace("users")
    auth = {
        "reservedAccounts": ["billing"],
        "users": [
            {"account": "admin", "user": "root", "roles": ["reseller_admin"]},
            {"account": "billing", "user": "robot"},
        ],
    }
    assert make(server, namespace, {**BASE, "auth": auth}).status == 201
    body = {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.kind, "metadata": {"name": "lax"}}
    lax = {**body, "spec": {**BASE, "auth": {"allowedRoles": ["user", "reseller_admin"]}}}
    assert server.create(path(namespace), lax).status == 201
    elsewhere = server.namespace("others")

    def user(name: str, account: str, *roles: str, cluster: str = "store", where: str = namespace) -> list[str]:
        spec = {"clusterRef": {"name": cluster}, "account": account, "user": name, "roles": list(roles)}
        return said(created(server, where, USER, f"{name}-{account}-{cluster}", spec))

    def ask() -> bool:
        spec = {"clusterRef": {"name": "store"}, "account": "x", "user": "x", "roles": ["reseller_admin"]}
        one = {"apiVersion": USER.api_version, "kind": USER.kind, "metadata": {"name": "x"}, "spec": spec}
        return bool(server.request("POST", path(namespace, USER) + "?dryRun=All", one).warnings)

    until("the API server's view of StorageClusters has it", ask)
    (sentence,) = user("anna", "test", "user", "reseller_admin")
    assert sentence.startswith("spec.roles has reseller_admin, which StorageCluster store does not allow")
    (sentence,) = user("guest", "billing", "user")
    assert sentence.startswith("spec.account billing is reserved by StorageCluster store")
    assert user("robot", "billing", "user") == []
    assert user("root", "admin", "reseller_admin") == []
    assert user("anna", "test", "reseller_admin", cluster="lax") == []
    assert user("anna", "test", "reseller_admin", cluster="to-come") == []
    assert user("anna", "test", "reseller_admin", where=elsewhere) == []
    where = path(namespace, USER, "anna-test-store")
    assert said(server.patch(where, {"metadata": {"labels": {"a": "b"}}})) == []
    assert said(server.patch(where, {"spec": {"roles": ["user"]}})) == []
    (sentence,) = said(server.patch(where, {"spec": {"roles": ["reseller_admin"]}}))
    assert "spec.auth.allowedRoles" in sentence


def owned(component: str) -> Manifest:
    labels = {"app.kubernetes.io/managed-by": "swiftlet-operator", "app.kubernetes.io/component": component}
    return {"metadata": {"name": component, "labels": labels}}


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_what_is_the_operator_s_alone_is_told(server: ApiServer, plural: str) -> None:
    namespace = server.namespace("owned")
    collection = f"/api/v1/namespaces/{namespace}/{plural}"
    for component in ("ring", "builder", "keys", "settings", "credentials"):
        assert said(server.create(collection, owned(component))) == []
    theirs: Manifest = {"metadata": {"name": "theirs"}}
    assert server.create(collection, theirs).status == 201
    for component in ("ring", "builder", "keys"):
        change: Any = {"data": {"x": "eA=="}}
        for answer in (server.patch(f"{collection}/{component}", change), server.delete(f"{collection}/{component}")):
            (sentence,) = said(answer)
            kind = {"configmaps": "ConfigMap", "secrets": "Secret"}[plural]
            assert sentence.startswith(f"{kind} {component} is written by the operator alone")
    for name in ("settings", "credentials", "theirs"):
        assert said(server.patch(f"{collection}/{name}", {"data": {"x": "eA=="}})) == []
        assert said(server.delete(f"{collection}/{name}")) == []


def test_what_is_denied_does_not_happen_where_it_is_watched(server: ApiServer) -> None:
    helm = find_helm()
    assert helm is not None
    system, watched, other = (server.namespace(name) for name in ("system", "watched", "other"))
    options = ["--set", "crds.install=false", "--set", f"watchNamespaces={{{watched}}}"]
    options += [part for name in ("risks", "logins", "owned") for part in ("--set", f"admission.{name}=Deny")]
    cluster = Helm(server, helm)
    cluster.install("strict", system, *options)
    risky = {**BASE, "proxy": {"replicas": 1}}
    until("it is denied", lambda: make(server, watched, risky, dry_run=True).status == 422)
    answer = make(server, watched, risky)
    assert "spec.proxy.replicas is below 2" in answer.message
    assert make(server, other, risky).status == 201
    assert make(server, watched, BASE).status == 201
    answer = server.delete(path(watched, name="store"))
    assert "a deletion can't be taken back" in answer.message
    mark: Any = {"metadata": {"annotations": {"swiftlet.io/allow-deletion": "true"}}}
    assert server.patch(path(watched, name="store"), mark).status == 422

    # The operator itself, and what collects the remains, are not held up.
    collection = f"/api/v1/namespaces/{watched}/configmaps"
    assert server.create(collection, owned("ring")).status == 201
    change: Any = {"data": {"x": "y"}}
    assert server.patch(f"{collection}/ring", change).status == 422
    for account in (f"{system}:strict-swiftlet-operator", "kube-system:generic-garbage-collector"):
        answer = as_account(server, account, f"{collection}/ring", {"data": {"x": account.partition(":")[2]}})
        assert answer.status == 200, answer.message
    cluster.must("uninstall", "strict", "--namespace", system, "--no-hooks")


def as_account(server: ApiServer, account: str, where: str, change: Manifest) -> Answer:
    """An edit by a service account with all rights."""
    namespace, _, name = account.partition(":")
    server.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"generateName": "all-"}, "roleRef": reference, "subjects": [subject]}
    assert server.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).status == 201
    path_ = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = server.request("POST", path_, {"spec": {}}).body["status"]["token"]
    theirs = replace(server, token=token)
    until("its rights count", lambda: theirs.get(where).status == 200)
    return theirs.patch(where, change)


def test_each_rule_has_a_sentence_that_names_what_to_look_at() -> None:
    for file in sorted(ADMISSION.glob("*.yaml")):
        for rule in yaml.safe_load(file.read_text())["validations"]:
            words = rule["message"]
            assert 20 < len(words) < 250, words
            assert "\n" not in words + rule.get("messageExpression", "")


def test_each_rule_is_tried() -> None:
    told = ["annotation swiftlet.io", *(words for _, words in MADE), *(words for _, _, words in EDITED)]
    for rule in rules("risks"):
        begins = str(rule.get("messageExpression", rule["message"])).lstrip("'").split("' + ")[0].strip()
        assert any(one[:15] == begins[:15] or one.startswith(f"{begins} ") for one in told), rule["message"]
