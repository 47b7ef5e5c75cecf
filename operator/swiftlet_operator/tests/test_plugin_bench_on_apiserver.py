"""What `kubectl swiftlet bench` makes is accepted by a real API server as it stands, and deleted as a whole."""

from __future__ import annotations

import pytest

from swiftlet_operator.plugin import bench
from swiftlet_operator.plugin.bench_manifests import COORDINATOR, RUN_LABEL, WORKER, Image, Run, coordinator, workers
from swiftlet_operator.plugin.client_config import Access
from swiftlet_operator.plugin.kubectl import Kubectl
from swiftlet_operator.tests.apiserver import ApiServer

pytestmark = pytest.mark.apiserver
COLLECTIONS = {
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "services": "/api/v1/namespaces/{}/services",
    "secrets": "/api/v1/namespaces/{}/secrets",
}


@pytest.fixture
def run(apiserver: ApiServer) -> Run:
    return Run(
        name=bench.new_name(),
        access=Access(apiserver.namespace(), "store", "test:anna", "http://store/auth/v1.0", None, "anna", "key"),
        image=Image("swiftlet:dev", "IfNotPresent", ({"name": "pull"},)),
        scenario="title: mine\n",
        is_text=True,
        workers=4,
        runs=5,
        changes=("duration_s=9",),
        keeps=False,
        cpu="500m",
        wait_s=300.0,
        limit_s=7200,
        token=bench.new_token(),
    )


def names(apiserver: ApiServer, run: Run) -> dict[str, list[str]]:
    """The run's objects that are not being deleted."""
    found = {}
    for kind, path in COLLECTIONS.items():
        answer = apiserver.get(f"{path.format(run.access.namespace)}?labelSelector={RUN_LABEL}%3D{run.name}")
        metadata = [one["metadata"] for one in answer.body["items"]]
        found[kind] = sorted(one["name"] for one in metadata if "deletionTimestamp" not in one)
    return found


def test_a_run_is_made_of_objects_that_the_coordinator_owns_and_deleted_as_a_whole(
    apiserver: ApiServer, run: Run
) -> None:
    kubectl = Kubectl((f"--kubeconfig={apiserver.kubeconfig}",))
    bench.make(kubectl, run)
    jobs = [run.name_of(COORDINATOR), run.name_of(WORKER)]
    assert names(apiserver, run) == {"jobs": jobs, "services": [run.name], "secrets": [run.name]}
    owner = kubectl.get("jobs.batch", run.access.namespace, jobs[0])["metadata"]["uid"]
    for kind, name in (("jobs.batch", jobs[1]), ("services", run.name), ("secrets", run.name)):
        (reference,) = kubectl.get(kind, run.access.namespace, name)["metadata"]["ownerReferences"]
        assert reference["uid"] == owner
    bench.clean(kubectl, run)
    assert names(apiserver, run) == {"jobs": [], "services": [], "secrets": []}
    bench.clean(kubectl, run)


def test_no_field_of_them_is_unknown_and_namespaces_of_the_restricted_profile_take_them(
    apiserver: ApiServer, run: Run
) -> None:
    labels = {"pod-security.kubernetes.io/warn": "restricted"}
    apiserver.patch(f"/api/v1/namespaces/{run.access.namespace}", {"metadata": {"labels": labels}})
    path = COLLECTIONS["jobs"].format(run.access.namespace)
    for manifest in (coordinator(run), workers(run, "00000000-0000-0000-0000-000000000000")):
        answer = apiserver.create(path, manifest)
        assert answer.status == 201, answer.message
        assert not answer.warnings
