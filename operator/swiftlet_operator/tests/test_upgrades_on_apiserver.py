"""Restarts of several clusters at once, as a real API server takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swiftlet_operator.manifests import CLUSTER, DEPLOYMENT, STATEFUL_SET
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube
from swiftlet_operator.turns import Turns

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver


async def settled(apiserver: ApiServer, kube: Counting, turns: Turns) -> Cluster:
    """A cluster at rest that has its turn among others."""
    cluster = Cluster(apiserver, kube, "minimal")
    cluster.reconciler = replace(cluster.reconciler, turns=turns.of)
    await cluster.make()
    await cluster.settle()
    return cluster


def operator_of(cluster: Cluster, image: str) -> None:
    """An operator of another version."""
    defaults = replace(cluster.reconciler.defaults, image=image)
    cluster.reconciler = replace(cluster.reconciler, defaults=defaults)


async def progressing(cluster: Cluster) -> tuple[str, str, str]:
    live = await cluster.kube.get(CLUSTER, cluster.namespace, "store")
    assert live is not None
    found = next(one for one in live["status"]["conditions"] if one["type"] == "Progressing")
    return found["status"], found["reason"], found["message"]


async def images(cluster: Cluster) -> set[str]:
    """Of all workloads with the project's image."""
    found: set[str] = set()
    for kind in (STATEFUL_SET, DEPLOYMENT):
        for one in await cluster.kube.list(kind, cluster.namespace):
            found |= {container["image"] for container in one["spec"]["template"]["spec"]["containers"]}
    return {image for image in found if image.startswith("swiftlet")}


async def test_clusters_are_upgraded_one_after_the_other(apiserver: ApiServer, kube: Counting) -> None:
    turns = Turns(1)
    first, second = [await settled(apiserver, kube, turns) for _ in range(2)]
    for one in (first, second):
        operator_of(one, "swiftlet:next")
    await first.step()
    assert "swiftlet:next" in await images(first)
    await second.step()
    assert await images(second) == {"swiftlet:test"}
    status, reason, message = await progressing(second)
    assert (status, reason) == ("True", "WaitingForTurn")
    assert f"{first.namespace}/store is being restarted" in message
    assert await second.step() == []

    await first.settle()
    assert await images(first) == {"swiftlet:next"}
    await second.settle()
    assert await images(second) == {"swiftlet:next"}
    assert (await progressing(second))[:2] == ("False", "Complete")


async def test_a_paused_upgrade_waits_and_its_bounds_are_checked(apiserver: ApiServer, kube: Counting) -> None:
    cluster = await settled(apiserver, kube, Turns())
    upgrade: dict[str, Any] = {"paused": True}
    await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"upgrade": upgrade}})
    live = await kube.get(CLUSTER, cluster.namespace, "store")
    assert live is not None
    assert live["spec"]["upgrade"] == {"paused": True, "timeoutSeconds": 1800, "continueAfterTimeout": False}
    operator_of(cluster, "swiftlet:next")
    await cluster.step()
    assert await images(cluster) == {"swiftlet:test"}
    assert (await progressing(cluster))[:2] == ("False", "UpgradePaused")
    await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"upgrade": {"paused": False}}})
    await cluster.settle()
    assert await images(cluster) == {"swiftlet:next"}
    with pytest.raises(Exception, match="timeoutSeconds"):
        await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"upgrade": {"timeoutSeconds": 5}}})
