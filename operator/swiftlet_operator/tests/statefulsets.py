"""The controller of StatefulSets and the kubelets, played on an API server in memory, as far as restarts go.

The controller is that of Kubernetes for pods that start at once (`podManagementPolicy: Parallel`): a missing pod is
made of the newest template, or of the one before it below the partition; of the pods from the partition on the last
that is older is deleted, though not past one that is not ready; with OnDelete none is. Pods end with the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from swiftlet.crd.conditions import rfc3339
from swiftlet_operator.manifests import STATEFUL_SET, ZONE_LABEL, Manifest, digest_of, is_going, labels_of, name_of
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.tests.fake_kube import FakeKube

REVISION = "controller-revision-hash"
Starts = Callable[[str, str], bool]
"""Whether a pod comes up with an image."""


class Played:
    """All StatefulSets of a namespace and their pods."""

    def __init__(self, kube: FakeKube, starts: Starts, now_s: Callable[[], int]) -> None:
        self._kube = kube
        self._starts = starts
        self._now_s = now_s
        self._templates: dict[str, Manifest] = {}

    def sets(self) -> list[Manifest]:
        """The live StatefulSets, by name."""
        return [one for (kind, *_), one in sorted(self._kube.objects.items()) if kind == STATEFUL_SET.kind]

    def pods(self, name: str) -> dict[int, Manifest]:
        """The live pods of a StatefulSet, by ordinal."""
        found = [one for (kind, *_), one in self._kube.objects.items() if kind == "Pod"]
        own = [pod for pod in found if name_of(pod).rpartition("-")[0] == name]
        return {int(name_of(pod).rpartition("-")[2]): pod for pod in own}

    def down(self) -> set[str]:
        """Pods that should serve and don't."""
        wanted = {
            f"{name_of(one)}-{ordinal}": self.pods(name_of(one)).get(ordinal)
            for one in self.sets()
            for ordinal in range(one["spec"]["replicas"])
        }
        return {name for name, pod in wanted.items() if pod is None or is_going(pod) or not is_ready(pod)}

    def look(self) -> list[str]:
        """One look of the kubelets and one of the controller at each StatefulSet; the pods that it deletes.

        A pod that has just ended is made anew with the next look, so that everybody sees that it is not there.
        """
        there = {name_of(pod) for one in self.sets() for pod in self.pods(name_of(one)).values()}
        for one in self.sets():
            self._run(one)
        return [name for one in self.sets() for name in self._sync(one, there)]

    def have(self, one: Manifest, ordinal: int, template: Manifest, ready: bool) -> None:
        """Have a pod of a template, ready or not."""
        pod = self._made(one, ordinal, self.remember(template))
        pod["status"] = {"conditions": [self._condition(ready)]}
        self._kube.put(pod)

    def count(self, one: Manifest, current: str) -> None:
        """Tell what there is; `current` is the revision before the newest."""
        pods, newest = self.pods(name_of(one)), self.remember(one["spec"]["template"])
        updated = [pod for pod in pods.values() if labels_of(pod)[REVISION] == newest and not is_going(pod)]
        ready = [pod for pod in pods.values() if is_ready(pod)]
        is_over = len(updated) == len(ready) == one["spec"]["replicas"] and self._strategy(one)[0] == "RollingUpdate"
        one["status"] = {
            "observedGeneration": one["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "updatedReplicas": len(updated),
            "currentRevision": newest if is_over else current,
            "updateRevision": newest,
        }

    def _run(self, one: Manifest) -> None:
        for ordinal, pod in self.pods(name_of(one)).items():
            if is_going(pod) or ordinal >= one["spec"]["replicas"]:
                del self._kube.objects["Pod", pod["metadata"]["namespace"], name_of(pod)]
            elif is_ready(pod) != (up := self._starts(name_of(pod), image_of(pod))):
                pod["status"] = {"conditions": [self._condition(up)]}

    def _sync(self, one: Manifest, ended: Collection[str]) -> Sequence[str]:
        newest = self.remember(one["spec"]["template"])
        current = (one.get("status") or {}).get("currentRevision") or newest
        kind, partition = self._strategy(one)
        pods = self.pods(name_of(one))
        for ordinal in set(range(one["spec"]["replicas"])) - pods.keys():
            if f"{name_of(one)}-{ordinal}" in ended:
                continue
            is_older = kind == "RollingUpdate" and ordinal < partition
            self._kube.put(self._made(one, ordinal, current if is_older else newest))
        deleted = self._replaced(one, newest, partition) if kind == "RollingUpdate" else None
        self.count(one, current)
        return [] if deleted is None else [deleted]

    def _replaced(self, one: Manifest, newest: str, partition: int) -> str | None:
        pods = self.pods(name_of(one))
        for ordinal in reversed(range(partition, one["spec"]["replicas"])):
            pod = pods.get(ordinal)
            if pod is not None and labels_of(pod)[REVISION] != newest and not is_going(pod):
                pod["metadata"]["deletionTimestamp"] = self._moment()
                return name_of(pod)
            if pod is None or not is_ready(pod):
                return None
        return None

    @staticmethod
    def _strategy(one: Manifest) -> tuple[str, int]:
        strategy: dict[str, Any] = one["spec"].get("updateStrategy") or {}
        return strategy.get("type", "RollingUpdate"), (strategy.get("rollingUpdate") or {}).get("partition", 0)

    def remember(self, template: Manifest) -> str:
        """Know a template, by the revision that is returned."""
        revision = digest_of(template)
        self._templates[revision] = template
        return revision

    def _made(self, one: Manifest, ordinal: int, revision: str) -> Manifest:
        template = self._templates[revision]
        labels = {**template["metadata"]["labels"], REVISION: revision}
        zone = labels_of(one).get(ZONE_LABEL)
        metadata = {"name": f"{name_of(one)}-{ordinal}", "namespace": one["metadata"]["namespace"], "labels": labels}
        node = f"n{'abc'.index(zone) if zone else ordinal % 3}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "creationTimestamp": self._moment()},
            "spec": {**template["spec"], "nodeName": node},
            "status": {"conditions": [self._condition(False)]},
        }

    def _condition(self, ready: bool) -> Manifest:
        return {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": self._moment()}

    def _moment(self) -> str:
        return rfc3339(datetime.fromtimestamp(self._now_s(), UTC))


def image_of(pod: Manifest) -> str:
    """The image of a pod's first container."""
    return str(pod["spec"]["containers"][0]["image"])
