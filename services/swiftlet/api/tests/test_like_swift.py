"""Statuses, headers and words in which OpenStack Swift's clients see it: each row was seen there, at version 2.38."""

from __future__ import annotations

import asyncio
import hmac
import json
from xml.etree import ElementTree

import pytest
from yarl import URL

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


class TestWords:
    """Sentences that clients look for, as they are."""

    @pytest.mark.parametrize(
        ("method", "path", "headers", "status", "text"),
        [
            ("PUT", "c/n", {"X-Delete-At": "soon"}, 400, "Non-integer X-Delete-At"),
            ("POST", "c/o", {"X-Delete-At": "1.5"}, 400, "Non-integer X-Delete-At"),
            ("PUT", "c/n", {"X-Delete-At": "1"}, 400, "X-Delete-At in past"),
            ("PUT", "c/n", {"X-Delete-After": "*"}, 400, "Non-integer X-Delete-After"),
            ("PUT", "c/n", {"X-Delete-After": "-1"}, 400, "X-Delete-After in past"),
            ("DELETE", "c/o", {"X-If-Delete-At": "bad"}, 400, "Bad X-If-Delete-At header value"),
            ("DELETE", "c/o", {"X-If-Delete-At": "9999"}, 412, "X-If-Delete-At and X-Delete-At do not match"),
            ("PUT", "c/a%00b", {}, 412, "Invalid UTF8 or contains NULL"),
            ("PUT", "c/%ff", {}, 412, "Invalid UTF8 or contains NULL"),
            ("PUT", "%00", {}, 412, "Invalid UTF8 or contains NULL"),
            ("PUT", "c" * 257, {}, 400, "Container name length of 257 longer than 256"),
            ("PUT", "c/" + "o" * 1025, {}, 400, "Object name length of 1025 longer than 1024"),
            ("PUT", "c/n", {"If-None-Match": "x"}, 400, "If-None-Match only supports *"),
            ("PUT", "c/n", {"X-Object-Meta-": "x"}, 400, "Metadata name cannot be empty"),
            ("PUT", "c/n", {"X-Object-Meta-" + "a" * 129: "x"}, 400, "Metadata name too long: x-object-meta-A"),
            ("PUT", "c/n", {"X-Object-Meta-A": "x" * 257}, 400, "Metadata value longer than 256: x-object-meta-A"),
            ("PUT", "c/n", {f"X-Object-Meta-{n}": "x" for n in range(91)}, 400, "Too many metadata items; max 90"),
            (
                "PUT",
                "c/n",
                {"X-Static-Large-Object": "t"},
                400,
                "X-Static-Large-Object is a reserved header. To create",
            ),
            ("PUT", "c/n", {"X-Object-Manifest": "c"}, 400, "X-Object-Manifest must be in the format container/prefix"),
            ("PUT", "c/n", {"X-Symlink-Target": "c/n"}, 400, "Symlink cannot target itself"),
            (
                "PUT",
                "c/n",
                {"X-Symlink-Target": "c"},
                412,
                "X-Symlink-Target header must be of the form <container name>/<object name>",
            ),
            (
                "PUT",
                "c/n",
                {"X-Symlink-Target": "c/nowhere", "X-Symlink-Target-Etag": "x"},
                409,
                "X-Symlink-Target does not exist",
            ),
            (
                "PUT",
                "c/n",
                {"X-Symlink-Target": "c/o", "X-Symlink-Target-Etag": "x"},
                409,
                "Object Etag '900150983cd24fb0d6963f7d28e17f72' does not match X-Symlink-Target-Etag header 'x'",
            ),
            ("POST", "c/o", {"X-Symlink-Target": "c/n"}, 400, "A PUT request is required to set a symlink target"),
            ("COPY", "c/o", {}, 412, "Destination header required"),
        ],
    )
    async def test_of_refusals(
        self, proxy: Proxy, method: str, path: str, headers: dict[str, str], status: int, text: str
    ) -> None:
        assert (await proxy.call("PUT", "c/o", data=b"abc")).status == 201
        answer = await proxy.call(method, path, headers)
        found = answer.body.decode()
        assert (answer.status, found[: len(text)]) == (status, text)
        if " and " in text or not text.endswith(("value", "create", "-A")):
            assert found == text
        assert answer.headers["Content-Type"] == (HTML if "name length" in text else "text/plain; charset=utf-8")

    async def test_of_encodings_that_are_none(self, proxy: Proxy) -> None:
        token = proxy.token["X-Auth-Token"]
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        lines = ["PUT /v1/AUTH_test/c/o HTTP/1.1", "Host: x", f"X-Auth-Token: {token}"]
        writer.write("\r\n".join([*lines, "Transfer-Encoding: gzip, chunked", "", ""]).encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert answer.startswith(b"HTTP/1.1 501 ")
        text = b"Unsupported Transfer-Coding header value specified in Transfer-Encoding header"
        assert await asyncio.wait_for(reader.readexactly(len(text)), 10) == text
        writer.close()

    async def test_of_links_that_lead_nowhere(self, proxy: Proxy) -> None:
        body = await proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/o"}, b"x")
        assert (body.status, body.body) == (400, b"Symlink requests require a zero byte body")
        for number in range(4):
            target = {"X-Symlink-Target": f"c/l{number + 1}"}
            assert (await proxy.call("PUT", f"c/l{number}", target)).status == 201
        assert (await proxy.call("PUT", "c/l4", data=b"x")).status == 201
        answer = await proxy.call("GET", "c/l0")
        assert (answer.status, answer.body) == (409, b"Too many levels of symbolic links, maximum allowed is 2")
        assert (await proxy.call("PUT", "c/o", data=b"abc")).status == 201
        static = {"X-Symlink-Target": "c/o", "X-Symlink-Target-Etag": "900150983cd24fb0d6963f7d28e17f72"}
        assert (await proxy.call("PUT", "c/static", static)).status == 201
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
        answer = await proxy.call("GET", "c/static")
        text = (
            b"Object Etag '9dd4e461268c8034f5c8564e155c67a6' does not match "
            b"X-Symlink-Target-Etag header '900150983cd24fb0d6963f7d28e17f72'"
        )
        assert (answer.status, answer.body, told(answer, "Content-Location")) == (409, text, ["/v1/AUTH_test/c/o"])

    @pytest.mark.parametrize(
        ("path", "status", "text"),
        [
            ("/v1/", 412, b"Bad URL"),
            ("/v1", 412, b"Bad URL"),
            ("/v1//c/o", 404, None),
            ("/v1/AUTH_test//o", 404, None),
            ("/v1///o", 404, None),
        ],
    )
    async def test_of_paths_without_names(self, proxy: Proxy, path: str, status: int, text: bytes | None) -> None:
        async with proxy.client.get(URL(path, encoded=True), headers=proxy.token) as answer:
            assert (answer.status, text in (None, await answer.read())) == (status, True)

    async def test_of_a_report_on_a_manifest(self, proxy: Proxy) -> None:
        manifest = json.dumps([{"path": "/c/nowhere"}]).encode()
        answer = await proxy.call("PUT", "c/big", data=manifest, query="multipart-manifest=put&heartbeat=on")
        lines = answer.body.decode().splitlines()
        assert "Response Status: 400 Bad Request" in lines
        assert "Response Body: Bad Request" in lines
        assert lines[-2:] == ["Errors:", "/c/nowhere, 404 Not Found"]


class TestMetadata:
    @pytest.mark.parametrize("headers", [{"X-Container-Meta-A": "b"}, {}])
    async def test_a_post_moves_the_time_of_a_container(self, proxy: Proxy, headers: dict[str, str]) -> None:
        before = told(await proxy.call("HEAD", "c"), "Last-Modified", "X-Timestamp")
        proxy.clock.now += 10
        assert (await proxy.call("POST", "c", headers)).status == 204
        for method in ("HEAD", "GET"):
            after = await proxy.call(method, "c")
            assert told(after, "Last-Modified") == ["Thu, 01 Jan 1970 00:16:50 GMT"]
            assert told(after, "X-Timestamp") == before[1:]
            assert not [name for name in after.headers if "sysmeta" in name.lower()]
        proxy.clock.now += 10
        assert (await proxy.call("PUT", "c")).status == 202
        assert told(await proxy.call("HEAD", "c"), "Last-Modified") == ["Thu, 01 Jan 1970 00:17:00 GMT"]

    async def test_an_object_keeps_empty_values(self, proxy: Proxy) -> None:
        headers = {"X-Object-Meta-A": "", "X-Object-Meta-B": "b"}
        for method, path in (("PUT", "c/o"), ("POST", "c/o")):
            assert (await proxy.call(method, path, headers)).status in {201, 202}
            for reading in ("HEAD", "GET"):
                assert told(await proxy.call(reading, path), *headers) == ["", "b"]
        copied = await proxy.call("COPY", "c/o", {"Destination": "c/copy", "X-Object-Meta-B": ""})
        assert copied.status == 201
        assert told(await proxy.call("HEAD", "c/copy"), *headers) == ["", ""]
        assert (await proxy.call("POST", "c/copy", {"X-Remove-Object-Meta-A": "x"})).status == 202
        assert told(await proxy.call("HEAD", "c/copy"), *headers) == [None, None]

    async def test_a_key_for_syncs_is_kept_for_owners(self, proxy: Proxy) -> None:
        assert (await proxy.call("POST", "c", {"X-Container-Sync-Key": ""})).status == 204
        headers = {"X-Container-Sync-Key": "secret", "X-Container-Read": "other:reader"}
        assert (await proxy.call("POST", "c", headers)).status == 204
        assert told(await proxy.call("HEAD", "c"), "X-Container-Sync-Key") == ["secret"]
        reader = proxy.token_of("other:reader")
        assert told(await proxy.anonymous("HEAD", "c", reader), "X-Container-Sync-Key") == [None]
        assert (await proxy.call("POST", "c", {"X-Container-Sync-Key": ""})).status == 204
        assert told(await proxy.call("HEAD", "c"), "X-Container-Sync-Key") == [None]
        assert (await proxy.call("POST", "c", {"X-Container-Sync-To": "", "X-Container-Meta-A": "b"})).status == 204

    async def test_a_time_in_the_far_future_is_the_last_one(self, proxy: Proxy) -> None:
        for name in ("X-Delete-At", "X-Delete-After"):
            assert (await proxy.call("PUT", "c/o", {name: "1" * 100})).status == 201
            assert told(await proxy.call("HEAD", "c/o"), "X-Delete-At") == ["9" * 10]

    async def test_a_delete_for_an_object_that_goes_then(self, proxy: Proxy) -> None:
        assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "5000"})).status == 201
        proxy.clock.now = 6000
        assert (await proxy.call("DELETE", "c/o", {"X-If-Delete-At": "5001"})).status == 412
        assert (await proxy.call("DELETE", "c/o", {"X-If-Delete-At": "5000"})).status == 204
        assert (await proxy.call("DELETE", "c/o", {"X-If-Delete-At": "5000"})).status == 404


class TestNul:
    """A NUL in a listing's parameter is before all names, and part of none."""

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("marker=%00", b"a\nb\n"),
            ("marker=a%00", b"b\n"),
            ("end_marker=b%00", b"a\nb\n"),
            ("end_marker=%00", b""),
            ("prefix=%00", b""),
            ("delimiter=%00", b"a\nb\n"),
            ("marker=b%00&reverse=on", b"b\na\n"),
            ("marker=%00versions%00&prefix=%00versions", b""),
        ],
    )
    async def test_in_listings(self, proxy: Proxy, query: str, expected: bytes) -> None:
        for name in ("a", "b"):
            assert (await proxy.call("PUT", f"c/{name}", data=b"x")).status == 201
        assert (await proxy.call("GET", "c", query=query)).body == expected
        for reverse in ("", "&reverse=on"):
            await report(proxy.cluster, [ContainerRow(name, at(1)) for name in ("a", "b", "\0versions\0a")])
            found = await proxy.call("GET", "", query=query + reverse)
            assert (found.status in {200, 204}, b"versions" in found.body) == (True, False)

    async def test_what_is_no_utf8_is_named(self, proxy: Proxy) -> None:
        answer = await proxy.call("GET", "c", query="marker=%ff")
        assert (answer.status, answer.body) == (400, b'"marker" parameter not valid UTF-8')


async def test_a_temporary_url_of_a_site_leads_to_its_slash(proxy: Proxy) -> None:
    key = "a key"
    headers = {"X-Container-Meta-Temp-URL-Key": key, "X-Container-Meta-Web-Listings": "true"}
    assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    prefix = "prefix:/v1/AUTH_test/c/"
    digest = hmac.new(key.encode(), f"GET\n4102444800\n{prefix}".encode(), "sha1").hexdigest()
    query = f"temp_url_prefix=&temp_url_expires=2100-01-01T00:00:00Z&temp_url_sig={digest}"
    assert (await proxy.call("POST", "c", {"X-Container-Meta-Temp-URL-Key": key})).status == 204
    assert (await proxy.anonymous("GET", "c", query=query)).status == 401, "a container that is no site is not listed"
    assert (await proxy.anonymous("GET", "c/o", query=query)).body == b"x"
    assert (await proxy.call("POST", "c", headers)).status == 204
    async with proxy.client.get(proxy.url("c", query), allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, str(proxy.client.make_url("/v1/AUTH_test/c/")))
    page = await proxy.anonymous("GET", "c/", query=query)
    link = (
        f'<a href="./o?temp_url_prefix=&amp;temp_url_expires=2100-01-01T00%3A00%3A00Z&amp;temp_url_sig={digest}">o</a>'
    )
    assert (page.status, link in page.body.decode()) == (200, True)
    for method in ("PUT", "DELETE"):
        assert (await proxy.anonymous(method, "c", query=query)).status == 401
