"""A StorageUser is ready when all proxies accept its login, and not before; others' changes don't matter to it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from swiftlet_operator.plan.again import BUSY_S, LOOK_AGAIN_S
from swiftlet_operator.tests.worlds import KEY, Scene, own

PROXIES = ("store-proxy-a", "store-proxy-b")
ANN = {"account": "acme", "user": "ann", "roles": ["user"]}


class Users(Scene):
    """A cluster with two proxies."""

    async def begin(self) -> None:
        await self.settle()
        for pod in PROXIES:
            self.proxy(pod)
        self.add("ann", ANN)
        await self.step()

    def add(self, name: str, spec: dict[str, Any]) -> None:
        self.kube.put(own("StorageUser", name, spec))

    def proxy(self, name: str, *, component: str = "proxy", ready: str = "True") -> None:
        labels = {
            "app.kubernetes.io/name": "swiftlet",
            "app.kubernetes.io/instance": "store",
            "app.kubernetes.io/managed-by": "swiftlet-operator",
            "app.kubernetes.io/component": component,
        }
        moment = "2027-01-01T00:00:00Z"
        self.kube.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "data", "labels": labels},
                "spec": {"nodeName": "n0", "containers": [{"name": "proxy"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": moment}]},
            }
        )

    @property
    def version(self) -> str:
        """Of the users file as it is now."""
        content = base64.b64decode(self.kube.find("Secret", "store-users")["data"]["users.yaml"])
        return hashlib.sha256(content).hexdigest()[:8]

    def load(self, *proxies: str) -> None:
        """Proxies have read the file."""
        for name in proxies or PROXIES:
            self.told.users[name] = self.version

    def ready(self, name: str = "ann") -> tuple[str, str]:
        (condition,) = self.kube.find("StorageUser", name)["status"]["conditions"]
        return condition["status"], condition["reason"]

    def message(self, name: str = "ann") -> str:
        (condition,) = self.kube.find("StorageUser", name)["status"]["conditions"]
        return str(condition["message"])


@pytest.fixture
async def scene() -> Users:
    made = Users()
    await made.begin()
    return made


async def test_a_new_user_is_ready_when_all_proxies_have_read_the_file(scene: Users) -> None:
    assert scene.ready() == ("False", "NotServedYet")
    assert "store-proxy-a, store-proxy-b" in scene.message()
    scene.load("store-proxy-a")
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    assert scene.message().startswith("store-proxy-b does not say yet")
    scene.load()
    await scene.step()
    assert scene.ready() == ("True", "Accepted")
    assert await scene.step() == []


async def test_while_it_is_waited_for_proxies_they_are_looked_at_often(scene: Users) -> None:
    scene.kube.find("StorageCluster", "store")
    assert await scene.reconciler.reconcile(KEY) == BUSY_S
    scene.load()
    assert await scene.reconciler.reconcile(KEY) in {BUSY_S, LOOK_AGAIN_S}


async def test_all_processes_of_a_proxy_have_to_have_read_it(scene: Users) -> None:
    scene.load()
    scene.told.workers["store-proxy-b"] = frozenset({scene.version, "00000000"})
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    scene.told.workers["store-proxy-b"] = frozenset({scene.version, None})
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    scene.told.workers["store-proxy-b"] = frozenset({scene.version})
    await scene.step()
    assert scene.ready() == ("True", "Accepted")


async def test_when_no_proxy_says_anything_nothing_is_known(scene: Users) -> None:
    scene.load()
    scene.told.silent |= set(PROXIES)
    await scene.step()
    assert scene.ready() == ("Unknown", "ProxiesSilent")
    assert "none of the 2 proxies" in scene.message()
    for pod in PROXIES:
        scene.proxy(pod, ready="False")
    await scene.step()
    assert scene.ready() == ("Unknown", "ProxiesSilent")
    assert "no proxy is ready" in scene.message()


async def test_one_that_says_nothing_is_late_unless_nobody_is_sent_to_it(scene: Users) -> None:
    scene.load()
    scene.told.silent.add("store-proxy-b")
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    scene.proxy("store-proxy-b", ready="False")
    await scene.step()
    assert scene.ready() == ("True", "Accepted")


async def test_proxies_beside_object_servers_count(scene: Users) -> None:
    scene.load()
    scene.proxy("store-disks-9", component="storage")
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    assert "store-disks-9" in scene.message()


async def test_other_users_leave_it_ready(scene: Users) -> None:
    scene.load()
    await scene.step()
    scene.add("bob", {"account": "acme", "user": "bob", "roles": ["admin"]})
    await scene.step()
    assert scene.ready() == ("True", "Accepted")
    assert scene.ready("bob") == ("False", "NotServedYet")
    scene.load()
    await scene.step()
    assert scene.ready("bob") == ("True", "Accepted")


async def test_a_change_has_to_be_read_again_and_so_has_its_undoing(scene: Users) -> None:
    scene.load()
    await scene.step()
    for roles in (["admin"], ["user"]):
        scene.kube.find("StorageUser", "ann")["spec"]["roles"] = roles
        await scene.step()
        assert scene.ready() == ("False", "NotServedYet")
        scene.load("store-proxy-a")
    scene.load()
    await scene.step()
    assert scene.ready() == ("True", "Accepted")


async def test_the_status_says_no_secret(scene: Users) -> None:
    scene.load()
    await scene.step()
    status = scene.kube.find("StorageUser", "ann")["status"]
    assert len(status["served"]) == 16
    assert "hash(" not in str(status)


async def test_while_the_cluster_is_paused_a_user_is_told_the_same(scene: Users) -> None:
    scene.cluster["spec"]["paused"] = True
    await scene.step()
    assert scene.ready() == ("False", "NotServedYet")
    scene.load()
    await scene.step()
    assert scene.ready() == ("True", "Accepted")
    scene.add("bob", {"account": "acme", "user": "bob"})
    await scene.step()
    assert scene.ready("bob") == ("False", "ClusterWaits")


async def test_a_users_file_that_somebody_damaged_is_written_again(scene: Users) -> None:
    scene.load()
    await scene.step()
    scene.kube.find("Secret", "store-users")["data"]["users.yaml"] = "%%%"
    await scene.step()
    assert scene.ready() == ("True", "Accepted")
    scene.load()
    await scene.step()
    assert scene.ready() == ("True", "Accepted")
