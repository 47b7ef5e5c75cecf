"""Releases on a real API server: who brings the definitions, who may go, and who goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.make import CHART, crd_files
from charts.tests.releases import DEFINITIONS, Cluster, delete_definitions, until, until_gone
from swiftlet import __version__
from swiftlet_operator.definitions import INSTALLED_VERSION
from swiftlet_operator.tests.apiserver import FIX, hyperkube, kube_bin, running

pytestmark = pytest.mark.apiserver

SOURCES: dict[str, dict[str, Any]] = {
    one["metadata"]["name"]: one for one in (yaml.load(text, yaml.CSafeLoader) for text in crd_files().values())
}
CLUSTERS = "storageclusters.swiftlet.io"
SERVED_WITHIN_S = 60.0


@pytest.fixture
def cluster(helm: str) -> Iterator[Cluster]:
    """A Kubernetes of its own without any release and definition, which are the whole cluster's."""
    binary = hyperkube()
    if binary is None:
        pytest.skip(f"no hyperkube: {FIX}")
    with running(binary) as server:
        found = Cluster(server, helm)
        with found.running_jobs():
            yield found


def store(cluster: Cluster, namespace: str, policy: str | None = None, finalizers: tuple[str, ...] = ()) -> str:
    """A StorageCluster that nobody looks after; its path."""
    (example,) = (one for one in _example() if one["kind"] == "StorageCluster")
    example["metadata"] = {"name": "store", "finalizers": list(finalizers)}
    if policy is not None:
        example["spec"]["deletionPolicy"] = policy
    path = f"/apis/swiftlet.io/v1alpha1/namespaces/{namespace}/storageclusters"
    answer = cluster.server.create(path, example)
    deadline = time.monotonic() + SERVED_WITHIN_S
    while answer.status == 404 and time.monotonic() < deadline:
        # Helm does not wait until the API server serves a definition that is among a release's templates.
        time.sleep(0.1)
        answer = cluster.server.create(path, example)
    assert answer.status == 201, answer.message
    return f"{path}/store"


def _example() -> list[dict[str, Any]]:
    text = (CHART.parents[1] / "examples" / "storagecluster.yaml").read_text()
    return [one for one in yaml.safe_load_all(text) if one]


def test_a_first_release_brings_the_definitions_and_leaves_nothing_of_the_job(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")

    cluster.install("one", namespace)

    found = cluster.definitions()
    assert set(found) == set(SOURCES)
    for name, one in found.items():
        assert one["metadata"]["annotations"][INSTALLED_VERSION] == __version__
        assert not any("meta.helm.sh" in mark for mark in one["metadata"]["annotations"])
        versions = [version["name"] for version in SOURCES[name]["spec"]["versions"]]
        assert [version["name"] for version in one["spec"]["versions"]] == versions
    assert not {one for one in cluster.left_in(namespace) if "install-crds" in one}


def test_a_second_upgrade_changes_no_definition(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")
    cluster.install("one", namespace)
    before = {name: one["metadata"]["resourceVersion"] for name, one in cluster.definitions().items()}

    cluster.install("one", namespace)

    assert {name: one["metadata"]["resourceVersion"] for name, one in cluster.definitions().items()} == before
    assert "is as it should be" in cluster.logs["one-swiftlet-install-crds"]


def test_releases_of_other_names_and_of_the_same_name_elsewhere_are_welcome(cluster: Cluster) -> None:
    blue, green = cluster.server.namespace("blue"), cluster.server.namespace("green")
    for namespace in (blue, green):
        cluster.install("one", namespace, "--set", f"watchNamespaces={{{namespace}}}")
    cluster.install("other", green, "--set", f"watchNamespaces={{{green}}}")

    assert cluster.releases() == {("one", "deployed"), ("other", "deployed")}
    assert len(yaml.safe_load(cluster.must("list", "--all-namespaces", "--output", "yaml"))) == 3

    for name, namespace in (("one", blue), ("one", green), ("other", green)):
        cluster.must("uninstall", name, "--namespace", namespace)
        assert set(cluster.definitions()) == set(SOURCES)
    assert cluster.left_in(blue) == cluster.left_in(green) == set()


def old_chart(folder: Path, *, keep: bool) -> Path:
    """A chart whose definitions belong to the release, with a field that is no longer in ours."""
    chart = folder / "swiftlet"
    shutil.copytree(CHART, chart)
    shutil.rmtree(chart / "templates" / "hooks")
    for name, text in crd_files().items():
        one = yaml.safe_load(text)
        schema = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schema["properties"]["bygone"] = {"type": "string"}
        if keep:
            one["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        (chart / "templates" / name).write_text(yaml.safe_dump(one))
    return chart


def bygone(definition: dict[str, Any]) -> bool:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return "bygone" in schema["properties"]


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_that_another_release_owned_are_taken_over(cluster: Cluster, tmp_path: Path, keep: bool) -> None:
    namespace = cluster.server.namespace("system")
    cluster.must("install", "old", str(old_chart(tmp_path, keep=keep)), "--namespace", namespace)
    assert all(bygone(one) for one in cluster.definitions().values())
    kept = store(cluster, namespace)
    uid = cluster.server.get(kept).body["metadata"]["uid"]

    cluster.install("new", cluster.server.namespace("elsewhere"))
    cluster.install("old", namespace)

    for one in cluster.definitions().values():
        assert not bygone(one), "what an older definition had stays"
        assert not any("meta.helm.sh" in mark for mark in one["metadata"]["annotations"])
        assert one["metadata"]["labels"].get("app.kubernetes.io/managed-by") is None
    assert cluster.server.get(kept).body["metadata"]["uid"] == uid
    cluster.must("uninstall", "old", "--namespace", namespace, "--no-hooks")
    assert cluster.server.get(kept).body["metadata"]["uid"] == uid


def test_definitions_of_a_newer_version_stay(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")
    cluster.install("one", namespace)
    change = {"metadata": {"annotations": {INSTALLED_VERSION: "99.0.0"}}, "spec": {"names": {"shortNames": ["swx"]}}}
    assert cluster.server.patch(f"{DEFINITIONS}/{CLUSTERS}", change).status == 200

    cluster.install("two", namespace)

    assert cluster.definitions()[CLUSTERS]["spec"]["names"]["shortNames"] == ["swx"]
    assert "99.0.0 is newer" in cluster.logs["two-swiftlet-install-crds"]


def test_definitions_that_are_just_going_are_made_again(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")
    cluster.install("one", namespace)
    store(cluster, namespace)
    delete_definitions(cluster, *SOURCES)

    cluster.install("one", namespace)

    assert not any(one["metadata"].get("deletionTimestamp") for one in cluster.definitions().values())
    assert set(cluster.definitions()) == set(SOURCES)


def test_definitions_that_wait_for_their_objects_do_not_stop_the_operator_that_lets_them_go(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")
    cluster.install("one", namespace)
    path = store(cluster, namespace, finalizers=("swiftlet.io/cluster",))
    delete_definitions(cluster, CLUSTERS)

    cluster.install("other", namespace)

    assert "waits for its objects to go" in cluster.logs["other-swiftlet-install-crds"]
    assert cluster.server.patch(path, {"metadata": {"finalizers": None}}).status == 200
    until_gone(cluster, {CLUSTERS})
    cluster.install("other", namespace)
    assert set(cluster.definitions()) == set(SOURCES)


def test_objects_in_a_version_that_goes_are_rewritten_first(cluster: Cluster) -> None:
    namespace = cluster.server.namespace("system")
    name = "storageusers.swiftlet.io"
    (ours,) = SOURCES[name]["spec"]["versions"]
    older = {**ours, "name": "v1alpha0"}
    before = {**SOURCES[name], "spec": {**SOURCES[name]["spec"], "versions": [older]}}
    assert cluster.server.create(DEFINITIONS, before).status == 201
    users = f"/apis/swiftlet.io/v1alpha0/namespaces/{namespace}/storageusers"
    until("v1alpha0 is served", lambda: cluster.server.get(users).status == 200)
    spec = {"clusterRef": {"name": "store"}, "account": "press", "user": "ann"}
    ann = {"apiVersion": "swiftlet.io/v1alpha0", "kind": "StorageUser", "metadata": {"name": "ann"}, "spec": spec}
    assert cluster.server.create(users, ann).status == 201
    both = {"spec": {"versions": [{**older, "storage": False}, ours]}}
    assert cluster.server.patch(f"{DEFINITIONS}/{name}", both).status == 200

    cluster.install("one", namespace)

    found = cluster.definitions()[name]
    assert [one["name"] for one in found["spec"]["versions"]] == found["status"]["storedVersions"] == ["v1alpha1"]
    read = cluster.server.get(f"{users.replace('v1alpha0', 'v1alpha1')}/ann")
    assert read.body["spec"]["user"] == "ann", read.message
    assert "storageusers.swiftlet.io: 1 objects rewritten as v1alpha1" in cluster.logs["one-swiftlet-install-crds"]


def test_definitions_may_be_left_to_others(cluster: Cluster) -> None:
    cluster.install("one", cluster.server.namespace("system"), "--set", "crds.install=false")
    assert cluster.definitions() == {}
    cluster.must("uninstall", "one", "--namespace", _namespace_of(cluster, "one"))


def _namespace_of(cluster: Cluster, release: str) -> str:
    found = yaml.safe_load(cluster.must("list", "--all", "--all-namespaces", "--output", "yaml"))
    (namespace,) = (one["namespace"] for one in found if one["name"] == release)
    return str(namespace)


def test_uninstalling_is_refused_while_there_is_a_cluster_and_each_way_out_works(cluster: Cluster) -> None:
    system, blue = cluster.server.namespace("system"), cluster.server.namespace("blue")
    cluster.install("one", system)
    path = store(cluster, blue, policy="Delete")

    refused = cluster.helm("uninstall", "one", "--namespace", system)

    assert refused.returncode != 0
    said = cluster.logs["one-swiftlet-uninstall-guard"]
    assert f"{blue}/store (deletionPolicy Delete)" in said
    assert len(said.encode()) < 2048, "Kubernetes keeps no more of a container that failed"
    assert "deployments/one-swiftlet-operator" in cluster.left_in(system)

    # To keep the release: Helm refuses to upgrade one that is `uninstalling`.
    assert ("one", "uninstalling") in cluster.releases()
    cluster.must(*command(said, "helm rollback"))
    assert cluster.releases() == {("one", "deployed")}
    cluster.install("one", system)

    # The operator alone.
    assert cluster.helm("uninstall", "one", "--namespace", system).returncode != 0
    cluster.must(*command(cluster.logs["one-swiftlet-uninstall-guard"], "helm uninstall"))
    assert cluster.releases() == set()
    assert cluster.server.get(path).status == 200
    cluster.install("another", system)

    # The StorageClusters first.
    assert cluster.helm("uninstall", "another", "--namespace", system).returncode != 0
    kubectl = command(cluster.logs["another-swiftlet-uninstall-guard"], "kubectl delete")
    path = f"{os.environ['PATH']}:{kube_bin()}"
    program = shutil.which("kubectl", path=path)
    assert program is not None, FIX
    subprocess.run([program, "--kubeconfig", str(cluster.server.kubeconfig), *kubectl], check=True)
    cluster.must("uninstall", "another", "--namespace", system)
    assert {one for one in cluster.left_in(system) if "another" in one} == set()
    assert set(cluster.definitions()) == set(SOURCES)


def command(said: str, begins: str) -> list[str]:
    """The arguments of a command that the guard names, ready to be pasted."""
    found = re.search(rf"^ *{begins.split()[0]} ({begins.split()[1]} .*)$", said, re.MULTILINE)
    assert found is not None, said
    return found[1].split()


def test_clusters_in_namespaces_that_are_not_watched_are_none_of_its_business(cluster: Cluster) -> None:
    system, blue, green = (cluster.server.namespace(name) for name in ("system", "blue", "green"))
    cluster.install("one", system, "--set", f"watchNamespaces={{{blue},{green}}}")
    store(cluster, cluster.server.namespace("red"))
    path = store(cluster, green)

    assert cluster.helm("uninstall", "one", "--namespace", system).returncode != 0
    assert f"{green}/store" in cluster.logs["one-swiftlet-uninstall-guard"]
    assert "red" not in cluster.logs["one-swiftlet-uninstall-guard"]

    cluster.server.delete(path)
    cluster.must("uninstall", "one", "--namespace", system)


@pytest.mark.parametrize("everywhere", [False, True])
def test_the_operator_does_with_its_rights_what_it_has_to_where_it_watches(cluster: Cluster, everywhere: bool) -> None:
    system, blue, green, red = (cluster.server.namespace(name) for name in ("system", "blue", "green", "red"))
    watched = () if everywhere else ("--set", f"watchNamespaces={{{blue},{green}}}")
    cluster.install("one", system, *watched)
    for namespace in (blue, green, red):
        store(cluster, namespace)

    def served(namespace: str) -> bool:
        clusters = "/apis/swiftlet.io/v1alpha1/namespaces"
        status = cluster.server.get(f"{clusters}/{namespace}/storageclusters/store").body.get("status") or {}
        sets = cluster.server.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets").body["items"]
        return bool(status.get("conditions") and sets)

    with cluster.operator("one", system) as log:
        until("both are served", lambda: served(blue) and served(green))
        if everywhere:
            until("the third is served", lambda: served(red))
        # A Role counts some moments after it was made; from then on nothing is forbidden.
        until("it says what it wrote", lambda: " were written" in log.read_text())
        settled = log.read_text()
        cluster.server.delete(f"/api/v1/namespaces/{green}/services/store")
        path = f"/api/v1/namespaces/{green}/services/store"
        until("what is deleted there comes back", lambda: cluster.server.get(path).status == 200)
        later = log.read_text().removeprefix(settled).lower()
        assert "forbidden" not in later
        assert "permission" not in later

    assert served(red) is everywhere


def test_without_the_guard_and_without_definitions_a_release_goes(cluster: Cluster) -> None:
    system = cluster.server.namespace("system")
    cluster.install("one", system, "--set", "uninstallGuard.enabled=false")
    store(cluster, system)
    cluster.must("uninstall", "one", "--namespace", system)

    cluster.install("two", system)
    delete_definitions(cluster, *SOURCES)
    until_gone(cluster, set(SOURCES))
    cluster.must("uninstall", "two", "--namespace", system)
