"""Conditions and ranges of plain objects over HTTP: reading, and writing."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet.api.http.ranges import MAX_DISORDERED, MAX_RANGES
from swiftlet.api.tests.large import md5, put_large
from swiftlet.api.tests.proxy import SMALL, Proxy

BODY = b"0123456789"
ETAG = md5(BODY)
PAST, FUTURE = "Thu, 01 Jan 1970 00:00:01 GMT", "Sat, 29 Oct 2094 19:43:31 GMT"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": ETAG}, 200),
        ({"If-Match": f'"x", "{ETAG}"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": "x"}, 412),
        ({"If-None-Match": ETAG}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": "x"}, 200),
        ({"If-Modified-Since": PAST}, 200),
        ({"If-Modified-Since": FUTURE}, 304),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Unmodified-Since": PAST}, 412),
        ({"If-Unmodified-Since": FUTURE}, 200),
        ({"If-Match": ETAG, "If-Unmodified-Since": PAST}, 412),
        ({"If-Match": ETAG, "If-Unmodified-Since": FUTURE}, 200),
        ({"If-None-Match": "x", "If-Modified-Since": FUTURE}, 200),
    ],
)
async def test_reading(proxy: Proxy, method: str, headers: dict[str, str], status: int) -> None:
    await proxy.call("PUT", "c/o", {"X-Object-Meta-A": "b"}, BODY)
    got = await proxy.call(method, "c/o", headers)
    assert got.status == status
    assert (got.headers["Etag"], "Last-Modified" in got.headers, "X-Timestamp" in got.headers) == (ETAG, True, True)
    assert got.body == (BODY if (method, status) == ("GET", 200) else got.body if status == 412 else b"")
    if status == 304:
        assert got.headers["X-Object-Meta-A"] == "b"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_is_not_there_is_404_whatever_the_condition(proxy: Proxy, method: str) -> None:
    assert (await proxy.call(method, "c/absent", {"If-Match": "*"})).status == 404
    assert (await proxy.call(method, "c/absent", {"If-None-Match": "*"})).status == 404


WRITES = pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
DONE = {"PUT": 201, "POST": 202, "DELETE": 204}


@WRITES
@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"If-Match": ETAG}, None),
        ({"If-Match": f'"{ETAG}"'}, None),
        ({"If-Match": "*"}, None),
        ({"If-Match": "x"}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": "x"}, 400),
        ({"If-None-Match": f"*, {ETAG}"}, 400),
        ({"If-Unmodified-Since": PAST}, 412),
        ({"If-Unmodified-Since": FUTURE}, None),
        ({"If-Unmodified-Since": "yesterday"}, None),
        ({"If-Match": ETAG, "If-Unmodified-Since": PAST}, 412),
    ],
)
@pytest.mark.parametrize("size", [1, 2 * SMALL])
async def test_writing(proxy: Proxy, method: str, headers: dict[str, str], refused: int | None, size: int) -> None:
    await proxy.call("PUT", "c/o", data=BODY)
    before = await proxy.call("HEAD", "c/o")
    answer = await proxy.call(method, "c/o", headers, b"x" * size if method == "PUT" else None)
    assert answer.status == (refused or DONE[method])
    after = await proxy.call("HEAD", "c/o")
    unchanged = after.status == 200 and after.headers["X-Timestamp"] == before.headers["X-Timestamp"]
    assert unchanged is (refused is not None)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("PUT", {"If-Match": "*"}, 412),
        ("PUT", {"If-Match": ETAG}, 412),
        ("PUT", {"If-None-Match": "*"}, 201),
        ("PUT", {"If-Unmodified-Since": PAST}, 201),
        ("POST", {"If-Match": "*"}, 412),
        ("POST", {"If-None-Match": "*"}, 404),
        ("DELETE", {"If-Match": "*"}, 412),
        ("DELETE", {"If-None-Match": "*"}, 404),
    ],
)
async def test_writing_where_nothing_is(proxy: Proxy, method: str, headers: dict[str, str], status: int) -> None:
    assert (await proxy.call(method, "c/o", headers, b"x" if method == "PUT" else None)).status == status


async def test_writing_large_objects_goes_by_the_wholes_tag(proxy: Proxy) -> None:
    etag = (await put_large(proxy)).headers["Etag"]
    assert (await proxy.call("POST", "c/big", {"If-Match": "x"})).status == 412
    assert (await proxy.call("POST", "c/big", {"If-Match": etag})).status == 202
    query = "multipart-manifest=delete"
    assert (await proxy.call("DELETE", "c/big", {"If-Match": "x"}, query=query)).status == 412
    assert (await proxy.call("DELETE", "c/big", {"If-Match": etag}, query=query)).status == 200


async def test_the_newest_version_counts(proxy: Proxy) -> None:
    await proxy.cluster.put(2, b"old")
    proxy.cluster.place(proxy.cluster.primaries()[1], 3, b"new")
    for _ in range(5):
        assert (await proxy.call("PUT", "c/o", {"If-Match": md5(b"old")}, b"x")).status == 412


async def test_a_condition_that_can_not_be_checked_is_503(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    with proxy.cluster.down(*proxy.cluster.primaries()[:2]):
        assert (await proxy.call("PUT", "c/o", {"If-Match": "*"}, b"x")).status == 503


async def test_without_conditions_and_features_no_round_trip_is_added(proxy: Proxy) -> None:
    """One request to each of the replicas of a PUT, and to one of them for a GET."""
    proxy.twice = False  # Each read counts here.
    pythons = "x=y"  # The front counts its requests elsewhere, and answers none with a query.
    link = proxy.cluster.transport.link

    def calls() -> int:
        return sum(link(device).calls for device in proxy.cluster.devices)

    async def cost(method: str, data: Any = None, headers: dict[str, str] | None = None) -> int:
        before = calls()
        query = pythons if method in {"GET", "HEAD"} else ""
        assert (await proxy.call(method, "c/o", headers, data, query)).status < 300
        return calls() - before

    assert await cost("PUT", BODY) == 3
    assert await cost("GET") == 1
    assert await cost("GET", headers={"Range": "bytes=1-2"}) == 1
    assert await cost("GET", headers={"If-Match": ETAG}) == 1
    assert await cost("HEAD") == 1
    # One tells whether it is a link; those that keep the row say with their answers what it is made of.
    assert await cost("POST", headers={"Content-Type": ""}) == 1 + 3
    assert await cost("DELETE") == 3


class TestSeveralRanges:
    """multipart/byteranges."""

    async def test_parts(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/o", {"Content-Type": "text/plain; charset=utf-8"}, BODY)
        got = await proxy.call("GET", "c/o", {"Range": "bytes=0-1,4-,-2,90-"})
        boundary = got.headers["Content-Type"].removeprefix("multipart/byteranges;boundary=")
        assert got.status == 206
        assert int(got.headers["Content-Length"]) == len(got.body)
        assert "Content-Range" not in got.headers
        head = f"--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes "
        assert got.body.decode() == (
            f"{head}0-1/10\r\n\r\n01\r\n{head}4-9/10\r\n\r\n456789\r\n{head}8-9/10\r\n\r\n89\r\n--{boundary}--"
        )

    async def test_the_boundary_can_not_be_guessed(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/o", data=BODY)
        kinds = {(await proxy.call("GET", "c/o", {"Range": "bytes=0-1,4-5"})).headers["Content-Type"] for _ in range(5)}
        assert len(kinds) == 5

    async def test_one_that_fits_is_no_multipart(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/o", data=BODY)
        got = await proxy.call("GET", "c/o", {"Range": "bytes=2-3,90-"})
        assert (got.status, got.body, got.headers["Content-Range"]) == (206, b"23", "bytes 2-3/10")

    @pytest.mark.parametrize(
        ("ranges", "status"),
        [
            (["0-0"] * 3, 206),
            (["0-0"] * 4, 416),
            ([f"{n}-{n}" for n in range(MAX_RANGES)], 206),
            ([f"{n}-{n}" for n in range(MAX_RANGES + 1)], 416),
            ([f"{n}-{n}" for n in reversed(range(MAX_DISORDERED - 1))], 206),
            ([f"{n}-{n}" for n in reversed(range(MAX_DISORDERED))], 416),
            (["90000-", "-0"], 416),
        ],
        ids=["overlaps", "too many overlaps", "fifty", "fifty-one", "disordered", "too disordered", "none fits"],
    )
    async def test_limits(self, proxy: Proxy, ranges: list[str], status: int) -> None:
        await proxy.call("PUT", "c/o", data=bytes(100))
        got = await proxy.call("GET", "c/o", {"Range": "bytes=" + ",".join(ranges)})
        assert got.status == status
        if status == 416:
            assert got.headers["Content-Range"] == "bytes */100"

    async def test_if_range(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/o", data=BODY)
        modified = (await proxy.call("HEAD", "c/o")).headers["Last-Modified"]
        for condition, status in ((ETAG, 206), (modified, 206), ("x", 200), (PAST, 200)):
            got = await proxy.call("GET", "c/o", {"Range": "bytes=0-1,4-5", "If-Range": condition})
            assert got.status == status

    async def test_head_ignores_ranges(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "c/o", data=BODY)
        got = await proxy.call("HEAD", "c/o", {"Range": "bytes=0-1"})
        assert (got.status, got.headers["Content-Length"]) == (200, "10")
