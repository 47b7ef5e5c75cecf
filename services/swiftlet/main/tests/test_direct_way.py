"""The direct way of the client beside a proxy: what goes to the devices, what goes over HTTP, and what one stores the
other reads.

All tests share one cluster, in a thread of its own; each has a container of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from swiftlet_native import xxh3_64

from swiftlet.client.batches import Batches
from swiftlet.client.bodies import BytesBody
from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.main import run
from swiftlet.client.credentials import V1
from swiftlet.client.digests import checksum_of
from swiftlet.client.direct.grants import Granted
from swiftlet.client.direct.parts import Parts, Rights
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.errors import Forbidden, NotFound, NotModified, PreconditionFailed
from swiftlet.client.http import Http
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectRequest, Span
from swiftlet.main.tests.direct_cluster import DirectCluster
from swiftlet.testing.ways.conformance import WayContract, read

DATA = bytes(range(256)) * 40
LARGE = DATA * 300
"""More than goes in one frame."""


def way_to(cluster: DirectCluster, user: str = "test:tester", **chosen: Any) -> DirectWay:
    login = V1(auth_url=f"http://127.0.0.1:{cluster.proxy}/auth/v1.0", user=user, key="secret")
    options = Options(retry_wait_s=0.001, **chosen)
    return DirectWay(Http(login, options), options, cluster.url)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    with DirectCluster(tmp_path_factory.mktemp("cluster")).in_thread() as cluster:
        cluster.wait(make_container(cluster, "ways"))
        yield cluster


@pytest.fixture
async def way(cluster: DirectCluster) -> AsyncIterator[DirectWay]:
    made = way_to(cluster)
    yield made
    await made.close()


@pytest.fixture
def container(cluster: DirectCluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    cluster.wait(make_container(cluster, name))
    return name


async def make_container(cluster: DirectCluster, name: str, policy: str = "gold") -> None:
    """Create a container; return when grants rest on what is known since then."""
    assert (await cluster.http("PUT", name, headers={"X-Storage-Policy": policy}))[0] == 201
    created = time.time()
    asked = {"account": "AUTH_test", "container": name, "operations": ["get"]}
    async with asyncio.timeout(30):
        while (await cluster.ask(asked))[1]["issued"] < created:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.02)


class Counted:
    """What a way does within a block: its requests over HTTP, and those to devices."""

    def __init__(self, cluster: DirectCluster, way: DirectWay) -> None:
        self.http: list[str] = []
        self.devices = 0
        self._cluster = cluster
        self._way = way

    def _asked(self) -> int:
        parts = self._way._parts.here()
        caller = parts._caller
        return sum(int(str(row["requests"])) for row in caller.report()) if caller is not None else 0

    def __enter__(self) -> Counted:
        self._before = self._asked()
        self._cluster.requests.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.devices = self._asked() - self._before
        self.http = list(self._cluster.requests)


async def counted_reads(cluster: DirectCluster, way: DirectWay, reads: Callable[[], Awaitable[None]]) -> Counted:
    """Return what reads ask for, counted while no device was in doubt: one in doubt leaves reads to others."""
    while True:
        with Counted(cluster, way) as counted:
            await reads()
        if not await cluster.there(cluster.prove()):
            return counted


def parts_of(way: DirectWay) -> Parts:
    return way._parts.here()


async def put_what_may_change(way: DirectWay, request: ObjectRequest) -> None:
    """Store a body of several pieces from memory that may change, and see that it is let go of."""
    given = bytearray(LARGE * 3 + b"end")
    body, before = BytesBody(given), bytes(given)
    await way.put(request, body)
    body.data.release()
    given.clear()  # which a hold on its bytes would forbid
    assert await read(way, request) == before


class TestDirectWay(WayContract):
    """Real object servers over TCP."""


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectCluster]:
    # The system allows only short paths of sockets.
    with tempfile.TemporaryDirectory() as sockets:
        root = tmp_path_factory.mktemp("near")
        with DirectCluster(root, native_socket_directory=sockets).in_thread() as cluster:
            cluster.wait(make_container(cluster, "ways"))
            yield cluster


class TestDirectWayOnOneMachine(WayContract):
    """Real object servers over their sockets, and through memory that each client has for itself."""

    @pytest.fixture
    async def way(self, near: DirectCluster) -> AsyncIterator[DirectWay]:
        made = way_to(near, socket_directory=near.more["native_socket_directory"])
        yield made
        await made.close()

    async def test_large_objects_go_through_memory(self, near: DirectCluster, way: DirectWay) -> None:
        """The first pieces to a device go through its socket, as nothing is known of it before; the rest is shown."""
        request = ObjectRequest("ways", "memory")
        await way.put(request, BytesBody(DATA))
        await way.put(request, BytesBody(LARGE))

        async def reads() -> None:
            assert await read(way, request) == LARGE

        await counted_reads(near, way, reads)
        caller = parts_of(way)._caller
        assert caller is not None
        (row,) = caller.report()
        assert (row["transport"], row["lent_bytes"]) == ("same-node", 3 * len(LARGE))
        assert cast("int", row["received_bytes"]) < len(LARGE), "its bytes did not come through the socket"

    async def test_bytes_that_may_change_are_let_go_of(self, way: DirectWay) -> None:
        await put_what_may_change(way, ObjectRequest("ways", "changes"))


async def test_bytes_that_may_change_are_let_go_of(way: DirectWay, container: str) -> None:
    await put_what_may_change(way, ObjectRequest(container, "changes"))


async def test_with_a_grant_in_hand_only_devices_are_asked_once(
    cluster: DirectCluster, way: DirectWay, container: str
) -> None:
    """A cold start asks for a token before, then for a grant and, beside it, the ring."""
    request = ObjectRequest(container, "a")
    with Counted(cluster, way) as cold:
        written = await way.put(request, BytesBody(DATA))
    assert (written.etag, written.size) == (hashlib.md5(DATA, usedforsecurity=False).hexdigest(), len(DATA))
    assert cold.http[0] == "GET /auth/v1.0"
    assert sorted(cold.http[1:]) == ["GET /v1/rings", "POST /v1/grants"]
    assert cold.devices == 3
    with Counted(cluster, way) as put:
        await way.put(request, BytesBody(DATA))
    assert (put.http, put.devices) == ([], 3)
    with Counted(cluster, way) as first:
        assert await read(way, request) == DATA
    assert first.http == ["POST /v1/grants"]

    async def reads() -> None:
        assert await read(way, request) == DATA
        assert await read(way, request, Span(5, 9)) == DATA[5:9]
        assert (await way.head(request)).size == len(DATA)

    later = await counted_reads(cluster, way, reads)
    assert (later.http, later.devices) == ([], 3)
    assert (await way.head(request)).checksum == checksum_of(xxh3_64(DATA)), "by which whole objects are verified"
    with Counted(cluster, way) as large:
        await way.put(request, BytesBody(LARGE))
    assert (large.http, large.devices) == ([], 6), "a device is asked whether it takes it, and then given it"
    assert await read(way, request) == LARGE
    with Counted(cluster, way) as deleted:
        await way.delete(request)
    assert (deleted.http, deleted.devices) == ([], 3)


async def test_for_64_names_each_device_is_asked_once(cluster: DirectCluster, way: DirectWay, container: str) -> None:
    objects = Objects(way, Options())
    batches = Batches(objects, objects.put)
    names = [(container, f"o{number}") for number in range(64)]
    items = [(name, bytes([number]) * 10_000) for number, name in enumerate(names)]
    await way.put(ObjectRequest(container, "warm"), BytesBody(DATA))
    assert await read(way, ObjectRequest(container, "warm")) == DATA

    async def outcomes(groups: AsyncIterator[list[tuple[Any, Any]]]) -> list[Any]:
        return [outcome async for group in groups for _, outcome in group]

    with Counted(cluster, way) as put:
        assert [one.size for one in await outcomes(batches.put(items))] == [10_000] * 64
    assert (put.http, put.devices) == ([], 3), "there are three devices"

    async def reads() -> None:
        assert [one.data for one in await outcomes(batches.get(names))] == [data for _, data in items]
        assert [one.size for one in await outcomes(batches.head(names))] == [10_000] * 64

    counted = await counted_reads(cluster, way, reads)
    assert counted.http == []
    assert counted.devices <= 6
    over_http = Objects(way._proxies, Options())
    assert (await over_http.get(ObjectRequest(*names[5]))).data == items[5][1]
    with Counted(cluster, way) as deleted:
        assert await outcomes(batches.delete(names)) == [None] * 64
    assert (deleted.http, deleted.devices) == ([], 3)
    assert all(isinstance(one, NotFound) for one in await outcomes(batches.get(names[:3])))


async def test_names_of_a_batch_that_can_not_go_directly_go_over_http(
    cluster: DirectCluster, way: DirectWay, container: str
) -> None:
    objects = Objects(way, Options())
    batches = Batches(objects, objects.put)
    manifest = {"X-Object-Manifest": f"{container}/segments"}
    assert (await cluster.there(cluster.http("PUT", f"{container}/link", headers=manifest)))[0] == 201
    names = [(container, "link"), (container, "plain"), ("none", "a"), (container, "x" * 1025)]
    put = [one async for group in batches.put([(name, b"1") for name in names[1:]]) for _, one in group]
    assert [type(one).__name__ for one in put] == ["Written", "NotFound", "BadRequest"]
    got = [one async for group in batches.get(names) for _, one in group]
    assert [type(one).__name__ for one in got] == ["Content", "Content", "NotFound", "BadRequest"]


async def test_what_one_way_stores_the_other_reads(cluster: DirectCluster, way: DirectWay, container: str) -> None:
    headers = {"Content-Type": "text/x-a", "X-Object-Meta-a_b": "c d", "content-disposition": "inline"}
    await way.put(ObjectRequest(container, "a", headers), BytesBody(DATA))
    await way.put(ObjectRequest(container, "b.html"), BytesBody(b""))
    over_http = way._proxies
    for name in ("a", "b.html"):
        direct, proxied = [await one.head(ObjectRequest(container, name)) for one in (way, over_http)]
        ours, theirs = dict(direct.headers), dict(proxied.headers)
        for gone in ("x-trans-id", "x-openstack-request-id", "date", "server", "connection"):
            theirs.pop(gone, None)
        theirs["etag"] = theirs["etag"].strip('"')
        assert ours == theirs
    assert await read(over_http, ObjectRequest(container, "a")) == DATA
    await over_http.put(ObjectRequest(container, "c", {"X-Object-Meta-D": "e"}), BytesBody(LARGE))

    async def reads() -> None:
        stream = await way.get(ObjectRequest(container, "c"), None)
        assert (b"".join([data async for data in stream]), stream.info.metadata) == (LARGE, {"d": "e"})

    assert (await counted_reads(cluster, way, reads)).devices == 1
    await over_http.delete(ObjectRequest(container, "c"))
    with pytest.raises(NotFound):
        await way.head(ObjectRequest(container, "c"))
    # Rows that nobody has acknowledged are listed by the devices, a while later.
    async with asyncio.timeout(60):
        while await names_in(cluster, container) != ["a", "b.html"]:  # noqa: ASYNC110 - looking is cheap
            await asyncio.sleep(0.1)


async def names_in(cluster: DirectCluster, container: str) -> list[str]:
    status, body = await cluster.there(cluster.http("GET", f"{container}?format=json"))
    assert status == 200
    return [row["name"] for row in json.loads(body)]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Delete-After": "1000"},
        {"X-Object-Manifest": "a/b"},
        {"If-None-Match": "*"},
        {"ETag": hashlib.md5(DATA, usedforsecurity=False).hexdigest()},
        {"X-Object-Meta-Name": "J\u00f6rg"},
    ],
)
async def test_what_means_something_to_a_proxy_goes_there(
    cluster: DirectCluster, way: DirectWay, headers: dict[str, str]
) -> None:
    await cluster.there(cluster.http("PUT", "proxied"))
    name = next(iter(headers))
    with Counted(cluster, way) as counted:
        await way.put(ObjectRequest("proxied", name, headers), BytesBody(DATA))
    assert (counted.devices, counted.http[-1]) == (0, f"PUT /v1/AUTH_test/proxied/{name}")
    await way.delete(ObjectRequest("proxied", name))


async def test_writes_go_over_http_where_they_are_to_be_listed_at_once(cluster: DirectCluster, container: str) -> None:
    way = way_to(cluster, write_directly=False)

    async def writes_and_reads() -> None:
        await way.put(ObjectRequest(container, "a"), BytesBody(DATA))
        assert await names_in(cluster, container) == ["a"]
        assert await read(way, ObjectRequest(container, "a")) == DATA
        await way.delete(ObjectRequest(container, "a"))
        assert await names_in(cluster, container) == []

    assert (await counted_reads(cluster, way, writes_and_reads)).devices == 1
    await way.close()


async def test_conditions_of_reads_hold(way: DirectWay, container: str) -> None:
    request = ObjectRequest(container, "a")
    etag = (await way.put(request, BytesBody(DATA))).etag
    assert await read(way, ObjectRequest(container, "a", {"If-Match": f'"{etag}"'})) == DATA
    assert (await way.head(ObjectRequest(container, "a", {"If-None-Match": '"0"'}))).etag == etag
    with pytest.raises(PreconditionFailed):
        await way.head(ObjectRequest(container, "a", {"If-Match": '"0"'}))
    with pytest.raises(NotModified):
        await way.get(ObjectRequest(container, "a", {"If-None-Match": etag}), None)


async def test_objects_that_are_not_plain_are_read_through_a_proxy(
    cluster: DirectCluster, way: DirectWay, container: str
) -> None:
    await way.put(ObjectRequest(container, "segment"), BytesBody(DATA))
    manifest = json.dumps([{"path": f"{container}/segment"}, {"path": f"{container}/segment"}]).encode()
    await way.put(ObjectRequest(container, "whole", query={"multipart-manifest": "put"}), BytesBody(manifest))

    async def reads() -> None:
        parts_of(way).not_plain.clear()
        assert await read(way, ObjectRequest(container, "whole")) == DATA * 2
        assert (await way.head(ObjectRequest(container, "whole"))).is_static_large

    counted = await counted_reads(cluster, way, reads)
    assert counted.http[-3:] == [f"{method} /v1/AUTH_test/{container}/whole" for method in ("HEAD", "GET", "HEAD")]
    assert counted.devices == 1, "for the second request it is known"


async def test_segments_go_directly_and_their_manifest_over_http(cluster: DirectCluster, container: str) -> None:
    pieces = Options(segments_above_bytes=len(DATA) * 2, segment_bytes=len(DATA), ranges_above_bytes=len(DATA) * 2)
    login = V1(auth_url=f"http://127.0.0.1:{cluster.proxy}/auth/v1.0", user="test:tester", key="secret")
    async with AsyncClient(login, replace(pieces, metadata_url=cluster.url)) as store:
        await cluster.there(make_container(cluster, f"{container}_segments"))
        cluster.requests.clear()
        written = await store.put(container, "large", DATA * 4)
        puts = [line for line in cluster.requests if line.startswith("PUT")]
        assert (written.segments, puts) == (4, [f"PUT /v1/AUTH_test/{container}/large"])
        assert (await store.get(container, "large")).data == DATA * 4
    async with AsyncClient(login, pieces) as proxied:
        assert (await proxied.get(container, "large")).data == DATA * 4


def test_commands_go_directly_where_the_environment_says_so(
    cluster: DirectCluster, container: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    for name, value in (("AUTH", f"http://127.0.0.1:{cluster.proxy}/auth/v1.0"), ("USER", "test:tester")):
        monkeypatch.setenv(f"ST_{name}", value)
    monkeypatch.setenv("ST_KEY", "secret")
    (tmp_path / "a").write_bytes(DATA)
    copy = ["cp", str(tmp_path / "a"), f"swift://{container}/a"]

    def through_proxies(*options: str) -> bool:
        cluster.requests.clear()
        assert run([*copy, *options]) == 0
        return f"PUT /v1/AUTH_test/{container}/a" in cluster.requests

    assert through_proxies()
    assert run([*copy, "--direct"]) == 1
    assert "--direct needs the URL of the metadata servers: set SWIFTLET_METADATA_URL" in capfd.readouterr().err
    monkeypatch.setenv("SWIFTLET_METADATA_URL", cluster.url)
    assert not through_proxies()
    assert not through_proxies("--direct")
    assert through_proxies("--http")
    monkeypatch.setenv("SWIFTLET_METADATA_URL", "metadata:8080")
    assert run(copy) == 1
    assert "it has to be a URL without a path: http://HOST:PORT" in capfd.readouterr().err


async def test_versioned_containers_are_left_to_proxies(cluster: DirectCluster, way: DirectWay, container: str) -> None:
    status, _ = await cluster.there(cluster.http("POST", container, headers={"X-Versions-Enabled": "true"}))
    assert status == 204
    for data in (b"1", b"2"):
        await way.put(ObjectRequest(container, "a"), BytesBody(data))
    _, body = await cluster.there(cluster.http("GET", f"{container}?format=json&versions=true"))
    assert len(json.loads(body)) == 2


async def test_who_may_only_read_reads_directly(cluster: DirectCluster, container: str) -> None:
    assert (await cluster.there(cluster.http("PUT", f"{container}/a", DATA)))[0] == 201
    rita = way_to(cluster, "test:rita")

    async def reads() -> None:
        assert await read(rita, ObjectRequest(container, "a")) == DATA

    assert (await counted_reads(cluster, rita, reads)).devices == 1
    with pytest.raises(Forbidden):
        await rita.put(ObjectRequest(container, "a"), BytesBody(b""))
    await rita.close()


async def test_a_grant_that_counts_no_more_is_replaced_within_the_request(
    cluster: DirectCluster, way: DirectWay, container: str
) -> None:
    request = ObjectRequest(container, "a")
    await way.put(request, BytesBody(DATA))
    (entry,) = parts_of(way).grants._entries.values()
    old = entry.granted
    # A right that changes ends the grants that were given before.
    posted = await cluster.there(cluster.http("POST", container, headers={"X-Container-Write": "other:sue"}))
    assert posted[0] == 204
    async with asyncio.timeout(30):
        while entry.granted in (old, None):
            await way.put(request, BytesBody(DATA))
    assert await read(way, request) == DATA


async def test_grants_are_renewed_before_they_end(cluster: DirectCluster, way: DirectWay, container: str) -> None:
    request = ObjectRequest(container, "a")
    await way.put(request, BytesBody(DATA))
    grants = parts_of(way).grants
    (entry,) = grants._entries.values()
    assert entry.granted is not None
    old = entry.granted
    old.renew_at = 0.0
    ask, may_be_asked = grants.ask, asyncio.Event()

    async def ask_later(fields: Mapping[str, object]) -> Granted[Rights]:
        await may_be_asked.wait()
        return await ask(fields)

    grants.ask = ask_later
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(DATA))
        assert entry.asking is not None, "nobody has waited for it"
        may_be_asked.set()
        await entry.asking
    assert (counted.http, counted.devices) == (["POST /v1/grants"], 3)
    assert entry.granted is not old
    await way.put(request, BytesBody(DATA))


async def test_without_metadata_servers_grants_count_until_they_end(
    cluster: DirectCluster, way: DirectWay, container: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = ObjectRequest(container, "a")
    await way.put(request, BytesBody(DATA))
    way._metadata._url = "http://127.0.0.1:9"
    parts = parts_of(way)
    (entry,) = parts.grants._entries.values()
    assert entry.granted is not None
    entry.granted.renew_at = 0.0
    for _ in range(3):
        with Counted(cluster, way) as counted:
            await way.put(request, BytesBody(DATA))
        assert (counted.http, counted.devices) == ([], 3)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    entry.granted.ends = 0.0
    for _ in range(3):
        with Counted(cluster, way) as counted:
            await way.put(request, BytesBody(DATA))
        assert (counted.http, counted.devices) == ([f"PUT /v1/AUTH_test/{container}/a"], 0)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "the metadata servers can't be used directly" in told[0]
    way._metadata._url = cluster.url
    parts.servers._until = 0.0
    with Counted(cluster, way) as counted:
        await way.put(request, BytesBody(DATA))
    assert counted.devices == 3
    assert "can be used directly again" in caplog.records[-1].getMessage()


async def test_a_clock_that_is_wrong_does_no_harm(
    way: DirectWay, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ObjectRequest(container, "a")
    await way.put(request, BytesBody(b"1"))
    parts = parts_of(way)
    for wrong_s in (3600, -3600):
        parts._ahead_ns += wrong_s * 10**9
        parts.clock._last_ticks = 0
        await way.put(request, BytesBody(b"2"))
        assert abs(parts._ahead_ns) < 60 * 10**9
        parts.clock._last_ticks = 0
    assert await read(way, request) == b"2"


async def test_a_write_that_follows_another_one_is_not_lost_for_clocks_that_differ(
    cluster: DirectCluster, way: DirectWay, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version that is found at first may have been complete before this one, whose time is too old."""
    other = way_to(cluster)
    for name, size in (("small", 10), ("large", len(LARGE))):
        request = ObjectRequest(container, name)
        await way.put(request, BytesBody(b"before"))
        await other.put(request, BytesBody(b"before"))
        parts_of(other)._ahead_ns = parts_of(way)._ahead_ns
        clock = parts_of(way).clock
        issue, times = clock.next, [clock.next()]
        await other.put(request, BytesBody(b"other"))
        monkeypatch.setattr(clock, "next", lambda issue=issue, times=times: times.pop() if times else issue())
        await way.put(request, BytesBody(LARGE[:size]))
        assert (times, await read(way, request)) == ([], LARGE[:size])
        monkeypatch.undo()
    await other.close()


async def test_a_slow_answer_of_the_metadata_server_puts_no_clock_ahead(way: DirectWay, container: str) -> None:
    """A write of the direct way would win over a later one through a proxy."""
    metadata = parts_of(way)._metadata
    grant = metadata.grant

    async def slow(fields: Mapping[str, object]) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        return await grant(fields)

    metadata.grant = slow  # type: ignore[method-assign]
    await way.put(ObjectRequest(container, "a"), BytesBody(b""))
    ahead_ns = parts_of(way)._ahead_ns
    assert -60 * 10**9 < ahead_ns < 10**6, "it is the same machine's clock"


FORKING = """
import os, pickle, sys
from swiftlet.client import Client, Options, V1

url, metadata_url, container = sys.argv[1:]
store = Client(V1(auth_url=url, user="test:tester", key="secret"), Options(metadata_url=metadata_url))
store.put(container, "a", b"parent")
for _ in range(2):
    child = os.fork()
    if not child:
        assert store.get(container, "a").data == b"parent"
        store.put(container, "b", b"child")
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get(container, "b").data == b"child"
    store.put(container, "a", b"parent")
with pickle.loads(pickle.dumps(store)) as other:
    assert other.get(container, "a").data == b"parent"
store.close()
"""


def test_a_client_works_on_both_sides_of_a_fork_and_after_pickling(cluster: DirectCluster, container: str) -> None:
    """The child ends as programs do: what it has of its parent's threads is left alone."""
    arguments = [f"http://127.0.0.1:{cluster.proxy}/auth/v1.0", cluster.url, container]
    cluster.requests.clear()
    done = subprocess.run(
        [sys.executable, "-c", FORKING, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not [line for line in cluster.requests if "/AUTH_test/" in line], "objects went to the devices"
