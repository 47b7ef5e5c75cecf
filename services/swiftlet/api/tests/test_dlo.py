"""Dynamic large objects: what they are made of, their size and tag, paging, and segments that change.

Fault model: listings that lag behind or are away, segments deleted or replaced while the whole is read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from swiftlet.api.tests.large import (
    SEGMENTS,
    WHOLE,
    entry,
    inline,
    md5,
    put_large,
    put_manifest,
    put_segments,
    slo_etag,
)
from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.model import ListingQuery
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection

pytestmark = pytest.mark.usefixtures("with_and_without_runs")
ETAG = slo_etag(*map(md5, SEGMENTS))
SIZE = len(WHOLE)
MANIFEST = {"X-Object-Manifest": "c/s/"}


async def put_dynamic(
    proxy: Proxy, name: str = "dyn", headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    answer = await proxy.call("PUT", f"c/{name}", MANIFEST | (headers or {}), body)
    assert answer.status == 201
    return answer


async def test_all_objects_under_the_prefix_in_order(proxy: Proxy) -> None:
    assert (await put_dynamic(proxy, headers={"Content-Type": "a/b"})).headers["Etag"] == md5(b"")
    await put_segments(proxy)
    await proxy.call("PUT", "c/t", data=b"not part of it")
    got = await proxy.call("GET", "c/dyn")
    assert (got.status, got.body) == (200, WHOLE)
    assert got.headers["X-Object-Manifest"] == "c/s/"
    assert got.headers["Etag"] == f'"{ETAG}"'
    assert (got.headers["Content-Length"], got.headers["Content-Type"]) == (str(SIZE), "a/b")
    head = await proxy.call("HEAD", "c/dyn")
    assert head.status == 200
    for name in ("Etag", "Content-Length", "X-Object-Manifest", "Content-Type", "Last-Modified", "X-Timestamp"):
        assert head.headers[name] == got.headers[name]


async def test_segments_that_come_later_are_part_of_it(proxy: Proxy) -> None:
    await put_dynamic(proxy)
    got = await proxy.call("GET", "c/dyn")
    assert (got.status, got.body, got.headers["Etag"]) == (200, b"", f'"{md5(b"")}"')
    await put_segments(proxy, [b"first"])
    assert (await proxy.call("GET", "c/dyn")).body == b"first"


async def test_a_manifest_under_its_own_prefix_is_no_circle(proxy: Proxy) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy, "s", {"X-Object-Manifest": "c/s"}, b"own bytes ")
    assert (await proxy.call("GET", "c/s")).body == b"own bytes " + WHOLE


@pytest.mark.parametrize(("value", "status"), [("%63/s%2F", 200), ("c/%73", 200), ("c%2Fs/0", 404)])
async def test_names_are_percent_encoded(proxy: Proxy, value: str, status: int) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy, headers={"X-Object-Manifest": value})
    got = await proxy.call("GET", "c/dyn")
    assert got.status == status
    if status == 200:
        assert (got.body, got.headers["X-Object-Manifest"]) == (WHOLE, value)


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("value", ["c", "c/", "/s", "", "c//s", "c/s?x", "c/s&x", "c/%zz", "c/%ff", "c/%00"])
async def test_a_malformed_header_is_400(proxy: Proxy, method: str, value: str) -> None:
    await proxy.call("PUT", "c/dyn", data=b"x")
    answer = await proxy.call(method, "c/dyn", {"X-Object-Manifest": value}, b"" if method == "PUT" else None)
    if value:
        assert answer.status == 400
        assert b"X-Object-Manifest must be in the format container/prefix" in answer.body
    else:
        assert answer.status in {201, 202}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_container_that_is_not_there_is_404(proxy: Proxy, method: str) -> None:
    await put_dynamic(proxy, headers={"X-Object-Manifest": "absent/s"})
    assert (await proxy.call(method, "c/dyn")).status == 404


async def test_a_listing_that_can_not_be_had_is_503(proxy: Proxy) -> None:
    await put_dynamic(proxy)
    with proxy.cluster.databases_down(*proxy.cluster.devices):
        assert (await proxy.call("GET", "c/dyn")).status == 503


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [("bytes=1499-1500", 1499, 1501), ("bytes=-3", SIZE - 3, SIZE), ("bytes=1521-", 1521, SIZE), ("bytes=0-0", 0, 1)],
)
async def test_ranges(proxy: Proxy, header: str, start: int, stop: int) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy)
    got = await proxy.call("GET", "c/dyn", {"Range": header})
    assert (got.status, got.body) == (206, WHOLE[start:stop])
    assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{SIZE}"


async def test_several_ranges_are_the_whole_and_none_that_fits_is_416(proxy: Proxy) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy)
    got = await proxy.call("GET", "c/dyn", {"Range": "bytes=1499-1500,-1"})
    assert (got.status, got.body) == (200, WHOLE)
    got = await proxy.call("GET", "c/dyn", {"Range": f"bytes={SIZE}-"})
    assert (got.status, got.headers["Content-Range"]) == (416, f"bytes */{SIZE}")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": f'"{ETAG}"'}, 200),
        ({"If-Match": "x"}, 412),
        ({"If-None-Match": ETAG}, 304),
        ({"If-None-Match": "x"}, 200),
    ],
)
async def test_conditions(proxy: Proxy, headers: dict[str, str], status: int) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy)
    assert (await proxy.call("GET", "c/dyn", headers)).status == status


async def test_the_manifest_itself(proxy: Proxy) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy, body=b"own bytes")
    got = await proxy.call("GET", "c/dyn", query="multipart-manifest=get")
    assert (got.status, got.body, got.headers["Etag"]) == (200, b"own bytes", md5(b"own bytes"))
    assert got.headers["X-Object-Manifest"] == "c/s/"


async def test_a_post_without_the_header_makes_it_plain_and_one_with_it_large(proxy: Proxy) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy, body=b"own bytes")
    await proxy.call("POST", "c/dyn", {"X-Object-Meta-A": "b"})
    got = await proxy.call("GET", "c/dyn")
    assert (got.body, "X-Object-Manifest" in got.headers) == (b"own bytes", False)
    await proxy.call("POST", "c/dyn", MANIFEST)
    assert (await proxy.call("GET", "c/dyn")).body == WHOLE


async def test_segments_in_the_listing_of_another_container(proxy: Proxy) -> None:
    await proxy.cluster.make_container("other")
    await proxy.call("PUT", "other/x/1", data=b"one")
    await proxy.call("PUT", "other/x/2", data=b"two")
    await put_dynamic(proxy, headers={"X-Object-Manifest": "other/x"})
    assert (await proxy.call("GET", "c/dyn")).body == b"onetwo"


async def test_static_large_objects_among_the_segments(proxy: Proxy) -> None:
    await put_segments(proxy, [b"abc", b"def"], "t/")
    await put_manifest(proxy, [entry("t/000"), entry("t/001")], "s/1")
    await proxy.call("PUT", "c/s/2", data=b"ghi")
    await put_dynamic(proxy)
    got = await proxy.call("GET", "c/dyn")
    assert (got.body, got.headers["Content-Length"]) == (b"abcdefghi", "9")
    assert (await proxy.call("GET", "c/dyn", {"Range": "bytes=4-7"})).body == b"efgh"


async def test_as_a_segment_of_a_static_large_object(proxy: Proxy) -> None:
    await put_segments(proxy)
    await put_dynamic(proxy)
    assert (
        await put_manifest(proxy, [entry("dyn", etag=ETAG, size_bytes=SIZE, range="1498-1501"), inline(b"x")])
    ).status == 201
    assert (await proxy.call("GET", "c/big")).body == b"aabcx"
    await put_segments(proxy, [b"new"], "s/zzz")
    assert (await proxy.call("GET", "c/big")).status == 409


async def test_circles_end(proxy: Proxy) -> None:
    """A static large object of a dynamic one, that lists it: its announced size can't hold."""
    await put_segments(proxy, [b"abc"])
    await put_dynamic(proxy)
    assert (await put_manifest(proxy, [entry("dyn")], "s/loop")).status == 201
    response = await proxy.open("GET", "c/dyn")
    assert response.status == 200
    with pytest.raises((ClientPayloadError, ConnectionError)):
        await response.read()


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("how", ["gone", "shorter", "other"])
async def test_a_segment_that_the_listing_does_not_know_of(proxy: Proxy, number: int, how: str) -> None:
    """The listing lags: another size would make the body's length wrong, other bytes of the same size are sent."""
    await put_segments(proxy)
    await put_dynamic(proxy)
    name, size = f"c/s/{number:03}", len(SEGMENTS[number])
    listings = proxy.cluster.listings
    page = await listings.list_objects(ACCOUNT, "c", ListingQuery(prefix="s/"))

    async def stale(*arguments: Any) -> Any:
        return page

    if how == "gone":
        await proxy.call("DELETE", name)
    else:
        await proxy.call("PUT", name, data=b"x" if how == "shorter" else b"?" * size)
    listings.list_objects = stale  # type: ignore[method-assign,assignment]
    response = await proxy.open("GET", "c/dyn")
    if how == "other":
        assert b"?" * size in await response.read()
    elif number == 0:
        assert response.status == 409
    else:
        assert response.status == 200
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await response.read()
    response.close()


@pytest.fixture
async def paged(cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Proxy]:
    """Listings of three rows a page, and a dynamic large object of four."""
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(container_listing_limit=3)) as proxy:
        await put_segments(proxy)
        await put_dynamic(proxy, body=b"own")
        yield proxy


class TestManySegments:
    """More segments than one page of the listing holds."""

    async def test_the_size_is_not_known_and_the_tag_is_the_manifests(self, paged: Proxy) -> None:
        got = await paged.call("GET", "c/dyn")
        assert (got.status, got.body) == (200, WHOLE)
        assert "Content-Length" not in got.headers
        assert got.headers["Etag"] == md5(b"own")
        head = await paged.call("HEAD", "c/dyn")
        assert (head.status, "Content-Length" in head.headers, head.headers["Etag"]) == (200, False, md5(b"own"))

    async def test_a_range_within_the_first_page(self, paged: Proxy) -> None:
        got = await paged.call("GET", "c/dyn", {"Range": "bytes=1499-1500"})
        assert (got.status, got.body, got.headers["Content-Range"]) == (206, b"ab", "bytes 1499-1500/*")

    @pytest.mark.parametrize("header", ["bytes=-3", "bytes=1500-", "bytes=0-1,3-4", "bytes=1520-1521"])
    async def test_other_ranges_are_ignored(self, paged: Proxy, header: str) -> None:
        got = await paged.call("GET", "c/dyn", {"Range": header})
        assert (got.status, got.body) == (200, WHOLE)

    async def test_a_page_that_can_not_be_had_cuts_the_answer(self, paged: Proxy) -> None:
        listings, first = paged.cluster.listings, paged.cluster.listings.list_objects

        async def fails(*arguments: Any) -> Any:
            with paged.cluster.databases_down(*(paged.cluster.devices if arguments[2].marker else [])):
                return await first(*arguments)

        listings.list_objects = fails  # type: ignore[method-assign,assignment]
        response = await paged.open("GET", "c/dyn")
        assert response.status == 200
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await response.read()

    async def test_not_as_a_segment(self, paged: Proxy) -> None:
        assert (await put_manifest(paged, [entry("dyn")])).status == 400


async def test_info_shows_the_limit(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as answer:
        assert json.loads(await answer.read())["dlo"] == {"container_listing_limit": 10_000}


async def test_large_objects_of_both_kinds_at_once(proxy: Proxy) -> None:
    """A static large object that also has the header stays static: its manifest is its content."""
    await put_large(proxy)
    await proxy.call("POST", "c/big", MANIFEST)
    assert (await proxy.call("GET", "c/big")).headers["X-Static-Large-Object"] == "True"
