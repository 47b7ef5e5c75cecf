"""Large objects whose segments a client reads from the devices: the same as over HTTP, whatever is wrong with them.

All tests share one cluster of three object servers, which guests reach through networks that can break.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from swiftlet.client.bodies import BytesBody
from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import Token
from swiftlet.client.direct import large, large_stream
from swiftlet.client.direct import way as direct_way
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.errors import Conflict, PreconditionFailed, RangeNotSatisfiable
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectRequest, Span
from swiftlet.client.way import Way
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster, networks_before
from swiftlet.main.tests.test_direct_way import Counted, make_container, parts_of, way_to
from swiftlet.testing.network import Network
from swiftlet.testing.ways.conformance import read

OFFSET = 3000
"""How far the ports of the networks are above those in the ring; native ports are 1000 above them."""
CONTAINER, SEGMENTS = "large", "large_segments"
PART = 64 << 10
SEGMENT = random.Random(3).randbytes(200_000)
"""More than three parts."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with DirectCluster(folder, object_servers=len(DEVICES), guest_offset=OFFSET).in_thread() as cluster:
        for container in (CONTAINER, SEGMENTS):
            cluster.wait(make_container(cluster, container))
        yield cluster


@pytest.fixture
async def networks(cluster: DirectCluster) -> AsyncIterator[list[Network]]:
    """The networks to the devices, in their order."""
    async with networks_before(cluster, OFFSET) as made:
        yield made


@pytest.fixture
async def way(
    cluster: DirectCluster, networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DirectWay]:
    """The direct way, for which objects of the tests' sizes are large."""
    monkeypatch.setattr(large_stream, "PART_BYTES", PART)
    monkeypatch.setattr(large, "BY_HTTP_BYTES", 1000)
    monkeypatch.setattr(direct_way, "BY_HTTP_BYTES", 1000)
    made = way_to(cluster)
    yield made
    await made.close()


def over_http(way: DirectWay) -> HttpWay:
    return way._proxies


async def put_segments(way: Way, prefix: str, count: int = 3) -> list[tuple[str, bytes]]:
    """Store segments; return their names and bytes."""
    found = []
    for number in range(count):
        name, data = f"{prefix}/{number}", SEGMENT[number:] + SEGMENT[:number]
        await way.put(ObjectRequest(SEGMENTS, name), BytesBody(data))
        found.append((name, data))
    return found


async def put_manifest(
    way: Way, name: str, entries: Sequence[Mapping[str, object]], container: str = CONTAINER
) -> None:
    request = ObjectRequest(container, name, {"X-Object-Meta-A": "b"}, {"multipart-manifest": "put"})
    await way.put(request, BytesBody(json.dumps(entries).encode()))


def lines(counted: Counted) -> list[str]:
    """Return the requests for objects and containers."""
    return [line for line in counted.http if "/AUTH_" in line]


async def test_segments_are_read_from_the_devices(cluster: DirectCluster, way: DirectWay) -> None:
    """A proxy is asked what the object is, and once for the manifest."""
    found = await put_segments(way, "plain")
    await put_manifest(way, "plain", [{"path": f"{SEGMENTS}/{name}"} for name, _ in found])
    whole, request = b"".join(data for _, data in found), ObjectRequest(CONTAINER, "plain")
    await read(way, ObjectRequest(SEGMENTS, "plain/0"))
    at = "/v1/AUTH_test/large/plain"
    with Counted(cluster, way) as first:
        assert await read(way, request) == whole
    assert lines(first) == [f"HEAD {at}", f"GET {at}"]
    with Counted(cluster, way) as second:
        assert await read(way, request) == whole
    assert (lines(second), second.devices >= 3 * 4) == ([f"HEAD {at}"], True)
    for span in (Span(0, 200_000), Span(199_999, 400_001), Span(5), Span(-300_000), Span(0, 10**9), Span(7, 9)):
        assert await read(way, request, span) == await read(over_http(way), request, span)
    told = []
    for one in (way, over_http(way)):
        stream = await one.get(ObjectRequest(CONTAINER, "plain", {"If-None-Match": '"0"'}), None)
        await stream.close()
        volatile = {"x-trans-id", "x-openstack-request-id", "date"}
        told.append({name: value for name, value in stream.info.headers.items() if name not in volatile})
    assert told[0] == told[1]
    with pytest.raises(PreconditionFailed):
        await way.get(ObjectRequest(CONTAINER, "plain", {"If-Match": '"0"'}), None)
    with pytest.raises(RangeNotSatisfiable):
        await way.get(request, Span(10**7))


async def test_manifests_of_all_kinds(cluster: DirectCluster, way: DirectWay) -> None:
    """Ranges of segments, bytes in the manifest, manifests in manifests, a dynamic one among them, and versions."""
    found = await put_segments(way, "kinds")
    paths = [f"{SEGMENTS}/{name}" for name, _ in found]
    await put_manifest(way, "inner", [{"path": paths[0], "range": "10-150000"}, {"path": paths[1]}])
    inside = found[0][1][10:150_001] + found[1][1]
    entries = [{"path": paths[2]}, {"data": "YWJj"}, {"path": f"{CONTAINER}/inner", "range": "5-250000"}]
    await put_manifest(way, "outer", [*entries, {"path": f"{CONTAINER}/inner"}])
    request = ObjectRequest(CONTAINER, "outer")
    whole = found[2][1] + b"abc" + inside[5:250_001] + inside
    with Counted(cluster, way) as counted:
        assert await read(way, request) == whole
    assert len(lines(counted)) <= 3, "its manifest and the one in it are read, and nothing else"
    for start in range(0, len(whole), 90_001):
        assert await read(way, request, Span(start, start + 70_000)) == whole[start : start + 70_000]
    status, _ = await cluster.there(cluster.http("PUT", "versioned", headers={"X-Versions-Enabled": "true"}))
    assert status == 201
    for number in range(2):
        await put_manifest(way, "a", [{"path": paths[number]}], "versioned")
    _, body = await cluster.there(cluster.http("GET", "versioned?format=json&versions=true"))
    version = {"version-id": next(row["version_id"] for row in json.loads(body) if not row["is_latest"])}
    for asked, data in (
        (ObjectRequest("versioned", "a"), found[1][1]),
        (ObjectRequest("versioned", "a", {}, version), found[0][1]),
    ):
        with Counted(cluster, way) as counted:
            assert await read(way, asked) == data
        assert counted.devices >= 4, "though its container is one for proxies, its segments' is not"
    headers = {"X-Object-Manifest": f"{SEGMENTS}/kinds/"}
    await way.put(ObjectRequest(CONTAINER, "dynamic", headers), BytesBody(b""))
    await listed(cluster, [name for name, _ in found])
    with Counted(cluster, way) as counted:
        assert await read(way, ObjectRequest(CONTAINER, "dynamic")) == b"".join(data for _, data in found)
    assert lines(counted) == ["HEAD /v1/AUTH_test/large/dynamic", f"GET /v1/AUTH_test/{SEGMENTS}"]
    await put_manifest(way, "mixed", [{"path": f"{CONTAINER}/dynamic"}, {"path": paths[0]}])
    for asked_way in (way, over_http(way)):
        data = await read(asked_way, ObjectRequest(CONTAINER, "mixed"))
        assert data == b"".join(data for _, data in found) + found[0][1]


async def listed(cluster: DirectCluster, names: list[str]) -> None:
    """Wait until the devices have delivered the rows of segments."""
    async with asyncio.timeout(60):
        while True:
            _, body = await cluster.there(cluster.http("GET", SEGMENTS))
            if set(names) <= set(body.decode().split()):
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("changed", [0, 1])
async def test_a_segment_that_has_changed_is_a_conflict(cluster: DirectCluster, way: DirectWay, changed: int) -> None:
    """At the beginning and in the middle, as over HTTP."""
    name = f"changed{changed}"
    found = await put_segments(way, name)
    await put_manifest(way, name, [{"path": f"{SEGMENTS}/{one}"} for one, _ in found])
    request = ObjectRequest(CONTAINER, name)
    assert await read(way, request) == b"".join(data for _, data in found)
    for attempt in ("other", "gone"):
        if attempt == "other":
            await way.put(ObjectRequest(SEGMENTS, found[changed][0]), BytesBody(SEGMENT[::-1]))
        else:
            await way.delete(ObjectRequest(SEGMENTS, found[changed][0]))
        for one in (over_http(way), way):
            objects = Objects(one, Options(retry_wait_s=0.001))
            with pytest.raises(Conflict):
                await objects.get(request)
        parts_of(way).by_proxies.clear()


async def test_who_may_not_read_the_segments_does_not(cluster: DirectCluster, way: DirectWay) -> None:
    """Their container decides about them, for the devices as for proxies."""
    for container in ("shared", "private"):
        await cluster.there(make_container(cluster, container))
    await way.put(ObjectRequest("private", "a"), BytesBody(SEGMENT))
    await put_manifest(way, "a", [{"path": "private/a"}] * 2, "shared")
    posted = await cluster.there(cluster.http("POST", "shared", headers={"X-Container-Read": "other:sue"}))
    assert posted[0] == 204
    token = await cluster.there(cluster.login("other:sue"))
    login = Token(storage_url=f"http://127.0.0.1:{cluster.proxy}/v1/AUTH_test", token=token)
    options = Options(retry_wait_s=0.001)
    sue = DirectWay(Http(login, options), options, cluster.url)
    for one in (over_http(sue), sue):
        with pytest.raises(Conflict, match="rights"):
            await Objects(one, options).get(ObjectRequest("shared", "a"))
    posted = await cluster.there(cluster.http("POST", "private", headers={"X-Container-Read": "other:sue"}))
    assert posted[0] == 204
    assert await read(over_http(sue), ObjectRequest("shared", "a")) == SEGMENT * 2
    await sue.close()


async def test_a_device_that_dies_in_the_middle_is_replaced(
    cluster: DirectCluster, way: DirectWay, networks: list[Network]
) -> None:
    found = await put_segments(way, "dies", 6)
    await put_manifest(way, "dies", [{"path": f"{SEGMENTS}/{name}"} for name, _ in found])
    request, whole = ObjectRequest(CONTAINER, "dies"), b"".join(data for _, data in found)
    assert await read(way, request) == whole
    for _ in range(3):
        await way.close()
        for network in networks[:2]:
            network.downwards.append(150_000)
        with Counted(cluster, way) as counted:
            assert await read(way, request) == whole
        assert [line for line in lines(counted) if line.startswith("GET")] == []
        for network in networks:
            network.downwards.clear()
    assert sum(network.cuts for network in networks) > 0


async def test_who_stops_reading_leaves_nothing_behind(cluster: DirectCluster, way: DirectWay) -> None:
    found = await put_segments(way, "stops", 6)
    await put_manifest(way, "stops", [{"path": f"{SEGMENTS}/{name}"} for name, _ in found])
    request = ObjectRequest(CONTAINER, "stops")
    assert len(await read(way, request)) == 6 * len(SEGMENT)
    before = asyncio.all_tasks()
    for number in range(3):
        stream = await way.get(request, None)
        chunks = aiter(stream)
        for _ in range(number):
            await anext(chunks)
        await stream.close()
        await stream.close()

    async def reading() -> None:
        await read(way, request)

    task = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert parts_of(way).ahead._left == large_stream.AHEAD_BYTES
    caller = parts_of(way)._caller
    assert caller is not None
    async with asyncio.timeout(30):
        while not caller.is_idle:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.01)
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}


async def test_files_and_buffers(cluster: DirectCluster, way: DirectWay, tmp_path: Path) -> None:
    """A large object is stored and downloaded in parallel; HTTP sees the same, and proxies only its manifest."""
    size = len(SEGMENT)
    pieces = Options(segments_above_bytes=size, segment_bytes=size, ranges_above_bytes=size, range_bytes=size)
    login = way._http.credentials
    data = SEGMENT * 5
    (tmp_path / "from").write_bytes(data)
    direct = AsyncClient(login, replace(pieces, metadata_url=cluster.url))
    async with direct, AsyncClient(login, pieces) as proxied:
        cluster.requests.clear()
        written = await direct.put(CONTAINER, "file", tmp_path / "from")
        assert written.segments == 5
        puts = [line for line in cluster.requests if line.startswith("PUT /v1/AUTH_test/")]
        assert puts == ["PUT /v1/AUTH_test/large/file"]
        assert (await proxied.get(CONTAINER, "file")).data == data
        done = await direct.download(CONTAINER, "file", tmp_path / "to")
        assert (done.size, done.is_verified, (tmp_path / "to").read_bytes() == data) == (len(data), True, True)
        cluster.requests.clear()
        assert (await direct.get(CONTAINER, "file")).data == data
        assert not [line for line in cluster.requests if line.startswith("GET /v1/AUTH_test/large_segments")]
