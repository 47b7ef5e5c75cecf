"""`kubectl swiftlet bench`: a benchmark by pods of the cluster, followed until its result is here.

Fault model: pods may never start, workers may fail or be lost, this command may be interrupted or killed, and kubectl
may fail for a while. Whatever happens, what was made is deleted: by this command, or by Kubernetes some minutes after
the Jobs have ended.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftlet_operator.plugin.bench_manifests import (
    COORDINATOR,
    RESULTS_AT,
    RUN_LABEL,
    WORKER,
    Image,
    Run,
    coordinator,
    secret,
    service,
    workers,
)
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import INSTANCE_LABEL, Object, name_of

POLL_S = 2.0
MAX_WORKERS = 256
MAX_SCENARIO_BYTES = 256 << 10
"""Of a scenario's file: it goes into a Secret, of which a mebibyte is the most."""
FETCH_S = 300.0
STOP_S = 120.0
"""Seconds that a run has after Ctrl-C to delete its objects and to say what it has measured."""
TRIES = 5
"""So often in a row the progress may not be had."""
_LOG_LINES = 20
_BAD_WAITS = (
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has left behind, read from the coordinator's pod."""

    code: int
    """The exit code of the coordinator."""
    table: str
    errors: str
    result: str
    page: str


def image_of(kubectl: Kubectl, namespace: str, cluster: str, name: str | None) -> Image:
    """Return the image that pods of a cluster run, or another one that was named. Raises KubectlError."""
    for pod in kubectl.list("pods", namespace, f"{INSTANCE_LABEL}={cluster}"):
        for container in pod["spec"]["containers"]:
            # Redis has an image of its own.
            if container["name"] in ("proxy", "object", "metadata") and container.get("image"):
                pull_secrets = tuple(pod["spec"].get("imagePullSecrets") or ())
                return Image(name or str(container["image"]), container.get("imagePullPolicy"), pull_secrets)
    if name is not None:
        return Image(name)
    raise KubectlError(f"StorageCluster {cluster} has no pods whose image could be used: name one with --image")


def scenario_of(given: str) -> tuple[str, bool]:
    """Return a scenario's name, or the text of its file, and which of both it is. Raises KubectlError."""
    path = Path(given)
    if not path.suffix and not path.exists():
        return given, False
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KubectlError(f"{given} can't be read: {error}") from error
    if len(text.encode()) > MAX_SCENARIO_BYTES:
        raise KubectlError(f"{given} has more than {MAX_SCENARIO_BYTES:,} bytes, which is no scenario")
    return text, True


def new_name() -> str:
    """Return a name for a run."""
    return f"swiftlet-bench-{secrets.token_hex(4)}"


def new_token() -> str:
    """Return what coordinator and workers prove themselves by."""
    return secrets.token_hex(32)


def carry_out(kubectl: Kubectl, run: Run, say: Callable[[str], None]) -> Outcome:
    """Make a run's objects, wait for its end, and return what it measured; its objects are deleted. Raises
    KubectlError.

    Ctrl-C stops the run, which then deletes what it has stored and says what it has measured; another one leaves both.
    """
    try:
        make(kubectl, run)
        return _followed(kubectl, run, say)
    finally:
        clean(kubectl, run)


def make(kubectl: Kubectl, run: Run) -> None:
    """Create the run's objects. Raises KubectlError."""
    kubectl.create(coordinator(run))
    uid = str(kubectl.get("jobs.batch", run.access.namespace, run.name_of(COORDINATOR))["metadata"]["uid"])
    for manifest in (secret(run, uid), service(run, uid), workers(run, uid)):
        kubectl.create(manifest)


def clean(kubectl: Kubectl, run: Run) -> None:
    """Delete the run's objects, as far as they are there. Raises KubectlError."""
    kubectl.text(
        "delete",
        "jobs.batch,services,secrets",
        "--namespace",
        run.access.namespace,
        "--selector",
        f"{RUN_LABEL}={run.name}",
        "--ignore-not-found",
        "--wait=false",
    )


def _followed(kubectl: Kubectl, run: Run, say: Callable[[str], None]) -> Outcome:
    following = _Following(kubectl, run, say)
    try:
        return following.until_the_end()
    except KeyboardInterrupt:
        say("stopping: objects are deleted; another Ctrl-C leaves them in the store")
        following.stop()
        return following.until_the_end(time.monotonic() + STOP_S)


class _Following:
    def __init__(self, kubectl: Kubectl, run: Run, say: Callable[[str], None]) -> None:
        self._kubectl, self._run, self._say = kubectl, run, say
        self._pod: str | None = None
        self._said = ""
        self._failures = self._failed_looks = 0
        self._has_begun = False

    def until_the_end(self, deadline: float | None = None) -> Outcome:
        while True:
            if deadline is not None and time.monotonic() > deadline:
                raise KubectlError(f"the run did not end within {STOP_S:.0f} s; its objects may be left in the store")
            pod = self._pod or self._started()
            if pod is not None:
                self._pod = pod
                code = self._look(pod)
                if code is not None:
                    return self._fetched(pod, code)
            self._check_workers()
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Interrupt the coordinator as Ctrl-C would."""
        if self._pod is None:
            raise KubectlError("interrupted before anything was measured")
        self._shell(self._pod, f"kill -INT $(cat {RESULTS_AT}/pid)")

    def _look(self, pod: str) -> int | None:
        """Say what is being done; return the exit code once there is one."""
        try:
            text = self._shell(pod, f"cat {RESULTS_AT}/progress {RESULTS_AT}/code 2> /dev/null || true")
        except KubectlError:
            self._failures += 1
            if self._failures >= TRIES or self._job_failed(COORDINATOR):
                raise
            return None
        self._failures = 0
        lines = text.splitlines()
        if lines and lines[-1].isdecimal():
            return int(lines[-1])
        if lines and lines[-1] != self._said:
            self._has_begun = True
            self._said = lines[-1]
            self._say(self._said)
        return None

    def _fetched(self, pod: str, code: int) -> Outcome:
        table, errors, result, page = (
            self._shell(pod, f"cat {RESULTS_AT}/{file} 2> /dev/null || true", FETCH_S)
            for file in ("table", "errors", "result.json", "result.html")
        )
        # Not told, it ends by itself some minutes later; it is deleted anyway.
        with suppress(KubectlError):
            self._shell(pod, f"touch {RESULTS_AT}/taken")
        return Outcome(code, table, errors, result, page)

    def _shell(self, pod: str, script: str, timeout_s: float = 60.0) -> str:
        where = ["--namespace", self._run.access.namespace, "--container", COORDINATOR]
        return self._kubectl.text("exec", pod, *where, "--", "sh", "-c", script, timeout_s=timeout_s)

    def _started(self) -> str | None:
        """Return the coordinator's pod once it runs; say what it waits for until then."""
        pods = self._pods(COORDINATOR)
        if not pods:
            if self._job_failed(COORDINATOR):
                raise KubectlError(f"Job {self._run.name_of(COORDINATOR)} has failed without a pod")
            return None
        pod = pods[0]
        if pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
            return name_of(pod)
        self._wait_for(pod)
        return None

    def _check_workers(self) -> None:
        """Raise KubectlError once workers can't do their part before the coordinator could tell of it."""
        if self._has_begun:
            # From then on the coordinator itself names workers that are lost.
            return
        pods = self._pods(WORKER)
        failed = [name_of(pod) for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
        self._failed_looks = self._failed_looks + 1 if failed else 0
        # A run may also be over before any progress was seen, with workers that count failed operations as a failure.
        if self._failed_looks >= TRIES:
            raise KubectlError(f"worker {failed[0]} has failed:\n{self._log(failed[0])}")
        for pod in pods:
            if pod.get("status", {}).get("phase") == "Pending":
                self._wait_for(pod)

    def _wait_for(self, pod: Object) -> None:
        why = _waiting(pod)
        if why is None:
            return
        text = f"{name_of(pod)} waits: {why}"
        if why.startswith(_BAD_WAITS):
            raise KubectlError(text)
        if text != self._said:
            self._said = text
            self._say(text)

    def _pods(self, part: str) -> list[Object]:
        labels = f"{RUN_LABEL}={self._run.name},app.kubernetes.io/component={part}"
        return self._kubectl.list("pods", self._run.access.namespace, labels)

    def _job_failed(self, part: str) -> bool:
        found: Any = self._kubectl.find("jobs.batch", self._run.access.namespace, self._run.name_of(part))
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        return found is None or any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)

    def _log(self, pod: str) -> str:
        where = ["--namespace", self._run.access.namespace]
        try:
            return self._kubectl.text("logs", pod, *where, f"--tail={_LOG_LINES}").rstrip()
        except KubectlError as error:
            return str(error)


def _waiting(pod: Object) -> str | None:
    """Return why a pod does not run yet, None when it says nothing."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason')}: {condition.get('message', '')}".rstrip(": ")
    return None


def check_result(outcome: Outcome) -> None:
    """Check that the result is whole, as it came through a stream that may have been cut. Raises KubectlError."""
    if not outcome.result:
        raise KubectlError(outcome.errors.strip() or f"the coordinator ended with {outcome.code} and no result")
    try:
        json.loads(outcome.result)
    except ValueError as error:
        raise KubectlError(f"the result came in parts only: {error}") from error
