"""A Kubernetes with the operator in it, and a namespace per test. `hack/e2e` brings up what is needed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from charts.make import CHART
from e2e.kubernetes.kube import Failed, Namespace, run

EXAMPLES = Path(__file__).parents[2] / "examples"
RELEASE = "swiftlet"
SYSTEM = "swiftlet-system"

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


@pytest.fixture(scope="session")
def operator() -> Namespace:
    """The chart, installed; the operator's namespace."""
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set; run `make e2e`")
    repository, _, tag = os.environ.get("SWIFTLET_E2E_IMAGE", "swiftlet:dev").rpartition(":")
    run("kubectl", "apply", "--filename", "-", stdin=_STORAGE_CLASS)
    run("kubectl", "apply", "--filename", "-", stdin=_NAMESPACE.replace("NAME", SYSTEM))
    chosen = ["--set", f"image.repository={repository},image.tag={tag}"]
    run("helm", "upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, *chosen)
    system = Namespace(SYSTEM)
    # A pod of an earlier run may have the same tag and an older image.
    system.kubectl("rollout", "restart", f"deployment/{RELEASE}-operator")
    system.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "--timeout", "120s")
    return system


@pytest.fixture
def namespace(operator: Namespace) -> Iterator[Namespace]:
    """A namespace that allows restricted pods only, and goes with everything in it."""
    name = f"e2e-{secrets.token_hex(4)}"
    run("kubectl", "apply", "--filename", "-", stdin=_NAMESPACE.replace("NAME", name))
    yield Namespace(name)
    run("kubectl", "delete", "namespace", name, "--timeout", "120s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """What the operator logged, beside what failed."""
    report = yield
    if call.excinfo is not None and call.when == "call":
        try:
            log = Namespace(SYSTEM).kubectl("logs", f"deployment/{RELEASE}-operator", "--tail", "100")
        except Failed as error:
            log = str(error)
        item.add_report_section("call", "operator", log)
    return report
