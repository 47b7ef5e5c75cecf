"""Headers that no feature has a file of its own for: each one is sent, and comes back or does what it is for."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.api.tests.large import put_large
from swiftlet.api.tests.proxy import LOGIN, SECRET, Proxy
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT

KEPT = {
    "Cache-Control": "no-store",
    "Content-Disposition": "inline",
    "Content-Encoding": "compress",
    "Content-Language": "de",
    "Expires": "Sat, 21 Nov 2026 10:00:00 GMT",
    "X-Robots-Tag": "noindex",
    "X-Object-Meta-Color": "red",
}


@pytest.mark.parametrize("name", KEPT)
async def test_headers_kept_with_an_object(proxy: Proxy, name: str) -> None:
    assert (await proxy.call("PUT", "c/o", {name: KEPT[name]}, b"x")).status == 201
    assert (await proxy.call("HEAD", "c/o")).headers[name] == KEPT[name]
    assert (await proxy.call("POST", "c/o", {name: "other"})).status == 202
    assert (await proxy.call("GET", "c/o")).headers[name] == "other"
    assert (await proxy.call("POST", "c/o")).status == 202
    assert name not in (await proxy.call("HEAD", "c/o")).headers


async def test_the_older_names_of_login_headers(proxy: Proxy) -> None:
    older = {"X-Storage-User": LOGIN, "X-Storage-Pass": SECRET}
    async with proxy.client.get("/auth/v1.0", headers=older) as answer:
        assert answer.status == 200
        token = answer.headers["X-Storage-Token"]
        assert token == answer.headers["X-Auth-Token"]
        assert int(answer.headers["X-Auth-Token-Expires"]) > 0
        assert answer.headers["X-Storage-Url"].endswith("/v1/AUTH_test")
    assert (await proxy.anonymous("HEAD", "c", {"X-Storage-Token": token})).status == 204
    async with proxy.client.get("/auth/v1.0", headers={"X-Storage-User": LOGIN, "X-Storage-Pass": "no"}) as answer:
        assert answer.status == 401
    async with proxy.client.get("/auth/v1.0", headers={"X-Auth-User": LOGIN, "X-Auth-Key": SECRET}) as answer:
        assert answer.status == 200


async def test_totals_and_times_of_containers_and_accounts(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "c/o", data=b"abc")).status == 201
    head = await proxy.call("HEAD", "c")
    assert head.headers["X-Container-Object-Count"] == "1"
    assert head.headers["X-Container-Bytes-Used"] == "3"
    assert float(head.headers["X-Put-Timestamp"]) >= float(head.headers["X-Timestamp"]) > 0
    assert head.headers["X-Storage-Policy"] == "gold"
    assert head.headers["Accept-Ranges"] == "bytes"
    assert (await proxy.call("POST", "", {"X-Account-Meta-A": "b"})).status == 204
    head = await proxy.call("HEAD", "")
    for name in ("X-Account-Container-Count", "X-Account-Object-Count", "X-Account-Bytes-Used"):
        assert int(head.headers[name]) >= 0
    assert float(head.headers["X-Timestamp"]) > 0


async def test_acls_are_removed_by_headers_of_their_own(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "c", {"X-Container-Read": "a:b", "X-Container-Write": "a:b"})).status == 204
    assert (await proxy.call("POST", "c", {"X-Remove-Container-Read": "x"})).status == 204
    head = await proxy.call("HEAD", "c")
    assert "X-Container-Read" not in head.headers
    assert head.headers["X-Container-Write"] == "a:b"
    assert (await proxy.call("POST", "c", {"X-Remove-Container-Write": "x"})).status == 204
    assert "X-Container-Write" not in (await proxy.call("HEAD", "c")).headers
    assert (await proxy.call("POST", "", {"X-Account-Access-Control": '{"admin":["a:b"]}'})).status == 204
    assert (await proxy.call("POST", "", {"X-Remove-Account-Access-Control": "x"})).status == 204
    assert "X-Account-Access-Control" not in (await proxy.call("HEAD", "")).headers


@pytest.mark.parametrize("name", ["X-Versions-Location", "X-History-Location"])
async def test_archives_are_removed_by_headers_of_their_own(proxy: Proxy, name: str) -> None:
    assert (await proxy.call("PUT", "archive")).status == 201
    assert (await proxy.call("POST", "c", {name: "archive"})).status == 204
    assert (await proxy.call("HEAD", "c")).headers[name] == "archive"
    remove = {"X-Versions-Location": "X-Remove-Versions-Location", "X-History-Location": "X-Remove-History-Location"}
    assert (await proxy.call("POST", "c", {remove[name]: "x"})).status == 204
    assert name not in (await proxy.call("HEAD", "c")).headers


async def test_links_tell_of_their_target(proxy: Proxy) -> None:
    etag = (await proxy.call("PUT", "c/o", data=b"abc")).headers["Etag"]
    target = {"X-Symlink-Target": "c/o", "X-Symlink-Target-Etag": etag, "X-Symlink-Target-Account": "AUTH_test"}
    assert (await proxy.call("PUT", "c/link", target)).status == 201
    shown = (await proxy.call("HEAD", "c/link", query="symlink=get")).headers
    assert {name: shown[name] for name in target} == target
    assert shown["X-Symlink-Target-Bytes"] == "3"
    url = proxy.url("c/link")
    async with proxy.client.post(url, headers=proxy.token, allow_redirects=False) as moved:
        assert moved.status == 307
        assert moved.headers["Location"].endswith("/c/o")


async def test_parts_of_a_large_object(proxy: Proxy) -> None:
    await put_large(proxy)
    part = await proxy.call("GET", "c/big", query="part-number=2")
    assert (part.status, part.headers["X-Parts-Count"]) == (206, "4")
    assert part.headers["X-Static-Large-Object"] == "True"
    assert part.headers["X-Manifest-Etag"]
    assert (await proxy.call("HEAD", "c/big", query="part-number=2")).status == 206
    assert (await proxy.call("GET", "c/big", query="part-number=9")).status == 416


async def test_what_is_not_supported_says_so(proxy: Proxy) -> None:
    for name in ("X-Container-Sync-To", "X-Container-Sync-Key"):
        for method, path in (("PUT", "c2"), ("POST", "c")):
            answer = await proxy.call(method, path, {name: "x"})
            assert (answer.status, name.encode() in answer.body) == (501, True)
    reseller = proxy.token_of("test:boss", Role.RESELLER_ADMIN)
    for name in ("X-Account-Quota-Bytes-Policy-gold", "X-Account-Quota-Count-Policy-gold"):
        assert (await proxy.call("POST", "", {**reseller, name: "1"})).status == 501
    assert (await proxy.call("DELETE", "c/o", query="multipart-manifest=delete&async=true")).status in {404, 501}


async def test_accounts_are_made_and_deleted_by_reseller_admins(proxy: Proxy) -> None:
    reseller = proxy.token_of("test:boss", Role.RESELLER_ADMIN)

    async def call(method: str, headers: dict[str, str]) -> int:
        async with proxy.client.request(method, "/v1/AUTH_fresh", headers=headers) as answer:
            return answer.status

    assert await call("PUT", proxy.token) == 403
    assert await call("PUT", reseller) == 201
    assert await call("PUT", reseller) == 202
    assert await call("HEAD", reseller) == 204
    assert await call("DELETE", proxy.token) == 403
    assert await call("DELETE", reseller) == 204
    async with proxy.client.options("/v1/AUTH_fresh") as answer:
        assert (answer.status, "PUT" in answer.headers["Allow"]) == (200, True)


async def test_service_tokens_are_ignored(proxy: Proxy) -> None:
    """There are no accounts that need two tokens."""
    assert (await proxy.call("HEAD", "c", {"X-Service-Token": "x"})).status == 204
    assert (await proxy.anonymous("HEAD", "c", {"X-Service-Token": proxy.token["X-Auth-Token"]})).status == 401


async def test_what_is_asked_of_info(proxy: Proxy) -> None:
    """It tells nothing that needs a signature, so `swiftinfo_sig` is ignored."""
    async with proxy.client.get("/info?swiftinfo_sig=x&swiftinfo_expires=1") as answer:
        assert (answer.status, "admin" in await answer.json()) == (200, False)
    async with proxy.client.head("/info") as answer:
        assert answer.status == 200
    async with proxy.client.get("/healthcheck") as answer:
        assert (answer.status, await answer.text()) == (200, "OK")


@pytest.mark.parametrize(
    ("method", "path", "query", "status"),
    [
        ("GET", "", "limit=-1", 412),
        ("POST", "missing", "", 404),
        ("DELETE", "missing", "", 404),
        ("HEAD", "missing", "", 404),
    ],
)
async def test_what_is_not_there_or_not_understood(
    proxy: Proxy, method: str, path: str, query: str, status: int
) -> None:
    assert (await proxy.call(method, path, query=query)).status == status


async def test_an_account_is_not_listed_as_an_image(proxy: Proxy) -> None:
    assert (await proxy.call("GET", "", {"Accept": "image/png"})).status == 406


async def test_a_body_has_a_length(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    head = f"PUT /v1/{ACCOUNT}/c/o HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {proxy.token['X-Auth-Token']}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    assert b" 411 " in await reader.readline()
    writer.close()


async def test_how_long_a_preflight_is_good(proxy: Proxy) -> None:
    rules = {"X-Container-Meta-Access-Control-Allow-Origin": "*", "X-Container-Meta-Access-Control-Max-Age": "77"}
    assert (await proxy.call("POST", "c", rules)).status == 204
    asked = {"Origin": "https://a.org", "Access-Control-Request-Method": "GET"}
    answer = await proxy.anonymous("OPTIONS", "c/o", asked)
    assert (answer.status, answer.headers["Access-Control-Max-Age"]) == (200, "77")


async def test_a_catalog_is_left_out_if_asked_for(proxy: Proxy) -> None:
    user = {"name": "tester", "domain": {"id": "default"}, "password": SECRET}
    scope = {"project": {"name": "test", "domain": {"id": "default"}}}
    identity = {"methods": ["password"], "password": {"user": user}}
    login = {"auth": {"identity": identity, "scope": scope}}
    for query, there in (("", True), ("?nocatalog", False)):
        async with proxy.client.post(f"/v3/auth/tokens{query}", json=login) as answer:
            assert answer.status == 201
            assert ("catalog" in (await answer.json())["token"]) == there
