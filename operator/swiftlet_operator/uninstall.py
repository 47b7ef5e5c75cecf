"""Whether a release may be uninstalled: not while there are StorageClusters that its operator looks after.

Without an operator nobody repairs a StorageCluster, and its finalizer keeps it and its namespace from being deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import ALLOW_DELETION, CLUSTER, Manifest, name_of
from swiftlet_operator.retry import until_answered

WITHIN_S = 30.0
_MOST_NAMED = 5
"""How many clusters are named: Kubernetes keeps only the last 2,048 bytes of a failed container's log."""


@dataclass(frozen=True, slots=True)
class Release:
    """The Helm release that is to be uninstalled."""

    name: str
    namespace: str
    revision: int


async def clusters_of(kube: Kube, namespaces: Sequence[str], within_s: float = WITHIN_S) -> list[Manifest]:
    """Return all StorageClusters in these namespaces, or everywhere when none is named. Raises KubeError when they
    can't be listed.
    """
    found: list[Manifest] = []
    for namespace in namespaces or (None,):
        found += await until_answered(partial(kube.list, CLUSTER, namespace), within_s)
    return found


def refusal(clusters: Sequence[Manifest], release: Release) -> str | None:
    """Return why the release has to stay and what to do about it; None when there is no StorageCluster."""
    if not clusters:
        return None
    count = "1 StorageCluster" if len(clusters) == 1 else f"{len(clusters)} StorageClusters"
    lines = [
        f"Release {release.name} is not uninstalled: its operator looks after {count}.",
        "Without it nobody repairs them, and deleting one of them or its namespace would never end.",
        *(_line(one) for one in clusters[:_MOST_NAMED]),
    ]
    if len(clusters) > _MOST_NAMED:
        lines.append(f"  and {len(clusters) - _MOST_NAMED} more: kubectl get storageclusters -A")
    first = clusters[0]["metadata"]
    lines += [
        "1. Either delete them, wait until they are gone, and uninstall then:",
        f"  kubectl delete storagecluster -n {first['namespace']} {first['name']}",
        f"  With policy Retain this waits for the annotation {ALLOW_DELETION}=true while there are volumes;",
        "  volumes, keys and ring builders stay. With policy Delete the data are deleted.",
        "2. Or uninstall the operator alone. The stores go on serving, and the next release takes over, whatever its"
        " name:",
        f"  helm uninstall -n {release.namespace} {release.name} --no-hooks",
        "3. Or keep the release, which Helm shows as uninstalling now:",
        f"  helm rollback -n {release.namespace} {release.name} {release.revision}",
    ]
    return "\n".join(lines)


def _line(cluster: Manifest) -> str:
    policy = (cluster.get("spec") or {}).get("deletionPolicy") or "Retain"
    going = ", is being deleted" if cluster["metadata"].get("deletionTimestamp") else ""
    return f"  {cluster['metadata']['namespace']}/{name_of(cluster)} (deletionPolicy {policy}{going})"
