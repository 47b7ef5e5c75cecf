"""Symbolic links: made, read, listed, copied, posted to, deleted; static ones; chains, circles; rights at the target.

Fault model: targets that are gone, have changed, are not allowed, or lead back.
"""

from __future__ import annotations

import json
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.large import WHOLE, entry, md5, put_large, put_manifest
from swiftlet.api.tests.proxy import SMALL, Answer, Proxy, proxy_of
from swiftlet.api.tests.signing import KEY, temp_url
from swiftlet.api.tests.versions import list_json, put
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.segments import MAX_DEPTH
from swiftlet.settings.linking import SymlinkSection

BODY = b"0123456789"
EMPTY = md5(b"")


async def link(proxy: Proxy, to: str = "c/o", name: str = "c/link", headers: dict[str, str] | None = None) -> Answer:
    return await proxy.call("PUT", name, {"X-Symlink-Target": to, "Content-Type": "", **(headers or {})})


async def made(proxy: Proxy, to: str = "c/o", name: str = "c/link", headers: dict[str, str] | None = None) -> None:
    answer = await link(proxy, to, name, headers)
    assert answer.status == 201, answer


@pytest.mark.parametrize("size", [0, 10, SMALL, 5 * SMALL])
async def test_a_link_reads_like_its_target(proxy: Proxy, size: int) -> None:
    body = (BODY * size)[:size]
    await put(proxy, body, headers={"X-Object-Meta-Color": "red", "Content-Type": "a/b"})
    await made(proxy)
    for method in ("GET", "HEAD"):
        answer = await proxy.call(method, "c/link")
        assert answer.status == 200
        assert answer.headers["Content-Location"] == f"/v1/{ACCOUNT}/c/o"
        assert (answer.headers["Etag"], answer.headers["X-Object-Meta-Color"]) == (md5(body), "red")
        assert (answer.headers["Content-Type"], answer.headers["Content-Length"]) == ("a/b", str(size))
    assert (await proxy.call("GET", "c/link")).body == body


async def test_the_answer_to_a_link_is_that_of_an_empty_object(proxy: Proxy) -> None:
    answer = await link(proxy)
    assert (answer.status, answer.headers["Etag"]) == (201, EMPTY)
    assert (await link(proxy, headers={"Etag": "0" * 32})).status == 422


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("bytes=2-4", BODY[2:5]), ("bytes=-3", BODY[-3:]), ("bytes=7-", BODY[7:])],
)
async def test_ranges_are_the_targets(proxy: Proxy, spec: str, expected: bytes) -> None:
    await put(proxy, BODY)
    await made(proxy)
    answer = await proxy.call("GET", "c/link", {"Range": spec})
    assert (answer.status, answer.body) == (206, expected)
    assert (await proxy.call("GET", "c/link", {"Range": "bytes=10-"})).status == 416


async def test_conditions_are_the_targets(proxy: Proxy) -> None:
    await put(proxy, BODY)
    await made(proxy)
    assert (await proxy.call("GET", "c/link", {"If-None-Match": md5(BODY)})).status == 304
    assert (await proxy.call("GET", "c/link", {"If-Match": EMPTY})).status == 412


async def test_the_link_itself(proxy: Proxy) -> None:
    await put(proxy, BODY)
    await made(proxy, headers={"X-Object-Meta-Own": "1"})
    for method in ("GET", "HEAD"):
        answer = await proxy.call(method, "c/link", query="symlink=get")
        assert (answer.status, answer.body) == (200, b"")
        assert (answer.headers["X-Symlink-Target"], answer.headers["Content-Length"]) == ("c/o", "0")
        assert (answer.headers["Content-Type"], answer.headers["X-Object-Meta-Own"]) == ("application/symlink", "1")
        assert answer.headers["Etag"] == EMPTY
        assert not {"Content-Location", "X-Symlink-Target-Account", "X-Symlink-Target-Etag"} & set(answer.headers)
    assert (await proxy.call("GET", "c/link", query="symlink=other")).body == BODY
    assert (await proxy.call("GET", "c/o", query="symlink=get")).body == BODY


async def test_a_type_of_its_own(proxy: Proxy) -> None:
    await put(proxy, BODY, headers={"Content-Type": "a/b"})
    await made(proxy, headers={"Content-Type": "my/link"})
    assert (await proxy.call("HEAD", "c/link", query="symlink=get")).headers["Content-Type"] == "my/link"
    assert (await proxy.call("HEAD", "c/link")).headers["Content-Type"] == "a/b"
    (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
    assert row["content_type"] == "my/link"


async def test_names_are_percent_encoded(proxy: Proxy) -> None:
    await put(proxy, BODY, "c/a%20%C3%A9%3F%25;x")
    await made(proxy, "c/a%20%C3%A9%3F%25;x")
    assert (await proxy.call("GET", "c/link")).body == BODY
    shown = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers["X-Symlink-Target"]
    assert shown == "c/a%20%C3%A9%3F%25%3Bx"
    (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
    assert row["symlink_path"] == f"/v1/{ACCOUNT}/c/a%20%C3%A9%3F%25%3Bx"


@pytest.mark.parametrize("target", ["", "c", "c/", "/c/o", "%2Fc/o", "c/o%", "c/%FF", "c/%00x", "%00versions%00c/x"])
async def test_a_target_that_is_no_object_is_412(proxy: Proxy, target: str) -> None:
    assert (await link(proxy, target)).status == 412


async def test_what_a_link_can_not_be(proxy: Proxy) -> None:
    await put(proxy, BODY)
    assert (await proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/o"}, b"x")).status == 400
    chunked = {"X-Symlink-Target": "c/o", "Transfer-Encoding": "chunked"}
    assert (await proxy.call("PUT", "c/link", chunked, b"x")).status == 400
    assert (await link(proxy, "c/link")).status == 400, "it leads to itself"
    assert (await link(proxy, headers={"X-Copy-From": "c/o"})).status == 400
    assert (await link(proxy, "c/" + "o" * 1025)).status == 400
    assert (await link(proxy, headers={"X-Symlink-Target-Etag": 'a;b"'})).status == 400
    assert (await link(proxy, headers={"X-Symlink-Target-Account": "a%2Fb"})).status == 412
    assert (await proxy.call("POST", "c/o", {"X-Symlink-Target": "c/x"})).status == 400
    assert (await proxy.call("HEAD", "c/link")).status == 404


async def test_a_target_that_is_not_there(proxy: Proxy) -> None:
    await made(proxy)
    for method in ("GET", "HEAD"):
        answer = await proxy.call(method, "c/link")
        assert (answer.status, answer.headers["Content-Location"]) == (404, f"/v1/{ACCOUNT}/c/o")
    await put(proxy, BODY)
    assert (await proxy.call("GET", "c/link")).body == BODY
    await made(proxy, "none/o")
    assert (await proxy.call("GET", "c/link")).status == 404


async def test_deletion_takes_the_link_only(proxy: Proxy) -> None:
    await put(proxy, BODY)
    await made(proxy)
    assert (await proxy.call("DELETE", "c/link")).status == 204
    assert (await proxy.call("GET", "c/link")).status == 404
    assert (await proxy.call("GET", "c/o")).status == 200


async def test_chains_up_to_the_limit(proxy: Proxy) -> None:
    await put(proxy, BODY)
    for number, to in enumerate(["o", "l0", "l1"]):
        await made(proxy, f"c/{to}", f"c/l{number}")
    assert (await proxy.call("GET", "c/l1")).body == BODY
    answer = await proxy.call("GET", "c/l2")
    assert (answer.status, b"maximum allowed is 2" in answer.body) == (409, True)
    assert (await proxy.call("HEAD", "c/l2")).status == 409


async def test_manifests_behind_links_count_for_the_depth_of_manifests(proxy: Proxy) -> None:
    """Some name the manifest within them by a link and some by its name."""
    await put(proxy, BODY)
    inner = "o"
    for number in range(MAX_DEPTH):
        named = inner
        if number % 3:
            named = f"link{number}"
            await made(proxy, f"c/{inner}", f"c/{named}")
        inner = f"manifest{number}"
        assert (await put_manifest(proxy, [entry(named)], inner)).status == 201
        assert (await proxy.call("GET", f"c/{inner}")).body == BODY
    for name in (inner, "link"):
        await made(proxy, f"c/{inner}")
        assert (await put_manifest(proxy, [entry(name)], "deepest")).status == 201
        assert (await proxy.call("GET", "c/deepest")).status == 409


async def test_the_newest_target_is_read(proxy: Proxy) -> None:
    await put(proxy, b"old")
    await made(proxy)
    stale, *others = proxy.cluster.primaries()
    with proxy.cluster.down(stale):
        await put(proxy, BODY)
    with proxy.cluster.down(*others[1:]):
        assert (await proxy.call("GET", "c/link", {"X-Newest": "true"})).body == BODY


async def test_circles_are_409(proxy: Proxy) -> None:
    await made(proxy, "c/b", "c/a")
    await made(proxy, "c/a", "c/b")
    assert (await proxy.call("GET", "c/a")).status == 409


async def test_the_limit_is_a_setting(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, symlink=SymlinkSection(symloop_max=1)) as proxy:
        await put(proxy, BODY)
        await made(proxy, "c/o", "c/a")
        await made(proxy, "c/a", "c/b")
        assert (await proxy.call("GET", "c/a")).status == 200
        assert (await proxy.call("GET", "c/b")).status == 409
        async with proxy.client.get("/info") as answer:
            assert (await answer.json())["symlink"] == {"symloop_max": 1, "static_links": True}


class TestStatic:
    async def test_listing_and_headers(self, proxy: Proxy) -> None:
        await put(proxy, BODY, headers={"Content-Type": "a/b"})
        await made(proxy, headers={"X-Symlink-Target-Etag": f'"{md5(BODY)}"'})
        assert (await proxy.call("GET", "c/link")).body == BODY
        shown = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers
        assert (shown["X-Symlink-Target-Etag"], shown["X-Symlink-Target-Bytes"]) == (md5(BODY), "10")
        assert shown["Content-Type"] == "a/b", "the target's"
        (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
        assert row["symlink_path"] == f"/v1/{ACCOUNT}/c/o"
        assert (row["symlink_etag"], row["symlink_bytes"]) == (md5(BODY), 10)
        assert (row["hash"], row["bytes"], row["content_type"]) == (EMPTY, 0, "a/b")

    async def test_a_target_that_is_another_is_409(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        assert (await link(proxy, headers={"X-Symlink-Target-Etag": "other"})).status == 409
        assert (await link(proxy, "c/none", headers={"X-Symlink-Target-Etag": "other"})).status == 409
        await made(proxy, headers={"X-Symlink-Target-Etag": md5(BODY)})
        await put(proxy, b"another")
        assert (await proxy.call("GET", "c/link")).status == 409
        answer = await proxy.call("HEAD", "c/link")
        assert (answer.status, answer.headers["Content-Location"]) == (409, f"/v1/{ACCOUNT}/c/o")

    async def test_of_links(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy, "c/o", "c/static", {"X-Symlink-Target-Etag": md5(BODY)})
        await made(proxy, "c/o", "c/dynamic")
        await made(proxy, "c/static", "c/a", {"X-Symlink-Target-Etag": md5(BODY)})
        await made(proxy, "c/dynamic", "c/b", {"X-Symlink-Target-Etag": EMPTY})
        assert (await link(proxy, "c/dynamic", "c/x", {"X-Symlink-Target-Etag": md5(BODY)})).status == 409
        assert (await link(proxy, "c/static", "c/x", {"X-Symlink-Target-Etag": EMPTY})).status == 409
        assert (await proxy.call("GET", "c/a")).body == BODY
        assert (await proxy.call("GET", "c/b")).body == BODY

    async def test_of_a_large_object(self, proxy: Proxy) -> None:
        etag = (await put_large(proxy)).headers["Etag"]
        manifest = (await proxy.call("HEAD", "c/big")).headers["X-Manifest-Etag"]
        assert (await link(proxy, "c/big", headers={"X-Symlink-Target-Etag": etag})).status == 409
        await made(proxy, "c/big", headers={"X-Symlink-Target-Etag": manifest})
        answer = await proxy.call("GET", "c/link")
        assert (answer.body, answer.headers["Etag"]) == (WHOLE, etag)
        (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
        assert (row["symlink_bytes"], row["slo_etag"]) == (len(WHOLE), etag)
        assert row["symlink_etag"] == manifest

    async def test_the_client_s_word_on_the_size_means_nothing(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy, headers={"X-Symlink-Target-Etag": md5(BODY), "X-Symlink-Target-Bytes": "99"})
        shown = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers
        assert shown["X-Symlink-Target-Bytes"] == "10"


async def test_listings(proxy: Proxy) -> None:
    await put(proxy, BODY)
    await made(proxy)
    (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
    assert row["symlink_path"] == f"/v1/{ACCOUNT}/c/o"
    assert (row["bytes"], row["hash"], row["content_type"]) == (0, EMPTY, "application/symlink")
    assert not {"symlink_etag", "symlink_bytes"} & set(row)
    for form in ("xml", "plain"):
        assert b"symlink_path" not in (await proxy.call("GET", "c", query=f"format={form}")).body
    assert (await proxy.call("HEAD", "c")).headers["X-Container-Bytes-Used"] == "10"


class TestPost:
    async def test_goes_to_the_link_and_tells_where_the_target_is(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy)
        answer = await proxy.client.request(
            "POST",
            proxy.url("c/link"),
            headers={**proxy.token, "X-Object-Meta-New": "1", "Content-Type": "x/y"},
            allow_redirects=False,
        )
        assert (answer.status, answer.headers["Location"]) == (307, f"/v1/{ACCOUNT}/c/o")
        assert "X-Symlink-Target-Etag" not in answer.headers
        shown = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers
        assert (shown["X-Object-Meta-New"], shown["Content-Type"], shown["X-Symlink-Target"]) == ("1", "x/y", "c/o")
        assert "X-Object-Meta-New" not in (await proxy.call("HEAD", "c/link")).headers
        (row,) = [row for row in await list_json(proxy) if row["name"] == "link"]
        assert (row["content_type"], row["symlink_path"]) == ("x/y", f"/v1/{ACCOUNT}/c/o")

    async def test_a_static_link_tells_the_etag(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy, headers={"X-Symlink-Target-Etag": md5(BODY)})
        answer = await proxy.client.request("POST", proxy.url("c/link"), headers=proxy.token, allow_redirects=False)
        assert (answer.status, answer.headers["X-Symlink-Target-Etag"]) == (307, md5(BODY))


class TestCopies:
    async def test_the_target_is_copied(self, proxy: Proxy) -> None:
        await put(proxy, BODY, headers={"X-Object-Meta-Color": "red"})
        await made(proxy)
        assert (await proxy.call("COPY", "c/link", {"Destination": "c/copy"})).status == 201
        got = await proxy.call("GET", "c/copy", query="symlink=get")
        assert (got.body, got.headers["X-Object-Meta-Color"]) == (BODY, "red")

    @pytest.mark.parametrize("way", ["COPY", "PUT"])
    async def test_the_link_is_copied(self, proxy: Proxy, way: str) -> None:
        await put(proxy, BODY)
        await made(proxy, headers={"X-Object-Meta-Own": "1", "X-Symlink-Target-Etag": md5(BODY)})
        if way == "COPY":
            answer = await proxy.call("COPY", "c/link", {"Destination": "c/copy"}, query="symlink=get")
        else:
            answer = await proxy.call("PUT", "c/copy", {"X-Copy-From": "c/link"}, query="symlink=get")
        assert answer.status == 201
        shown = (await proxy.call("HEAD", "c/copy", query="symlink=get")).headers
        assert (shown["X-Symlink-Target"], shown["X-Object-Meta-Own"]) == ("c/o", "1")
        assert shown["X-Symlink-Target-Etag"] == md5(BODY)
        assert (await proxy.call("GET", "c/copy")).body == BODY
        (row,) = [row for row in await list_json(proxy) if row["name"] == "copy"]
        assert (row["symlink_path"], row["symlink_bytes"]) == (f"/v1/{ACCOUNT}/c/o", 10)

    async def test_onto_the_target_is_400(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy)
        assert (await proxy.call("COPY", "c/link", {"Destination": "c/o"}, query="symlink=get")).status == 400

    @pytest.mark.parametrize("by", ["link", "copy", None])
    async def test_of_a_link_to_another_account(self, proxy: Proxy, by: str | None) -> None:
        """It leads to the account that the copy or the link names; where none is named, to an object of its own."""
        named = by is not None
        other = proxy.token_of("other:user", Role.RESELLER_ADMIN)
        async with proxy.client.put("/v1/AUTH_other/d", headers=other) as answer:
            assert answer.status == 201
        await put(proxy, BODY)
        name = {"X-Symlink-Target-Account": ACCOUNT}
        await made(proxy, headers=name if by == "link" else {})
        headers = {**other, "Destination": "d/copy", "Destination-Account": "AUTH_other"} | (
            name if by == "copy" else {}
        )
        assert (await proxy.anonymous("COPY", "c/link", headers, query="symlink=get")).status == 201
        async with proxy.client.get("/v1/AUTH_other/d/copy", headers=other) as answer:
            assert (answer.status, await answer.read() == BODY) == ((200, True) if named else (404, False))
            account = ACCOUNT if named else "AUTH_other"
            assert answer.headers["Content-Location"] == f"/v1/{account}/c/o"
        async with proxy.client.head("/v1/AUTH_other/d/copy?symlink=get", headers=other) as answer:
            assert answer.headers.get("X-Symlink-Target-Account") == (ACCOUNT if named else None)


class TestRights:
    async def test_of_the_target_decide(self, proxy: Proxy) -> None:
        await proxy.cluster.make_container("d")
        await put(proxy, BODY, "d/o")
        await made(proxy, "d/o")
        await proxy.call("POST", "c", {"X-Container-Read": ".r:*"})
        assert (await proxy.anonymous("GET", "c/link")).status == 401
        stranger = proxy.token_of("other:user", Role.USER)
        assert (await proxy.anonymous("GET", "c/link", stranger)).status == 403
        await proxy.call("POST", "d", {"X-Container-Read": ".r:*"})
        assert (await proxy.anonymous("GET", "c/link")).body == BODY

    async def test_another_account(self, proxy: Proxy) -> None:
        other = proxy.token_of("other:user", Role.RESELLER_ADMIN)
        for path, body in (("d", b""), ("d/o", BODY)):
            async with proxy.client.put(f"/v1/AUTH_other/{path}", headers=other, data=body) as answer:
                assert answer.status == 201
        headers = {"X-Symlink-Target-Account": "AUTH_other"}
        assert (await link(proxy, "d/o", headers={**headers, "X-Symlink-Target-Etag": md5(BODY)})).status == 403
        await made(proxy, "d/o", headers=headers)
        assert (await proxy.call("GET", "c/link")).status == 403
        grant = {**other, "X-Container-Read": "test:tester"}
        async with proxy.client.post("/v1/AUTH_other/d", headers=grant) as answer:
            assert answer.status == 204
        got = await proxy.call("GET", "c/link")
        assert (got.body, got.headers["Content-Location"]) == (BODY, "/v1/AUTH_other/d/o")
        shown = await proxy.call("HEAD", "c/link", query="symlink=get")
        assert shown.headers["X-Symlink-Target-Account"] == "AUTH_other"
        (row,) = await list_json(proxy)
        assert row["symlink_path"] == "/v1/AUTH_other/d/o"

    async def test_a_temporary_url_reaches_no_further_than_its_key(self, proxy: Proxy) -> None:
        await proxy.cluster.make_container("d")
        await put(proxy, BODY)
        await put(proxy, BODY, "d/o")
        await made(proxy, "c/o", "c/inside")
        await made(proxy, "d/o", "c/outside")
        await proxy.call("POST", "c", {"X-Container-Meta-Temp-URL-Key": KEY})
        for name, status in (("inside", 200), ("outside", 401)):
            answer = await proxy.anonymous("GET", f"c/{name}", query=temp_url("GET", f"c/{name}"))
            assert answer.status == status
        await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})
        answer = await proxy.anonymous("GET", "c/outside", query=temp_url("GET", "c/outside"))
        assert answer.body == BODY, "the account's key reaches all of its containers"


class TestLargeObjects:
    async def test_behind_a_link(self, proxy: Proxy) -> None:
        await put_large(proxy)
        await made(proxy, "c/big")
        answer = await proxy.call("GET", "c/link")
        assert (answer.body, answer.headers["X-Static-Large-Object"]) == (WHOLE, "True")
        assert (await proxy.call("GET", "c/link", {"Range": "bytes=1499-1502"})).body == WHOLE[1499:1503]
        shown = await proxy.call("GET", "c/link", query="multipart-manifest=get")
        assert [entry["name"] for entry in json.loads(shown.body)][:1] == ["/c/s/000"]
        assert (await proxy.call("GET", "c/link", query="part-number=2")).status == 206

    async def test_a_dynamic_one_behind_a_link(self, proxy: Proxy) -> None:
        await put_large(proxy)
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/s/"})
        await made(proxy, "c/dlo")
        assert (await proxy.call("GET", "c/link")).body == WHOLE

    async def test_links_as_segments(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy)
        manifest = json.dumps([{"path": "/c/link", "etag": md5(BODY), "size_bytes": 10}, {"path": "/c/o"}]).encode()
        assert (await proxy.call("PUT", "c/big", data=manifest, query="multipart-manifest=put")).status == 201
        assert (await proxy.call("GET", "c/big")).body == 2 * BODY
        await put(proxy, b"changed")
        assert (await proxy.call("GET", "c/big")).status == 409

    async def test_static_links_as_parts_of_a_dynamic_one(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy, "c/o", "c/p/1", {"X-Symlink-Target-Etag": md5(BODY)})
        await put(proxy, b"xyz", "c/p/2")
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/p/"})
        assert (await proxy.call("GET", "c/dlo")).body == BODY + b"xyz"

    @pytest.mark.parametrize("name", ["c/p/1", "c/p/3"])
    async def test_a_dynamic_link_makes_a_dynamic_one_unreadable(self, proxy: Proxy, name: str) -> None:
        """Its size is not in the listing: the whole would lack its bytes, and nobody would notice."""
        await put(proxy, BODY)
        await put(proxy, b"xyz", "c/p/2")
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/p/"})
        await made(proxy, "c/o", name)
        for headers in ({}, {"Range": "bytes=0-1"}):
            answer = await proxy.call("GET", "c/dlo", headers)
            assert (answer.status, b"is a dynamic symbolic link" in answer.body) == (409, True)
        assert (await proxy.call("HEAD", "c/dlo")).status == 409
        assert (await proxy.call("PUT", "c/copy", {"X-Copy-From": "c/dlo"})).status == 409
        manifest = json.dumps([{"path": "/c/dlo"}]).encode()
        assert (await proxy.call("PUT", "c/slo", data=manifest, query="multipart-manifest=put")).status == 400
        shown = await proxy.call("GET", "c/dlo", query="multipart-manifest=get")
        assert (shown.status, shown.body) == (200, b"")
        assert (await proxy.call("POST", "c/dlo", {"X-Object-Meta-A": "b"})).status == 202
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/p/"})
        assert (await proxy.call("DELETE", "c/dlo")).status == 204

    async def test_a_dynamic_one_of_a_container_with_versions(self, proxy: Proxy) -> None:
        """What the proxy itself makes a link there counts with its size."""
        assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
        for name, data in (("v/p/1", b"first"), ("v/p/1", BODY), ("v/p/2", b"xyz")):
            await put(proxy, data, name)
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "v/p/"})
        assert (await proxy.call("GET", "c/dlo")).body == BODY + b"xyz"

    async def test_a_copy_has_the_bytes_of_static_links(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        await made(proxy, "c/o", "c/p/1", {"X-Symlink-Target-Etag": md5(BODY)})
        await put(proxy, b"xyz", "c/p/2")
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/p/"})
        assert (await proxy.call("PUT", "c/copy", {"X-Copy-From": "c/dlo"})).status == 201
        assert (await proxy.call("GET", "c/copy")).body == BODY + b"xyz"

    async def test_a_whole_of_static_links_has_their_bytes_in_ranges(self, proxy: Proxy) -> None:
        await put(proxy, BODY)
        for number in range(5):
            await made(proxy, "c/o", f"c/p/{number}", {"X-Symlink-Target-Etag": md5(BODY)})
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/p/"})
        whole = 5 * BODY
        assert (await proxy.call("GET", "c/dlo", {"Range": "bytes=8-32"})).body == whole[8:33]
        assert (await proxy.call("HEAD", "c/dlo")).headers["Content-Length"] == str(len(whole))

    async def test_a_large_object_is_not_deleted_through_a_link(self, proxy: Proxy) -> None:
        await put_large(proxy)
        await made(proxy, "c/big")
        answer = await proxy.call("DELETE", "c/link", {"Accept": "application/json"}, query="multipart-manifest=delete")
        assert json.loads(answer.body)["Response Status"] == "400 Bad Request"
        assert (await proxy.call("GET", "c/big")).body == WHOLE


async def test_conditions_of_a_write_are_the_link_s(proxy: Proxy) -> None:
    await made(proxy)
    assert (await proxy.call("PUT", "c/link", {"If-None-Match": "*"}, b"x")).status == 412
    assert (await proxy.call("PUT", "c/link", {"If-Match": EMPTY}, b"x")).status == 201
    assert (await proxy.call("GET", "c/link")).body == b"x"


async def test_links_as_pages_of_a_web_site(proxy: Proxy) -> None:
    opened = {"X-Container-Read": ".r:*,.rlistings", "X-Container-Meta-Web-Index": "index.html"}
    assert (await proxy.call("POST", "c", opened)).status == 204
    await put(proxy, b"<p>home", "c/page")
    await made(proxy, "c/page", "c/index.html")
    async with proxy.client.get(proxy.url("c/")) as answer:
        assert (answer.status, await answer.read()) == (200, b"<p>home")


async def test_a_list_of_names_deletes_links_and_not_their_targets(proxy: Proxy) -> None:
    await put(proxy, BODY)
    await made(proxy)
    answer = await proxy.call("POST", "", {"Content-Type": "text/plain"}, b"c/link\n", "bulk-delete")
    assert answer.status == 200
    assert (await proxy.call("GET", "c/link")).status == 404
    assert (await proxy.call("GET", "c/o")).body == BODY
