"""Retiring a StoragePolicy on a real API server: its deletion waits, says for what, and ends when nothing is left.

And a StorageUser there: ready when the proxies say that they have its login.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

import pytest
import yaml

from swiftlet_operator.manifests import (
    CLUSTER,
    CONFIG_MAP,
    POD,
    POLICY,
    POLICY_FINALIZER,
    RING,
    SECRET,
    USER,
    Kind,
    Manifest,
    cluster_labels,
)
from swiftlet_operator.plan.policy_use import SKEW_S
from swiftlet_operator.problems import KubeInvalid
from swiftlet_operator.reports import PolicyUse
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.reporters import IN_SYNC
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver

NOTHING = PolicyUse(0, 0, 0, (), 0, None)
GOLD: dict[str, Any] = {"index": 1, "name": "gold"}


async def made(cluster: Cluster, kind: Kind, name: str, spec: dict[str, Any]) -> Manifest:
    metadata = {"name": name, "namespace": cluster.namespace}
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return await cluster.kube.create({**head, "spec": {"clusterRef": {"name": "store"}, **spec}})


async def found(cluster: Cluster, kind: Kind, name: str) -> Manifest:
    live = await cluster.kube.get(kind, cluster.namespace, name)
    assert live is not None, name
    return live


async def told(cluster: Cluster, kind: Kind, name: str, type_: str) -> tuple[str, str, str]:
    conditions = (await found(cluster, kind, name))["status"]["conditions"]
    one = next(one for one in conditions if one["type"] == type_)
    return one["status"], one["reason"], one["message"]


async def settings(cluster: Cluster) -> list[dict[str, Any]]:
    text = (await found(cluster, CONFIG_MAP, "store-settings"))["data"]["policies.yaml"]
    return list(yaml.safe_load(text))


async def delete(cluster: Cluster, kind: Kind, name: str) -> None:
    live = await found(cluster, kind, name)
    await cluster.kube.delete(kind, cluster.namespace, name, live["metadata"]["uid"])


def say(cluster: Cluster, use: PolicyUse, held: int, empty_since_s: float | None) -> None:
    """What container servers and devices say of gold."""
    for number in range(3):
        cluster.told.uses[f"store-container-{number}"] = {1: use}
        for disk in ("d0", "d1"):
            said = replace(IN_SYNC, held=held, empty_since_s=empty_since_s)
            cluster.told.said[f"store-disks-{number}/{disk}", "object-1"] = said


@pytest.fixture
async def cluster(apiserver: ApiServer, kube: Counting) -> Cluster:
    """At rest, with data, and with a policy gold beside the default."""
    one = Cluster(apiserver, kube, "minimal")
    await one.make()
    await one.settle()
    await made(one, POLICY, "gold", GOLD)
    await one.settle()
    assert POLICY_FINALIZER in (await found(one, POLICY, "gold"))["metadata"]["finalizers"]
    return one


async def test_a_deletion_waits_and_ends_when_reports_prove_that_nothing_is_left(cluster: Cluster) -> None:
    say(cluster, PolicyUse(2, 7, 2, ("AUTH_a", "AUTH_b"), 6, None), 3, None)
    await delete(cluster, POLICY, "gold")
    await cluster.step()
    await cluster.step()
    live = await found(cluster, POLICY, "gold")
    assert live["metadata"]["deletionTimestamp"]
    status, reason, message = await told(cluster, POLICY, "gold", "InUse")
    assert (status, reason) == ("True", "ContainersUseIt")
    assert message.startswith("6 containers with 21 objects use it, in accounts AUTH_a, AUTH_b and 4 more")
    assert (await told(cluster, CLUSTER, "store", "PoliciesRetired"))[:2] == ("False", "ContainersUseIt")
    assert (await settings(cluster))[1] == {"default": False, "deprecated": True, "index": 1, "name": "gold"}
    cluster.now_s += 61
    assert await cluster.step() == []

    since = cluster.now_s - 3 * SKEW_S
    say(cluster, replace(NOTHING, empty_since_s=since), 0, since)
    await cluster.step()
    assert [one["name"] for one in await settings(cluster)] == ["Policy-0"]
    await cluster.step()
    for kind, name in (
        (CONFIG_MAP, "store-ring-object-1-0"),
        (CONFIG_MAP, "store-builder-object-1-0"),
        (SECRET, "store-builder-object-1-0"),
        (RING, "store-object-1"),
    ):
        assert await cluster.kube.get(kind, cluster.namespace, name) is None, name
    assert await cluster.kube.get(POLICY, cluster.namespace, "gold") is not None
    await cluster.step()
    assert await cluster.kube.get(POLICY, cluster.namespace, "gold") is None
    await cluster.settle()
    assert (await told(cluster, CLUSTER, "store", "SpecValid"))[:2] == ("True", "Valid")


async def test_nobody_gets_its_index_meanwhile(cluster: Cluster) -> None:
    say(cluster, NOTHING, 3, None)
    await delete(cluster, POLICY, "gold")
    await made(cluster, POLICY, "tin", {"index": 1, "name": "tin"})
    await cluster.step()
    assert (await told(cluster, CLUSTER, "store", "SpecValid"))[:2] == ("False", "PolicyIndexTwice")
    assert [one["name"] for one in await settings(cluster)] == ["Policy-0", "gold"]
    # The advice: it was never accepted, and goes at once.
    await delete(cluster, POLICY, "tin")
    assert await cluster.kube.get(POLICY, cluster.namespace, "tin") is None


async def test_a_deprecated_policy_is_told_as_such_and_the_default_is_refused(cluster: Cluster) -> None:
    say(cluster, NOTHING, 3, None)
    change = {"spec": {"deprecated": True, "default": True}}
    with pytest.raises(KubeInvalid, match="a deprecated policy can't be the default"):
        await cluster.kube.patch(POLICY, cluster.namespace, "gold", change)
    await cluster.kube.patch(POLICY, cluster.namespace, "gold", {"spec": {"deprecated": True}})
    await cluster.settle()
    assert (await told(cluster, POLICY, "gold", "Ready"))[:2] == ("True", "Deprecated")
    assert (await settings(cluster))[1]["deprecated"] is True


async def test_what_was_taken_away_by_hand_is_made_again_and_deleted_properly(cluster: Cluster) -> None:
    """The way back that the guide shows."""
    say(cluster, NOTHING, 3, None)
    await delete(cluster, POLICY, "gold")
    await cluster.kube.patch(POLICY, cluster.namespace, "gold", {"metadata": {"finalizers": None}})
    await cluster.step()
    assert (await told(cluster, CLUSTER, "store", "SpecValid"))[:2] == ("False", "PolicyRemoved")
    await made(cluster, POLICY, "gold", GOLD)
    await cluster.settle()
    assert (await told(cluster, CLUSTER, "store", "SpecValid"))[:2] == ("True", "Valid")
    assert (await settings(cluster))[1] == {"default": False, "deprecated": False, "index": 1, "name": "gold"}
    assert POLICY_FINALIZER in (await found(cluster, POLICY, "gold"))["metadata"]["finalizers"]


async def test_policies_go_with_their_cluster(cluster: Cluster) -> None:
    await cluster.kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"deletionPolicy": "Delete"}})
    await delete(cluster, CLUSTER, "store")
    for _ in range(3):
        await cluster.reconciler.reconcile(cluster.key)
    assert await cluster.kube.get(CLUSTER, cluster.namespace, "store") is None
    assert not (await found(cluster, POLICY, "gold"))["metadata"].get("finalizers")
    await delete(cluster, POLICY, "gold")
    assert await cluster.kube.get(POLICY, cluster.namespace, "gold") is None


async def test_a_user_is_ready_when_a_proxy_takes_its_login(cluster: Cluster) -> None:
    labels = {**cluster_labels("store"), "app.kubernetes.io/component": "proxy"}
    metadata = {"name": "store-proxy-x", "namespace": cluster.namespace, "labels": labels}
    spec = {"nodeName": "node-a", "containers": [{"name": "proxy", "image": "swiftlet:test"}]}
    await cluster.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await made(cluster, USER, "ann", {"account": "acme", "user": "ann"})
    await cluster.step()
    assert (await told(cluster, USER, "ann", "Ready"))[:2] == ("Unknown", "ProxiesSilent")
    await cluster.ready("store-proxy-x")
    await cluster.step()
    assert (await told(cluster, USER, "ann", "Ready"))[:2] == ("False", "NotServedYet")
    content = (await found(cluster, SECRET, "store-users"))["data"]["users.yaml"]
    cluster.told.users["store-proxy-x"] = hashlib.sha256(base64.b64decode(content)).hexdigest()[:8]
    await cluster.step()
    assert (await told(cluster, USER, "ann", "Ready"))[:2] == ("True", "Accepted")
    assert (await found(cluster, USER, "ann"))["status"]["served"]
    assert await cluster.kube.get(POD, cluster.namespace, "store-proxy-x") is not None
    await cluster.settle()
