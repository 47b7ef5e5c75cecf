"""What the benchmark operates: clusters with all that belongs to them, and the parts of Kubernetes that are not there.

No kubelet and no controllers run beside the API server. The pods of StatefulSets, their readiness and the statuses of
workloads are written here, once for each as the operator makes them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bench.operator.reports import Used, address_of
from swiftlet_operator.build.settings import USERS_FILE
from swiftlet_operator.build.site import DATABASE_DEVICE
from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    NODE,
    POD,
    POLICY,
    QUOTA,
    RING,
    RING_LABEL,
    RING_VERSION_LABEL,
    SECRET,
    STATEFUL_SET,
    USER,
    Kind,
    Manifest,
    labels_of,
    name_of,
)
from swiftlet_operator.problems import KubeConflict
from swiftlet_operator.sealing import parse_copy_name
from swiftlet_operator.tests.apiserver import ApiServer

ZONES = ("a", "b", "c")
NODES_PER_ZONE = 3
CLUSTER_SPEC: dict[str, Any] = {
    "pools": [{"name": "disks", "replicas": 6, "zones": list(ZONES), "storage": {"size": "1Ti"}}],
    "container": {"replicas": 3, "zones": list(ZONES), "storage": {"size": "50Gi"}},
}


def satellites(cluster: str) -> list[tuple[Kind, str, dict[str, Any]]]:
    """Kind, name and spec of what belongs to a cluster: two policies, three users and a quota."""
    users: list[tuple[Kind, str, dict[str, Any]]]
    users = [(USER, name, {"account": "bench", "user": name}) for name in ("anna", "ben", "cleo")]
    policies: list[tuple[Kind, str, dict[str, Any]]]
    policies = [
        (POLICY, "gold", {"index": 0, "name": "gold", "default": True}),
        (POLICY, "silver", {"index": 1, "name": "silver", "replicas": 2}),
    ]
    quota = (QUOTA, "limits", {"levels": [{"name": "default"}]})
    return [(kind, f"{cluster}-{name}", spec) for kind, name, spec in (*users, *policies, quota)]


@dataclass
class Population:
    """Clusters, each in a namespace of its own."""

    server: ApiServer
    kube: Kube
    count: int
    ports: Mapping[str, int] = field(default_factory=dict)
    """The ports at which the pods' services report."""
    made: set[str] = field(default_factory=set)
    used: dict[str, Used] = field(default_factory=dict)
    """What the pods of each cluster use is found here by their address."""

    def used_at(self, address: str) -> Used:
        """Return what the pods of the cluster with this address use."""
        return self.used.setdefault(address, Used())

    @staticmethod
    def devices() -> list[str]:
        """Return the devices of a cluster's storage and container pods, as they are in rings."""
        pool, container = CLUSTER_SPEC["pools"][0], CLUSTER_SPEC["container"]
        pods = {f"{pool['name']}-{zone}": (pool["replicas"] // len(ZONES), "d0") for zone in ZONES}
        pods |= {f"container-{zone}": (container["replicas"] // len(ZONES), DATABASE_DEVICE) for zone in ZONES}
        return [f"store-{name}-{number}/{device}" for name, (count, device) in pods.items() for number in range(count)]

    def names(self) -> Iterator[tuple[str, str]]:
        """Namespace and name of every cluster."""
        for index in range(self.count):
            yield f"bench-{index:03}", "store"

    async def nodes(self) -> None:
        """The nodes that pods are on."""
        for zone in ZONES:
            for index in range(NODES_PER_ZONE):
                labels = {"topology.kubernetes.io/zone": zone}
                await self._create(NODE, None, f"node-{zone}{index}", {}, labels)

    async def make(self) -> None:
        """All clusters with what belongs to them."""
        for namespace, name in self.names():
            await asyncio.to_thread(self.server.create, "/api/v1/namespaces", {"metadata": {"name": namespace}})
            await self._make(namespace, name)

    async def _make(self, namespace: str, name: str) -> None:
        for kind, own, spec in satellites(name):
            await self._create(kind, namespace, own, {"spec": {"clusterRef": {"name": name}, **spec}})
        await self._create(CLUSTER, namespace, name, {"spec": CLUSTER_SPEC})

    async def add_user(self, namespace: str, cluster: str) -> None:
        """Create an additional StorageUser in this cluster."""
        spec = {"clusterRef": {"name": cluster}, "account": "bench", "user": "dora"}
        await self._create(USER, namespace, f"{cluster}-dora", {"spec": spec})

    async def live(self) -> int:
        """Make the pods of new workloads, call all workloads ready, and let pods use what was published for them.

        Returns how many workloads were new.
        """
        await self._take_up()
        new = 0
        for kind in (STATEFUL_SET, DEPLOYMENT):
            for one in await self.kube.list(kind, None):
                key = f"{kind.kind}/{one['metadata']['uid']}/{one['metadata']['generation']}"
                if key in self.made:
                    continue
                new += 1
                await self._ready(kind, one)
                self.made.add(key)
        return new

    async def _take_up(self) -> None:
        for one in await self.kube.list(CONFIG_MAP, None):
            labels, namespace = labels_of(one), one["metadata"]["namespace"]
            if RING_LABEL in labels:
                self._used_in(namespace).rings[labels[RING_LABEL]] = int(labels[RING_VERSION_LABEL])
            for copy in one.get("binaryData") or {}:
                if (parsed := parse_copy_name(copy)) is not None:
                    self._used_in(namespace).sealed_keys = parsed[1]
        for one in await self.kube.list(SECRET, None):
            if (content := (one.get("data") or {}).get(USERS_FILE)) is not None:
                digest = hashlib.sha256(base64.b64decode(content)).hexdigest()
                self._used_in(one["metadata"]["namespace"]).users = digest[:8]

    def _used_in(self, namespace: str) -> Used:
        return self.used_at(_address_in(namespace))

    async def _ready(self, kind: Kind, one: Manifest) -> None:
        namespace, count = one["metadata"]["namespace"], one["spec"]["replicas"]
        for ordinal in range(count):
            await self._pod(one, ordinal)
        counts = {"observedGeneration": one["metadata"]["generation"], "replicas": count, "readyReplicas": count}
        revisions = {"currentRevision": "r", "updateRevision": "r"} if kind is STATEFUL_SET else {}
        status = {**counts, "updatedReplicas": count, **revisions}
        await self.kube.patch(kind, namespace, name_of(one), {"status": status}, "status")

    async def _pod(self, one: Manifest, ordinal: int) -> None:
        name, namespace = f"{name_of(one)}-{ordinal}", one["metadata"]["namespace"]
        template = one["spec"]["template"]
        zone = template["metadata"]["labels"].get("swiftlet.io/zone", ZONES[ordinal % len(ZONES)])
        containers = [
            {"name": made["name"], "image": "swiftlet", "ports": [{"containerPort": self.ports[made["name"]]}]}
            for made in template["spec"]["containers"]
            if made["name"] in self.ports
        ]
        spec = {
            "nodeName": f"node-{zone}{ordinal % NODES_PER_ZONE}",
            "containers": containers or [{"name": "other", "image": "other"}],
        }
        await self._create(POD, namespace, name, {"spec": spec}, template["metadata"]["labels"])
        moment = datetime.fromtimestamp(time.time() - 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {
            "podIP": _address_in(namespace),
            "podIPs": [{"ip": _address_in(namespace)}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}],
        }
        await self.kube.patch(POD, namespace, name, {"status": ready}, "status")

    async def missing(self) -> list[str]:
        """What is not as it should be yet: clusters that are not ready, rings without a version."""
        wrong = []
        for one in await self.kube.list(CLUSTER, None):
            conditions = {c["type"]: c for c in (one.get("status") or {}).get("conditions") or []}
            ready, degraded = conditions.get("Ready", {}), conditions.get("Degraded", {})
            if (ready.get("status"), degraded.get("status")) != ("True", "False"):
                told = ready.get("message"), degraded.get("message")
                wrong.append(f"{one['metadata']['namespace']}: {told}")
        rings = [one for one in await self.kube.list(RING, None) if (one.get("status") or {}).get("version")]
        if len(rings) < 4 * self.count:
            wrong.append(f"{len(rings)} of {4 * self.count} rings have a version")
        return wrong

    async def _create(
        self, kind: Kind, namespace: str | None, name: str, body: Manifest, labels: dict[str, str] | None = None
    ) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels or {}}
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body}
        with contextlib.suppress(KubeConflict):
            await self.kube.create(manifest)


def _address_in(namespace: str) -> str:
    """The address of the pods in a namespace of the benchmark, `bench-NUMBER`."""
    return address_of(int(namespace.removeprefix("bench-")))
