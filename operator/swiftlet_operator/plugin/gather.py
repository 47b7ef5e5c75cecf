"""All reads for one picture of a cluster. What can't be read is noted, and the rest is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import (
    INSTANCE_LABEL,
    MANAGED_BY,
    RING_LABEL,
    Address,
    Object,
    Picture,
    addresses,
    belongs_to,
    name_of,
    rings_of,
)
from swiftlet_operator.plugin.reasons import seen_of
from swiftlet_operator.trouble import pod_of_claim, questions, waiting_claims

AT_ONCE = 8
"""How many child processes run at a time; each logs in anew."""
REPORT_TIMEOUT_S = 15.0
MOST_VOLUMES = 9
"""How many volumes of pods without a node are examined: equal ones tell the same."""
CLUSTERS = "storageclusters.swiftlet.io"


def clusters_of(kubectl: Kubectl, namespace: str | None, name: str | None) -> list[Object]:
    """Return the named cluster, or all of a namespace, or all. Raises KubectlError when there is none."""
    if name is not None and namespace is not None:
        return [kubectl.get(CLUSTERS, namespace, name)]
    found = [one for one in kubectl.list(CLUSTERS, namespace) if name in (None, name_of(one))]
    if not found:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise KubectlError(f"there is no StorageCluster{f' {name}' if name else ''} in {where}; try -n or -A")
    return found


def look(kubectl: Kubectl, cluster: Object) -> Picture:
    """Return everything about one cluster."""
    name, namespace = name_of(cluster), str(cluster["metadata"]["namespace"])
    failures: list[str] = []
    children = f"{INSTANCE_LABEL}={name},{MANAGED_BY}"
    asked: list[tuple[str, str | None, str]] = [
        ("rings.swiftlet.io", namespace, ""),
        ("storagepolicies.swiftlet.io", namespace, ""),
        ("storagequotas.swiftlet.io", namespace, ""),
        ("storageusers.swiftlet.io", namespace, ""),
        ("statefulsets.apps", namespace, children),
        ("deployments.apps", namespace, children),
        ("pods", namespace, children),
        ("persistentvolumeclaims", namespace, children),
        ("configmaps", namespace, f"{children},{RING_LABEL}"),
        ("nodes", None, ""),
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lists = list(pool.map(lambda one: _list(kubectl, failures, *one), asked))
        rings, policies, quotas, users = ([o for o in group if belongs_to(o, name)] for group in lists[:4])
        stateful_sets, deployments, pods, claims, maps, nodes = lists[4:]
        reports, silent = _reports(kubectl, namespace, addresses(pods), pool.map)
    published, broken = rings_of(maps)
    picture = Picture(
        cluster=cluster,
        ring_objects=tuple(rings),
        policies=tuple(policies),
        quotas=tuple(quotas),
        users=tuple(users),
        stateful_sets=tuple(stateful_sets),
        deployments=tuple(deployments),
        pods=tuple(pods),
        nodes=tuple(nodes),
        claims=tuple(claims),
        now_s=int(time.time()),
        rings=published,
        broken_rings=broken,
        reports=reports,
        silent=silent,
        failures=tuple(failures),
    )
    return _with_evidence(kubectl, picture)


def _with_evidence(kubectl: Kubectl, picture: Picture) -> Picture:
    """Return the picture with the evidence why pods and claims don't get on, where there are such."""
    failures: list[str] = []
    seen = seen_of(picture)
    homeless = {name_of(pod) for pod in picture.pods if not pod["spec"].get("nodeName")}
    names = {one["spec"].get("volumeName") for one in picture.claims if pod_of_claim(one) in homeless}
    volumes: dict[str, Object] = {}
    for name in sorted(name for name in names if name)[:MOST_VOLUMES]:
        found = _list(kubectl, failures, "persistentvolumes", None, "", f"metadata.name={name}")
        volumes |= {name_of(one): one for one in found}
    events: list[Object] = []
    for one in questions(seen):
        about = f"involvedObject.kind={one.kind},involvedObject.name={one.name}"
        events += _list(kubectl, failures, "events", picture.namespace, "", about)
    waits = bool(waiting_claims(seen))
    classes = tuple(_list(kubectl, failures, "storageclasses.storage.k8s.io", None, "")) if waits else None
    if any("storageclasses" in failure for failure in failures):
        classes = None
    return replace(
        picture, volumes=volumes, events=tuple(events), classes=classes, failures=(*picture.failures, *failures)
    )


def _list(
    kubectl: Kubectl, failures: list[str], resource: str, namespace: str | None, labels: str, fields: str = ""
) -> list[Object]:
    try:
        return kubectl.list(resource, namespace, labels, fields)
    except KubectlError as error:
        failures.append(str(error))
        return []


def _reports(
    kubectl: Kubectl, namespace: str, asked: Sequence[Address], run: Callable[..., object]
) -> tuple[dict[tuple[str, str], Object], dict[tuple[str, str], str]]:
    reports: dict[tuple[str, str], Object] = {}
    silent: dict[tuple[str, str], str] = {}

    def ask(one: Address) -> None:
        try:
            report = json.loads(kubectl.raw(one.path(namespace, "statusz"), REPORT_TIMEOUT_S))
            if not isinstance(report, dict):
                raise ValueError("it is no object")
            reports[one.pod, one.service] = report
        except KubectlError as error:
            silent[one.pod, one.service] = str(error)
        except ValueError as error:
            silent[one.pod, one.service] = f"the report is damaged: {error}"

    list(run(ask, asked))  # type: ignore[call-overload]
    return reports, silent
