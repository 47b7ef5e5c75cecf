"""Reconciles against a real API server: what it makes of our manifests, and that we then leave them alone.

No controllers run there; pods and the statuses of StatefulSets are made here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from swiftlet.crd.conditions import rfc3339
from swiftlet.main.tests.certificates import make_pair
from swiftlet_operator.kube import HttpKube, connected
from swiftlet_operator.leader import Leader
from swiftlet_operator.main import Options, run
from swiftlet_operator.manifests import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    LEASE,
    POD,
    POLICY,
    PVC,
    RING,
    RING_VERSION_LABEL,
    SERVICE,
    STATEFUL_SET,
    USER,
    ZONE_LABEL,
    Kind,
    Manifest,
    labels_of,
    name_of,
)
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.reconcile import Key, Reconciler
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.clusters import SPECS, manifest
from swiftlet_operator.tests.reporters import RINGS, Told
from swiftlet_operator.world import Defaults

pytestmark = pytest.mark.apiserver

DEFAULTS = Defaults("swiftlet:test", "redis:test")


class Counting(HttpKube):
    """Keeps a list of what is written."""

    writes: list[str]

    async def _ask(self, method: str, kind: Kind, path: str, *arguments: Any, **named: Any) -> Manifest | None:
        if method != "GET":
            self.writes.append(f"{method} {path}")
        return await super()._ask(method, kind, path, *arguments, **named)


@pytest.fixture
async def kube(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    """A client that counts."""
    monkeypatch.setenv("KUBECONFIG", str(apiserver.kubeconfig))
    async with connected(30.0) as plain:
        counting = Counting(plain._client, plain._timeout_s)
        counting.writes = []
        yield counting


class Cluster:
    """A StorageCluster in a namespace of its own, and the parts of Kubernetes that are not there."""

    def __init__(self, apiserver: ApiServer, kube: Counting, spec: str) -> None:
        self.kube = kube
        self.namespace = apiserver.namespace("op")
        self.key = Key(self.namespace, "store")
        self.now_s = int(time.time())
        self.spec = spec
        self.storage_class = "fixed"
        self._laid_out: dict[str, int] = {}
        self.told = Told(lambda: self.now_s, laid_out=lambda: self._laid_out)
        self.reconciler = Reconciler(kube, DEFAULTS, Passwords(), lambda: None, lambda: self.now_s, self.told)

    async def make(self) -> None:
        """The cluster and its surroundings."""
        body = manifest(self.spec)
        body["metadata"] = {"name": "store", "namespace": self.namespace}
        body["spec"]["rings"] = {"partPower": 6}
        if tls := body["spec"].get("tls"):
            await self._certificate(tls["secretRef"]["name"] if "secretRef" in tls else "store-tls")
        if sync := body["spec"].get("containerSync"):
            await self._realms(sync["realmsSecretRef"]["name"])
        await self.kube.create(body)
        for name in ("default", "theirs"):
            metadata = {"name": name, "namespace": self.namespace}
            with contextlib.suppress(Exception):
                await self.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        for zone in "abc":
            labels = {"topology.kubernetes.io/zone": zone}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{zone}", "labels": labels}}
            with contextlib.suppress(Exception):
                await self.kube.create(node)

    async def _realms(self, name: str) -> None:
        data = {"realms.conf": base64.b64encode(b"[company]\nkey = secret\n").decode()}
        metadata = {"name": name, "namespace": self.namespace}
        await self.kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    async def _certificate(self, name: str) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        with tempfile.TemporaryDirectory() as directory:
            pair = make_pair(Path(directory), name)
        data = {"tls.crt": base64.b64encode(pair.cert).decode(), "tls.key": base64.b64encode(pair.key).decode()}
        await self.kube.create(
            {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
        )

    async def live(self) -> None:
        """Pods run and are ready."""
        for one in await self.kube.list(STATEFUL_SET, self.namespace):
            count = one["spec"]["replicas"]
            for ordinal in range(count):
                await self._pod(one, ordinal)
            status = {
                "observedGeneration": one["metadata"]["generation"],
                "replicas": count,
                "readyReplicas": count,
                "updatedReplicas": count,
                "currentRevision": "r",
                "updateRevision": "r",
            }
            await self.kube.patch(STATEFUL_SET, self.namespace, name_of(one), {"status": status}, "status")

    async def serve(self) -> None:
        """Pods of Deployments are ready, too, so that the cluster is Ready."""
        for one in await self.kube.list(DEPLOYMENT, self.namespace):
            count = one["spec"]["replicas"]
            status = {"replicas": count, "readyReplicas": count, "availableReplicas": count}
            await self.kube.patch(DEPLOYMENT, self.namespace, name_of(one), {"status": status}, "status")

    async def _pod(self, one: Manifest, ordinal: int) -> None:
        name = f"{name_of(one)}-{ordinal}"
        if await self.kube.get(POD, self.namespace, name) is not None:
            return
        for claim in one["spec"].get("volumeClaimTemplates") or []:
            await self._claim(claim, name)
        zone = labels_of(one).get(ZONE_LABEL) or "abc"[ordinal % 3]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": one["spec"]["template"]["metadata"]["labels"],
            },
            "spec": {"nodeName": f"node-{zone}", "containers": self.containers(one)},
        }
        await self.kube.create(pod)
        await self.ready(name)

    def containers(self, one: Manifest) -> list[Manifest]:
        """Of a pod of this StatefulSet."""
        return [{"name": "c", "image": "swiftlet:test"}]

    async def _claim(self, template: Manifest, pod: str) -> None:
        """A claim as the StatefulSet's controller makes it, bound to a volume on the pod's node."""
        name = f"{template['metadata']['name']}-{pod}"
        if await self.kube.get(PVC, self.namespace, name) is not None:
            return
        volume = f"{self.namespace}-{name}"
        metadata = {**template["metadata"], "name": name, "namespace": self.namespace}
        spec = {"storageClassName": self.storage_class, **template["spec"], "volumeName": volume}
        await self.kube.create(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )
        size = template["spec"]["resources"]["requests"]["storage"]
        status = {"phase": "Bound", "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
        await self.kube.patch(PVC, self.namespace, name, {"status": status}, "status")

    async def ready(self, name: str) -> None:
        """The pod runs and has been ready for a while."""
        since = rfc3339(datetime.fromtimestamp(self.now_s - 60, UTC))
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        status = {"phase": "Running", "conditions": [ready]}
        await self.kube.patch(POD, self.namespace, name, {"status": status}, "status")

    async def step(self) -> list[str]:
        """One reconcile; what it wrote."""
        before = len(self.kube.writes)
        await self.reconciler.reconcile(self.key)
        written = self.kube.writes[before:]
        for ring in RINGS:
            live = await self.kube.get(CONFIG_MAP, self.namespace, f"store-ring-{ring}-0")
            if live is not None:
                self._laid_out[ring] = int(live["metadata"]["labels"][RING_VERSION_LABEL])
        return written

    async def settle(self) -> None:
        """Until nothing is written any more."""
        for _ in range(8):
            if not await self.step():
                return
            await self.live()
        raise AssertionError(f"never at rest: {self.kube.writes[-10:]}")


# A member of a federation has no rings by itself: `test_federation_on_apiserver.py`.
@pytest.mark.parametrize("spec", [name for name in SPECS if name != "federated"])
async def test_a_cluster_comes_to_rest_and_stays_there(apiserver: ApiServer, kube: Counting, spec: str) -> None:
    cluster = Cluster(apiserver, kube, spec)
    await cluster.make()
    await cluster.settle()
    await cluster.serve()
    await cluster.settle()

    for _ in range(50 if spec == "three-zones" else 5):
        cluster.now_s += 61
        assert await cluster.step() == []
    live = await kube.get(CLUSTER, cluster.namespace, "store")
    ring = await kube.get(RING, cluster.namespace, "store-object-0")
    assert live is not None
    assert ring is not None
    conditions = {one["type"]: one["status"] for one in live["status"]["conditions"]}
    assert len(conditions) == 29
    assert conditions["SpecValid"] == conditions["StorageAvailable"] == "True"
    assert ring["status"]["version"] == 1


async def test_vandalism_is_repaired_and_what_is_no_longer_wanted_leaves_the_object(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Cluster(apiserver, kube, "three-zones")
    await cluster.make()
    await cluster.settle()
    namespace = cluster.namespace
    await kube.patch(SERVICE, namespace, "store", {"spec": {"selector": {"stolen": "yes"}}})
    await kube.patch(CONFIG_MAP, namespace, "store-settings", {"data": {"settings.yaml": "proxy: {}"}})
    change: Manifest = {"spec": {"proxy": {"service": {"annotations": None}}}}
    await kube.patch(CLUSTER, namespace, "store", change)

    written = await cluster.step()

    assert {one.rpartition("/")[2] for one in written} >= {"store", "store-settings"}
    service = await kube.get(SERVICE, namespace, "store")
    assert service is not None
    assert "example.org/lb" not in service["metadata"]["annotations"]
    settings = await kube.get(CONFIG_MAP, namespace, "store-settings")
    assert settings is not None
    assert "cluster:" in settings["data"]["settings.yaml"]


async def test_children_are_healed_while_a_policy_in_use_is_gone(apiserver: ApiServer, kube: Counting) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    namespace = cluster.namespace
    spec = {"clusterRef": {"name": "store"}, "index": 1, "name": "gold", "default": True}
    metadata = {"name": "gold", "namespace": namespace}
    gold = await kube.create(
        {"apiVersion": POLICY.api_version, "kind": POLICY.kind, "metadata": metadata, "spec": spec}
    )
    await cluster.settle()
    before = await kube.get(CONFIG_MAP, namespace, "store-settings")

    # As somebody who does not wait for the policy to be retired.
    await kube.patch(POLICY, namespace, "gold", {"metadata": {"finalizers": None}})
    await kube.delete(POLICY, namespace, "gold", gold["metadata"]["uid"])
    for kind, name in ((SERVICE, "store"), (STATEFUL_SET, "store-container")):
        live = await kube.get(kind, namespace, name)
        assert live is not None
        await kube.delete(kind, namespace, name, live["metadata"]["uid"])
    written = await cluster.step()

    assert {one.rpartition("/")[2] for one in written} >= {"store", "store-container"}
    live = await kube.get(CLUSTER, namespace, "store")
    assert live is not None
    told = {one["type"]: (one["status"], one["reason"]) for one in live["status"]["conditions"]}
    assert told["SpecValid"] == ("False", "PolicyRemoved")
    assert told["ContainersAvailable"] == ("False", "PodsNotReady")
    assert await kube.get(CONFIG_MAP, namespace, "store-settings") == before
    await cluster.settle()


async def test_the_lease_is_held_by_one(apiserver: ApiServer, kube: Counting) -> None:
    namespace = apiserver.namespace("lease")
    first = Leader(kube, namespace, "first", time.monotonic, watched=[namespace])
    second = Leader(kube, namespace, "second", time.monotonic, watched=[namespace])

    await first.attempt()
    await second.attempt()
    assert (first.leads, second.leads) == (True, False)
    await first.attempt()
    await first._give_back()
    await second.attempt()
    assert (first.leads, second.leads) == (False, True)
    lease = await kube.get(LEASE, namespace, "swiftlet-operator")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == "second"


async def test_the_whole_operator_follows_events(apiserver: ApiServer, kube: Counting) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    options = Options(DEFAULTS, "test", cluster.namespace, (cluster.namespace,), "http://127.0.0.1:0/healthz")
    operator = asyncio.create_task(run(options))
    try:
        await cluster.make()
        await _until(kube, STATEFUL_SET, cluster.namespace, "store-disks", operator)
        user = {"clusterRef": {"name": "store"}, "account": "test", "user": "anna"}
        await kube.create(
            {
                "apiVersion": USER.api_version,
                "kind": USER.kind,
                "metadata": {"name": "anna", "namespace": cluster.namespace},
                "spec": user,
            }
        )
        await _until(kube, USER, cluster.namespace, "anna", operator, "status")
        await kube.delete(SERVICE, cluster.namespace, "store", (await _uid(kube, cluster.namespace, "store")))
        await _until(kube, SERVICE, cluster.namespace, "store", operator)
    finally:
        operator.cancel()
        await asyncio.wait([operator])


async def _uid(kube: Counting, namespace: str, name: str) -> str:
    live = await kube.get(SERVICE, namespace, name)
    assert live is not None
    return str(live["metadata"]["uid"])


async def _until(
    kube: Counting, kind: Any, namespace: str, name: str, operator: asyncio.Task[None], part: str = "metadata"
) -> None:
    """The object is there and has the part."""
    deadline = time.monotonic() + 30
    while part not in (await kube.get(kind, namespace, name) or {}):
        assert not operator.done(), operator
        assert time.monotonic() < deadline, f"{name} does not come"
        await asyncio.sleep(0.1)
