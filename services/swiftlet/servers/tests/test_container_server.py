"""What a container server makes of requests that no honest client sends."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from swiftlet.errors import DeviceFailed, NodeError, NotFound
from swiftlet.model import ContainerInfo, DatabaseId, DatabaseName, ListingQuery, ObjectRow
from swiftlet.servers.containers.container_metrics import REQUESTS
from swiftlet.servers.tests.listing_cluster import KEY, ListingCluster, http_cluster
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.listing_wire import MAX_DESCRIBED
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import SIGNATURE_HEADER

CONTAINER = "/v1/containers/d0/1"
NAMES = "?account=a&container=c"
SYNC = "/v1/sync/d0"
DATABASE = f"{SYNC}/containers/1/{'0' * 32}"
STATE: dict[str, Any] = {
    "account": "a",
    "container": "c",
    "created": 1,
    "put_timestamp": 1,
    "delete_timestamp": 0,
    "policy": 0,
    "metadata": [],
    "rows_digest": "0" * 32,
}


class Reporter:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, DatabaseId]] = []

    async def report_now(self, device: str, id: DatabaseId) -> bool:
        self.told.append((device, id))
        return True


@pytest.fixture
def reporter() -> Reporter:
    return Reporter()


@pytest.fixture
async def cluster(tmp_path: Path, reporter: Reporter) -> AsyncIterator[ListingCluster]:
    async with http_cluster(tmp_path, 1, reporter) as made:
        await made.transport.put_container(made.devices[0], 1, "a", "c", Timestamp(5), {}, None, 0)
        yield made


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as made:
        yield made


async def ask(
    cluster: ListingCluster, session: ClientSession, method: str, target: str, body: bytes, key: bytes = KEY
) -> tuple[int, str]:
    url = URL(f"http://127.0.0.1:{cluster.devices[0].port}{target}", encoded=True)
    headers = (
        {SIGNATURE_HEADER: ClusterKey(key).sign(method, f"127.0.0.1:{cluster.devices[0].port}", target, body)}
        if key
        else {}
    )
    async with session.request(method, url, data=io.BytesIO(body), headers=headers) as response:
        return response.status, await response.text()


def row(*fields: object) -> dict[str, Any]:
    return {"rows": [list(fields)]}


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PUT", CONTAINER + "?account=a", {}),
        ("PUT", CONTAINER + "?account=a&container=%00", {}),
        ("PUT", CONTAINER + NAMES, {}),
        ("PUT", CONTAINER + NAMES, {"timestamp": -1, "metadata": {}, "default_policy": 0}),
        ("PUT", CONTAINER + NAMES, {"timestamp": 1 << 64, "metadata": {}, "default_policy": 0}),
        ("PUT", CONTAINER + NAMES, {"timestamp": 1, "metadata": {"a": 5}, "default_policy": 0}),
        ("PUT", CONTAINER + NAMES, {"timestamp": 1, "metadata": {"a": "\ud800"}, "default_policy": 0}),
        ("PUT", CONTAINER + NAMES, {"timestamp": 1, "metadata": {}, "default_policy": 1 << 80}),
        ("DELETE", CONTAINER + NAMES, {}),
        ("DELETE", CONTAINER + NAMES + "&timestamp=1e5", {}),
        ("GET", CONTAINER + "/listing" + NAMES + "&limit=-5", {}),
        ("POST", "/v1/descriptions/d0", {}),
        ("POST", "/v1/descriptions/d0", {"containers": []}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1, "a", "c", True]] * (MAX_DESCRIBED + 1)}),
        ("POST", "/v1/descriptions/d0", {"containers": [[-1, "a", "c", True]]}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1 << 32, "a", "c", True]]}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1, "a", "b\0c", True]]}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1, "a"]]}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1, "a", "c"]]}),
        ("POST", "/v1/descriptions/d0", {"containers": [[1, "a", "c", 1]]}),
        ("POST", CONTAINER + "/rows" + NAMES, {"rows": 5}),
        ("POST", CONTAINER + "/rows" + NAMES, {"rows": [5]}),
        ("POST", CONTAINER + "/rows" + NAMES, row("o", 1, 0, "", "")),
        ("POST", CONTAINER + "/rows" + NAMES, row("", 1, 0, "", "", False)),
        ("POST", CONTAINER + "/rows" + NAMES, row("\ud800", 1, 0, "", "", False)),
        ("POST", CONTAINER + "/rows" + NAMES, row("o", True, 0, "", "", False)),
        ("POST", CONTAINER + "/rows" + NAMES, row("o", 1, 1 << 60, "", "", False)),
        ("POST", CONTAINER + "/rows" + NAMES, row("a\0b", 1, 0, "", "", False)),
        ("POST", CONTAINER + "/rows" + NAMES, {"rows": [["o", 1, 0, "", "", False]] * 10_001}),
        ("POST", "/v1/accounts/d0/1/rows?account=a", row("c", 0, 0, 0, 0, 0, 0)),
        ("POST", DATABASE + "/compare", {"after": "", "upto": "\ud800", "digest": "0" * 32}),
        ("POST", DATABASE.replace("containers", "objects") + "/compare", {"after": "", "upto": "", "digest": "0" * 32}),
        ("POST", DATABASE + "/state", STATE | {"metadata": [["a"]]}),
        ("POST", DATABASE + "/rows", {"rows": [], "account": 5}),
    ],
)
async def test_garbage_is_refused(
    cluster: ListingCluster, session: ClientSession, method: str, target: str, body: dict[str, Any]
) -> None:
    status, answer = await ask(cluster, session, method, target, json.dumps(body).encode())
    assert status == 400, answer
    assert json.loads(answer)["error"] in ("WireError", "InvalidName")


async def test_bodies_are_limited(cluster: ListingCluster, session: ClientSession) -> None:
    status, answer = await ask(cluster, session, "POST", CONTAINER + "/rows" + NAMES, b" " * (4 * 1024 * 1024 + 1))
    assert (status, "4194304 bytes" in answer) == (400, True)


@pytest.mark.parametrize("key", [b"", b"wrong"])
async def test_only_the_clusters_own_are_heard(cluster: ListingCluster, session: ClientSession, key: bytes) -> None:
    assert (await ask(cluster, session, "GET", CONTAINER + "/listing" + NAMES, b"", key))[0] == 401
    transport = HttpListingTransport(NodeClient(key=ClusterKey(b"wrong")))
    with pytest.raises(NodeError, match="cluster key"):
        await transport.container_info(cluster.devices[0], 1, "a", "c")
    await transport.close()


async def test_descriptions_that_are_asked_for_together_go_together(cluster: ListingCluster) -> None:
    """Each asker gets its own container's, or its own error."""
    transport, device = cluster.transport, cluster.devices[0]
    assert isinstance(transport, HttpListingTransport)
    for number in range(0, 100, 2):
        await transport.put_container(device, 1, "a", f"{number}", Timestamp(5), {"N": f"{number}"}, None, 0)
    before = REQUESTS.labels("describe_containers", "200")._value.get()
    asked = [transport.container_info(device, 1, "a", f"{number}") for number in range(100)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    for number, one in enumerate(found):
        if number % 2:
            assert isinstance(one, NotFound)
        else:
            assert isinstance(one, ContainerInfo)
            assert (one.container, one.metadata) == (f"{number}", {"N": f"{number}"})
    assert REQUESTS.labels("describe_containers", "200")._value.get() == before + 2


async def test_a_device_that_is_not_here(cluster: ListingCluster) -> None:
    device = cluster.devices[0].__class__(0, "n", "127.0.0.1", cluster.devices[0].port, "dX", "r", "z", "n", 1.0)
    with pytest.raises(DeviceFailed):
        await cluster.transport.container_info(device, 1, "a", "c")


async def test_a_database_in_the_wrong_place_is_refused(cluster: ListingCluster, session: ClientSession) -> None:
    status, answer = await ask(cluster, session, "POST", DATABASE + "/state", json.dumps(STATE).encode())
    assert (status, "hash_path" in answer) == (500, True)


async def test_large_updates_go_in_several_requests(cluster: ListingCluster) -> None:
    place = (cluster.devices[0], 1, "a", "c")
    rows = [ObjectRow(f"{n:06}" + "\x01" * 200, Timestamp(7), 1, "e", "t") for n in range(12_000)]
    await cluster.transport.update_rows(*place, rows)
    info, page = await cluster.transport.list_objects(*place, ListingQuery(limit=20_000))
    assert (info.object_count, len(page)) == (12_000, 10_000)


async def test_births_and_deaths_are_reported(cluster: ListingCluster, reporter: Reporter) -> None:
    place = (cluster.devices[0], 1, "a", "c")
    await cluster.transport.update_rows(*place, [])
    await cluster.transport.delete_container(*place, Timestamp(9))
    id = cluster.stores["device-0"].id_of(1, DatabaseName("a", "c"))
    assert reporter.told == [("d0", id), ("d0", id)]
