"""Server-side copy: both ways to ask for it, what comes along, conditions, ranges, large objects, two accounts.

Fault model: a source that breaks off in the middle, destinations that are not there or not allowed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swiftlet.api.tests.large import SEGMENTS, WHOLE, md5, put_large
from swiftlet.api.tests.proxy import SMALL, Answer, Proxy, proxy_of
from swiftlet.auth.identity import Identity, Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection

SOURCE = {
    "Content-Type": "a/b",
    "X-Object-Meta-Color": "red",
    "X-Object-Meta-Size": "big",
    "Content-Encoding": "x-test",
    "Content-Disposition": "inline",
}
BODY = b"0123456789"
WAYS = pytest.mark.parametrize("way", ["COPY", "PUT"])


async def put_source(proxy: Proxy, body: bytes = BODY) -> Answer:
    answer = await proxy.call("PUT", "c/from", SOURCE, body)
    assert answer.status == 201
    return answer


async def copy(
    proxy: Proxy,
    way: str,
    headers: dict[str, str] | None = None,
    source: str = "c/from",
    to: str = "c/to",
    query: str = "",
) -> Answer:
    """One of the two ways to say the same."""
    if way == "COPY":
        return await proxy.call("COPY", source, {"Destination": to, **(headers or {})}, query=query)
    given = {"X-Copy-From": f"/{source}", "Content-Type": "", **(headers or {})}
    return await proxy.call("PUT", to, given, None, query)


@WAYS
@pytest.mark.parametrize("size", [0, 10, SMALL, 5 * SMALL])
async def test_bytes_and_metadata_come_along(proxy: Proxy, way: str, size: int) -> None:
    body = (BODY * size)[:size]
    await put_source(proxy, body)
    source = await proxy.call("HEAD", "c/from")
    answer = await copy(proxy, way)
    assert answer.status == 201
    assert answer.headers["Etag"] == md5(body)
    assert answer.headers["X-Copied-From"] == "c/from"
    assert answer.headers["X-Copied-From-Account"] == ACCOUNT
    assert answer.headers["X-Copied-From-Last-Modified"] == source.headers["Last-Modified"]
    assert answer.headers["X-Object-Meta-Color"] == "red"
    assert "Last-Modified" in answer.headers
    got = await proxy.call("GET", "c/to")
    assert got.body == body
    assert {name: got.headers[name] for name in SOURCE} == SOURCE


@WAYS
async def test_what_the_request_says_wins(proxy: Proxy, way: str) -> None:
    await put_source(proxy)
    headers = {"X-Object-Meta-Color": "blue", "X-Object-Meta-New": "1", "X-Object-Meta-Size": "", "Content-Type": "x/y"}
    answer = await copy(proxy, way, headers)
    assert answer.headers["X-Object-Meta-Color"] == "blue"
    got = (await proxy.call("HEAD", "c/to")).headers
    assert (got["X-Object-Meta-Color"], got["X-Object-Meta-New"], got["Content-Type"]) == ("blue", "1", "x/y")
    assert got["X-Object-Meta-Size"] == ""
    assert got["Content-Encoding"] == "x-test"
    named = {"Content-Disposition": "inline", "Content-Encoding": "x-other"}
    assert (await copy(proxy, way, named)).status == 201
    got = (await proxy.call("HEAD", "c/to")).headers
    assert {name: got[name] for name in named} == named


@WAYS
async def test_fresh_metadata(proxy: Proxy, way: str) -> None:
    await put_source(proxy)
    await copy(proxy, way, {"X-Fresh-Metadata": "true", "X-Object-Meta-New": "1"})
    got = (await proxy.call("HEAD", "c/to")).headers
    assert (got["X-Object-Meta-New"], got["Content-Type"]) == ("1", "a/b")
    assert not {"X-Object-Meta-Color", "Content-Encoding", "Content-Disposition"} & set(got)


@WAYS
async def test_the_type_is_guessed_on_demand(proxy: Proxy, way: str) -> None:
    await put_source(proxy)
    await copy(proxy, way, {"X-Detect-Content-Type": "true"}, to="c/to.html")
    assert (await proxy.call("HEAD", "c/to.html")).headers["Content-Type"] == "text/html"


async def test_onto_itself_adds_metadata(proxy: Proxy) -> None:
    await put_source(proxy)
    assert (await copy(proxy, "COPY", {"X-Object-Meta-New": "1"}, to="c/from")).status == 201
    got = await proxy.call("GET", "c/from")
    assert (got.body, got.headers["X-Object-Meta-New"], got.headers["X-Object-Meta-Color"]) == (BODY, "1", "red")


async def test_metadata_of_both_must_fit(proxy: Proxy) -> None:
    await proxy.call("PUT", "c/from", {f"X-Object-Meta-A{n}": "v" for n in range(60)}, b"x")
    headers = {f"X-Object-Meta-B{n}": "v" for n in range(60)}
    assert (await copy(proxy, "COPY", headers)).status == 400
    assert (await copy(proxy, "COPY", {**headers, "X-Fresh-Metadata": "on"})).status == 201


@WAYS
@pytest.mark.parametrize("name", ["c/a b/%C3%A9", "c/100%25", "c/o?x=y"])
async def test_names_are_percent_encoded(proxy: Proxy, way: str, name: str) -> None:
    encoded = name.replace(" ", "%20").replace("?", "%3F")
    await proxy.call("PUT", encoded, data=BODY)
    answer = await copy(proxy, way, source=encoded, to="c/to")
    assert (answer.status, answer.headers["X-Copied-From"]) == (201, encoded.replace("=", "%3D"))
    assert (await copy(proxy, way, source="c/to", to=encoded)).status == 201
    assert (await proxy.call("GET", encoded)).body == BODY


@WAYS
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": md5(BODY)}, 201),
        ({"If-Match": "*"}, 201),
        ({"If-Match": "x"}, 412),
        ({"If-None-Match": "x"}, 201),
        ({"If-None-Match": md5(BODY)}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-Modified-Since": "Sat, 29 Oct 2094 19:43:31 GMT"}, 304),
        ({"If-Modified-Since": "Thu, 01 Jan 1970 00:00:01 GMT"}, 201),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:01 GMT"}, 412),
        ({"If-Unmodified-Since": "Sat, 29 Oct 2094 19:43:31 GMT"}, 201),
    ],
)
async def test_conditions_are_the_sources(proxy: Proxy, way: str, headers: dict[str, str], status: int) -> None:
    await put_source(proxy)
    await proxy.call("PUT", "c/to", data=b"was here")
    answer = await copy(proxy, way, headers)
    assert answer.status == status
    assert (await proxy.call("GET", "c/to")).body == (BODY if status == 201 else b"was here")


@WAYS
@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        ("bytes=2-4", 201, b"234"),
        ("bytes=-3", 201, b"789"),
        ("bytes=8-", 201, b"89"),
        ("bytes=0-99", 201, BODY),
        ("bytes=10-", 416, None),
        ("bytes=0-1,4-5", 400, None),
    ],
)
async def test_a_range_of_the_source(proxy: Proxy, way: str, header: str, status: int, body: bytes | None) -> None:
    await put_source(proxy)
    answer = await copy(proxy, way, {"Range": header})
    assert answer.status == status
    if body is not None:
        assert answer.headers["Etag"] == md5(body)
        assert (await proxy.call("GET", "c/to")).body == body


@WAYS
async def test_the_etag_is_checked(proxy: Proxy, way: str) -> None:
    await put_source(proxy)
    assert (await copy(proxy, way, {"ETag": "0" * 32})).status == 422
    assert (await copy(proxy, way, {"ETag": md5(BODY)})).status == 201


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "message"),
    [
        ("COPY", "c/from", {}, 412, "Destination header required"),
        ("COPY", "c/from", {"Destination": ""}, 412, "Destination header required"),
        ("COPY", "c/from", {"Destination": "c"}, 412, "<container name>/<object name>"),
        ("COPY", "c/from", {"Destination": "c/"}, 412, "<container name>/<object name>"),
        ("COPY", "c/from", {"Destination": "//o"}, 412, "<container name>/<object name>"),
        ("COPY", "c/from", {"Destination": "c/%ff"}, 412, "<container name>/<object name>"),
        ("COPY", "c/from", {"Destination": "c/%00"}, 412, "<container name>/<object name>"),
        ("COPY", "c/from", {"Destination": "c/" + "o" * 1025}, 400, "Object name length"),
        ("COPY", "c/from", {"Destination": "c/to", "Destination-Account": "a/b"}, 412, "slashes"),
        ("COPY", "c/from", {"Destination": "c/to", "Destination-Account": ""}, 412, "empty"),
        ("COPY", "c/from", {"Destination": "c/to", "X-Copy-From": "c/x"}, 400, "X-Copy-From is only for PUT"),
        ("COPY", "c/absent", {"Destination": "c/to"}, 404, "does not exist"),
        ("COPY", "absent/o", {"Destination": "c/to"}, 404, "does not exist"),
        ("COPY", "c/from", {"Destination": "absent/to"}, 404, "does not exist"),
        ("COPY", "c/from", {"Destination": "c/to", "Destination-Account": "AUTH_other"}, 403, "no access"),
        ("COPY", "c/from", {"Destination": "c/to", "X-Container-Rfc-Compliant-Etags": "true"}, 501, "not supported"),
        ("COPY", "c", {"Destination": "c/to"}, 405, "not allowed"),
        ("COPY", "", {"Destination": "c/to"}, 405, "not allowed"),
        ("PUT", "c/to", {"X-Copy-From": "c"}, 412, "<container name>/<object name>"),
        ("PUT", "c/to", {"X-Copy-From": "../etc/passwd"}, 404, "does not exist"),
        ("PUT", "c/to", {"X-Copy-From": "http://169.254.169.254/x"}, 404, "does not exist"),
        ("PUT", "c/to", {"X-Copy-From": "c/absent"}, 404, "does not exist"),
        ("PUT", "c/to", {"X-Copy-From": "c/from", "X-Copy-From-Account": "AUTH_other"}, 403, "no access"),
        ("PUT", "c/to", {"X-Copy-From": "c/from", "X-Copy-From-Account": "a/b"}, 412, "slashes"),
    ],
)
async def test_what_is_refused(
    proxy: Proxy, method: str, path: str, headers: dict[str, str], status: int, message: str
) -> None:
    await put_source(proxy)
    answer = await proxy.call(method, path, headers, b"" if method == "PUT" else None)
    assert answer.status == status
    assert message in answer.body.decode()
    assert (await proxy.call("HEAD", "c/to")).status == 404


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_copy_has_no_body(proxy: Proxy, chunked: bool) -> None:
    async def pieces() -> Any:
        yield b"x"

    await put_source(proxy)
    answer = await proxy.call("PUT", "c/to", {"X-Copy-From": "c/from"}, pieces() if chunked else b"x")
    assert (answer.status, answer.body) == (400, b"Copy requests require a zero byte body")


async def test_a_reader_may_not_copy(proxy: Proxy) -> None:
    await put_source(proxy)
    reader = Identity(ACCOUNT, "reader", frozenset({Role.READER}))
    token = {"X-Auth-Token": proxy.api.tokens.issue(reader)[0]}
    assert (await copy(proxy, "COPY", token)).status == 403
    assert (await copy(proxy, "PUT", token)).status == 403


@WAYS
async def test_from_one_account_to_another(proxy: Proxy, way: str) -> None:
    await put_source(proxy)
    everywhere = Identity("AUTH_admin", "root", frozenset({Role.RESELLER_ADMIN}))
    token = {"X-Auth-Token": proxy.api.tokens.issue(everywhere)[0]}
    base = "/v1/AUTH_other"
    async with proxy.client.put(f"{base}/d", headers=token) as made:
        assert made.status == 201
    if way == "COPY":
        answer = await copy(proxy, way, {**token, "Destination-Account": "AUTH_other"}, to="d/to")
    else:
        headers = {**token, "X-Copy-From": "c/from", "X-Copy-From-Account": ACCOUNT}
        async with proxy.client.put(f"{base}/d/to", headers=headers) as put:
            answer = Answer(put.status, put.headers.copy(), await put.read())
    assert (answer.status, answer.headers["X-Copied-From-Account"]) == (201, ACCOUNT)
    async with proxy.client.get(f"{base}/d/to", headers=token) as got:
        assert (await got.read(), got.headers["X-Object-Meta-Color"]) == (BODY, "red")


async def test_the_newest_version_is_copied(proxy: Proxy) -> None:
    """One replica has a newer version than the others; a GET may see either, a copy takes the newest."""
    await proxy.cluster.put(2, b"old")
    proxy.cluster.place(proxy.cluster.primaries()[2], 3, b"new")
    for _ in range(5):
        await copy(proxy, "COPY", source="c/o")
        assert (await proxy.call("GET", "c/to")).body == b"new"


async def test_a_source_that_breaks_off_leaves_the_destination(proxy: Proxy) -> None:
    await put_source(proxy, BODY * 30_000)
    await proxy.call("PUT", "c/to", data=b"was here")
    for device in proxy.cluster.devices:
        proxy.cluster.transport.link(device).lose_after_bytes = 100_000
    assert (await copy(proxy, "COPY")).status == 503
    for device in proxy.cluster.devices:
        proxy.cluster.transport.link(device).lose_after_bytes = None
    assert (await proxy.call("GET", "c/to")).body == b"was here"


class TestLarge:
    """Copies of large objects: as one object, or the manifest."""

    @WAYS
    async def test_a_static_one_becomes_plain(self, proxy: Proxy, way: str) -> None:
        await put_large(proxy, headers={"Content-Type": "a/b", "X-Object-Meta-A": "b"})
        answer = await copy(proxy, way, source="c/big")
        assert (answer.status, answer.headers["Etag"]) == (201, md5(WHOLE))
        got = await proxy.call("GET", "c/to")
        assert (got.body, got.headers["Content-Type"], got.headers["X-Object-Meta-A"]) == (WHOLE, "a/b", "b")
        assert "X-Static-Large-Object" not in got.headers
        (row,) = json.loads((await proxy.call("GET", "c", query="format=json&prefix=to")).body)
        assert (row["bytes"], row["content_type"], "slo_etag" in row) == (len(WHOLE), "a/b", False)

    @WAYS
    async def test_a_range_of_a_static_one(self, proxy: Proxy, way: str) -> None:
        await put_large(proxy)
        assert (await copy(proxy, way, {"Range": "bytes=1499-1501"}, source="c/big")).status == 201
        assert (await proxy.call("GET", "c/to")).body == WHOLE[1499:1502]

    @WAYS
    async def test_the_manifest_of_a_static_one(self, proxy: Proxy, way: str) -> None:
        made = await put_large(proxy, headers={"Content-Type": "a/b", "X-Object-Meta-A": "b"})
        answer = await copy(proxy, way, source="c/big", query="multipart-manifest=get")
        assert (answer.status, answer.headers["Etag"]) == (201, made.headers["Etag"])
        got = await proxy.call("GET", "c/to")
        assert (got.body, got.headers["X-Static-Large-Object"]) == (WHOLE, "True")
        assert (got.headers["Content-Type"], got.headers["X-Object-Meta-A"]) == ("a/b", "b")

    async def test_the_manifest_of_one_whose_segment_is_gone(self, proxy: Proxy) -> None:
        await put_large(proxy)
        await proxy.call("DELETE", "c/s/001")
        answer = await copy(proxy, "COPY", source="c/big", query="multipart-manifest=get")
        assert answer.status == 400
        assert b"/c/s/001, 404 Not Found" in answer.body
        assert (await copy(proxy, "COPY", source="c/big")).status == 409

    async def test_a_range_of_a_manifest_is_refused(self, proxy: Proxy) -> None:
        await put_large(proxy)
        headers = {"Range": "bytes=0-1"}
        assert (await copy(proxy, "COPY", headers, source="c/big", query="multipart-manifest=get")).status == 400

    @WAYS
    async def test_a_manifest_put_can_not_be_a_copy(self, proxy: Proxy, way: str) -> None:
        await put_large(proxy)
        assert (await copy(proxy, way, source="c/big", query="multipart-manifest=put")).status == 405

    @WAYS
    async def test_a_dynamic_one_becomes_plain(self, proxy: Proxy, way: str) -> None:
        await put_large(proxy)
        await proxy.call("PUT", "c/dyn", {"X-Object-Manifest": "c/s/", "X-Object-Meta-A": "b"}, b"")
        assert (await copy(proxy, way, source="c/dyn")).status == 201
        got = await proxy.call("GET", "c/to")
        assert (got.body, got.headers["X-Object-Meta-A"]) == (WHOLE, "b")
        assert "X-Object-Manifest" not in got.headers

    @WAYS
    @pytest.mark.parametrize("fresh", ["false", "true"])
    async def test_the_manifest_of_a_dynamic_one(self, proxy: Proxy, way: str, fresh: str) -> None:
        await put_large(proxy)
        await proxy.call("PUT", "c/dyn", {"X-Object-Manifest": "c/s/"}, b"own")
        headers = {"X-Fresh-Metadata": fresh}
        assert (await copy(proxy, way, headers, source="c/dyn", query="multipart-manifest=get")).status == 201
        got = await proxy.call("GET", "c/to")
        assert (got.body, got.headers["X-Object-Manifest"]) == (WHOLE, "c/s/")
        assert (await proxy.call("GET", "c/to", query="multipart-manifest=get")).body == b"own"

    @pytest.mark.parametrize(("size", "status"), [(len(WHOLE), 201), (len(WHOLE) - 1, 413)])
    async def test_no_more_than_one_object_holds(
        self, cluster: MemoryCluster, tmp_path: Path, size: int, status: int
    ) -> None:
        async with proxy_of(cluster, tmp_path, limits=LimitsSection(max_file_size=size)) as proxy:
            await put_large(proxy)
            assert (await copy(proxy, "COPY", source="c/big")).status == status
            assert (await copy(proxy, "COPY", {"Range": "bytes=0-99"}, source="c/big")).status == 201
            assert (await copy(proxy, "COPY", source="c/big", query="multipart-manifest=get")).status == 201

    async def test_one_of_unknown_size_is_413(self, cluster: MemoryCluster, tmp_path: Path) -> None:
        async with proxy_of(cluster, tmp_path, limits=LimitsSection(container_listing_limit=2)) as proxy:
            await put_large(proxy)
            await proxy.call("PUT", "c/dyn", {"X-Object-Manifest": "c/s/"}, b"")
            assert (await copy(proxy, "COPY", source="c/dyn")).status == 413

    async def test_heartbeat(self, proxy: Proxy) -> None:
        await put_large(proxy)
        answer = await copy(proxy, "COPY", {"Accept": "application/json"}, source="c/big", query="heartbeat=on")
        assert (answer.status, json.loads(answer.body)["Response Status"]) == (202, "201 Created")
        assert (await proxy.call("GET", "c/to")).body == WHOLE


async def test_options_names_it(proxy: Proxy) -> None:
    answer = await proxy.call("OPTIONS", "c/o")
    assert "COPY" in answer.headers["Allow"].split(", ")
    assert "COPY" not in (await proxy.call("OPTIONS", "c")).headers["Allow"]


def test_segments_are_of_both_sizes() -> None:
    assert min(map(len, SEGMENTS)) < SMALL < max(map(len, SEGMENTS))
