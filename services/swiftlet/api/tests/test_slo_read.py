"""Static large objects as they are read: ranges, conditions, manifests, nesting, parts, and segments that break.

Fault model: segments deleted, replaced or unreachable after the manifest was stored, before the answer or in its
middle; devices that lose a segment in the middle of its bytes.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from swiftlet.api.reading import segment_stream
from swiftlet.api.reading.segment_stream import AHEAD_PIECES
from swiftlet.api.tests.large import (
    SEGMENTS,
    WHOLE,
    entry,
    inline,
    md5,
    path,
    put_large,
    put_manifest,
    put_segments,
    slo_etag,
)
from swiftlet.api.tests.proxy import Proxy

pytestmark = pytest.mark.usefixtures("with_and_without_runs")
ETAG = slo_etag(*map(md5, SEGMENTS))
SIZE = len(WHOLE)


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1499-1500", 1499, 1501),
        ("bytes=1519-1521", 1519, 1522),
        ("bytes=1521-", 1521, SIZE),
        ("bytes=-1", SIZE - 1, SIZE),
        ("bytes=-2701", SIZE - 2701, SIZE),
        ("bytes=0-99999", 0, SIZE),
        ("bytes=5-10", 5, 11),
    ],
)
async def test_ranges(proxy: Proxy, header: str, start: int, stop: int) -> None:
    await put_large(proxy)
    got = await proxy.call("GET", "c/big", {"Range": header})
    assert (got.status, got.body) == (206, WHOLE[start:stop])
    assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{SIZE}"
    assert got.headers["Content-Length"] == str(stop - start)
    assert got.headers["Etag"] == f'"{ETAG}"'


async def test_only_segments_that_are_wanted_are_opened(proxy: Proxy) -> None:
    await put_large(proxy)
    for name in ("s/000", "s/003"):
        await proxy.call("DELETE", f"c/{name}")
    assert (await proxy.call("GET", "c/big", {"Range": "bytes=1500-1520"})).body == WHOLE[1500:1521]


async def test_several_ranges(proxy: Proxy) -> None:
    await put_large(proxy, headers={"Content-Type": "a/b"})
    got = await proxy.call("GET", "c/big", {"Range": "bytes=1498-1501,-2"})
    boundary = got.headers["Content-Type"].removeprefix("multipart/byteranges;boundary=")
    assert got.status == 206
    assert got.body.decode() == (
        f"--{boundary}\r\nContent-Type: a/b\r\nContent-Range: bytes 1498-1501/{SIZE}\r\n\r\naabc\r\n"
        f"--{boundary}\r\nContent-Type: a/b\r\nContent-Range: bytes {SIZE - 2}-{SIZE - 1}/{SIZE}\r\n\r\nfg\r\n"
        f"--{boundary}--"
    )


async def test_ranges_that_do_not_lie_in_it(proxy: Proxy) -> None:
    await put_large(proxy)
    got = await proxy.call("GET", "c/big", {"Range": f"bytes={SIZE}-"})
    assert (got.status, got.headers["Content-Range"]) == (416, f"bytes */{SIZE}")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": f'"{ETAG}"'}, 200),
        ({"If-Match": ETAG}, 200),
        ({"If-Match": '"x"'}, 412),
        ({"If-Match": "*"}, 200),
        ({"If-None-Match": f'"{ETAG}"'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": "x"}, 200),
        ({"If-Modified-Since": "Sat, 29 Oct 2094 19:43:31 GMT"}, 304),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:01 GMT"}, 412),
    ],
)
async def test_conditions_are_weighed_against_the_whole(
    proxy: Proxy, method: str, headers: dict[str, str], status: int
) -> None:
    await put_large(proxy)
    got = await proxy.call(method, "c/big", headers)
    assert got.status == status
    assert got.headers["Etag"] == f'"{ETAG}"'


async def test_if_range(proxy: Proxy) -> None:
    await put_large(proxy)
    headers = {"Range": "bytes=0-0", "If-Range": f'"{ETAG}"'}
    assert (await proxy.call("GET", "c/big", headers)).status == 206
    headers["If-Range"] = '"x"'
    got = await proxy.call("GET", "c/big", headers)
    assert (got.status, got.body) == (200, WHOLE)


class TestManifest:
    """`multipart-manifest=get`."""

    async def test_as_it_is_stored(self, proxy: Proxy) -> None:
        entries = await put_segments(proxy)
        await put_manifest(
            proxy, [entries[0] | {"range": "5-6"}, inline(b"x"), entries[1]], headers={"Content-Type": "a/b"}
        )
        got = await proxy.call("GET", "c/big", query="multipart-manifest=get")
        assert got.status == 200
        assert got.headers["Content-Type"] == "application/json; charset=utf-8"
        assert got.headers["X-Static-Large-Object"] == "True"
        assert got.headers["Etag"] == md5(got.body)
        first, second, third = json.loads(got.body)
        modified = first.pop("last_modified")
        assert modified.count("T") == 1
        assert first == {
            "name": "/c/s/000",
            "bytes": 1500,
            "hash": md5(SEGMENTS[0]),
            "content_type": "application/octet-stream",
            "range": "5-6",
        }
        assert second == inline(b"x")
        assert set(third) == {"name", "bytes", "hash", "content_type", "last_modified"}
        head = await proxy.call("HEAD", "c/big", query="multipart-manifest=get")
        assert (head.headers["Content-Length"], head.headers["Etag"]) == (str(len(got.body)), md5(got.body))
        whole = await proxy.call("HEAD", "c/big")
        assert whole.headers["X-Manifest-Etag"] == md5(got.body)

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    async def test_raw(self, proxy: Proxy, method: str) -> None:
        entries = await put_segments(proxy)
        sent = [entries[0] | {"range": "5-6"}, inline(b"x"), entries[1]]
        await put_manifest(proxy, sent, headers={"Content-Type": "a/b"})
        got = await proxy.call(method, "c/big", query="multipart-manifest=get&format=raw")
        assert got.headers["Content-Type"] == "a/b"
        if method == "GET":
            assert json.loads(got.body) == sent
            assert got.headers["Etag"] == md5(got.body)
            assert (await put_manifest(proxy, got.body, "again")).status == 201
            assert (await proxy.call("GET", "c/again")).body == (await proxy.call("GET", "c/big")).body
        else:
            assert int(got.headers["Content-Length"]) > 100

    async def test_a_range_and_conditions(self, proxy: Proxy) -> None:
        await put_large(proxy)
        manifest = (await proxy.call("GET", "c/big", query="multipart-manifest=get")).body
        got = await proxy.call("GET", "c/big", {"Range": "bytes=2-9"}, query="multipart-manifest=get")
        assert (got.status, got.body) == (206, manifest[2:10])
        got = await proxy.call("GET", "c/big", {"If-None-Match": md5(manifest)}, query="multipart-manifest=get")
        assert got.status == 304

    async def test_of_a_plain_object_means_nothing(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/plain", data=b"plain")
        assert (await proxy.call("GET", "c/plain", query="multipart-manifest=get&format=raw")).body == b"plain"


async def nest(proxy: Proxy, depth: int) -> int:
    """Manifests in manifests, `n1` the innermost; the size of the outermost."""
    inner, size, etag = "s/000", len(SEGMENTS[0]), md5(SEGMENTS[0])
    await put_segments(proxy, SEGMENTS[:1])
    for level in range(1, depth + 1):
        answer = await put_manifest(
            proxy, [entry(inner, etag=etag, size_bytes=size), inline(b"%02d" % level)], f"n{level}"
        )
        assert answer.status == 201
        inner, size, etag = f"n{level}", size + 2, answer.headers["Etag"].strip('"')
    return size


class TestNested:
    """Segments that are large objects themselves."""

    async def test_the_whole_and_ranges(self, proxy: Proxy) -> None:
        size = await nest(proxy, 3)
        whole = SEGMENTS[0] + b"010203"
        got = await proxy.call("GET", "c/n3")
        assert (got.body, got.headers["Content-Length"]) == (whole, str(size))
        assert (await proxy.call("GET", "c/n3", {"Range": "bytes=1499-1504"})).body == whole[1499:1505]
        stored = json.loads((await proxy.call("GET", "c/n3", query="multipart-manifest=get")).body)
        assert stored[0]["sub_slo"] is True
        assert stored[0]["bytes"] == size - 2

    async def test_ranges_of_nested_ones(self, proxy: Proxy) -> None:
        await nest(proxy, 2)
        await put_manifest(proxy, [entry("n2", range="1498-1502"), entry("n2", range="-3")])
        assert (await proxy.call("GET", "c/big")).body == b"aa010" + b"102"
        assert (await proxy.call("GET", "c/big", {"Range": "bytes=2-6"})).body == b"01010"[:3] + b"10"

    async def test_not_deeper_than_ten(self, proxy: Proxy) -> None:
        await nest(proxy, 11)
        assert (await proxy.call("GET", "c/n10")).status == 200
        got = await proxy.call("GET", "c/n11")
        assert got.status == 409
        assert b"10 deep" in got.body
        assert (await proxy.call("GET", "c/n11", {"Range": "bytes=-2"})).body == b"11"

    @pytest.mark.parametrize("change", ["replaced", "plain", "gone"])
    async def test_a_nested_manifest_that_changed(self, proxy: Proxy, change: str) -> None:
        await nest(proxy, 2)
        if change == "replaced":
            await put_manifest(proxy, [entry("s/000"), inline(b"99")], "n1")
        elif change == "plain":
            await proxy.call("PUT", "c/n1", data=b"x")
        else:
            await proxy.call("DELETE", "c/n1")
        assert (await proxy.call("GET", "c/n2")).status == 409


class TestParts:
    """`part-number=N`."""

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("number", [1, 2, 4])
    async def test_one_part(self, proxy: Proxy, method: str, number: int) -> None:
        await put_large(proxy)
        got = await proxy.call(method, "c/big", query=f"part-number={number}")
        start = sum(map(len, SEGMENTS[: number - 1]))
        stop = start + len(SEGMENTS[number - 1])
        assert (got.status, got.headers["X-Parts-Count"]) == (206, "4")
        assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{SIZE}"
        assert got.headers["Content-Length"] == str(stop - start)
        assert got.body == (WHOLE[start:stop] if method == "GET" else b"")

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    async def test_beyond_the_last(self, proxy: Proxy, method: str) -> None:
        await put_large(proxy)
        got = await proxy.call(method, "c/big", query="part-number=5")
        assert (got.status, got.headers["Content-Range"], got.headers["X-Parts-Count"]) == (416, f"bytes */{SIZE}", "4")

    @pytest.mark.parametrize("number", ["0", "-1", "x", "", "1.5", "9" * 50])
    async def test_what_is_no_number(self, proxy: Proxy, number: str) -> None:
        await put_large(proxy)
        assert (await proxy.call("GET", "c/big", query=f"part-number={number}")).status == 400

    async def test_not_with_a_range(self, proxy: Proxy) -> None:
        await put_large(proxy)
        assert (await proxy.call("GET", "c/big", {"Range": "bytes=0-1"}, query="part-number=1")).status == 400

    async def test_conditions_come_first(self, proxy: Proxy) -> None:
        await put_large(proxy)
        assert (await proxy.call("GET", "c/big", {"If-Match": "x"}, query="part-number=1")).status == 412

    async def test_of_a_plain_object_means_nothing(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/plain", data=b"plain")
        got = await proxy.call("GET", "c/plain", query="part-number=7")
        assert (got.status, got.body) == (200, b"plain")


async def break_segment(proxy: Proxy, number: int, how: str) -> None:
    name = f"c/s/{number:03}"
    if how == "gone":
        await proxy.call("DELETE", name)
    elif how == "shorter":
        await proxy.call("PUT", name, data=b"x")
    elif how == "other":
        await proxy.call("PUT", name, data=b"?" * len(SEGMENTS[number]))


@pytest.mark.parametrize("how", ["gone", "shorter", "other"])
@pytest.mark.parametrize("ranges", [None, "bytes=0-1600", "bytes=0-1,1510-1515"])
async def test_a_first_segment_that_broke_is_409(proxy: Proxy, how: str, ranges: str | None) -> None:
    await put_large(proxy)
    await break_segment(proxy, 0, how)
    got = await proxy.call("GET", "c/big", {"Range": ranges} if ranges else {})
    assert got.status == 409
    assert b"/c/s/000" in got.body
    assert (await proxy.call("HEAD", "c/big")).status == 200


@pytest.mark.parametrize("how", ["gone", "shorter", "other"])
@pytest.mark.parametrize("ranges", [None, "bytes=0-1600", "bytes=0-1,1510-1515"])
async def test_a_later_segment_that_broke_cuts_the_connection(proxy: Proxy, how: str, ranges: str | None) -> None:
    await put_large(proxy)
    await break_segment(proxy, 1, how)
    response = await proxy.open("GET", "c/big", {"Range": ranges} if ranges else {})
    assert response.status == (206 if ranges else 200)
    with pytest.raises((ClientPayloadError, ConnectionError)):
        await response.read()


async def test_a_segment_that_no_device_has_is_503(proxy: Proxy) -> None:
    await put_large(proxy)
    held = proxy.cluster.primaries(path("big"))
    others = [d for d in proxy.cluster.devices if d not in held]
    assert others
    objects = proxy.cluster.objects
    get = objects.get

    async def fails(where: Any, *arguments: Any, **named: Any) -> Any:
        if where.obj == "s/000":
            with proxy.cluster.down(*proxy.cluster.devices):
                return await get(where, *arguments, **named)
        return await get(where, *arguments, **named)

    objects.get = fails  # type: ignore[method-assign,assignment]
    assert (await proxy.call("GET", "c/big")).status == 503


async def test_a_segment_lost_in_its_middle_cuts_the_connection(proxy: Proxy) -> None:
    entries = await put_segments(proxy, [b"x" * 10, bytes(500_000)])
    await put_manifest(proxy, entries)
    for device in proxy.cluster.devices:
        proxy.cluster.transport.link(device).lose_after_bytes = 100_000
    response = await proxy.open("GET", "c/big")
    assert response.status == 200
    with pytest.raises((ClientPayloadError, ConnectionError)):
        await response.read()


@pytest.mark.parametrize(("ahead_bytes", "most"), [(segment_stream.AHEAD_BYTES, AHEAD_PIECES + 1), (150, 2), (0, 1)])
async def test_the_next_segments_are_opened_before_the_last_one_ends(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, ahead_bytes: int, most: int
) -> None:
    """Not too many, not too early, and everything that was opened is closed."""
    proxy.cluster.transport.has_runs = False
    proxy.twice = False  # Each read counts here.
    monkeypatch.setattr(segment_stream, "AHEAD_BYTES", ahead_bytes)
    parts = [bytes([number]) * 100 for number in range(30)]
    assert (await put_manifest(proxy, await put_segments(proxy, parts))).status == 201
    objects, get = proxy.cluster.objects, proxy.cluster.objects.get
    opened: list[str] = []
    closed: list[str] = []

    async def watched(where: Any, *arguments: Any, **named: Any) -> Any:
        download = await get(where, *arguments, **named)
        close, chunks = download.close, download.chunks
        opened.append(where.obj)

        async def closes() -> None:
            closed.append(where.obj)
            await close()

        async def slow_chunks() -> Any:
            async for chunk in chunks():
                for _ in range(20):
                    await asyncio.sleep(0)
                ahead.append(len(opened) - len(set(closed)))
                yield chunk

        download.close, download.chunks = closes, slow_chunks  # type: ignore[method-assign]
        return download

    ahead: list[int] = []
    objects.get = watched  # type: ignore[method-assign,assignment]
    assert (await proxy.call("GET", "c/big")).body == b"".join(parts)
    assert sorted(opened) == ["big", *(f"s/{number:03}" for number in range(30))]
    assert sorted(set(closed)) == sorted(opened)
    assert max(ahead) == most


async def test_a_client_that_goes_away_leaves_nothing_open(proxy: Proxy) -> None:
    await put_manifest(proxy, await put_segments(proxy, [bytes(5_000_000), bytes(5_000_000)]))
    objects, get = proxy.cluster.objects, proxy.cluster.objects.get
    live: set[Any] = set()
    ended = asyncio.Event()

    async def watched(*arguments: Any, **named: Any) -> Any:
        download = await get(*arguments, **named)
        close = download.close
        live.add(download)

        async def closes() -> None:
            live.discard(download)
            if not live:
                ended.set()
            await close()

        download.close = closes  # type: ignore[method-assign]
        return download

    objects.get = watched  # type: ignore[method-assign]
    response = await proxy.open("GET", "c/big")
    await response.content.readexactly(10)
    ended.clear()
    response.close()
    await asyncio.wait_for(ended.wait(), 10)
    assert not live


async def test_metadata_and_type_can_be_changed_and_it_stays_large(proxy: Proxy) -> None:
    await put_large(proxy)
    assert (await proxy.call("POST", "c/big", {"X-Object-Meta-A": "b", "Content-Type": "x/y"})).status == 202
    got = await proxy.call("GET", "c/big")
    assert (got.body, got.headers["Content-Type"], got.headers["X-Object-Meta-A"]) == (WHOLE, "x/y", "b")
    listed = {row["name"]: row for row in json.loads((await proxy.call("GET", "c", query="format=json")).body)}
    assert listed["big"]["bytes"] == SIZE


async def test_a_plain_object_in_its_place_is_plain(proxy: Proxy) -> None:
    await put_large(proxy)
    await proxy.call("PUT", "c/big", data=b"plain")
    got = await proxy.call("GET", "c/big")
    assert got.body == b"plain"
    assert "X-Static-Large-Object" not in got.headers


async def test_listings_show_the_whole_and_totals_the_manifest(proxy: Proxy) -> None:
    await put_large(proxy, headers={"Content-Type": "a/b"})
    manifest = (await proxy.call("GET", "c/big", query="multipart-manifest=get")).body
    listing = await proxy.call("GET", "c", query="format=json&prefix=big")
    (row,) = json.loads(listing.body)
    assert (row["bytes"], row["content_type"]) == (SIZE, "a/b")
    assert (row["hash"], row["slo_etag"]) == (md5(manifest), f'"{ETAG}"')
    assert listing.headers["X-Container-Bytes-Used"] == str(SIZE + len(manifest))
    xml = (await proxy.call("GET", "c", query="format=xml&prefix=big")).body.decode()
    assert f"<bytes>{SIZE}</bytes><content_type>a/b</content_type>" in xml
    assert "slo" not in xml.replace("<name>", "")


async def test_info_shows_the_limits(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as answer:
        shown = (await answer.json())["slo"]
    assert shown == {
        "max_manifest_segments": 1000,
        "max_manifest_size": 8 << 20,
        "max_inline_segments": 2000,
        "min_segment_size": 1,
        "yield_frequency": 10.0,
        "allow_async_delete": False,
    }
