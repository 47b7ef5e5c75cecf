"""Encryption between services against a real API server: the field, the settings that follow, and what is told."""

from __future__ import annotations

import pytest
import yaml

from swiftlet_operator.build.settings import FILE
from swiftlet_operator.manifests import CLUSTER, CONFIG_MAP, RESTART_DIGEST, STATEFUL_SET, Manifest
from swiftlet_operator.reports import EncryptionReport
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting
from swiftlet_operator.tests.test_reconcile_on_apiserver import kube as kube

pytestmark = pytest.mark.apiserver


class Named(Cluster):
    """Pods whose containers are called as their services are, which the operator asks."""

    def containers(self, one: Manifest) -> list[Manifest]:
        return [
            {"name": container["name"], "image": "swiftlet:test"}
            for container in one["spec"]["template"]["spec"]["containers"]
        ]


async def written(cluster: Cluster) -> str:
    """The mode in the live settings."""
    live = await cluster.kube.get(CONFIG_MAP, cluster.namespace, "store-settings")
    assert live is not None
    return str(yaml.safe_load(live["data"][FILE])["cluster"].get("encryption", "none"))


async def told(cluster: Cluster) -> tuple[str, str]:
    """Status and reason of the condition."""
    live = await cluster.kube.get(CLUSTER, cluster.namespace, "store")
    assert live is not None
    found = next(one for one in live["status"]["conditions"] if one["type"] == "TransportEncrypted")
    return found["status"], found["reason"]


async def digest(cluster: Cluster) -> str:
    """What restarts the pods of the object servers when it changes."""
    live = await cluster.kube.get(STATEFUL_SET, cluster.namespace, "store-disks")
    assert live is not None
    return str(live["spec"]["template"]["metadata"]["annotations"][RESTART_DIGEST])


async def test_a_cluster_goes_from_mode_to_mode_as_its_services_say_that_they_have_them(
    apiserver: ApiServer, kube: Counting
) -> None:
    cluster = Named(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    assert (await written(cluster), await told(cluster)) == ("none", ("False", "Off"))
    digests = [await digest(cluster)]
    for wanted, modes in (("transport", ("accepted", "required")), ("none", ("accepted", "none"))):
        await kube.patch(CLUSTER, cluster.namespace, "store", {"spec": {"encryption": wanted}})
        for mode in modes:
            # Until the services have it, looking again changes nothing.
            for _ in range(5):
                await cluster.step()
                await cluster.live()
            assert await written(cluster) == mode
            assert await told(cluster) == ("False", "TurningOn" if wanted == "transport" else "TurningOff")
            digests.append(await digest(cluster))
            has = EncryptionReport(mode, ready=True)
            cluster.told.encryption = lambda _pod, has=has: has  # type: ignore[misc]
        await cluster.settle()
        assert await told(cluster) == (("True", "Required") if wanted == "transport" else ("False", "Off"))
        assert await cluster.step() == []
    # Each change restarts the pods, and the way back ends where it began.
    assert len(set(digests)) == 3
    assert digests[0] == digests[-1]
    assert digests[1] == digests[3]
