"""A Kubernetes with the operator in it, and a store in a namespace of its own. `hack/e2e` brings up what is needed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from swiftclient.client import Connection

from charts.make import CHART
from e2e.kubernetes.kube import Failed, Namespace, access, run

EXAMPLES = Path(__file__).parents[2] / "examples"
RELEASE = "swiftlet"
SYSTEM = "swiftlet-system"
READY_WITHIN_S = 420
"""Images are there, but all machines of a test cluster share one computer."""

_STORAGE_CLASS = """
# The class that the examples name, with whatever makes volumes here.
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
"""

_NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata:
  name: NAME
  labels: {pod-security.kubernetes.io/enforce: restricted}
"""


def image_values() -> list[str]:
    """What helm is told about the images that are there."""
    repository, _, tag = os.environ.get("SWIFTLET_E2E_IMAGE", "swiftlet:dev").rpartition(":")
    chosen = ["--set", f"image.repository={repository},image.tag={tag}"]
    if redis := os.environ.get("SWIFTLET_E2E_REDIS_IMAGE"):
        repository, _, tag = redis.rpartition(":")
        chosen += ["--set-string", f"redisImage.repository={repository},redisImage.tag={tag}"]
    return chosen


@pytest.fixture(scope="session")
def operator() -> Namespace:
    """The chart, installed; the operator's namespace."""
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set; run `make e2e`")
    return install_operator()


def install_operator(kubeconfig: str = "") -> Namespace:
    """Install the chart in the cluster of a kubeconfig; the operator's namespace."""
    system = Namespace(SYSTEM, kubeconfig)
    run("kubectl", *access(kubeconfig), "apply", "--filename", "-", stdin=_STORAGE_CLASS)
    run("kubectl", *access(kubeconfig), "apply", "--filename", "-", stdin=_NAMESPACE.replace("NAME", SYSTEM))
    helm = ("helm", *access(kubeconfig), "--namespace", SYSTEM)
    run(*helm, "upgrade", "--install", RELEASE, str(CHART), *image_values())
    # A pod of an earlier run may have the same tag and an older image.
    system.kubectl("rollout", "restart", f"deployment/{RELEASE}-operator")
    system.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "--timeout", "120s")
    return system


@contextmanager
def new_namespace(kubeconfig: str = "") -> Iterator[Namespace]:
    """A namespace that allows restricted pods only, and goes with everything in it."""
    namespace = Namespace(f"e2e-{secrets.token_hex(4)}", kubeconfig)
    kubectl = ("kubectl", *access(kubeconfig))
    run(*kubectl, "apply", "--filename", "-", stdin=_NAMESPACE.replace("NAME", namespace.name))
    try:
        yield namespace
    finally:
        if not os.environ.get("KEEP"):
            run(*kubectl, "delete", "namespace", namespace.name, "--timeout", "180s", "--ignore-not-found")


@dataclass(frozen=True, slots=True)
class Store:
    """A store as the example declares it, and its user."""

    namespace: Namespace
    name: str
    credentials: dict[str, str]

    @contextmanager
    def client(self) -> Iterator[Connection]:
        """python-swiftclient, through the Service."""
        user, key = self.credentials["user"], self.credentials["key"]
        with (
            self.namespace.forwarded(f"service/{self.name}", 80) as port,
            closing(Connection(f"http://127.0.0.1:{port}/auth/v1.0", user, key)) as swift,
        ):
            yield swift


@pytest.fixture(scope="module")
def store(operator: Namespace) -> Iterator[Store]:
    """Ready, in a namespace of its own."""
    with new_namespace() as namespace:
        text = (EXAMPLES / "storagecluster.yaml").read_text()
        cluster, user = (one["metadata"]["name"] for one in yaml.safe_load_all(text))
        namespace.apply(text)
        namespace.wait_until_true("storagecluster", cluster, "Ready", READY_WITHIN_S)
        namespace.wait_until_true("storageuser", user, "Ready", READY_WITHIN_S)
        yield Store(namespace, cluster, namespace.secret(f"{user}-credentials"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add what the operator logged to the report of a failed test."""
    report = yield
    if call.excinfo is not None and call.when != "teardown":
        try:
            log = Namespace(SYSTEM).kubectl("logs", f"deployment/{RELEASE}-operator", "--tail", "100")
        except Failed as error:
            log = str(error)
        item.add_report_section("call", "operator", log)
    return report
