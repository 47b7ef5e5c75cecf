"""Statuses, headers and words in which OpenStack Swift's clients see it: each row was seen there, at version 2.38."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from swiftlet.api.tests.large import SEGMENTS, put_large
from swiftlet.api.tests.proxy import Answer, Proxy
from swiftlet.api.tests.quotas import report
from swiftlet.model import ContainerRow
from swiftlet.placement.tests.cluster import at

HTML = "text/html; charset=UTF-8"


def told(answer: Answer, *names: str) -> list[str | None]:
    return [answer.headers.get(name) for name in names]


class TestEmptyAnswers:
    """204 says how long it is, and what it would have been."""

    @pytest.mark.parametrize("method", ["HEAD", "GET"])
    @pytest.mark.parametrize("path", ["", "empty"])
    @pytest.mark.parametrize(
        ("query", "accept", "content_type", "vary"),
        [
            ("", None, "text/plain; charset=utf-8", "Accept"),
            ("", "*/*", "text/plain; charset=utf-8", "Accept"),
            ("format=plain", None, "text/plain; charset=utf-8", None),
        ],
    )
    async def test_of_listings(
        self, proxy: Proxy, method: str, path: str, query: str, accept: str | None, content_type: str, vary: str | None
    ) -> None:
        assert (await proxy.call("PUT", "empty")).status == 201
        query = f"{query}&marker=zzz"
        answer = await proxy.call(method, path, {} if accept is None else {"Accept": accept}, query=query)
        assert answer.status == 204
        assert told(answer, "Content-Length", "Content-Type", "Vary") == ["0", content_type, vary]

    @pytest.mark.parametrize("path", ["", "c"])
    @pytest.mark.parametrize("form", ["json", "xml"])
    async def test_of_head_in_another_form(self, proxy: Proxy, path: str, form: str) -> None:
        for query, headers in ((f"format={form}", {}), ("", {"Accept": f"application/{form}"})):
            answer = await proxy.call("HEAD", path, headers, query=query)
            assert (answer.status, *told(answer, "Content-Length", "Content-Type")) == (
                204,
                "0",
                f"application/{form}; charset=utf-8",
            )
        assert (await proxy.call("HEAD", path, {"Accept": "image/png"})).status == 406

    async def test_of_other_requests(self, proxy: Proxy) -> None:
        for method, path, status in (
            ("PUT", "c/o", 201),
            ("PUT", "new", 201),
            ("POST", "", 204),
            ("POST", "c", 204),
            ("DELETE", "c/o", 204),
            ("DELETE", "new", 204),
        ):
            answer = await proxy.call(method, path, {"X-Account-Meta-A": "b"} if path == "" else {})
            assert (answer.status, answer.body, *told(answer, "Content-Length", "Content-Type")) == (
                status,
                b"",
                "0",
                HTML,
            )

    async def test_accepted(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
        for method, path in (("PUT", "c"), ("POST", "c/o")):
            answer = await proxy.call(method, path)
            assert (answer.status, *told(answer, "Content-Type")) == (202, HTML)
            assert answer.body == b"<html><h1>Accepted</h1><p>The request is accepted for processing.</p></html>"


class TestUnsatisfiable:
    """A 416 describes the object, as whoever asks for the rest of one wants to know whether it is still the same."""

    async def test_of_an_object(self, proxy: Proxy) -> None:
        put = await proxy.call("PUT", "c/o", {"X-Object-Meta-A": "b"}, b"abc")
        answer = await proxy.call("GET", "c/o", {"Range": "bytes=3-"})
        assert (answer.status, *told(answer, "Etag", "Last-Modified", "Content-Range", "X-Object-Meta-A")) == (
            416,
            put.headers["Etag"],
            put.headers["Last-Modified"],
            "bytes */3",
            "b",
        )

    @pytest.mark.parametrize("method", ["HEAD", "GET"])
    async def test_of_a_part(self, proxy: Proxy, method: str) -> None:
        await put_large(proxy)
        whole = await proxy.call("HEAD", "c/big")
        answer = await proxy.call(method, "c/big", query="part-number=99")
        assert (answer.status, *told(answer, "Etag", "Content-Range")) == (
            416,
            whole.headers["Etag"],
            f"bytes */{whole.headers['Content-Length']}",
        )
        expected = b"" if method == "HEAD" else b"The requested part number is not satisfiable"
        assert (answer.body.strip(), int(answer.headers["Content-Length"])) == (expected, len(answer.body))

    @pytest.mark.parametrize("path", ["c/absent", "absent"])
    async def test_heads_that_find_nothing(self, proxy: Proxy, path: str) -> None:
        answer = await proxy.call("HEAD", path)
        assert (answer.status, *told(answer, "Content-Length", "Content-Type")) == (404, "0", HTML)


class TestListings:
    async def test_containers_are_shown_with_their_policy(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "s", {"X-Storage-Policy": "silver"})).status == 201
        await report(proxy.cluster, [ContainerRow("c", at(1)), ContainerRow("s", at(1), policy=1)])
        rows = json.loads((await proxy.call("GET", "", query="format=json")).body)
        assert {row["name"]: row["storage_policy"] for row in rows} == {"c": "gold", "s": "silver"}
        root = ElementTree.fromstring((await proxy.call("GET", "", query="format=xml")).body)
        assert [row.findtext("storage_policy") for row in root] == ["gold", "silver"]

    @pytest.mark.parametrize("path", ["", "c"])
    @pytest.mark.parametrize("limit", ["ten", "-1", "1.5", "%20"])
    async def test_a_limit_that_is_no_number_is_ignored(self, proxy: Proxy, path: str, limit: str) -> None:
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
        await report(proxy.cluster, [ContainerRow("c", at(1))])
        assert (await proxy.call("GET", path, query=f"limit={limit}")).status == 200

    @pytest.mark.parametrize("path", ["", "c"])
    async def test_a_limit_that_is_too_large(self, proxy: Proxy, path: str) -> None:
        answer = await proxy.call("GET", path, query="limit=10001")
        assert (answer.status, answer.body.strip()) == (412, b"Maximum limit is 10000")


class TestCopies:
    async def test_of_one_part(self, proxy: Proxy) -> None:
        await put_large(proxy)
        part = await proxy.call("GET", "c/big", query="part-number=2")
        assert part.status == 206
        copied = await proxy.call("COPY", "c/big", {"Destination": "c/part"}, query="part-number=2")
        assert copied.status == 201
        assert (await proxy.call("GET", "c/part")).body == part.body == SEGMENTS[1]
        copied = await proxy.call("PUT", "c/part1", {"X-Copy-From": "c/big"}, query="part-number=1")
        assert copied.status == 201
        assert (await proxy.call("GET", "c/part1")).body == SEGMENTS[0]
        answer = await proxy.call("COPY", "c/big", {"Destination": "c/part"}, query="part-number=99")
        assert (answer.status, answer.body.strip()) == (416, b"The requested part number is not satisfiable")
        answer = await proxy.call("COPY", "c/big", {"Destination": "c/part"}, query="part-number=0")
        assert (answer.status, answer.body.strip()) == (400, b"Part number must be an integer greater than 0")

    @pytest.mark.parametrize(
        ("source", "destination", "status"),
        [
            ("AUTH_test/c/absent", "AUTH_other/c/o", 404),
            ("AUTH_test/c/o", "AUTH_other/c/o", 403),
            ("AUTH_test/c/o", "AUTH_other/absent/o", 403),
            ("AUTH_test/c/absent", "AUTH_test/absent/o", 404),
            ("AUTH_other/c/absent", "AUTH_test/absent/o", 403),
        ],
    )
    async def test_the_source_is_looked_at_first(
        self, proxy: Proxy, source: str, destination: str, status: int
    ) -> None:
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
        (from_account, _, from_path), (to_account, _, to_path) = source.partition("/"), destination.partition("/")
        url = f"/v1/{from_account}/{from_path}"
        headers = {**proxy.token, "Destination": to_path, "Destination-Account": to_account}
        async with proxy.client.request("COPY", url, headers=headers) as answer:
            assert answer.status == status
        headers = {**proxy.token, "X-Copy-From": from_path, "X-Copy-From-Account": from_account}
        async with proxy.client.request("PUT", f"/v1/{to_account}/{to_path}", headers=headers) as answer:
            assert answer.status == status

    async def test_who_may_not_write_copies_nothing(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
        assert (await proxy.call("POST", "c", {"X-Container-Read": "other:reader"})).status == 204
        reader = proxy.token_of("other:reader")
        for token, status in ((reader, 403), ({}, 401)):
            for method, path, headers in (
                ("COPY", "c/o", {"Destination": "c/new"}),
                ("PUT", "c/new", {"X-Copy-From": "c/o"}),
                ("PUT", "c/new", {"X-Copy-From": ""}),
            ):
                assert (await proxy.anonymous(method, path, {**token, **headers})).status == status
        assert (await proxy.call("HEAD", "c/new")).status == 404

    async def test_an_empty_source_is_none(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "c/o", {"X-Copy-From": ""}, b"own")).status == 201
        assert (await proxy.call("GET", "c/o")).body == b"own"


class TestLargeObjects:
    async def test_a_segment_that_may_not_be_read_is_a_conflict(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "segments")).status == 201
        assert (await proxy.call("PUT", "segments/1", data=b"abc")).status == 201
        manifest = json.dumps([{"path": "/segments/1"}]).encode()
        assert (await proxy.call("PUT", "c/big", data=manifest, query="multipart-manifest=put")).status == 201
        assert (await proxy.call("POST", "c", {"X-Container-Read": "other:reader,.r:*"})).status == 204
        for token in (proxy.token_of("other:reader"), {}):
            assert (await proxy.anonymous("GET", "c/big", token)).status == 409
            assert (await proxy.anonymous("HEAD", "c/big", token)).status == 200
