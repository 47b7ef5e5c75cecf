"""Direct access in pods: the example's Job, one of another namespace, and one that can only use the proxies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.kubernetes.conftest import EXAMPLES, READY_WITHIN_S, new_namespace
from e2e.kubernetes.kube import Namespace, eventually
from swiftlet_operator.plugin.main import main

DONE_WITHIN_S = 300
INDIRECT = "can't be used directly"
"""The client says so once, when objects go over HTTP instead."""


def documents() -> dict[str, dict[str, Any]]:
    """The example's objects by kind, with the image that the cluster has."""
    found = {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / "direct-access.yaml").read_text())}
    image = os.environ.get("SWIFTLET_E2E_IMAGE", "swiftlet:dev")
    found["Job"]["spec"]["template"]["spec"]["containers"][0]["image"] = f"docker.io/library/{image}"
    return found


@pytest.fixture(scope="module")
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace with the example's store and its user, Ready."""
    with new_namespace() as made:
        found = documents()
        made.apply(yaml.safe_dump_all([found["StorageCluster"], found["StorageUser"]]))
        made.wait_until_true("storagecluster", "datasets", "Ready", READY_WITHIN_S)
        made.wait_until_true("storagecluster", "datasets", "DirectAccessAvailable", READY_WITHIN_S)
        made.wait_until_true("storageuser", "trainer", "Ready", READY_WITHIN_S)
        yield made


def run_job(namespace: Namespace, job: dict[str, Any]) -> str:
    """Run a Job until it is complete; what its pods have written."""
    name = job["metadata"]["name"]
    namespace.apply(yaml.safe_dump(job))

    def logs() -> str:
        return namespace.kubectl("logs", "--selector", f"job-name={name}", "--tail", "-1", "--prefix")

    def unfinished() -> str | None:
        status = namespace.get("job", name).get("status", {})
        assert not any(one["type"] == "Failed" for one in status.get("conditions", [])), logs()
        return None if status.get("succeeded") else json.dumps(status)

    eventually(f"Job {name} is complete", DONE_WITHIN_S, unfinished)
    return logs()


def proxies_saw(namespace: Namespace, text: str) -> bool:
    """Whether a request with `text` in its line of the access log came to a proxy."""
    pods = namespace.list("pods", "app.kubernetes.io/component=proxy")
    assert pods
    return any(text in namespace.kubectl("logs", one["metadata"]["name"], "--tail", "-1") for one in pods)


def job(name: str, script: str) -> dict[str, Any]:
    """The example's Job with another script."""
    found = documents()["Job"]
    found["metadata"]["name"] = name
    found["spec"]["template"]["spec"]["containers"][0]["args"] = [script]
    return found


def test_the_example_s_job_moves_its_object_past_the_proxies(namespace: Namespace) -> None:
    said = run_job(namespace, documents()["Job"])
    assert INDIRECT not in said
    # Its container was made over HTTP, so the log has lines.
    assert proxies_saw(namespace, "/datasets")
    assert not proxies_saw(namespace, "data.bin")


def test_what_it_stored_is_there_over_http(namespace: Namespace) -> None:
    script = """
        until swiftlet ls -l swift://datasets | grep -w 67108864; do sleep 1; done
        swiftlet cp --http swift://datasets/data.bin /scratch/http.bin
        swiftlet cp --direct swift://datasets/data.bin /scratch/direct.bin
        cmp /scratch/http.bin /scratch/direct.bin
    """
    said = run_job(namespace, job("compare", script))
    assert INDIRECT not in said
    assert proxies_saw(namespace, "data.bin")


def test_a_job_of_another_namespace_uses_a_secret_that_kubectl_made(
    namespace: Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_namespace() as elsewhere:
        known = {"matchLabels": {"kubernetes.io/metadata.name": elsewhere.name}}
        clients = [{"namespaceSelector": known, "podSelector": {"matchLabels": {"swiftlet-client": "direct"}}}]
        patch = json.dumps({"spec": {"directAccess": {"clients": clients}}})
        namespace.kubectl("patch", "storagecluster", "datasets", "--type", "merge", "--patch", patch)
        arguments = ["client-config", "trainer", "-o", "secret", "--for-namespace", elsewhere.name]
        assert main([*arguments, "--namespace", namespace.name]) == 0
        elsewhere.apply(capsys.readouterr().out)
        script = """
            head -c 10000 /dev/urandom > /scratch/far.bin
            swiftlet cp /scratch/far.bin swift://datasets/far.bin
            swiftlet cat swift://datasets/far.bin | cmp - /scratch/far.bin
        """
        assert INDIRECT not in run_job(elsewhere, job("far", script))
    assert not proxies_saw(namespace, "far.bin")


def test_without_the_metadata_server_s_url_objects_go_over_http(namespace: Namespace) -> None:
    script = """
        mkdir /scratch/login
        for name in user key authUrl; do cp /var/run/secrets/swiftlet/$name /scratch/login/; done
        export SWIFTLET_CREDENTIALS=/scratch/login
        unset SWIFTLET_METADATA_URL
        date > /scratch/plain.txt
        swiftlet cp /scratch/plain.txt swift://datasets/plain.txt
        swiftlet cat swift://datasets/plain.txt
    """
    run_job(namespace, job("plain", script))
    assert proxies_saw(namespace, "plain.txt")
