"""Containers with versions: what is kept; how versions are read, put in place, deleted, listed; what is refused.

Fault model: a proxy that stops between two steps of a write (the faults are put between them), two writers at the
same time, hidden containers that are gone, and clients that ask for hidden names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.api.reading.versioning import DELETE_MARKER
from swiftlet.api.tests.large import SEGMENTS, WHOLE, md5, put_large
from swiftlet.api.tests.proxy import SMALL, Proxy, proxy_of
from swiftlet.api.tests.quotas import report
from swiftlet.api.tests.versions import AT_ONCE, enable, list_json, put, put_version, versions
from swiftlet.auth.identity import Role
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ContainerRow
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster, at
from swiftlet.settings.linking import VersioningSection

HIDDEN = "\0versions\0c"


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Proxy]:
    async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as made:
        await enable(made)
        yield made


async def get(proxy: Proxy, version: str = "", name: str = "c/o") -> tuple[int, bytes]:
    answer = await proxy.call("GET", name, query=version and f"version-id={version}")
    return answer.status, answer.body if answer.status == 200 else b""


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_is_not_there_is_no_version(proxy: Proxy, method: str) -> None:
    await put_version(proxy, b"1", "c/gone")
    assert (await proxy.call("DELETE", "c/gone")).status == 204
    for name in ("c/gone", "c/never"):
        answer = await proxy.call(method, name)
        assert (answer.status, answer.headers["X-Object-Version-Id"]) == (404, "null")
    await put_version(proxy, b"1", "c/there")
    answer = await proxy.call(method, "c/there", query="version-id=null")
    assert answer.status == 404
    assert "X-Object-Version-Id" not in answer.headers
    assert (await proxy.call("PUT", "plain")).status == 201
    assert "X-Object-Version-Id" not in (await proxy.call(method, "plain/never")).headers
    assert (await proxy.call(method, "nowhere/never")).status == 404


class TestContainers:
    async def test_the_header_is_shown(self, proxy: Proxy) -> None:
        for method in ("GET", "HEAD"):
            assert (await proxy.call(method, "c")).headers["X-Versions-Enabled"] == "True"
        await enable(proxy, enabled=False)
        assert (await proxy.call("HEAD", "c")).headers["X-Versions-Enabled"] == "False"

    async def test_a_new_container(self, proxy: Proxy) -> None:
        assert (await proxy.call("HEAD", "c2")).status == 404
        assert (await proxy.call("PUT", "c2", {"X-Versions-Enabled": "true"})).status == 201
        first = await put_version(proxy, b"1", "c2/o")
        await put_version(proxy, b"2", "c2/o")
        assert await get(proxy, first, "c2/o") == (200, b"1")

    async def test_the_hidden_container_has_the_policy(self, proxy: Proxy) -> None:
        headers = {"X-Versions-Enabled": "on", "X-Storage-Policy": "silver"}
        assert (await proxy.call("PUT", "c2", headers)).status == 201
        await put_version(proxy, b"1", "c2/o")
        assert (await proxy.cluster.listings.container_info(ACCOUNT, "\0versions\0c2")).policy == 1

    @pytest.mark.parametrize("header", ["X-Versions-Location", "X-History-Location"])
    async def test_not_beside_an_archive(self, proxy: Proxy, header: str) -> None:
        assert (await proxy.call("POST", "c", {header: "archive"})).status == 400
        assert (await proxy.call("PUT", "d", {header: "archive"})).status == 201
        assert (await proxy.call("POST", "d", {"X-Versions-Enabled": "true"})).status == 400
        assert (await proxy.call("PUT", "e", {header: "archive", "X-Versions-Enabled": "true"})).status == 400
        await proxy.call("POST", "d", {"X-Remove-" + header[2:]: "x"})
        assert (await proxy.call("POST", "d", {"X-Versions-Enabled": "true"})).status == 204

    async def test_deletion_when_no_version_is_left(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        assert (await proxy.call("DELETE", "c")).status == 409
        deletion = await proxy.call("DELETE", "c/o")
        answer = await proxy.call("DELETE", "c")
        assert (answer.status, b"Delete all versions" in answer.body) == (409, True)
        for one in (version, deletion.headers["X-Object-Version-Id"]):
            assert (await proxy.call("DELETE", "c/o", query=f"version-id={one}")).status == 204
        assert (await proxy.call("DELETE", "c")).status == 204
        with pytest.raises(NotFound):
            await proxy.cluster.listings.container_info(ACCOUNT, HIDDEN)

    async def test_bytes_of_versions_count(self, proxy: Proxy) -> None:
        await put(proxy, b"123")
        await put(proxy, b"45")
        headers = (await proxy.call("HEAD", "c")).headers
        assert (headers["X-Container-Bytes-Used"], headers["X-Container-Object-Count"]) == ("5", "1")
        assert (await proxy.call("GET", "c")).headers["X-Container-Bytes-Used"] == "5"

    async def test_info_and_the_setting(self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory) -> None:
        async with proxy.client.get("/info") as answer:
            assert (await answer.json())["object_versioning"] == {}
        section = VersioningSection(allow_object_versioning=False, agreement_s=0)
        async with proxy_of(cluster, tmp_path, versioning=section) as off:
            async with off.client.get("/info") as answer:
                assert "object_versioning" not in await answer.json()
            assert (await off.call("POST", "c", {"X-Versions-Enabled": "true"})).status == 412
            assert await put_version(off, b"1"), "what keeps versions goes on doing so"


@pytest.mark.parametrize("size", [0, 10, SMALL, 5 * SMALL])
async def test_every_put_is_a_version(proxy: Proxy, size: int) -> None:
    bodies = [bytes([65 + number]) * size for number in range(3)]
    ids = [await put_version(proxy, body, headers={"X-Object-Meta-Size": str(size)}) for body in bodies]
    assert ids == sorted(set(ids))
    for version, body in zip(ids, bodies, strict=True):
        for method in ("GET", "HEAD"):
            answer = await proxy.call(method, "c/o", query=f"version-id={version}")
            assert (answer.status, answer.headers["Etag"]) == (200, md5(body))
            assert answer.headers["X-Object-Version-Id"] == version
            assert answer.headers["X-Object-Meta-Size"] == str(size)
        assert await get(proxy, version) == (200, body)
    answer = await proxy.call("GET", "c/o")
    assert (answer.body, answer.headers["X-Object-Version-Id"]) == (bodies[-1], ids[-1])
    assert answer.headers["Content-Location"] == f"/v1/{ACCOUNT}/c/o?version-id={ids[-1]}"
    assert await versions(proxy) == [("o", version, version == ids[-1]) for version in reversed(ids)]


async def test_the_listing_shows_the_current_version(proxy: Proxy) -> None:
    await put(proxy, b"one")
    version = await put_version(proxy, b"second", headers={"Content-Type": "a/b"})
    (row,) = await list_json(proxy)
    assert (row["bytes"], row["hash"], row["content_type"]) == (6, md5(b"second"), "a/b")
    assert row["version_symlink"]
    assert row["symlink_path"] == f"/v1/{ACCOUNT}/c/o?version-id={version}"
    assert b"<bytes>6</bytes>" in (await proxy.call("GET", "c", query="format=xml")).body


async def test_ranges_and_conditions_of_versions(proxy: Proxy) -> None:
    version = await put_version(proxy, b"0123456789")
    await put(proxy, b"other")
    query = f"version-id={version}"
    assert (await proxy.call("GET", "c/o", {"Range": "bytes=2-3"}, query=query)).body == b"23"
    assert (await proxy.call("GET", "c/o", {"If-None-Match": md5(b"0123456789")}, query=query)).status == 304
    assert (await proxy.call("GET", "c/o", {"Range": "bytes=1-2"})).body == b"th"
    assert (await proxy.call("PUT", "c/o", {"If-None-Match": "*"}, b"x")).status == 412
    assert (await proxy.call("PUT", "c/o", {"If-Match": md5(b"other")}, b"x")).status == 201


async def test_a_body_that_is_not_what_its_etag_says_leaves_nothing(proxy: Proxy) -> None:
    version = await put_version(proxy, b"1")
    assert (await proxy.call("PUT", "c/o", {"Etag": "0" * 32}, b"2")).status == 422
    assert await versions(proxy) == [("o", version, True)]
    assert await get(proxy) == (200, b"1")


class TestBadRequests:
    @pytest.mark.parametrize("version", ["x", "1.2.3", "-1", "99999999999"])
    async def test_what_is_no_version(self, proxy: Proxy, version: str) -> None:
        await put(proxy, b"1")
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            assert (await proxy.call(method, "c/o", query=f"version-id={version}")).status == 400

    async def test_a_version_that_is_not_there(self, proxy: Proxy) -> None:
        await put(proxy, b"1")
        for version in ("1600000000.00000", "1600000000.00000_00ff"):
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                assert (await proxy.call(method, "c/o", query=f"version-id={version}")).status == 404

    async def test_without_versions_there_are_none(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "d")
        await put(proxy, b"1", "d/o")
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            assert (await proxy.call(method, "d/o", query="version-id=1600000000.00000")).status == 400
        answer = await proxy.call("GET", "d/o", query="version-id=null")
        assert (answer.status, answer.headers["X-Object-Version-Id"]) == (200, "null")
        assert "X-Object-Version-Id" not in (await proxy.call("GET", "d/o")).headers

    async def test_versions_do_not_change(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        for one in (version, "null"):
            assert (await proxy.call("POST", "c/o", query=f"version-id={one}")).status == 400
        assert (await proxy.call("PUT", "c/o", data=b"x", query=f"version-id={version}")).status == 400
        assert (await proxy.call("PUT", "c/o", query="version-id=null")).status == 400

    @pytest.mark.parametrize("name", ["%00versions%00c", "%00versions%00c/x", "c/%00o%00", "c/x%00"])
    async def test_hidden_names_can_not_be_asked_for(self, proxy: Proxy, name: str) -> None:
        await put(proxy, b"1")
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            assert (await proxy.call(method, name)).status == 412
        assert (await proxy.call("COPY", "c/o", {"Destination": name})).status == 412
        assert (await proxy.call("PUT", "c/p", {"X-Copy-From": name})).status == 412
        manifest = json.dumps([{"path": "/\0versions\0c/\0o\0"}]).encode()
        assert (await proxy.call("PUT", "c/p", data=manifest, query="multipart-manifest=put")).status == 400
        assert (await proxy.call("PUT", "c/p", {"X-Object-Manifest": name + "/"})).status == 400

    async def test_hidden_containers_are_not_listed(self, proxy: Proxy) -> None:
        await put(proxy, b"12")
        rows = [ContainerRow(name, at(1), object_count=1, bytes_used=size) for name, size in ((HIDDEN, 2), ("c", 0))]
        await report(proxy.cluster, rows)
        for query in ("", "limit=1", "reverse=on", "prefix=", "marker=b", "delimiter=v", "end_marker=z"):
            answer = await proxy.client.get(f"/v1/{ACCOUNT}?format=json&{query}", headers=proxy.token)
            listed = [(row["name"], row["bytes"]) for row in await answer.json()]
            assert listed == [("c", 2)], "with the bytes of its versions"
        for query in ("prefix=%00", "prefix=%00versions%00", "marker=%00&end_marker=%01"):
            answer = await proxy.client.get(f"/v1/{ACCOUNT}?{query}", headers=proxy.token)
            assert (answer.status, await answer.read()) == (204, b""), "a NUL is allowed here, and names nothing"


class TestDeletion:
    async def test_leaves_a_marker(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        answer = await proxy.call("DELETE", "c/o")
        marker = answer.headers["X-Object-Version-Id"]
        assert (answer.status, marker > version) == (204, True)
        assert await get(proxy) == (404, b"")
        assert await list_json(proxy) == []
        assert await versions(proxy) == [("o", marker, True), ("o", version, False)]
        for method in ("GET", "HEAD"):
            shown = await proxy.call(method, "c/o", query=f"version-id={marker}")
            assert (shown.status, shown.headers["X-Object-Version-Id"]) == (404, marker)
            assert shown.headers["Content-Type"] == DELETE_MARKER
        assert await get(proxy, version) == (200, b"1")
        listed = json.loads((await proxy.call("GET", "c", query="versions")).body)
        assert listed[0]["content_type"] == DELETE_MARKER

    async def test_of_what_is_not_there(self, proxy: Proxy) -> None:
        answer = await proxy.call("DELETE", "c/o")
        assert answer.status == 404
        assert await versions(proxy) == [("o", answer.headers["X-Object-Version-Id"], True)]

    async def test_of_one_version(self, proxy: Proxy) -> None:
        first, second, third = [await put_version(proxy, body) for body in (b"1", b"2", b"3")]
        answer = await proxy.call("DELETE", "c/o", query=f"version-id={second}")
        assert (answer.status, answer.headers["X-Object-Version-Id"]) == (204, second)
        assert answer.headers["X-Object-Current-Version-Id"] == third
        assert await get(proxy) == (200, b"3")
        assert await get(proxy, second) == (404, b"")
        assert await versions(proxy) == [("o", third, True), ("o", first, False)]

    async def test_of_the_current_version_takes_the_object(self, proxy: Proxy) -> None:
        first, second = [await put_version(proxy, body) for body in (b"1", b"2")]
        answer = await proxy.call("DELETE", "c/o", query=f"version-id={second}")
        assert (answer.status, answer.headers["X-Object-Current-Version-Id"]) == (204, "null")
        assert await get(proxy) == (404, b"")
        assert await versions(proxy) == [("o", first, False)]
        assert await list_json(proxy) == []

    async def test_of_a_marker(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        marker = (await proxy.call("DELETE", "c/o")).headers["X-Object-Version-Id"]
        answer = await proxy.call("DELETE", "c/o", query=f"version-id={marker}")
        assert (answer.status, answer.headers["X-Object-Current-Version-Id"]) == (204, "null")
        assert await versions(proxy) == [("o", version, False)]

    async def test_of_version_null_leaves_no_marker(self, proxy: Proxy) -> None:
        await enable(proxy, enabled=False)
        await put(proxy, b"0")
        await enable(proxy)
        answer = await proxy.call("DELETE", "c/o", query="version-id=null")
        assert (answer.status, "X-Object-Version-Id" in answer.headers) == (204, False)
        assert await versions(proxy) == []

    async def test_of_version_null_leaves_all_versions(self, proxy: Proxy) -> None:
        first, second = [await put_version(proxy, body) for body in (b"1", b"2")]
        assert (await proxy.call("DELETE", "c/o", query="version-id=null")).status == 204
        assert (await get(proxy))[0] == 404
        assert await versions(proxy) == [("o", second, False), ("o", first, False)]
        assert (await proxy.call("DELETE", "c/o", query="version-id=null")).status == 404
        assert await get(proxy, second) == (200, b"2")


async def test_an_older_version_is_put_in_place(proxy: Proxy) -> None:
    first = await put_version(proxy, b"one", headers={"Content-Type": "a/b"})
    second = await put_version(proxy, b"2")
    answer = await proxy.call("PUT", "c/o", query=f"version-id={first}")
    assert (answer.status, answer.headers["X-Object-Version-Id"]) == (201, first)
    assert answer.headers["Etag"] == md5(b"one")
    assert await get(proxy) == (200, b"one")
    assert await versions(proxy) == [("o", second, False), ("o", first, True)]
    (row,) = await list_json(proxy)
    assert (row["bytes"], row["content_type"]) == (3, "a/b")
    marker = (await proxy.call("DELETE", "c/o")).headers["X-Object-Version-Id"]
    assert (await proxy.call("PUT", "c/o", query=f"version-id={marker}")).status == 400
    assert (await proxy.call("PUT", "c/o", query=f"version-id={second}")).status == 201
    assert await get(proxy) == (200, b"2")


class TestNull:
    async def test_an_object_from_before_becomes_a_version(self, proxy: Proxy) -> None:
        await enable(proxy, enabled=False)
        await put(proxy, b"0" * 5 * SMALL, headers={"X-Object-Meta-Color": "red", "Content-Type": "a/b"})
        await proxy.call("POST", "c/o", {"X-Object-Meta-Color": "blue", "Content-Type": ""})
        assert (await proxy.call("GET", "c/o")).headers["X-Object-Version-Id"] == "null"
        assert await versions(proxy) == [("o", "null", True)]
        await enable(proxy)
        new = await put_version(proxy, b"1")
        (_, current, _), (_, old, _) = await versions(proxy)
        assert (current, old < new) == (new, True)
        answer = await proxy.call("GET", "c/o", query=f"version-id={old}")
        assert (answer.body, answer.headers["X-Object-Meta-Color"]) == (b"0" * 5 * SMALL, "blue")
        assert answer.headers["Content-Type"] == "a/b"
        assert (await get(proxy, "null"))[0] == 404

    async def test_deletion_keeps_it_too(self, proxy: Proxy) -> None:
        await enable(proxy, enabled=False)
        await put(proxy, b"0")
        await enable(proxy)
        marker = (await proxy.call("DELETE", "c/o")).headers["X-Object-Version-Id"]
        (_, newest, latest), (_, old, _) = await versions(proxy)
        assert (newest, latest) == (marker, True)
        assert await get(proxy, old) == (200, b"0")


class TestSuspended:
    async def test_writes_make_no_versions(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        await enable(proxy, enabled=False)
        answer = await put(proxy, b"2")
        assert "X-Object-Version-Id" not in answer.headers
        await put(proxy, b"3")
        assert await get(proxy, "null") == (200, b"3")
        assert await get(proxy, version) == (200, b"1")
        assert await versions(proxy) == [("o", "null", True), ("o", version, False)]

    async def test_deletion_leaves_no_marker(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        await enable(proxy, enabled=False)
        answer = await proxy.call("DELETE", "c/o")
        assert (answer.status, "X-Object-Version-Id" in answer.headers) == (204, False)
        assert await versions(proxy) == [("o", version, False)]
        assert (await proxy.call("PUT", "c/o", query=f"version-id={version}")).status == 201
        assert await get(proxy) == (200, b"1")
        assert (await proxy.call("DELETE", "c/o", query=f"version-id={version}")).status == 204


async def test_a_post_changes_the_current_version(proxy: Proxy) -> None:
    first = await put_version(proxy, b"1", headers={"X-Object-Meta-Color": "red"})
    second = await put_version(proxy, b"2")
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-Color": "blue", "Content-Type": "x/y"})).status == 202
    for query in ("", f"version-id={second}"):
        headers = (await proxy.call("HEAD", "c/o", query=query)).headers
        assert (headers["X-Object-Meta-Color"], headers["Content-Type"]) == ("blue", "x/y")
    assert (await proxy.call("HEAD", "c/o", query=f"version-id={first}")).headers["X-Object-Meta-Color"] == "red"
    assert len(await versions(proxy)) == 2
    (row,) = await list_json(proxy)
    assert (row["content_type"], row["bytes"]) == ("x/y", 1)
    await proxy.call("DELETE", "c/o", query=f"version-id={second}")
    assert await list_json(proxy) == []


class TestCopies:
    @pytest.mark.parametrize("way", ["COPY", "PUT"])
    async def test_of_a_version(self, proxy: Proxy, way: str) -> None:
        version = await put_version(proxy, b"1", headers={"X-Object-Meta-Color": "red"})
        await put(proxy, b"2")
        query = f"version-id={version}"
        if way == "COPY":
            answer = await proxy.call("COPY", "c/o", {"Destination": "c/p"}, query=query)
        else:
            answer = await proxy.call("PUT", "c/p", {"X-Copy-From": "c/o"}, query=query)
        assert (answer.status, "X-Object-Version-Id" in answer.headers) == (201, True)
        assert answer.headers["X-Copied-From-Version-Id"] == version
        got = await proxy.call("GET", "c/p")
        assert (got.body, got.headers["X-Object-Meta-Color"]) == (b"1", "red")

    async def test_onto_itself_brings_it_back(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        await proxy.call("DELETE", "c/o")
        assert (await proxy.call("COPY", "c/o", {"Destination": "c/o"}, query=f"version-id={version}")).status == 201
        assert await get(proxy) == (200, b"1")
        assert len(await versions(proxy)) == 3

    async def test_of_the_current_one(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        answer = await proxy.call("COPY", "c/o", {"Destination": "c/p"}, query="symlink=get")
        assert (answer.status, answer.headers["X-Copied-From-Version-Id"]) == (201, version)
        shown = await proxy.call("GET", "c/p")
        assert shown.body == b"1"


class TestLinks:
    """Clients' symbolic links in containers with versions."""

    @pytest.mark.parametrize("static", [False, True])
    async def test_a_link_is_read_and_is_a_version(self, proxy: Proxy, static: bool) -> None:
        await proxy.call("PUT", "d")
        await put(proxy, b"target", "d/o")
        link = {"X-Symlink-Target": "d/o"} | ({"X-Symlink-Target-Etag": md5(b"target")} if static else {})
        version = await put_version(proxy, b"", headers=link)
        for query in ("", f"version-id={version}"):
            answer = await proxy.call("GET", "c/o", query=query)
            assert (answer.status, answer.body) == (200, b"target")
            assert answer.headers["Content-Location"] == f"/v1/{ACCOUNT}/d/o"
            assert answer.headers["X-Object-Version-Id"] == (version if query else "null")
        itself = await proxy.call("HEAD", "c/o", query="symlink=get")
        assert itself.headers["X-Object-Version-Id"] == version
        await put_version(proxy, b"later")
        assert (await proxy.call("PUT", "c/o", query=f"version-id={version}")).status == 201
        assert await get(proxy) == (200, b"target")

    async def test_a_static_link_breaks_with_its_target(self, proxy: Proxy) -> None:
        await proxy.call("PUT", "d")
        await put(proxy, b"target", "d/o")
        await put_version(proxy, b"", headers={"X-Symlink-Target": "d/o", "X-Symlink-Target-Etag": md5(b"target")})
        await put(proxy, b"other", "d/o")
        assert (await get(proxy))[0] == 409

    async def test_static_links_to_each_other(self, proxy: Proxy) -> None:
        await put_version(proxy, b"target", "c/t")
        static = {"X-Symlink-Target-Etag": md5(b"target")}
        await put_version(proxy, b"", "c/a", {"X-Symlink-Target": "c/t", **static})
        await put_version(proxy, b"", "c/b", {"X-Symlink-Target": "c/a", **static})
        await proxy.call("PUT", "d")
        await put(proxy, b"", "d/l", {"X-Symlink-Target": "c/b", **static})
        for name in ("c/a", "c/b"):
            assert await get(proxy, name=name) == (200, b"target")
        wrong = {"X-Symlink-Target": "c/a", "X-Symlink-Target-Etag": md5(b"")}
        assert (await proxy.call("PUT", "c/x", wrong)).status == 409
        await put_version(proxy, b"new", "c/t")
        assert (await get(proxy, name="c/b"))[0] == 409

    @pytest.mark.parametrize("static", [False, True])
    async def test_a_large_object_tells_its_version_through_a_link(self, proxy: Proxy, static: bool) -> None:
        version = (await put_large(proxy)).headers["X-Object-Version-Id"]
        whole = await proxy.call("HEAD", "c/big")
        assert whole.headers["X-Object-Version-Id"] == version
        link = {"X-Symlink-Target": "c/big"}
        if static:
            link["X-Symlink-Target-Etag"] = whole.headers["X-Manifest-Etag"]
        await put_version(proxy, b"", "c/link", link)
        for method in ("GET", "HEAD"):
            answer = await proxy.call(method, "c/link")
            assert (answer.status, answer.headers["X-Object-Version-Id"]) == (200, version)
        assert (await proxy.call("GET", "c/link")).body == WHOLE

    async def test_are_versions_themselves(self, proxy: Proxy) -> None:
        await put(proxy, b"target")
        await proxy.call("PUT", "c/link", {"X-Symlink-Target": "c/o", "Content-Type": ""})
        assert await get(proxy, name="c/link") == (200, b"target")
        version = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers["X-Object-Version-Id"]
        await put(proxy, b"plain", "c/link")
        assert await get(proxy, name="c/link") == (200, b"plain")
        assert await get(proxy, version, "c/link") == (200, b"target")
        shown = await proxy.call("HEAD", "c/link", query=f"version-id={version}&symlink=get")
        assert shown.headers["X-Symlink-Target"] == "c/o"

    async def test_to_objects_with_versions(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        await proxy.call("PUT", "d")
        headers = {"X-Symlink-Target": "c/o", "X-Symlink-Target-Etag": md5(b"1")}
        assert (await proxy.call("PUT", "d/static", headers)).status == 201
        assert (await proxy.call("PUT", "d/dynamic", {"X-Symlink-Target": "c/o"})).status == 201
        assert await get(proxy, name="d/static") == (200, b"1")
        await put(proxy, b"2")
        assert await get(proxy, name="d/dynamic") == (200, b"2")
        assert (await get(proxy, name="d/static"))[0] == 409
        shown = await proxy.call("HEAD", "c/o", query=f"symlink=get&version-id={version}")
        assert "X-Symlink-Target" not in shown.headers

    async def test_the_own_link_shown(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        shown = (await proxy.call("HEAD", "c/o", query="symlink=get")).headers
        assert shown["X-Symlink-Target"] == f"c/o?version-id={version}"
        assert shown["X-Object-Version-Id"] == version


class TestLargeObjects:
    async def test_manifests_are_versions(self, proxy: Proxy) -> None:
        first = (await put_large(proxy)).headers["X-Object-Version-Id"]
        await put(proxy, b"small", "c/big")
        assert await get(proxy, first, "c/big") == (200, WHOLE)
        assert (await proxy.call("PUT", "c/big", query=f"version-id={first}")).status == 201
        answer = await proxy.call("GET", "c/big")
        assert (answer.body, answer.headers["X-Static-Large-Object"]) == (WHOLE, "True")
        assert (await proxy.call("GET", "c/big", {"Range": "bytes=1499-1500"})).body == WHOLE[1499:1501]
        assert json.loads((await proxy.call("GET", "c/big", query="multipart-manifest=get")).body)
        (row,) = [row for row in await list_json(proxy) if row["name"] == "big"]
        assert (row["bytes"], row["slo_etag"]) == (len(WHOLE), answer.headers["Etag"])

    async def test_deletion_with_segments(self, proxy: Proxy) -> None:
        await put_large(proxy)
        answer = await proxy.call("DELETE", "c/big", {"Accept": "application/json"}, query="multipart-manifest=delete")
        assert json.loads(answer.body)["Number Deleted"] == len(SEGMENTS) + 1
        assert await list_json(proxy) == []
        assert len(await versions(proxy)) == 2 * (len(SEGMENTS) + 1)

    async def test_dynamic_ones_of_segments_with_versions(self, proxy: Proxy) -> None:
        await put_large(proxy)
        await put(proxy, b"", "c/dlo", {"X-Object-Manifest": "c/s/"})
        assert await get(proxy, name="c/dlo") == (200, WHOLE)


class TestRights:
    """The container's ACL is for the objects in it; their versions are the account's users' alone."""

    async def test_of_the_containers_acl(self, proxy: Proxy) -> None:
        first, second = [await put_version(proxy, body) for body in (b"1", b"2")]
        await proxy.call("POST", "c", {"X-Container-Read": "other:sue", "X-Container-Write": "other:sue"})
        sue = proxy.token_of("other:sue", Role.USER)
        assert (await proxy.call("GET", "c/o", sue)).body == b"2"
        assert (await proxy.call("GET", "c/o", sue, query="version-id=null")).status == 404
        assert (await proxy.call("GET", "c", sue, query="versions")).status == 200
        for version in (first, second):
            for method in ("GET", "HEAD", "DELETE"):
                assert (await proxy.call(method, "c/o", sue, query=f"version-id={version}")).status == 403
            copy = await proxy.call("COPY", "c/o", {**sue, "Destination": "c/p"}, query=f"version-id={version}")
            assert copy.status == 403
        deletion = await proxy.call("DELETE", "c/o", sue, query=f"version-id={first}&multipart-manifest=delete")
        assert b"403 Forbidden" in deletion.body
        assert (await proxy.call("PUT", "c/o", sue, query=f"version-id={first}")).status == 201
        assert await versions(proxy) == [("o", second, False), ("o", first, True)]

    async def test_of_anybody(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        await proxy.call("POST", "c", {"X-Container-Read": ".r:*,.rlistings"})
        assert (await proxy.anonymous("GET", "c/o")).body == b"1"
        assert (await proxy.anonymous("GET", "c/o", query=f"version-id={version}")).status == 401
        assert (await proxy.anonymous("GET", "c", query="versions")).status == 200

    async def test_of_the_accounts_acl_and_roles(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        acl = {"read-only": ["other:ron"], "read-write": ["other:sue"]}
        await proxy.call("POST", "", {"X-Account-Access-Control": json.dumps(acl)})
        query = f"version-id={version}"
        for login, role, deletion in (("other:ron", Role.USER, 403), ("test:ann", Role.READER, 403)):
            token = proxy.token_of(login, role)
            assert (await proxy.call("GET", "c/o", token, query=query)).body == b"1"
            assert (await proxy.call("DELETE", "c/o", token, query=query)).status == deletion
        assert (await proxy.call("DELETE", "c/o", proxy.token_of("other:sue"), query=query)).status == 204

    async def test_others_do_not(self, proxy: Proxy) -> None:
        version = await put_version(proxy, b"1")
        query = f"version-id={version}"
        assert (await proxy.anonymous("GET", "c/o", query=query)).status == 401
        await proxy.call("PUT", "d", {"X-Container-Write": "other:user"})
        writer = proxy.token_of("other:user")
        copied = await proxy.anonymous("PUT", "d/o", {**writer, "X-Copy-From": "c/o"}, query=query)
        assert copied.status == 403


class TestFaults:
    """Each fault leaves what the docstring of `version_writes` says."""

    async def test_between_the_version_and_its_link(self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        first = await put_version(proxy, b"1")
        objects = proxy.api.objects
        put_really = objects.put

        async def stop(path: Path, *rest: Any) -> Any:
            if path.container == "c":
                raise Unavailable("stopped")
            return await put_really(path, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(objects, "put", stop)
            assert (await proxy.call("PUT", "c/o", data=b"2")).status == 503
        assert await get(proxy) == (200, b"1")
        (_, orphan, latest), last = await versions(proxy)
        assert (latest, last) == (False, ("o", first, True))
        assert await get(proxy, orphan) == (200, b"2")
        assert (await proxy.call("PUT", "c/o", query=f"version-id={orphan}")).status == 201
        assert await get(proxy) == (200, b"2")
        third = await put_version(proxy, b"3")
        assert [version for _, version, latest in await versions(proxy) if latest] == [third]

    @pytest.mark.parametrize("method", ["PUT", "DELETE"])
    async def test_between_what_was_there_and_the_version(
        self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        await enable(proxy, enabled=False)
        await put(proxy, b"0")
        await enable(proxy)
        objects = proxy.api.objects
        put_really, calls = objects.put, 0

        async def stop(path: Path, *rest: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise Unavailable("stopped")
            return await put_really(path, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(objects, "put", stop)
            assert (await proxy.call(method, "c/o", data=b"1")).status == 503
        assert await get(proxy, "null") == (200, b"0")
        assert len(await versions(proxy)) == 2
        new = await put_version(proxy, b"1")
        assert [latest for _, _, latest in await versions(proxy)] == [True, False], "nothing is kept twice"
        assert (await versions(proxy))[0][1] == new

    async def test_between_the_marker_and_the_deletion(self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        version = await put_version(proxy, b"1")

        async def stop(*_: Any) -> Any:
            raise Unavailable("stopped")

        with monkeypatch.context() as patch:
            patch.setattr(proxy.api.objects, "delete", stop)
            assert (await proxy.call("DELETE", "c/o")).status == 503
        assert await get(proxy) == (200, b"1")
        assert [line[2] for line in await versions(proxy)] == [False, True]
        assert (await proxy.call("DELETE", "c/o")).status == 204
        assert await get(proxy, version) == (200, b"1")

    async def test_between_the_link_and_the_version_that_go(
        self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = await put_version(proxy, b"1")
        objects = proxy.api.objects
        delete_really = objects.delete

        async def stop(path: Path, *rest: Any) -> Any:
            if path.container != "c":
                raise Unavailable("stopped")
            return await delete_really(path, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(objects, "delete", stop)
            assert (await proxy.call("DELETE", "c/o", query=f"version-id={version}")).status == 503
        assert await get(proxy) == (404, b"")
        assert await versions(proxy) == [("o", version, False)]
        assert (await proxy.call("DELETE", "c/o", query=f"version-id={version}")).status == 204
        assert await versions(proxy) == []

    async def test_a_container_without_room_for_the_link(self, proxy: Proxy) -> None:
        await proxy.call("POST", "c", {"X-Container-Meta-Quota-Count": "1"})
        version = await put_version(proxy, b"1")
        proxy.api.containers.forget(ACCOUNT, "c")
        assert (await proxy.call("PUT", "c/another", data=b"2")).status == 413
        assert await versions(proxy) == [("o", version, True)]

    async def test_the_hidden_container_is_gone(self, proxy: Proxy) -> None:
        listings = proxy.cluster.listings
        await put(proxy, b"1")
        await proxy.call("DELETE", "c/o", query=f"version-id={(await versions(proxy))[0][1]}")
        await listings.delete_container(ACCOUNT, HIDDEN, proxy.api.clock.next())
        proxy.api.containers.forget(ACCOUNT, HIDDEN)
        version = await put_version(proxy, b"2")
        assert await versions(proxy) == [("o", version, True)]

    async def test_the_container_is_gone(self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory) -> None:
        """One process still takes the container for there, and nothing stays of what it writes."""
        section = VersioningSection(agreement_s=60)
        async with proxy_of(cluster, tmp_path, versioning=section) as other:
            version = await put_version(other, b"1")
            await proxy.call("DELETE", "c/o", query=f"version-id={version}")
            assert (await proxy.call("DELETE", "c")).status == 204
            assert (await other.call("PUT", "c/o", data=b"2")).status in {404, 503}
            assert (await proxy.call("PUT", "c", {"X-Versions-Enabled": "true"})).status == 201
            assert await versions(proxy) == []


class TestConcurrency:
    async def test_no_version_is_lost(self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory) -> None:
        async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as other:
            bodies = [str(number).encode() for number in range(12)]
            answers = await asyncio.gather(
                *((proxy, other)[number % 2].call("PUT", "c/o", data=body) for number, body in enumerate(bodies))
            )
            assert {answer.status for answer in answers} == {201}
            ids = {answer.headers["X-Object-Version-Id"] for answer in answers}
            listed = await versions(proxy)
            assert {version for _, version, _ in listed} == ids
            assert [latest for _, _, latest in listed] == [True] + [False] * 11, "the latest timestamp wins"
            assert {(await get(proxy, version))[1] for version in ids} == set(bodies)

    async def test_a_question_from_before_the_hidden_container_does_not_count(
        self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the first version makes the hidden container, another request has asked for it and found nothing."""
        api, made = proxy.api, asyncio.Event()
        ask_really, put_really = api.containers._fetch, api.listings.put_container
        others: list[asyncio.Future[Any]] = []

        async def ask(account: str, container: str) -> Any:
            try:
                return await ask_really(account, container)
            except NotFound:
                if others:
                    # The answer to the other request is on its way until the container is there.
                    await made.wait()
                raise

        async def put_container(account: str, container: str, *rest: Any) -> Any:
            others.append(asyncio.ensure_future(api.containers.get(account, container)))
            for _ in range(20):
                await asyncio.sleep(0)
            put = await put_really(account, container, *rest)
            asyncio.get_running_loop().call_soon(made.set)
            return put

        monkeypatch.setattr(api.containers, "_fetch", ask)
        monkeypatch.setattr(api.listings, "put_container", put_container)
        assert (await proxy.call("PUT", "c/o", data=b"1")).status == 201
        await asyncio.gather(*others, return_exceptions=True)
        assert len(others) == 1

    async def test_an_object_from_before_is_kept_once(
        self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory
    ) -> None:
        await enable(proxy, enabled=False)
        await put(proxy, b"0" * 3 * SMALL)
        await enable(proxy)
        async with proxy_of(cluster, tmp_path, versioning=AT_ONCE) as other:
            await asyncio.gather(*(one.call("PUT", "c/o", data=b"1") for one in (proxy, other, proxy, other)))
        listed = await versions(proxy)
        assert (len(listed), await get(proxy, listed[-1][1])) == (5, (200, b"0" * 3 * SMALL))

    async def test_removing_a_version_takes_no_newer_one(self, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        """Between the look at the object and the removal of its link another version becomes current."""
        version = await put_version(proxy, b"1")
        objects = proxy.api.objects
        delete_really = objects.delete
        newer: list[str] = []

        async def late(path: Path, *rest: Any) -> Any:
            if not newer:
                newer.append(await put_version(proxy, b"2"))
            return await delete_really(path, *rest)

        monkeypatch.setattr(objects, "delete", late)
        assert (await proxy.call("DELETE", "c/o", query=f"version-id={version}")).status == 204
        assert await get(proxy) == (200, b"2")
        assert await versions(proxy) == [("o", newer[0], True)]

    async def test_every_process_knows_of_versions_when_the_answer_is_there(
        self, cluster: MemoryCluster, proxy: Proxy, tmp_path: Directory
    ) -> None:
        section = VersioningSection(agreement_s=0.2)
        await proxy.call("PUT", "d")
        async with (
            proxy_of(cluster, tmp_path, versioning=section) as one,
            proxy_of(cluster, tmp_path, versioning=section) as other,
        ):
            await put(other, b"0", "d/o")
            await enable(one, "d")
            assert await put_version(other, b"1", "d/o")
            assert len(await versions(other, container="d")) == 2

    async def test_container_servers_that_are_away_do_not_stop_writes(self, proxy: Proxy) -> None:
        await put(proxy, b"1")
        with proxy.cluster.databases_down(*proxy.cluster.devices):
            assert await put_version(proxy, b"2")
