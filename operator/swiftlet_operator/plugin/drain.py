"""Changes `spec.drain`: adds and removes names, and waits until what they name is reported empty.

Fault model: somebody else edits the StorageCluster at the same time; the patch names the resourceVersion that it was
made from, is refused, and is made anew from what is there now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet_operator.plugin.devices import Place, places
from swiftlet_operator.plugin.gather import CLUSTERS, look
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlConflict, KubectlError
from swiftlet_operator.plugin.picture import INSTANCE_LABEL, Object, Picture, labels_of, name_of

TRIES = 5
POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """The list before and after a change."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Return whether there is anything to write."""
        return self.before != self.after


def change(live: Sequence[str], targets: Sequence[str], undo: bool) -> Change:
    """Return the list with targets added, or removed with `undo`; a whole pod stands for its devices."""
    before = tuple(live)
    if undo:
        gone = {one for one in before if one in targets or one.split("/")[0] in targets}
        return Change(before, tuple(one for one in before if one not in gone))
    new = [one for one in dict.fromkeys(targets) if one not in before and one.split("/")[0] not in before]
    return Change(before, (*before, *new))


def cluster_of(kubectl: Kubectl, namespace: str, targets: Sequence[str]) -> Object:
    """Return the cluster that all the pods belong to. Raises KubectlError when one is missing or they are of several
    clusters.
    """
    names = {_owner(kubectl, namespace, target.split("/")[0]) for target in targets}
    if len(names) != 1:
        raise KubectlError(f"these pods belong to several clusters: {', '.join(sorted(names))}; drain one at a time")
    return kubectl.get(CLUSTERS, namespace, names.pop())


def _owner(kubectl: Kubectl, namespace: str, pod: str) -> str:
    owner = labels_of(kubectl.get("pods", namespace, pod)).get(INSTANCE_LABEL)
    if owner is None:
        raise KubectlError(f"pod {pod} belongs to no StorageCluster")
    return owner


def write(kubectl: Kubectl, cluster: Object, targets: Sequence[str], undo: bool) -> Change:
    """Change the list of the live cluster. Raises KubectlError."""
    namespace, name = str(cluster["metadata"]["namespace"]), name_of(cluster)
    for _ in range(TRIES):
        wanted = change(cluster["spec"].get("drain") or [], targets, undo)
        if not wanted.changes:
            return wanted
        meta = {"resourceVersion": cluster["metadata"]["resourceVersion"]}
        try:
            kubectl.merge(CLUSTERS, namespace, name, {"metadata": meta, "spec": {"drain": list(wanted.after)}})
            return wanted
        except KubectlConflict:
            cluster = kubectl.get(CLUSTERS, namespace, name)
    raise KubectlError(f"StorageCluster {name} is being changed by others all the time; try again")


def remaining(picture: Picture, targets: Sequence[str]) -> list[Place]:
    """Return the places where targets still hold data, or may hold some."""
    return [place for place in places(picture) if _named(place.device, targets) and not place.empty]


def _named(device: str, targets: Sequence[str]) -> bool:
    return device in targets or device.split("/")[0] in targets


def wait(
    kubectl: Kubectl, cluster: Object, targets: Sequence[str], timeout_s: float, say: Callable[[str], None]
) -> bool:
    """Wait until everything that the targets name is reported empty; return False when that took too long."""
    deadline, said = time.monotonic() + timeout_s, ""
    while True:
        left = remaining(look(kubectl, cluster), targets)
        text = "; ".join(f"{one.device} in ring {one.ring}: {progress(one)}" for one in left)
        if not left:
            return True
        if text != said:
            say(text)
            said = text
        if time.monotonic() + POLL_S > deadline:
            return False
        time.sleep(POLL_S)


def progress(place: Place) -> str:
    """Return how far a device has been emptied."""
    if place.report is None:
        return f"{place.partitions} partitions assigned, no report"
    return f"{place.partitions} partitions assigned, {place.report.get('held', 'unknown')} held"
