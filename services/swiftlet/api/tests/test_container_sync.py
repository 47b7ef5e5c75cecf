"""Requests of other clusters' container sync: who is let in, to what, and what keeps its time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.container_sync.realms import RealmsFile
from swiftlet.container_sync.signature import sign
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster

USER_KEY = "key of the container"
REALMS = "[us]\nkey = realm key\nkey2 = next key\ncluster_here = http://here/v1/\ncluster_there = http://there/v1/\n"
TO = f"//us/there/{ACCOUNT}/c"


@pytest.fixture
async def proxy(cluster: MemoryCluster, tmp_path: Path) -> AsyncIterator[Proxy]:
    file = tmp_path / "realms.conf"
    file.write_text(REALMS)
    async with proxy_of(cluster, tmp_path, ttl_s=0.0, realms=RealmsFile(file, "//us/here")) as made:
        assert (await made.call("POST", "c", {"X-Container-Sync-Key": USER_KEY})).status == 204
        yield made


async def synced(
    proxy: Proxy,
    method: str,
    path: str,
    at: str | None = None,
    headers: dict[str, str] | None = None,
    data: bytes | None = None,
    key: str = "realm key",
    query: str = "",
) -> Answer:
    """The answer to a signed request."""
    quoted = quote(path)
    signed = sign(method, f"/v1/{ACCOUNT}/{quoted}", at, "us", key, USER_KEY)
    given = {"X-Container-Sync-Auth": signed.header, **({"X-Timestamp": at} if at else {}), **(headers or {})}
    return await proxy.anonymous(method, quoted, given, data, query)


async def test_what_is_brought_keeps_its_time_and_the_newest_wins(proxy: Proxy) -> None:
    assert (await synced(proxy, "PUT", "c/ü b", "0000000500.12345", {"X-Object-Meta-A": "b"}, b"x")).status == 201
    found = await synced(proxy, "HEAD", "c/ü b", "0000000500.12345")
    assert (found.status, found.headers["X-Timestamp"], found.headers["X-Object-Meta-A"]) == (
        200,
        "0000000500.12345",
        "b",
    )
    assert (await synced(proxy, "PUT", "c/ü b", "0000000400.00000", data=b"older")).status == 202
    assert (await synced(proxy, "PUT", "c/ü b", "0000000400.00000", data=b"older" * 1000)).status == 202
    assert (await synced(proxy, "DELETE", "c/ü b", "0000000400.00000")).status == 409
    assert (await proxy.call("GET", quote("c/ü b"))).body == b"x"
    offset = "0000000500.12345_0000000000000001"
    assert (await synced(proxy, "PUT", "c/ü b", offset, data=b"later")).status == 201
    assert (await proxy.call("GET", quote("c/ü b"))).body == b"later"
    listed = json.loads((await synced(proxy, "GET", "c", query="format=json&versions=true")).body)
    assert [row["name"] for row in listed] == ["ü b"]
    assert (await synced(proxy, "DELETE", "c/ü b", "0000000600.00000")).status == 204
    assert (await synced(proxy, "DELETE", "c/ü b", "0000000600.00000")).status == 404
    assert (await synced(proxy, "PUT", "c/ü b", "0000000550.00000", data=b"x")).status == 202
    assert (await synced(proxy, "HEAD", "c/ü b", "0000000550.00000")).status == 404


async def test_who_is_let_in(proxy: Proxy) -> None:
    assert (await synced(proxy, "PUT", "c/o", "0000000500.00000", data=b"x", key="next key")).status == 201
    assert (await synced(proxy, "HEAD", "c")).status == 204
    wrong = await synced(proxy, "PUT", "c/o", "0000000500.00000", data=b"x", key="wrong key")
    assert (wrong.status, wrong.headers["WWW-Authenticate"]) == (401, f'SwiftContainerSync realm="{ACCOUNT}"')
    assert b"X-Container-Sync-Auth header not valid" in wrong.body
    for header in ("us 1", "us 1 2 3", f"asia 1 {'a' * 40}", f"us 1 {'a' * 40}"):
        assert (await proxy.anonymous("HEAD", "c/o", {"X-Container-Sync-Auth": header})).status == 401
        owner = {**proxy.token, "X-Container-Sync-Auth": header}
        assert (await proxy.anonymous("HEAD", "c/o", owner)).status == 401, "a wrong signature is not overlooked"
    assert (await synced(proxy, "HEAD", "missing/o")).status == 401
    assert (await proxy.call("PUT", "unkeyed")).status == 201
    assert (await synced(proxy, "HEAD", "unkeyed/o")).status == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "c/o"), ("POST", "c/o"), ("COPY", "c/o"), ("PUT", "c"), ("POST", "c"), ("DELETE", "c")],
)
async def test_what_is_no_work_of_container_sync_is_403(proxy: Proxy, method: str, path: str) -> None:
    assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    assert (await synced(proxy, method, path, headers={"Destination": "c/p"})).status == 403


async def test_a_signature_reaches_no_other_object(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "secret")).status == 201
    assert (await proxy.call("PUT", "secret/o", data=b"secret")).status == 201
    copied = {"X-Copy-From": "secret/o"}
    assert (await synced(proxy, "PUT", "c/o", "0000000500.00000", copied, b"")).status == 403
    assert (await proxy.call("PUT", "c/link", {"X-Symlink-Target": "secret/o"}, b"")).status == 201
    seen = await synced(proxy, "HEAD", "c/link", "0000000500.00000")
    assert (seen.status, seen.headers["Content-Length"]) == (200, "0")


@pytest.mark.parametrize("text", ["x", "1_x", "99999999999", "0000005000.00000"])
async def test_times_that_are_refused(proxy: Proxy, text: str) -> None:
    answer = await synced(proxy, "PUT", "c/o", text, data=b"x")
    assert (answer.status, b"X-Timestamp" in answer.body) == (400, True)


async def test_without_a_time_it_is_now(proxy: Proxy) -> None:
    assert (await synced(proxy, "PUT", "c/o", data=b"x")).status == 201
    assert (await proxy.call("HEAD", "c/o")).headers["X-Timestamp"].startswith("0000001000.")


@pytest.mark.parametrize(
    "manifest",
    [
        b"x",
        b"{}",
        b'["x"]',
        b'[{"name": "/s/0"}]',
        b'[{"name": "s", "bytes": 1, "hash": "x"}]',
        b'[{"name": "/s/0", "bytes": -1, "hash": "x"}]',
        b'[{"name": "/s/0", "bytes": true, "hash": "x"}]',
        b'[{"name": "/s/0", "bytes": 1, "hash": "x", "range": "0-1"}]',
        b'[{"name": "/s/0", "bytes": 1, "hash": "x", "range": "x"}]',
        b'[{"data": "?"}]',
    ],
)
async def test_manifests_that_are_refused(proxy: Proxy, manifest: bytes) -> None:
    headers = {"X-Static-Large-Object": "True"}
    assert (await synced(proxy, "PUT", "c/slo", "0000000500.00000", headers, manifest)).status == 400


async def test_a_manifest_may_come_before_its_segments(proxy: Proxy) -> None:
    """As OpenStack Swift sends one: in its stored form, with the hash of that."""
    etag = "900150983cd24fb0d6963f7d28e17f72"
    entry = {"name": "/c/seg", "bytes": 3, "hash": etag, "content_type": "a/b", "last_modified": "x"}
    headers = {"X-Static-Large-Object": "True", "Content-Type": "video/x"}
    raw = json.dumps([entry, {**entry, "range": "1-2"}]).encode()
    assert (await synced(proxy, "PUT", "c/slo", "0000000500.00000", headers, raw)).status == 201
    assert (await proxy.call("GET", "c/slo")).status == 409
    assert (await synced(proxy, "HEAD", "c/slo", "0000000500.00000")).status == 200
    assert (await synced(proxy, "PUT", "c/seg", "0000000500.00000", data=b"abc")).status == 201
    got = await proxy.call("GET", "c/slo")
    assert (got.status, got.body, got.headers["Content-Type"]) == (200, b"abcbc", "video/x")
    wrong = {**headers, "Etag": "a" * 32}
    assert (await synced(proxy, "PUT", "c/slo", "0000000501.00000", wrong, raw)).status == 422
    assert (await proxy.call("PUT", "c/slo", headers, raw)).status == 400, "others may not"


async def test_a_static_link_may_come_before_its_target(proxy: Proxy) -> None:
    headers = {"X-Symlink-Target": "c/o", "X-Symlink-Target-Etag": "900150983cd24fb0d6963f7d28e17f72"}
    sized = {**headers, "X-Symlink-Target-Bytes": "3"}
    assert (await synced(proxy, "PUT", "c/link", "0000000500.00000", sized, b"")).status == 201
    assert (await synced(proxy, "PUT", "c/o", "0000000500.00000", data=b"abc")).status == 201
    assert (await proxy.call("GET", "c/link")).body == b"abc"
    bad = {**headers, "X-Symlink-Target-Bytes": "many"}
    assert (await synced(proxy, "PUT", "c/link", "0000000501.00000", bad, b"")).status == 400


async def test_containers_with_versions_are_not_written_to(proxy: Proxy) -> None:
    for name, header in (("v", {"X-Versions-Enabled": "true"}), ("w", {"X-Versions-Location": "c"})):
        assert (await proxy.call("PUT", name, {"X-Container-Sync-Key": USER_KEY, **header})).status == 201
        assert (await synced(proxy, "PUT", f"{name}/o", "0000000500.00000", data=b"x")).status == 403
        assert (await synced(proxy, "DELETE", f"{name}/o", "0000000500.00000")).status == 403
    both = {"X-Container-Sync-To": TO, "X-Versions-Enabled": "true"}
    for method, path, headers in (
        ("PUT", "v", {"X-Container-Sync-To": TO}),
        ("POST", "v", {"X-Container-Sync-To": TO}),
        ("PUT", "both", both),
    ):
        answer = await proxy.call(method, path, headers)
        assert (answer.status, b"ersion" in answer.body) == (400, True)
    assert (await proxy.call("PUT", "copied", {"X-Container-Sync-To": TO})).status == 201
    assert (await proxy.call("POST", "copied", {"X-Versions-Enabled": "true"})).status == 400
    assert (await proxy.call("POST", "copied", {"X-Versions-Enabled": "true", "X-Container-Sync-To": ""})).status == 204


async def test_only_owners_see_and_set_where_the_copy_is(proxy: Proxy) -> None:
    kept = "X-Container-Sync-To"
    answer = await proxy.call("PUT", "copied", {kept: "http://evil/v1/a/c"})
    assert (answer.status, b"//realm/cluster" in answer.body) == (400, True)
    assert (await proxy.call("PUT", "copied", {kept: f"//us/nowhere/{ACCOUNT}/c"})).status == 400
    assert (await proxy.call("PUT", "copied", {kept: TO})).status == 201
    assert (await proxy.call("HEAD", "copied")).headers[kept] == TO
    [entry] = (await proxy.api.copied.page(""))[0]
    assert (entry.path.account, entry.path.container) == (ACCOUNT, "copied")
    friend = proxy.token_of("test:friend")
    shared = {"X-Account-Access-Control": json.dumps({"read-write": ["test:friend"]})}
    assert (await proxy.call("POST", "", shared)).status == 204
    assert (await proxy.call("POST", "copied", {**friend, kept: "http://evil"})).status == 204
    assert kept not in (await proxy.call("HEAD", "copied", friend)).headers
    assert (await proxy.call("HEAD", "copied")).headers[kept] == TO
    assert (await proxy.call("POST", "copied", {"X-Remove-Container-Sync-To": "x"})).status == 204
    assert kept not in (await proxy.call("HEAD", "copied")).headers


async def test_info_tells_of_realms(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as answer:
        shown = (await answer.json())["container_sync"]
    assert shown == {"realms": {"US": {"clusters": {"HERE": {"current": True}, "THERE": {}}}}}
