"""Container sync with all services: a store that copies a container to another one of its own, over its public API."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.conftest import Stores
from e2e.standalone.wire import Client

WITHIN_S = 60.0


@pytest.fixture
def cluster(stores: Stores) -> Cluster:
    """A store whose worker looks every second, and that is a cluster of its own realm."""
    running = stores.whole()
    realms = Path(running.settings["SWIFTLET_REALMS__FILE"])
    realms.write_text(f"[own]\nkey = between operators\ncluster_self = {running.endpoint}/v1/\n")
    return running


def rows(client: Client, container: str) -> list[tuple[str, str, str]]:
    found = client.call("GET", container, query="format=json").json()
    return [(row["name"], row["last_modified"], row["hash"]) for row in found]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.1)


def test_a_container_and_its_copy_become_equal_again_whatever_happens(cluster: Cluster) -> None:
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    account = client.base.rsplit("/", 1)[1]
    key = {"X-Container-Sync-Key": "between owners"}
    assert client.call("PUT", "sync-copy", key).status == 201
    to = {**key, "X-Container-Sync-To": f"//own/self/{account}/sync-copy"}
    wait_until(lambda: client.call("PUT", "sync-source", to).status in {201, 202}, "the realm is known")
    for name, body in (("small", b"s"), ("gone", b"g"), ("größer 1%", b"0123456789" * 300_000)):
        assert client.call("PUT", f"sync-source/{name}", {"Content-Type": "a/b"}, body).status == 201
    wait_until(lambda: rows(client, "sync-copy") == rows(client, "sync-source"), "all objects are in the copy")
    assert client.call("GET", "sync-copy/größer 1%").body == b"0123456789" * 300_000

    cluster.kill("replicator")
    assert client.call("DELETE", "sync-source/gone").status == 204
    assert client.call("PUT", "sync-source/small", {}, b"anew").status == 201
    cluster.start("replicator")
    wait_until(lambda: rows(client, "sync-copy") == rows(client, "sync-source"), "what was missed is made up for")
    assert [name for name, *_ in rows(client, "sync-copy")] == ["größer 1%", "small"]
    with urllib.request.urlopen(cluster.management_url("replicator") + "/statusz", timeout=30) as answer:
        assert json.load(answer)["containerSync"] == []
    assert client.call("PUT", "sync-source", {"X-Remove-Container-Sync-To": "x"}).status == 202
