"""What a run of a benchmark is made of in Kubernetes: two Jobs, a Service between them, and a Secret of the run.

The Job of the coordinator owns everything else, so that all of it goes when it goes, whoever deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from swiftlet_operator.plugin.client_config import MOUNTED_AT, Access
from swiftlet_operator.plugin.picture import Object

PORT = 6299
RUN_LABEL = "swiftlet.io/bench"
COORDINATOR, WORKER = "coordinator", "worker"
RUN_AT, RESULTS_AT = "/var/run/secrets/bench", "/results"
TOKEN, SCENARIO = "token", "scenario.yaml"
KEPT_S = 600
"""Seconds for which a result waits to be fetched, and after which a Job that has ended is deleted by Kubernetes."""
_RESULTS_BYTES = "1Gi"

# Its own process is not the first of the container, so that it can be stopped as by Ctrl-C and its results be fetched.
_COORDINATE = f"""
swiftlet bench coordinator "$@" > {RESULTS_AT}/table 2> {RESULTS_AT}/errors &
echo $! > {RESULTS_AT}/pid
code=0
wait $! || code=$?
cat {RESULTS_AT}/table {RESULTS_AT}/errors
echo $code > {RESULTS_AT}/code
waited=0
while [ ! -e {RESULTS_AT}/taken ] && [ $waited -lt {KEPT_S} ]; do
    sleep 1
    waited=$((waited + 1))
done
exit $code
"""


@dataclass(frozen=True, slots=True)
class Image:
    """The image of the pods, as those of the store have it."""

    name: str
    policy: str | None = None
    pull_secrets: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """What is run, for whom and by how many."""

    name: str
    access: Access
    image: Image
    scenario: str
    """The name of a scenario that ships, or the text of one."""
    is_text: bool
    workers: int
    runs: int
    changes: tuple[str, ...]
    keeps: bool
    cpu: str
    """Processors that each worker asks for, as Kubernetes writes them."""
    wait_s: float
    limit_s: int
    """Seconds after which Kubernetes ends the Jobs."""
    token: str = field(repr=False)

    def name_of(self, part: str) -> str:
        """Return the name of the Job of a part."""
        return f"{self.name}-{part}"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of the run."""
        return {"app.kubernetes.io/name": "swiftlet-bench", RUN_LABEL: self.name}


def coordinator(run: Run) -> Object:
    """Return the Job that owns the others."""
    scenario = f"{RUN_AT}/{SCENARIO}" if run.is_text else run.scenario
    arguments = [
        scenario,
        f"--workers={run.workers}",
        f"--listen=0.0.0.0:{PORT}",
        f"--token-file={RUN_AT}/{TOKEN}",
        f"--wait={run.wait_s:g}",
        f"--runs={run.runs}",
        *(f"--set={one}" for one in run.changes),
        *(["--keep"] if run.keeps else []),
        f"--json={RESULTS_AT}/result.json",
        f"--html={RESULTS_AT}/result.html",
        f"--progress-file={RESULTS_AT}/progress",
    ]
    mounts = [_mount("run", RUN_AT, read_only=True), _mount("results", RESULTS_AT)]
    volumes = [_secret("run", run.name), {"name": "results", "emptyDir": {"sizeLimit": _RESULTS_BYTES}}]
    # `sh -c SCRIPT NAME ARGUMENTS`: no argument is read as a part of the script.
    command = ["/bin/sh", "-c", _COORDINATE, COORDINATOR, *arguments]
    return _job(run, COORDINATOR, command, {}, mounts, volumes, "100m")


def workers(run: Run, owner_uid: str) -> Object:
    """Return the Job of the workers, which log in as the run's user."""
    command = ["swiftlet", "bench", "worker", f"--coordinator={run.name}:{PORT}", f"--token-file={RUN_AT}/{TOKEN}"]
    mounts = [_mount("run", RUN_AT, read_only=True), _mount("store", MOUNTED_AT, read_only=True)]
    key = [{"key": run.access.entry, "path": "key"}]
    volumes = [_secret("run", run.name), _secret("store", run.access.secret, key)]
    environment = {"SWIFTLET_CREDENTIALS": MOUNTED_AT, **run.access.variables}
    made = _job(run, WORKER, [*command, f"--wait={run.wait_s:g}"], environment, mounts, volumes, run.cpu)
    made["spec"] |= {"completions": run.workers, "parallelism": run.workers}
    made["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": _labels(run, WORKER)},
        }
    ]
    return _owned(run, made, owner_uid)


def service(run: Run, owner_uid: str) -> Object:
    """Return the Service by which workers find the coordinator, before it is ready, too."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(run, COORDINATOR),
        "ports": [{"name": "workers", "port": PORT}],
    }
    return _owned(
        run, {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(run, run.name), "spec": spec}, owner_uid
    )


def secret(run: Run, owner_uid: str) -> Object:
    """Return the Secret with what coordinator and workers prove themselves by, and the text of the scenario."""
    data = {TOKEN: run.token, **({SCENARIO: run.scenario} if run.is_text else {})}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(run, run.name), "type": "Opaque"}
    return _owned(run, {**made, "stringData": data}, owner_uid)


def _job(
    run: Run,
    part: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    mounts: Sequence[Object],
    volumes: Sequence[Object],
    cpu: str,
) -> Object:
    container: Object = {
        "name": part,
        "image": run.image.name,
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": list(mounts),
        "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if run.image.policy is not None:
        container["imagePullPolicy"] = run.image.policy
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": list(volumes),
    }
    if run.image.pull_secrets:
        pod["imagePullSecrets"] = list(run.image.pull_secrets)
    spec = {
        # Figures of a second attempt would be of other workers.
        "backoffLimit": 0,
        "activeDeadlineSeconds": run.limit_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": _labels(run, part)}, "spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(run, run.name_of(part)), "spec": spec}


def _metadata(run: Run, name: str) -> Object:
    return {"name": name, "namespace": run.access.namespace, "labels": run.labels}


def _labels(run: Run, part: str) -> dict[str, str]:
    return {**run.labels, "app.kubernetes.io/component": part}


def _owned(run: Run, made: Object, uid: str) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": run.name_of(COORDINATOR), "uid": uid}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def _mount(name: str, place: str, *, read_only: bool = False) -> Object:
    return {"name": name, "mountPath": place, **({"readOnly": True} if read_only else {})}


def _secret(name: str, secret_name: str, items: Sequence[Object] = ()) -> Object:
    return {"name": name, "secret": {"secretName": secret_name, **({"items": list(items)} if items else {})}}
