"""Restarts that got stuck in several failure domains, with the StatefulSet controller of Kubernetes itself.

It runs beside the API server; of a node's kubelet only what matters here is played: pods are bound, come up or don't by
their images, and end when they are deleted.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swiftlet_operator.manifests import (
    CLUSTER,
    POD,
    PVC,
    STATEFUL_SET,
    ZONE_LABEL,
    Manifest,
    is_going,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.sync import is_ready
from swiftlet_operator.tests.apiserver import ApiServer, hyperkube
from swiftlet_operator.tests.statefulsets import image_of
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver

OLD, BAD, NEW = "swiftlet:old", "swiftlet:bad", "swiftlet:new"
SEEN_WITHIN_S = 20.0
MAX_LOOKS = 120


@pytest.fixture
def controller(apiserver: ApiServer, tmp_path: Path) -> Iterator[None]:
    """The StatefulSet controller."""
    binary = hyperkube()
    assert binary is not None
    guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    command = [
        *(*guard, str(binary), "kube-controller-manager", f"--kubeconfig={apiserver.kubeconfig}"),
        *("--controllers=statefulset-controller", "--leader-elect=false", "--secure-port=0"),
        *("--kube-api-qps=200", "--kube-api-burst=400"),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


class Lived(Cluster):
    """A cluster whose pods a controller makes, and whose kubelets are played."""

    server: ApiServer
    starts: Callable[[str, str], bool] = staticmethod(lambda _pod, _image: True)
    """Whether a pod comes up with an image."""

    async def pods(self) -> list[Manifest]:
        """All pods of StatefulSets."""
        found = await self.kube.list(POD, self.namespace)
        return [pod for pod in found if "controller-revision-hash" in labels_of(pod)]

    async def down(self) -> set[str]:
        """Pods that should serve and don't."""
        ready = {name_of(pod) for pod in await self.pods() if is_ready(pod) and not is_going(pod)}
        sets = await self.kube.list(STATEFUL_SET, self.namespace)
        return {f"{name_of(one)}-{n}" for one in sets for n in range(one["spec"]["replicas"])} - ready

    async def look(self) -> None:
        """A reconcile, and what nodes and controller make of it."""
        await self.step()
        self.now_s += 10
        await self._seen()
        for pod in await self.pods():
            await self._run(pod)
        await self._seen()
        await self.serve()
        self.told.silent = await self.down()

    async def _run(self, pod: Manifest) -> None:
        name = name_of(pod)
        if is_going(pod):
            await self.kube.delete(POD, self.namespace, name, pod["metadata"]["uid"], 0)
            return
        if not pod["spec"].get("nodeName"):
            await self._bind(pod)
        if is_ready(pod) != (up := self.starts(name, image_of(pod))):
            await self.ready(name)
            if not up:
                status = {"conditions": [{"type": "Ready", "status": "False"}]}
                await self.kube.patch(POD, self.namespace, name, {"status": status}, "status")

    async def _bind(self, pod: Manifest) -> None:
        """Bind its claims, and it to a node of its zone."""
        name = name_of(pod)
        for volume in pod["spec"]["volumes"]:
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                live = await self.kube.get(PVC, self.namespace, claim)
                assert live is not None
                if not live["spec"].get("volumeName"):
                    change = {"spec": {"volumeName": f"{self.namespace}-{claim}"}}
                    await self.kube.patch(PVC, self.namespace, claim, change)
                    size = live["spec"]["resources"]["requests"]
                    status = {"phase": "Bound", "capacity": size, "accessModes": ["ReadWriteOnce"]}
                    await self.kube.patch(PVC, self.namespace, claim, {"status": status}, "status")
        node = f"node-{labels_of(pod).get(ZONE_LABEL) or 'abc'[int(name.rpartition('-')[2]) % 3]}"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
        answer = await asyncio.to_thread(self.server.create, path, binding)
        assert answer.status == 201, answer.message

    async def _seen(self) -> None:
        """Wait until the controller has seen all specs and has made all pods."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        while not await self._is_seen():
            assert time.monotonic() < deadline, "the controller does not come"
            await asyncio.sleep(0.05)

    async def _is_seen(self) -> bool:
        sets = await self.kube.list(STATEFUL_SET, self.namespace)
        made = {name_of(pod) for pod in await self.pods()}
        return all(
            (one.get("status") or {}).get("observedGeneration") == one["metadata"]["generation"]
            and all(f"{name_of(one)}-{ordinal}" in made for ordinal in range(one["spec"]["replicas"]))
            for one in sets
        )

    async def change(self, **spec: object) -> None:
        """Edit the cluster's spec."""
        await self.kube.patch(CLUSTER, self.namespace, "store", {"spec": spec})

    async def is_ready(self) -> bool:
        """Whether the cluster says so, and that nothing is being changed."""
        live = await self.kube.get(CLUSTER, self.namespace, "store")
        assert live is not None
        found = {one["type"]: one for one in (live.get("status") or {}).get("conditions") or []}
        done = "Ready" in found and found["Ready"]["status"] == "True"
        return done and found["Progressing"]["reason"] == "Complete"


async def test_stuck_domains_are_mended_one_after_the_other(
    apiserver: ApiServer, kube: Counting, controller: None
) -> None:
    cluster = Lived(apiserver, kube, "three-zones")
    cluster.server = apiserver
    await cluster.make()
    await cluster.change(image=OLD)
    for _ in range(20):
        await cluster.look()
        if await cluster.is_ready():
            break
    assert await cluster.is_ready()

    # In a zone in maintenance all is changed at once, and two StatefulSets are stuck. Elsewhere a pod crashes then.
    cluster.starts = lambda pod, image: image != BAD or pod == "store-fast-b-1"
    await cluster.change(image=BAD, maintenance={"zone": "b"})
    for _ in range(8):
        await cluster.look()
    assert await cluster.down() == {"store-fast-b-0", "store-container-b-0"}
    cluster.starts = lambda pod, image: {
        NEW: True,
        OLD: pod != "store-fast-a-0",
        BAD: pod == "store-fast-b-1",
    }.get(image, True)
    await cluster.look()
    stuck = await cluster.down()
    assert stuck == {"store-fast-b-0", "store-container-b-0", "store-fast-a-0"}

    await cluster.change(image=NEW, maintenance=None)
    strategies = set()
    for _ in range(MAX_LOOKS):
        await cluster.look()
        down = await cluster.down()
        strategies |= {
            one["spec"]["updateStrategy"]["type"] for one in await kube.list(STATEFUL_SET, cluster.namespace)
        }
        zones = {pod.rpartition("-")[0].rpartition("-")[2] for pod in down}
        assert down <= stuck or len(zones) == 1, "a pod that served was taken while another domain lacked one"
        assert len(down) <= 3
        if await cluster.is_ready():
            break
    assert await cluster.is_ready()
    with_data = [pod for pod in await cluster.pods() if "redis" not in name_of(pod)]
    assert {image_of(pod) for pod in with_data} == {NEW}
    assert strategies == {"RollingUpdate", "OnDelete"}, "both ways of keeping Kubernetes from pods were needed"
