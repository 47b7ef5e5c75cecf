"""Helm against a real API server, on which nothing runs: Jobs are run here, as processes with their account's token."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from charts.make import CHART
from swiftlet.testing.ports import free_ports
from swiftlet_operator.tests.apiserver import ApiServer, _kubeconfig

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_S = 0.05
_HELM_WITHIN_S = 120
Manifest = dict[str, Any]


@dataclass
class Cluster:
    """A Kubernetes with Helm; `logs` has what each Job wrote, by its name."""

    server: ApiServer
    program: str
    logs: dict[str, str] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One helm command; its Jobs have ended when it has."""
        return subprocess.run(
            [self.program, *arguments, "--kubeconfig", str(self.server.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_HELM_WITHIN_S,
        )

    def must(self, *arguments: str) -> str:
        """One helm command that succeeds; what it wrote."""
        done = self.helm(*arguments)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}\n{self.logs}"
        return done.stdout

    def install(self, release: str, namespace: str, *more: str) -> str:
        """The chart, installed or upgraded."""
        return self.must("upgrade", "--install", release, str(CHART), "--namespace", namespace, *more)

    def releases(self) -> set[tuple[str, str]]:
        """Name and status of all releases."""
        found = yaml.safe_load(self.must("list", "--all", "--all-namespaces", "--output", "yaml"))
        return {(one["name"], one["status"]) for one in found}

    def definitions(self) -> dict[str, Manifest]:
        """Ours, by name."""
        found = self.server.get(DEFINITIONS).body["items"]
        return {one["metadata"]["name"]: one for one in found if one["spec"]["group"] == "swiftlet.io"}

    def left_in(self, namespace: str) -> set[str]:
        """What Helm made in a namespace and left there."""
        kinds = {
            "serviceaccounts": f"/api/v1/namespaces/{namespace}/serviceaccounts",
            "configmaps": f"/api/v1/namespaces/{namespace}/configmaps",
            "deployments": f"/apis/apps/v1/namespaces/{namespace}/deployments",
            "jobs": f"/apis/batch/v1/namespaces/{namespace}/jobs",
            "roles": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
            "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        }
        return {
            f"{kind}/{one['metadata']['name']}"
            for kind, path in kinds.items()
            for one in self.server.get(f"{path}?labelSelector=app.kubernetes.io/managed-by=Helm").body["items"]
        }

    @contextlib.contextmanager
    def operator(self, release: str, namespace: str) -> Iterator[Path]:
        """The operator's pod of a release as a process with its account's rights; the file that it logs to."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{release}-swiftlet-operator"
        pod = self.server.get(path).body["spec"]["template"]["spec"]
        fields = {"metadata.name": f"{release}-0", "metadata.namespace": namespace, "metadata.uid": release}
        said = {
            one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in pod["containers"][0]["env"]
            if "value" in one or "fieldRef" in one.get("valueFrom", {})
        }
        port, metrics = free_ports(2)
        said |= {"LIVENESS_URL": f"http://127.0.0.1:{port}/healthz", "METRICS_PORT": str(metrics)}
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            said["KUBECONFIG"] = self._login(namespace, pod, Path(folder))
            with log.open("wb") as out:
                command = [sys.executable, "-m", "swiftlet_operator"]
                process = subprocess.Popen(command, env=os.environ | said, stdout=out, stderr=out)
            try:
                yield log
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    @contextlib.contextmanager
    def running_jobs(self) -> Iterator[None]:
        """Jobs that are made in the block are run."""
        self._done |= {one["metadata"]["uid"] for one in self._jobs()}
        ended = threading.Event()
        worker = threading.Thread(target=self._run_jobs, args=(ended,))
        worker.start()
        try:
            yield
        finally:
            ended.set()
            worker.join()

    def _run_jobs(self, ended: threading.Event) -> None:
        while not ended.wait(_POLL_S):
            for job in self._jobs():
                if job["metadata"]["uid"] not in self._done:
                    self._done.add(job["metadata"]["uid"])
                    self._run(job)

    def _jobs(self) -> list[Manifest]:
        found: list[Manifest] = self.server.get("/apis/batch/v1/jobs").body["items"]
        return found

    def _run(self, job: Manifest) -> None:
        """One Job from its start to its end, tried once."""
        metadata, pod = job["metadata"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (program,) = container["command"]
        assert program == "swiftlet-operator"
        with tempfile.TemporaryDirectory() as folder:
            arguments = [_mounted(one, self._mounts(job, Path(folder))) for one in container["args"]]
            done = subprocess.run(
                [sys.executable, "-m", "swiftlet_operator", *arguments],
                env=os.environ | {"KUBECONFIG": self._login(metadata["namespace"], pod, Path(folder))},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        self.logs[metadata["name"]] = done.stdout
        path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
        answer = self.server.patch(path, {"status": _status(succeeded=done.returncode == 0)})
        assert answer.status in (200, 404), answer.message

    def _mounts(self, job: Manifest, folder: Path) -> dict[str, Path]:
        """Where the ConfigMaps of a Job's pod are, by the path in the pod."""
        pod = job["spec"]["template"]["spec"]
        maps = {one["name"]: one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one}
        mounts = {}
        for mount in pod["containers"][0]["volumeMounts"]:
            if mount["name"] not in maps:
                continue
            path = f"/api/v1/namespaces/{job['metadata']['namespace']}/configmaps/{maps[mount['name']]}"
            mounts[mount["mountPath"]] = folder / mount["name"]
            mounts[mount["mountPath"]].mkdir(exist_ok=True)
            for name, text in self.server.get(path).body["data"].items():
                (mounts[mount["mountPath"]] / name).write_text(text)
        return mounts

    def _login(self, namespace: str, pod: Manifest, folder: Path) -> str:
        """A kubeconfig of the pod's account, with its rights and no others."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{pod['serviceAccountName']}/token"
        token = self.server.request("POST", path, {"spec": {}}).body["status"]["token"]
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(_kubeconfig(self.server.url, self.server.ca_file, token)))
        return str(file)


def _mounted(argument: str, mounts: dict[str, Path]) -> str:
    return str(mounts[argument]) if argument in mounts else argument


def _status(*, succeeded: bool) -> Manifest:
    """A Job's status as its controller writes it at the end."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    types = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": now, "lastProbeTime": now} for one in types]
    ended = {"completionTime": now, "succeeded": 1} if succeeded else {"failed": 1}
    return {"startTime": now, "conditions": conditions, **ended}


def delete_definitions(cluster: Cluster, *names: str) -> None:
    """Delete definitions once their kinds are served: before, the API server can't find their objects."""
    deadline = time.monotonic() + 60.0
    for name in names:
        plural, _, group = name.partition(".")
        while cluster.server.get(f"/apis/{group}/v1alpha1/{plural}").status != 200:
            assert time.monotonic() < deadline, f"{plural} are not served"
            time.sleep(_POLL_S)
    for name in names:
        assert cluster.server.delete(f"{DEFINITIONS}/{name}").status == 200


def until(what: str, holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_S)


def until_gone(cluster: Cluster, names: set[str], within_s: float = 60.0) -> None:
    """Wait until these definitions are not there any more."""
    deadline = time.monotonic() + within_s
    while left := names & set(cluster.definitions()):
        assert time.monotonic() < deadline, [cluster.definitions()[one]["status"] for one in left]
        time.sleep(_POLL_S)
