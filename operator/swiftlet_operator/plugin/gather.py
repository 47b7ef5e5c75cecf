"""All reads of one look at a cluster. What can't be read is noted and the rest is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

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

AT_ONCE = 8
"""Children that run at a time; each is a process that logs in anew."""
REPORT_TIMEOUT_S = 15.0
CLUSTERS = "storageclusters.swiftlet.io"


def clusters_of(kubectl: Kubectl, namespace: str | None, name: str | None) -> list[Object]:
    """The named cluster, or all of a namespace, or all; KubectlError when there is none."""
    if name is not None and namespace is not None:
        return [kubectl.get(CLUSTERS, namespace, name)]
    found = [one for one in kubectl.list(CLUSTERS, namespace) if name in (None, name_of(one))]
    if not found:
        where = f"namespace {namespace}" if namespace else "any namespace"
        raise KubectlError(f"there is no StorageCluster{f' {name}' if name else ''} in {where}; try -n or -A")
    return found


def look(kubectl: Kubectl, cluster: Object) -> Picture:
    """Everything about one cluster."""
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
        ("configmaps", namespace, f"{children},{RING_LABEL}"),
        ("nodes", None, ""),
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lists = list(pool.map(lambda one: _list(kubectl, failures, *one), asked))
        rings, policies, quotas, users = ([o for o in group if belongs_to(o, name)] for group in lists[:4])
        stateful_sets, deployments, pods, maps, nodes = lists[4:]
        reports, silent = _reports(kubectl, namespace, addresses(pods), pool.map)
    published, broken = rings_of(maps)
    return Picture(
        cluster=cluster,
        ring_objects=tuple(rings),
        policies=tuple(policies),
        quotas=tuple(quotas),
        users=tuple(users),
        stateful_sets=tuple(stateful_sets),
        deployments=tuple(deployments),
        pods=tuple(pods),
        nodes=tuple(nodes),
        rings=published,
        broken_rings=broken,
        reports=reports,
        silent=silent,
        failures=tuple(failures),
    )


def _list(kubectl: Kubectl, failures: list[str], resource: str, namespace: str | None, labels: str) -> list[Object]:
    try:
        return kubectl.list(resource, namespace, labels)
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
