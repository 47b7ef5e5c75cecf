"""Operators that die or wait: two real processes before a real API server, and an API server that is too busy.

The fault model, each injected here: the leader is killed at rest, and in the middle of a first visit, while another one
waits; the API server is slow and refuses a part of the requests with 429.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from swiftlet.testing.ports import free_ports
from swiftlet_operator.apply import AT_A_TIME
from swiftlet_operator.handlers import SWEEP_S
from swiftlet_operator.manifests import LEASE, RING, SECRET
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.middleman import Middleman
from swiftlet_operator.tests.test_reconcile_on_apiserver import DEFAULTS, Cluster, Counting
from swiftlet_operator.tests.test_robust_on_apiserver import (
    LEASE_S,
    add_user,
    at_rest,
    children,
    kube,
    middleman,
    operating,
    told,
    until,
    versions,
)

__all__ = ["kube", "middleman"]

LASTING = ("/services/", "/networkpolicies/", "/configmaps/")
"""Kinds of which one reconcile writes all there is to write."""

pytestmark = pytest.mark.apiserver


def replica(cluster: Cluster, middleman: Middleman, name: str, log: Path) -> subprocess.Popen[bytes]:
    """An operator process of its own."""
    environment = os.environ | {
        "KUBECONFIG": str(middleman.kubeconfig),
        "SWIFTLET_IMAGE": DEFAULTS.image,
        "SWIFTLET_REDIS_IMAGE": DEFAULTS.redis_image or "",
        "POD_NAME": name,
        "POD_NAMESPACE": cluster.namespace,
        "WATCH_NAMESPACES": cluster.namespace,
        "LIVENESS_URL": f"http://127.0.0.1:{free_ports(1)[0]}/healthz",
        "LEASE_SECONDS": f"{LEASE_S:g}",
    }
    with log.open("ab") as out:
        return subprocess.Popen([sys.executable, "-m", "swiftlet_operator"], env=environment, stderr=out)


async def holder(cluster: Cluster) -> str:
    """Who has the lease."""
    lease = await cluster.kube.get(LEASE, cluster.namespace, "swiftlet-operator")
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


async def test_the_other_replica_takes_over_and_writes_nothing_twice(
    apiserver: ApiServer, kube: Counting, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    logs = tmp_path / "log"
    async with (
        Middleman(apiserver, tmp_path / "first").running() as first,
        Middleman(apiserver, tmp_path / "second").running() as second,
    ):
        processes = [replica(cluster, first, "first", logs)]
        try:
            await until("first leads", lambda: _is(holder(cluster), "first"))
            processes.append(replica(cluster, second, "second", logs))
            await cluster.make()
            await at_rest(cluster, first, second)
            assert second.writes == []
            before = await children(cluster)

            processes[0].kill()
            # How soon is a matter of the lease's length and of how busy the machine is.
            await until("second leads", lambda: _is(holder(cluster), "second"))
            await at_rest(cluster, first, second, quiet_s=3.0)
            assert second.writes == []
            assert versions(await children(cluster)) == versions(before)

            await add_user(cluster, "anna")
            await until("anna is served", told(cluster, "anna"))
            assert second.writes
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def test_a_leader_that_dies_in_the_middle_of_a_first_visit_leaves_nothing_half_or_twice(
    apiserver: ApiServer, kube: Counting, tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    logs = tmp_path / "log"
    async with (
        Middleman(apiserver, tmp_path / "first").running() as first,
        Middleman(apiserver, tmp_path / "second").running() as second,
    ):
        processes = [replica(cluster, first, "first", logs)]
        try:
            await until("first leads", lambda: _is(holder(cluster), "first"))
            processes.append(replica(cluster, second, "second", logs))
            first.delay_s = 0.05
            await cluster.make()
            await until("some children are there", lambda: _some(cluster, first))
            processes[0].kill()
            keys = await kube.get(SECRET, cluster.namespace, "store-keys")
            assert keys is not None

            await at_rest(cluster, first, second, quiet_s=3.0)

            after = await children(cluster)
            assert after["Secret/store-keys"]["data"] == keys["data"]
            assert after["Secret/store-keys"]["metadata"]["uid"] == keys["metadata"]["uid"]
            # What does not follow from the pods' state is written once by either; of the last ones nobody knows whether
            # their answers came before the end.
            done = [one for one in first.writes[:-AT_A_TIME] if any(kind in one for kind in LASTING)]
            once = done + [one for one in second.writes if any(kind in one for kind in LASTING)]
            assert done != []
            assert {one for one in once if once.count(one) > 1} == set()
            rings = await kube.list(RING, cluster.namespace)
            assert [one["status"]["version"] for one in rings] == [1, 1, 1]
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def _is(value: Awaitable[str], start: str) -> bool:
    return (await value).startswith(start)


async def _some(cluster: Cluster, middleman: Middleman) -> bool:
    lasting = [one for one in middleman.writes[:-AT_A_TIME] if any(kind in one for kind in LASTING)]
    return bool(lasting) and await cluster.kube.get(SECRET, cluster.namespace, "store-keys") is not None


async def test_many_objects_that_change_at_once_are_seen_at_once(
    apiserver: ApiServer, kube: Counting, middleman: Middleman, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    names = [f"user-{index}" for index in range(20)]
    async with operating(cluster, monkeypatch, middleman):
        await until("it leads", lambda: _is(holder(cluster), "one"))
        for name in names:
            # Each of another cluster, so that no event stands for another one.
            await add_user(cluster, name, of=name)
        # Before the next sweep, which would find them as well.
        await until("all are told", lambda: _all_told(cluster, names), SWEEP_S / 3)


async def _all_told(cluster: Cluster, names: Sequence[str]) -> bool:
    # The last ones first: while one of them is waited for the others need no look.
    for name in reversed(names):
        if not await told(cluster, name)():
            return False
    return True


async def test_a_slow_and_busy_api_server_is_waited_for(
    apiserver: ApiServer, kube: Counting, middleman: Middleman, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    middleman.busy, middleman.delay_s = 8, 0.03
    async with operating(cluster, monkeypatch, middleman):
        await cluster.make()
        await at_rest(cluster, middleman)
    assert middleman.refused > 10
