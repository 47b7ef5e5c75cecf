"""A cluster in a fake API server that comes alive: StatefulSets get pods and volumes, nodes have zones."""

from __future__ import annotations

import base64
import json
from typing import Any

from swiftlet_operator.manifests import CLUSTER, RING_VERSION_LABEL, ZONE_LABEL, Manifest
from swiftlet_operator.metrics import Clusters
from swiftlet_operator.problems import NotLeader
from swiftlet_operator.reconcile import Key, Reconciler
from swiftlet_operator.tests.clusters import manifest
from swiftlet_operator.tests.fake_kube import FakeKube
from swiftlet_operator.tests.reporters import RINGS, Told
from swiftlet_operator.world import Defaults

KEY = Key("data", "store")
START = 1_800_000_000
SMALL_RINGS = {"partPower": 6}


class Plain:
    """Secrets that can be foreseen."""

    def __init__(self) -> None:
        self.tokens = 0

    def token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}-of-enough-length"

    def hashed(self, secret: str, old: str | None) -> str:
        return f"hash({secret})"


class Scene:
    """A fake API server with one cluster, three nodes in three zones, and a clock."""

    def __init__(self, spec: str | dict[str, Any] = "minimal", name: str = "store") -> None:
        self.key = Key("data", name)
        self.kube = FakeKube()
        self.now_s = START
        self.leads = True
        self.fresh = Plain()
        self._laid_out: dict[str, int] = {}
        self.told = Told(lambda: self.now_s, laid_out=self.rings_laid_out)
        body = manifest(spec, name=name, creationTimestamp="2027-01-15T08:00:00Z")
        body["spec"].setdefault("rings", SMALL_RINGS)
        self.kube.put(body)
        for index, zone in enumerate("abc"):
            labels = {"topology.kubernetes.io/zone": zone}
            self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{index}", "labels": labels}})
        self.storage_class("standard", may_grow=True)
        defaults = Defaults("swiftlet:test", "redis:test")
        self.clusters = Clusters(lambda: self.leads)
        self.reconciler = Reconciler(
            self.kube, defaults, self.fresh, self._require, lambda: self.now_s, self.told, clusters=self.clusters
        )

    def _require(self) -> None:
        if not self.leads:
            raise NotLeader("not now")

    def rings_laid_out(self) -> dict[str, int]:
        """The newest version that there has ever been of each ring; services go on using those that are deleted."""
        for ring in RINGS:
            live = self.kube.objects.get(("ConfigMap", "data", f"{self.key.name}-ring-{ring}-0"))
            version = int(live["metadata"]["labels"][RING_VERSION_LABEL]) if live is not None else 0
            if version:
                self._laid_out[ring] = max(version, self._laid_out.get(ring, 0))
        return self._laid_out

    @property
    def cluster(self) -> Manifest:
        """The live cluster."""
        return self.kube.find(CLUSTER.kind, self.key.name)

    def condition(self, type_: str) -> tuple[str, str]:
        """Status and reason of one of the cluster's conditions."""
        found = next(one for one in self.cluster["status"]["conditions"] if one["type"] == type_)
        return found["status"], found["reason"]

    def message(self, type_: str) -> str:
        """What one of the cluster's conditions says to people."""
        found = next(one for one in self.cluster["status"]["conditions"] if one["type"] == type_)
        return str(found["message"])

    async def step(self) -> list[str]:
        """One reconcile; what it wrote."""
        before = len(self.kube.writes)
        await self.reconciler.reconcile(self.key)
        return self.kube.writes[before:]

    def live(self) -> None:
        """What controllers and kubelets do: all pods of all StatefulSets run and are ready."""
        for (kind, _, name), one in list(self.kube.objects.items()):
            if kind == "StatefulSet":
                self._pods(name, one)
            elif kind == "Deployment":
                one["status"] = {"readyReplicas": one["spec"]["replicas"]}

    def storage_class(self, name: str, *, may_grow: bool) -> None:
        """Have a storage class."""
        head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        self.kube.put({**head, "allowVolumeExpansion": may_grow})

    def _pods(self, name: str, one: Manifest) -> None:
        count = one["spec"]["replicas"]
        labels = one["spec"]["template"]["metadata"]["labels"]
        zone = labels.get(ZONE_LABEL)
        claimed = self.kube.names("PersistentVolumeClaim")
        for ordinal in range(count):
            pod = f"{name}-{ordinal}"
            moment = "2027-01-01T00:00:00Z"
            self.kube.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod, "namespace": "data", "labels": labels},
                    "spec": {"nodeName": f"n{'abc'.index(zone) if zone else ordinal % 3}"},
                    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}]},
                }
            )
            for claim in one["spec"].get("volumeClaimTemplates") or []:
                metadata = {**claim["metadata"], "name": f"{claim['metadata']['name']}-{pod}", "namespace": "data"}
                if metadata["name"] not in claimed:
                    spec = {"storageClassName": "standard", **claim["spec"], "volumeName": f"pv-{metadata['name']}"}
                    self.kube.put({**claim, "metadata": metadata, "spec": spec, "status": {"phase": "Bound"}})
        for gone in self.kube.names("Pod"):
            base, _, number = gone.rpartition("-")
            if base == name and int(number) >= count:
                del self.kube.objects["Pod", "data", gone]
        one["status"] = {
            "observedGeneration": one["metadata"].get("generation", 0),
            "readyReplicas": count,
            "updatedReplicas": count,
            "currentRevision": "r",
            "updateRevision": "r",
        }

    def take_over(self, other: Scene) -> None:
        """Have what there is in the other scene, and its past."""
        self.kube.take_over(other.kube)
        self.now_s = other.now_s
        self.fresh.tokens = other.fresh.tokens
        self._laid_out = dict(other._laid_out)

    async def settle(self, steps: int = 6) -> None:
        """Reconcile and live until nothing is written any more."""
        for _ in range(steps):
            self.live()
            if not await self.step():
                return
        raise AssertionError("the cluster never comes to rest")


_AT_REST: dict[str, Scene] = {}


async def settled(spec: str | dict[str, Any] = "minimal") -> Scene:
    """A cluster that runs. One is made of each spec and comes to rest; who asks gets another one with the same past."""
    made = json.dumps(spec)
    if made not in _AT_REST:
        first = _AT_REST[made] = Scene(spec)
        await first.step()
        await first.settle()
    scene = Scene(spec)
    scene.take_over(_AT_REST[made])
    return scene


def own(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    """One of our objects that belongs to the cluster."""
    return {
        "apiVersion": "swiftlet.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "data", "uid": f"uid-of-{name}", "generation": 1},
        "spec": {"clusterRef": {"name": "store"}, **spec},
    }


def text_of(secret: Manifest, key: str) -> str:
    """An entry of a Secret."""
    return base64.b64decode(secret["data"][key]).decode()
