"""A cluster in use gets to encryption between its services and back, and at no time two of them can't speak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from swiftlet_operator.build.settings import FILE
from swiftlet_operator.manifests import RESTART_DIGEST
from swiftlet_operator.plan.encryption import encryption_mode
from swiftlet_operator.reports import EncryptionReport, parse_report
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.tests.worlds import Scene
from swiftlet_operator.world import World

ZONES = {
    "pools": [{"name": "disks", "replicas": 3, "zones": ["a", "b", "c"], "storage": {"size": "10Gi"}}],
    "container": {"replicas": 3, "zones": ["a", "b", "c"]},
}
LASTING = 10
"""Minutes in which nothing is written, after which nothing will be."""
RDMA = {"resource": "rdma/hca"}


class Kubelets:
    """Pods with containers, which have the settings that were there when they were started last."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.modes: dict[str, str] = {}
        self.unable: set[str] = set()
        """Pods whose services take no TLS, such as those with RDMA."""
        self.old: set[str] = set()
        """Pods whose services are of a version that says nothing of it."""
        self.digests: dict[str, str] = {}
        self.seen: list[set[str]] = []
        """The modes of all pods after each step until a cluster came to rest."""
        scene.told.encryption = self.says

    def says(self, pod: str) -> EncryptionReport | None:
        return None if pod in self.old else EncryptionReport(self.modes[pod], pod not in self.unable)

    @property
    def written(self) -> str:
        """The mode in the settings."""
        settings = yaml.safe_load(self.scene.kube.find("ConfigMap", "store-settings")["data"][FILE])
        return str(settings["cluster"].get("encryption", "none"))

    async def step(self) -> list[str]:
        """Reconcile; then restart what was changed, and nothing else."""
        wrote = await self.scene.step()
        self.scene.live()
        self.sync()
        return wrote

    def sync(self) -> None:
        for (kind, _, name), one in self.scene.kube.objects.items():
            if kind != "StatefulSet" or "redis" in name:
                continue
            template = one["spec"]["template"]
            digest = template["metadata"]["annotations"][RESTART_DIGEST]
            restarted = self.digests.get(name) != digest
            self.digests[name] = digest
            for ordinal in range(one["spec"]["replicas"]):
                pod = f"{name}-{ordinal}"
                self.scene.kube.find("Pod", pod)["spec"]["containers"] = template["spec"]["containers"]
                if restarted or pod not in self.modes:
                    self.modes[pod] = self.written
        self.check()

    def check(self) -> None:
        """Nobody is asked in a way that he does not take."""
        encrypts = {pod for pod, mode in self.modes.items() if mode != "none"}
        requires = {pod for pod, mode in self.modes.items() if mode == "required"}
        plain = set(self.modes) - encrypts
        assert not (encrypts and self.unable | self.old), "somebody is asked by TLS who does not take it"
        assert not (plain and requires), "somebody is asked in plain text who refuses that"

    async def settle(self, quiet: int = 1) -> list[tuple[str, str]]:
        """Until nothing is written any more in so many minutes: the condition after each step."""
        told: list[tuple[str, str]] = []
        idle = 0
        while idle < quiet:
            assert len(told) < 60, "the cluster never comes to rest"
            idle = 0 if await self.step() else idle + 1
            told.append(self.scene.condition("TransportEncrypted"))
            self.seen.append(set(self.modes.values()))
            self.scene.now_s += 60
        return told


async def running(spec: dict[str, Any]) -> Kubelets:
    scene = Scene(dict(spec))
    kubelets = Kubelets(scene)
    for _ in range(6):
        await kubelets.step()
    return kubelets


def different(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(told))


async def test_a_cluster_gets_to_encryption_and_back_one_failure_domain_at_a_time() -> None:
    kubelets = await running(ZONES)
    scene = kubelets.scene
    assert different(await kubelets.settle()) == [("False", "Off")]
    assert set(kubelets.modes.values()) == {"none"}

    scene.cluster["spec"]["encryption"] = "transport"
    kubelets.seen.clear()
    await kubelets.settle(LASTING)
    assert scene.condition("TransportEncrypted") == ("True", "Required")
    # Both changes went through the domains one after the other.
    assert {"none", "accepted"} in kubelets.seen
    assert {"accepted", "required"} in kubelets.seen
    assert kubelets.seen[-1] == {"required"}
    assert await kubelets.step() == []

    scene.cluster["spec"]["encryption"] = "none"
    told = await kubelets.settle(LASTING)
    assert different(told) == [("False", "TurningOff"), ("False", "Off")]
    assert set(kubelets.modes.values()) == {"none"}


async def test_who_takes_no_encrypted_connection_or_is_silent_stops_the_change_and_is_named() -> None:
    kubelets = await running(ZONES)
    scene = kubelets.scene
    scene.cluster["spec"]["encryption"] = "transport"
    for fault in ("unable", "old"):
        getattr(kubelets, fault).add("store-disks-b-0")
        for _ in range(5):
            await kubelets.step()
        assert kubelets.written == "none"
        assert scene.condition("TransportEncrypted") == ("False", "NotReady")
        assert "store-disks-b-0" in scene.message("TransportEncrypted")
        getattr(kubelets, fault).clear()
    for _ in range(3):
        await kubelets.step()
    assert kubelets.written == "accepted"

    scene.told.silent = {"store-container-c-0"}
    await kubelets.settle(LASTING)
    assert kubelets.written == "accepted"
    assert scene.condition("TransportEncrypted") == ("False", "TurningOn")
    assert "store-container-c-0" in scene.message("TransportEncrypted")
    scene.told.silent = set()
    await kubelets.settle(LASTING)
    assert scene.condition("TransportEncrypted") == ("True", "Required")


async def test_somebody_who_thinks_better_of_it_half_way_is_obeyed_safely() -> None:
    kubelets = await running(ZONES)
    for wanted in ("transport", "none", "transport", "none", "transport"):
        kubelets.scene.cluster["spec"]["encryption"] = wanted
        for _ in range(7):
            await kubelets.step()
            kubelets.scene.now_s += 60
    await kubelets.settle(LASTING)
    assert kubelets.scene.condition("TransportEncrypted") == ("True", "Required")


async def test_a_new_cluster_is_encrypted_from_its_first_pod_on() -> None:
    kubelets = await running({**ZONES, "encryption": "transport"})
    await kubelets.settle()
    assert set(kubelets.modes.values()) == {"required"}
    assert kubelets.scene.condition("TransportEncrypted") == ("True", "Required")


@pytest.mark.parametrize("damage", [None, "", "cluster: []", "cluster: {encryption: yes}", "{"])
async def test_settings_that_are_lost_or_damaged_are_made_again_without_a_restart(damage: str | None) -> None:
    kubelets = await running({**ZONES, "encryption": "transport"})
    await kubelets.settle()
    scene = kubelets.scene
    if damage is None:
        del scene.kube.objects["ConfigMap", "data", "store-settings"]
    else:
        scene.kube.find("ConfigMap", "store-settings")["data"][FILE] = damage
    before = dict(kubelets.digests)
    await kubelets.settle()
    assert kubelets.written == "required"
    assert kubelets.digests == before


def worlds() -> Iterator[dict[str, Any]]:
    yield {"rdma": RDMA}
    yield {"proxy": {"rdma": RDMA}}
    yield {"pools": [{**ZONES["pools"][0], "rdma": RDMA}]}  # type: ignore[index]


@pytest.mark.parametrize("rdma", list(worlds()))
async def test_rdma_and_encryption_exclude_each_other(rdma: dict[str, Any]) -> None:
    scene = Scene({**ZONES, **rdma, "encryption": "transport"})
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "RDMANotEncrypted")


def test_a_cluster_without_pods_has_the_mode_at_once() -> None:
    assert encryption_mode(World(cluster({**ZONES, "encryption": "transport"}), now_s=1)) == "required"
    assert encryption_mode(World(cluster(ZONES), now_s=1)) == "none"


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (b'{"mode": "accepted", "ready": true}', EncryptionReport("accepted", ready=True)),
        (b'{"mode": "none"}', EncryptionReport("none", ready=False)),
        (b'{"mode": "none", "ready": 1}', EncryptionReport("none", ready=False)),
        (b'{"mode": 1, "ready": true}', None),
        (b"[]", None),
        (b"null", None),
    ],
)
def test_what_is_not_said_clearly_is_not_known(said: bytes, known: EncryptionReport | None) -> None:
    report = parse_report("object", b'{"service": "object", "encryption": ' + said + b"}")
    assert report is not None
    assert report.encryption == known
