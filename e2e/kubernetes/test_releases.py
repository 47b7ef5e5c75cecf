"""Releases come and go, the store stays: uninstalling is refused, the operator goes alone, the next one takes over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from swiftclient.client import ClientException, Connection

from charts.make import CHART
from e2e.kubernetes.conftest import READY_WITHIN_S, RELEASE, SYSTEM, image_values, new_namespace
from e2e.kubernetes.kube import Failed, Namespace, eventually, run
from e2e.kubernetes.lab import administrator, cluster_of_three

NAME = "left"
NEXT = "successor"
CONTENT = b"still here" * 100_000
AT_REST_S = 15.0
GONE_WITHIN_S = 240
LOGIN_WITHIN_S = 180


def install(release: str, namespace: str) -> None:
    run("helm", "upgrade", "--install", release, str(CHART), "--namespace", namespace, *image_values())
    Namespace(namespace).kubectl("rollout", "status", f"deployment/{operator_of(release)}", "--timeout", "120s")


def operator_of(release: str) -> str:
    return f"{release}-operator" if "swiftlet" in release else f"{release}-swiftlet-operator"


def add_user(namespace: Namespace, name: str) -> dict[str, str]:
    namespace.apply(administrator(NAME, name))
    namespace.wait_until_true("storageuser", name, "Ready", READY_WITHIN_S)
    return namespace.secret(f"{name}-credentials")


def stored(namespace: Namespace, credentials: dict[str, str]) -> bytes:
    """The object as the user reads it, who puts it there if it is not."""
    with (
        namespace.forwarded(f"service/{NAME}", 80) as port,
        closing(Connection(f"http://127.0.0.1:{port}/auth/v1.0", credentials["user"], credentials["key"])) as swift,
    ):

        def refused() -> str | None:
            try:
                swift.get_auth()
            except ClientException as error:
                return str(error)
            return None

        # The kubelet brings a Secret to the proxies' volumes within a minute or two.
        eventually("a login", LOGIN_WITHIN_S, refused)
        swift.put_container("things")
        if not swift.get_container("things")[1]:
            swift.put_object("things", "one", CONTENT)
        found: bytes = swift.get_object("things", "one")[1]
        return found


def pods(namespace: Namespace) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in namespace.list("pods")}


@pytest.fixture
def released_again(operator: Namespace) -> Iterator[Namespace]:
    """The operator's namespace; the release of all other tests is there afterwards."""
    yield operator
    install(RELEASE, SYSTEM)


def test_a_store_outlives_its_operator_s_release_and_ends_under_the_next(released_again: Namespace) -> None:
    with new_namespace() as namespace, new_namespace() as elsewhere:
        namespace.apply(cluster_of_three(NAME))
        namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        ann = add_user(namespace, "ann")
        assert stored(namespace, ann) == CONTENT
        running = pods(namespace)

        with pytest.raises(Failed) as refused:
            run("helm", "uninstall", RELEASE, "--namespace", SYSTEM)
        log = released_again.kubectl("logs", f"job/{RELEASE}-uninstall-guard")
        assert f"{namespace.name}/{NAME} (deletionPolicy Retain)" in log
        assert "--no-hooks" in log
        assert f"{namespace.name}/{NAME}" in str(refused.value), "helm itself shows what the Job said"
        pod = released_again.list("pods", f"job-name={RELEASE}-uninstall-guard")[0]
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert NAME in ended["message"]

        run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, "--no-hooks", "--wait")
        assert stored(namespace, ann) == CONTENT
        install(NEXT, elsewhere.name)
        bob = add_user(namespace, "bob")
        namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        time.sleep(AT_REST_S)
        assert pods(namespace) == running, "the next release restarts nothing"
        assert stored(namespace, bob) == CONTENT

        # The namespace goes while nobody is there to let the store go; the next release does.
        run("helm", "uninstall", NEXT, "--namespace", elsewhere.name, "--no-hooks", "--wait")
        run("kubectl", "delete", "namespace", namespace.name, "--wait=false")
        eventually("the store is Terminating", GONE_WITHIN_S, lambda: _not_terminating(namespace))
        namespace.kubectl("annotate", "storagecluster", NAME, "swiftlet.io/allow-deletion=true")
        install(NEXT, elsewhere.name)
        eventually("the namespace goes", GONE_WITHIN_S, lambda: _still_there(namespace))
        run("helm", "uninstall", NEXT, "--namespace", elsewhere.name)
        assert "storageclusters.swiftlet.io" in run("kubectl", "get", "crd", "--output", "name")


def _not_terminating(namespace: Namespace) -> str | None:
    found = namespace.get("storagecluster", NAME)
    return None if found["metadata"].get("deletionTimestamp") else "it is not being deleted"


def _still_there(namespace: Namespace) -> str | None:
    try:
        return str(run("kubectl", "get", "namespace", namespace.name, "--output", "jsonpath={.status}"))
    except Failed:
        return None
