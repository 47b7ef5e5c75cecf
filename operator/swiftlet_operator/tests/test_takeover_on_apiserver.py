"""One release's operator ends and another one's goes on, on a real API server; and what nobody goes on with."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from swiftlet.testing.ports import free_ports
from swiftlet_operator.manifests import ALLOW_DELETION, CLUSTER, FINALIZER, USER, Manifest
from swiftlet_operator.tests.apiserver import ApiServer, kube_bin
from swiftlet_operator.tests.middleman import Middleman
from swiftlet_operator.tests.test_reconcile_on_apiserver import DEFAULTS, Cluster, Counting
from swiftlet_operator.tests.test_robust_on_apiserver import (
    LEASE_S,
    add_user,
    at_rest,
    children,
    kube,
    told,
    until,
    versions,
)

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "install.md"


@contextlib.contextmanager
def release(
    namespace: str, name: str, watched: str, middleman: Middleman, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The operator of a release in a namespace of its own, as a process; it gets the time to give its lease back."""
    environment = os.environ | {
        "KUBECONFIG": str(middleman.kubeconfig),
        "SWIFTLET_IMAGE": DEFAULTS.image,
        "SWIFTLET_REDIS_IMAGE": DEFAULTS.redis_image or "",
        "POD_NAME": name,
        "POD_NAMESPACE": namespace,
        "WATCH_NAMESPACES": watched,
        "LIVENESS_URL": f"http://127.0.0.1:{free_ports(1)[0]}/healthz",
        "LEASE_SECONDS": f"{LEASE_S:g}",
    }
    with log.open("ab") as out:
        process = subprocess.Popen([sys.executable, "-m", "swiftlet_operator"], env=environment, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
async def middlemen(apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[tuple[Middleman, Middleman]]:
    """One before the operator of each release."""
    first, second = Middleman(apiserver, tmp_path / "first"), Middleman(apiserver, tmp_path / "second")
    async with first.running(), second.running():
        yield first, second


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_another_release_goes_on_where_the_first_ended(
    apiserver: ApiServer, kube: Counting, middlemen: tuple[Middleman, Middleman], tmp_path: Path, elsewhere: bool
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    here = apiserver.namespace("system")
    there = apiserver.namespace("system") if elsewhere else here
    first, second = middlemen
    with release(here, "one-operator-x", cluster.namespace, first, tmp_path / "log"):
        await cluster.make()
        await at_rest(cluster, first)
        before = versions(await children(cluster))

    # Two watched namespaces, of which one has nothing: the second release may see more than the first.
    watched = f"{cluster.namespace},{apiserver.namespace('more')}"
    with release(there, "two-operator-y", watched, second, tmp_path / "log"):
        await add_user(cluster, "anna")
        await until("anna is served by the second", told(cluster, "anna"))
        await at_rest(cluster, second)
        after = versions(await children(cluster))

    changed = {name for name in before if before[name] != after.get(name)}
    # The operator's namespace stands in network policies: only from there it may ask pods how they are.
    # An operator in another namespace has a recovery key of its own, for which it seals the keys.
    expected = {"Secret/store-users", *(["ConfigMap/store-sealed-keys"] if elsewhere else [])}
    assert {name for name in changed if not name.startswith("NetworkPolicy/")} == expected
    assert any(name.startswith("NetworkPolicy/") for name in changed) is elsewhere


async def test_a_release_that_watches_the_same_waits_until_the_other_has_ended(
    apiserver: ApiServer, kube: Counting, middlemen: tuple[Middleman, Middleman], tmp_path: Path
) -> None:
    cluster = Cluster(apiserver, kube, "minimal")
    first, second = middlemen
    here, there = apiserver.namespace("system"), apiserver.namespace("system")
    with contextlib.ExitStack() as stack:
        with release(here, "one", cluster.namespace, first, tmp_path / "first.log"):
            await cluster.make()
            await at_rest(cluster, first)
            watched = f"{cluster.namespace},{apiserver.namespace('more')}"
            stack.enter_context(release(there, "two", watched, second, tmp_path / "second.log"))
            await until("it says for whom it waits", lambda: _says(tmp_path / "second.log", f"in namespace {here}"))
            await add_user(cluster, "anna")
            await until("anna is served by the first", told(cluster, "anna"))
            await at_rest(cluster, first, second)
            assert second.writes == []

        await add_user(cluster, "bob")
        await until("bob is served by the second", told(cluster, "bob"))
        assert second.writes


async def _says(log: Path, words: str) -> bool:
    return words in await asyncio.to_thread(log.read_text, "utf-8")


async def _abandoned(apiserver: ApiServer, kube: Counting, first: Middleman, log: Path) -> Cluster:
    """A cluster with volumes whose operator was uninstalled, and whose namespace was deleted then."""
    cluster = Cluster(apiserver, kube, "minimal")
    with release(apiserver.namespace("system"), "one", cluster.namespace, first, log):
        await cluster.make()
        await at_rest(cluster, first)
    await asyncio.to_thread(apiserver.delete, f"/api/v1/namespaces/{cluster.namespace}")
    live = await _live(cluster)
    assert live is not None
    assert FINALIZER in live["metadata"]["finalizers"]
    # As the namespace's controller does.
    await kube.delete(CLUSTER, cluster.namespace, "store", live["metadata"]["uid"])
    return cluster


async def _live(cluster: Cluster) -> Manifest | None:
    return await cluster.kube.get(CLUSTER, cluster.namespace, "store")


async def _blocked(cluster: Cluster) -> bool:
    live = await _live(cluster)
    conditions = ((live or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] == "DeletionBlocked" and one["status"] == "True" for one in conditions)


async def test_a_later_release_of_any_name_lets_an_abandoned_cluster_go(
    apiserver: ApiServer, kube: Counting, middlemen: tuple[Middleman, Middleman], tmp_path: Path
) -> None:
    first, second = middlemen
    cluster = await _abandoned(apiserver, kube, first, tmp_path / "log")

    with release(apiserver.namespace("elsewhere"), "two", "", second, tmp_path / "log"):
        await until("it says what the deletion waits for", lambda: _blocked(cluster))
        change: Manifest = {"metadata": {"annotations": {ALLOW_DELETION: "true"}}}
        await kube.patch(CLUSTER, cluster.namespace, "store", change)
        await until("the cluster is gone", lambda: _gone(cluster))


async def _gone(cluster: Cluster) -> bool:
    return await _live(cluster) is None


async def test_the_guide_s_way_out_without_an_operator_works(
    apiserver: ApiServer, kube: Counting, middlemen: tuple[Middleman, Middleman], tmp_path: Path
) -> None:
    cluster = await _abandoned(apiserver, kube, middlemen[0], tmp_path / "log")
    await _takes_nothing_new(cluster)
    section = GUIDE.read_text("utf-8").split("\n## Uninstalling", 1)[1].split("\n## ", 1)[0]
    found = re.search(r"^\$ (kubectl -n blue get (?:.*\\\n)*.*)$", section, re.MULTILINE)
    assert found is not None, "the guide has no command for it"
    command = found[1].replace("-n blue", f"-n {cluster.namespace}")

    path = f"{os.environ['PATH']}:{kube_bin()}"
    environment = os.environ | {"KUBECONFIG": str(apiserver.kubeconfig), "PATH": path}
    await asyncio.to_thread(subprocess.run, ["bash", "-ceu", command], env=environment, check=True)

    assert await _gone(cluster)
    left = [one for one in (await children(cluster)).values() if one["metadata"].get("finalizers")]
    assert [one for one in left if any("swiftlet" in mark for mark in one["metadata"]["finalizers"])] == []


async def _takes_nothing_new(cluster: Cluster) -> None:
    """A namespace that is being deleted takes no new objects: nobody can make the operator's things again there."""
    with pytest.raises(Exception, match="being terminated"):
        await add_user(cluster, "late")
    assert await cluster.kube.list(USER, cluster.namespace) == []
