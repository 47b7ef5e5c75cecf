"""Collects everything that somebody who helps from afar asks for in one archive, without secrets.

Of Secrets only names, types and the names of their keys are included. A read that fails is recorded in `failures.txt`
and the rest goes on: a bundle is made when things are broken.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from swiftlet import __version__
from swiftlet_operator.plugin.gather import AT_ONCE
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import INSTANCE_LABEL, Object, addresses, belongs_to, name_of, status_of

LOG_LINES = 2000
MAX_FILE_BYTES = 32 << 20
"""The largest size in bytes of a file; the end of a longer one is omitted, and that is noted."""
OPERATOR = "app.kubernetes.io/name=swiftlet-operator,app.kubernetes.io/component=operator"
"""Labels that the chart gives the operator's Deployment and its pods, whatever namespace they are in."""
OWN = ("rings", "storagepolicies", "storagequotas", "storageusers")
CHILDREN = (
    "statefulsets.apps",
    "deployments.apps",
    "services",
    "configmaps",
    "poddisruptionbudgets.policy",
    "networkpolicies.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "persistentvolumeclaims",
    "pods",
)
_OPERATOR_OBJECTS = {"deployments": "deployments.apps", "pods": "pods"}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Bundle:
    """A tar.gz that is being written; all of its files are in one folder."""

    def __init__(self, path: Path, folder: str) -> None:
        self.failures: list[str] = []
        self._tar = tarfile.open(path, "w:gz")  # noqa: SIM115 - closed by `close`
        self._folder = folder

    def add(self, name: str, text: str) -> None:
        """Add one file to the bundle, cut to the largest size of a file."""
        data = text.encode()
        if len(data) > MAX_FILE_BYTES:
            self.failures.append(f"{name}: cut after {MAX_FILE_BYTES} of {len(data)} bytes")
            data = data[:MAX_FILE_BYTES]
        info = tarfile.TarInfo(f"{self._folder}/{name}")
        info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
        self._tar.addfile(info, io.BytesIO(data))

    def collect(self, jobs: Iterable[tuple[str, Callable[[], str]]]) -> None:
        """Add files whose contents have to be asked for, several at a time."""

        def run(job: tuple[str, Callable[[], str]]) -> tuple[str, str | None, str]:
            try:
                return job[0], job[1](), ""
            except KubectlError as error:
                return job[0], None, str(error)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, text, failure in pool.map(run, jobs):
                if text is None:
                    self.failures.append(f"{name}: {failure}")
                else:
                    self.add(name, text)

    def close(self) -> None:
        """Write `failures.txt`, and end the archive."""
        try:
            self.add("failures.txt", "\n".join(self.failures) + "\n" if self.failures else "nothing failed\n")
        finally:
            self._tar.close()


def secret_outline(secret: Object) -> Object:
    """Return a Secret without anything secret: no values, and no annotations, which may repeat them."""
    metadata = {
        key: secret["metadata"][key]
        for key in ("name", "namespace", "labels", "creationTimestamp", "ownerReferences")
        if key in secret["metadata"]
    }
    keys = sorted({*(secret.get("data") or {}), *(secret.get("stringData") or {})})
    return {"kind": "Secret", "metadata": metadata, "type": secret.get("type"), "keys": keys}


def without_noise(one: Object) -> Object:
    """Return an object without its managed fields and its own copy in an annotation."""
    metadata = {key: value for key, value in one["metadata"].items() if key != "managedFields"}
    if notes := metadata.get("annotations"):
        metadata["annotations"] = {key: value for key, value in notes.items() if key != _LAST_APPLIED}
    return {**one, "metadata": metadata}


def make(kubectl: Kubectl, cluster: Object, path: Path) -> list[str]:
    """Write the archive; return what could not be read."""
    namespace, name = str(cluster["metadata"]["namespace"]), name_of(cluster)
    bundle = Bundle(path, f"swiftlet-{namespace}-{name}")
    try:
        bundle.add("plugin-version.txt", f"swiftlet {__version__}\n")
        bundle.add("storagecluster.json", _text(without_noise(cluster)))
        bundle.collect(_objects(kubectl, namespace, name))
        pods = _pods(kubectl, bundle, namespace, f"{INSTANCE_LABEL}={name}")
        bundle.collect(_pages(kubectl, namespace, pods))
        bundle.collect(_logs(kubectl, pods))
        bundle.collect(_operator(kubectl))
        bundle.collect(_logs(kubectl, _operator_pods(kubectl, bundle)))
    finally:
        bundle.close()
    return bundle.failures


def _operator(kubectl: Kubectl) -> list[tuple[str, Callable[[], str]]]:
    """Return jobs that read the operator's Deployment and pods, in whatever namespace the chart has put them."""

    def found(resource: str) -> str:
        return _clean(kubectl.list(resource, None, OPERATOR))

    return [(f"operator/{name}.json", _bound(found, resource)) for name, resource in _OPERATOR_OBJECTS.items()]


def _operator_pods(kubectl: Kubectl, bundle: Bundle) -> list[Object]:
    failed_before = len(bundle.failures)
    pods = _pods(kubectl, bundle, None, OPERATOR)
    if not pods and len(bundle.failures) == failed_before:
        bundle.failures.append(f"operator: no pod in any namespace has the labels {OPERATOR}, so its log is missing")
    return pods


def _pods(kubectl: Kubectl, bundle: Bundle, namespace: str | None, labels: str) -> list[Object]:
    try:
        return kubectl.list("pods", namespace, labels)
    except KubectlError as error:
        bundle.failures.append(f"pods {labels}: {error}")
        return []


def _objects(kubectl: Kubectl, namespace: str, name: str) -> list[tuple[str, Callable[[], str]]]:
    def own(resource: str) -> str:
        return _clean(one for one in kubectl.list(f"{resource}.swiftlet.io", namespace) if belongs_to(one, name))

    def children(resource: str) -> str:
        return _clean(kubectl.list(resource, namespace, f"{INSTANCE_LABEL}={name}"))

    def secrets() -> str:
        return _text([secret_outline(one) for one in kubectl.list("secrets", namespace, f"{INSTANCE_LABEL}={name}")])

    jobs: list[tuple[str, Callable[[], str]]] = [
        ("kubectl-version.json", lambda: kubectl.text("version", "-o", "json"))
    ]
    jobs += [(f"{resource}.json", _bound(own, resource)) for resource in OWN]
    jobs += [(f"{resource.split('.')[0]}.json", _bound(children, resource)) for resource in CHILDREN]
    jobs += [
        ("secrets.json", secrets),
        ("events.json", lambda: _clean(kubectl.list("events", namespace))),
        ("nodes.json", lambda: _clean(kubectl.list("nodes", None))),
        ("storageclasses.json", lambda: _clean(kubectl.list("storageclasses.storage.k8s.io", None))),
    ]
    return jobs


def _pages(kubectl: Kubectl, namespace: str, pods: list[Object]) -> list[tuple[str, Callable[[], str]]]:
    return [
        (f"{page}/{one.pod}-{one.service}.txt", _bound(kubectl.raw, one.path(namespace, page)))
        for one in addresses(pods)
        for page in ("statusz", "metrics")
    ]


def _logs(kubectl: Kubectl, pods: list[Object]) -> list[tuple[str, Callable[[], str]]]:
    jobs = []
    for pod in pods:
        where = ["--namespace", str(pod["metadata"]["namespace"]), name_of(pod)]
        for container in status_of(pod).get("containerStatuses") or []:
            command = ["logs", *where, "--container", str(container["name"]), f"--tail={LOG_LINES}"]
            jobs.append((f"logs/{name_of(pod)}-{container['name']}.log", _bound(kubectl.text, *command)))
            if container.get("restartCount"):
                previous = _bound(kubectl.text, *command, "--previous")
                jobs.append((f"logs/{name_of(pod)}-{container['name']}-previous.log", previous))
    return jobs


def _bound(function: Callable[..., str], *arguments: str) -> Callable[[], str]:
    return lambda: function(*arguments)


def _clean(items: Iterable[Object]) -> str:
    return _text([without_noise(one) for one in items])


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
