"""Headers that no feature has a file of its own for: each one is sent, and comes back or does what it is for."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from swiftlet.api.tests.large import put_large
from swiftlet.api.tests.proxy import LOGIN, SECRET, Proxy
from swiftlet.api.tests.quotas import connect_accounts, report
from swiftlet.auth.identity import Role
from swiftlet.errors import DiskFull
from swiftlet.model import ContainerRow
from swiftlet.placement.tests.cluster import ACCOUNT, at
from swiftlet.ring.model import Device

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


@pytest.mark.parametrize(("kind", "path"), [("Object", "c/o"), ("Container", "c"), ("Account", "")])
async def test_names_of_metadata_have_no_case_and_no_underscores(proxy: Proxy, kind: str, path: str) -> None:
    """The reference: names are case-insensitive, and "the underscore character is silently converted to a hyphen"."""
    assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    assert (await proxy.call("POST", path, {f"x-{kind}-META-shoe_SIZE": "9"})).status in {202, 204}
    assert (await proxy.call("HEAD", path)).headers[f"X-{kind}-Meta-Shoe-Size"] == "9"
    if kind != "Object":
        assert (await proxy.call("POST", path, {f"X-Remove-{kind}-Meta-Shoe_Size": "x"})).status == 204
        assert f"X-{kind}-Meta-Shoe-Size" not in (await proxy.call("HEAD", path)).headers


async def test_an_underscore_is_no_way_around_a_check(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "", {"X-Account-Meta-Quota_Bytes": "1"})).status == 403
    assert (await proxy.call("POST", "c", {"X-Container-Meta-Quota_Count": "many"})).status == 400
    assert (await proxy.call("PUT", "c/o", {"X_Object_Manifest": "c/x"}, b"x")).status == 201
    assert (await proxy.call("GET", "c/o")).body == b"x"


@pytest.mark.parametrize(("kind", "path"), [("Container", "c"), ("Account", "")])
async def test_a_post_changes_the_metadata_it_names(proxy: Proxy, kind: str, path: str) -> None:
    """Accounts and containers: a value adds or changes, an empty one removes if there is one, others stay."""

    async def post(**items: str) -> dict[str, str]:
        headers = {f"X-{kind}-Meta-{name}": value for name, value in items.items()}
        assert (await proxy.call("POST", path, headers)).status == 204
        shown = (await proxy.call("HEAD", path)).headers
        return {name: shown[f"X-{kind}-Meta-{name}"] for name in ("A", "B") if f"X-{kind}-Meta-{name}" in shown}

    assert await post(A="1") == {"A": "1"}
    assert await post(B="2") == {"A": "1", "B": "2"}
    assert await post(A="3") == {"A": "3", "B": "2"}
    assert await post(A="") == {"B": "2"}
    assert await post(A="") == {"B": "2"}


@pytest.mark.parametrize("name", ["X-Versions-Location", "X-History-Location"])
async def test_archives_are_removed_by_headers_of_their_own(proxy: Proxy, name: str) -> None:
    assert (await proxy.call("PUT", "archive")).status == 201
    assert (await proxy.call("POST", "c", {name: "archive"})).status == 204
    assert (await proxy.call("HEAD", "c")).headers[name] == "archive"
    remove = {"X-Versions-Location": "X-Remove-Versions-Location", "X-History-Location": "X-Remove-History-Location"}
    assert (await proxy.call("POST", "c", {remove[name]: "x"})).status == 204
    assert name not in (await proxy.call("HEAD", "c")).headers


@pytest.mark.parametrize("name", ["X-Versions-Location", "X-History-Location"])
async def test_either_header_removes_either_archive(proxy: Proxy, name: str) -> None:
    for remove in ("X-Remove-Versions-Location", "X-Remove-History-Location"):
        assert (await proxy.call("POST", "c", {name: "archive"})).status == 204
        assert (await proxy.call("POST", "c", {remove: "x"})).status == 204
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
    for method, path in (("PUT", "c2"), ("POST", "c")):
        answer = await proxy.call(method, path, {"X-Container-Sync-To": "x"})
        assert (answer.status, b"X-Container-Sync-To" in answer.body) == (501, True)
    for name, path in (("X-Container-Rfc-Compliant-Etags", "c"), ("X-Account-Rfc-Compliant-Etags", "")):
        assert (await proxy.call("POST", path, {name: "true"})).status == 501
    reseller = proxy.token_of("test:boss", Role.RESELLER_ADMIN)
    for name in ("X-Account-Quota-Bytes-Policy-gold", "X-Account-Quota-Count-Policy-gold"):
        assert (await proxy.call("POST", "", {**reseller, name: "1"})).status == 501
    assert (await proxy.call("DELETE", "c/o", query="multipart-manifest=delete&async=true")).status in {404, 501}


async def test_sync_keys_are_kept_for_owners(proxy: Proxy) -> None:
    kept = "X-Container-Sync-Key"
    assert (await proxy.call("PUT", "synced", {kept: "secret", "X-Container-Sync-To": ""})).status == 201
    assert (await proxy.call("HEAD", "synced")).headers[kept] == "secret"

    friend = proxy.token_of("test:friend")
    shared = {"X-Account-Access-Control": json.dumps({"read-write": ["test:friend"]})}
    assert (await proxy.call("POST", "", shared)).status == 204
    assert kept not in (await proxy.call("HEAD", "synced", friend)).headers
    assert (await proxy.call("POST", "synced", {**friend, kept: "another"})).status == 204
    assert (await proxy.call("HEAD", "synced")).headers[kept] == "secret"

    for nothing in ({kept: ""}, {"X-Remove-Container-Sync-Key": "x"}):
        assert (await proxy.call("POST", "synced", {kept: "again"})).status == 204
        assert (await proxy.call("POST", "synced", nothing)).status == 204
        assert kept not in (await proxy.call("HEAD", "synced")).headers


async def test_accounts_are_made_and_deleted_by_reseller_admins(proxy: Proxy) -> None:
    reseller = proxy.token_of("test:boss", Role.RESELLER_ADMIN)

    async def call(method: str, headers: dict[str, str]) -> int:
        async with proxy.client.request(method, "/v1/AUTH_fresh", headers=headers) as answer:
            return answer.status

    assert await call("PUT", {}) == 401
    assert await call("PUT", proxy.token) == 403
    assert await call("PUT", reseller) == 201
    assert await call("PUT", reseller) == 202
    assert await call("HEAD", reseller) == 204
    assert await call("DELETE", {}) == 401
    assert await call("DELETE", proxy.token) == 403
    assert await call("DELETE", reseller) == 204
    async with proxy.client.options("/v1/AUTH_fresh") as answer:
        assert (answer.status, "PUT" in answer.headers["Allow"]) == (200, True)


async def test_the_first_write_makes_an_account(proxy: Proxy) -> None:
    owner = proxy.token_of("newcomers:ann", Role.ADMIN)

    async def call(method: str, path: str) -> int:
        async with proxy.client.request(method, f"/v1/AUTH_newcomers{path}", headers=owner) as answer:
            return answer.status

    assert await call("HEAD", "") == 204
    assert await call("PUT", "/c") == 201
    assert await call("GET", "/c") == 204


async def test_options_of_info(proxy: Proxy) -> None:
    async with proxy.client.options("/info") as answer:
        assert (answer.status, answer.headers["Allow"]) == (200, "HEAD, GET, OPTIONS")


@pytest.mark.parametrize("path", ["", "c", "c/o"])
async def test_other_methods_are_405(proxy: Proxy, path: str) -> None:
    answer = await proxy.call("PATCH", path)
    allowed = set(answer.headers["Allow"].split(", "))
    assert answer.status == 405
    assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE"} | ({"COPY"} if "/" in path else set())


async def test_both_names_of_the_version(proxy: Proxy) -> None:
    for version, status in (("v1", 204), ("v1.0", 204), ("v2", 404)):
        async with proxy.client.head(f"/{version}/{ACCOUNT}/c", headers=proxy.token) as answer:
            assert answer.status == status


async def test_places_are_not_told_to_clients(proxy: Proxy) -> None:
    """`endpoints` is an account's name like another here; never 201, which the reference has for /v1/endpoints."""
    for headers, status in ((proxy.token, 403), ({}, 401)):
        async with proxy.client.get(f"/v1/endpoints/{ACCOUNT}/c/o", headers=headers) as answer:
            assert answer.status == status


async def test_service_tokens_are_ignored(proxy: Proxy) -> None:
    """There are no accounts that need two tokens."""
    assert (await proxy.call("HEAD", "c", {"X-Service-Token": "x"})).status == 204
    assert (await proxy.anonymous("HEAD", "c", {"X-Service-Token": proxy.token["X-Auth-Token"]})).status == 401


async def test_a_signature_of_another_cluster_counts_for_nothing(proxy: Proxy) -> None:
    """Without container sync, `X-Container-Sync-Auth` lets nobody in."""
    signed = {"X-Container-Sync-Auth": "US 1 " + "a" * 40}
    assert (await proxy.anonymous("PUT", "c/o", signed, b"x")).status == 401


async def test_what_has_expired_is_not_shown_to_who_asks_for_it(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "c/o", {"X-Delete-At": "1100"}, b"x")).status == 201
    proxy.clock.now = 1101.0
    for method in ("GET", "HEAD", "POST"):
        assert (await proxy.call(method, "c/o", {"X-Open-Expired": "true"})).status == 404


@pytest.mark.parametrize("path", ["", "c", "c/o"])
async def test_every_answer_has_a_date_and_an_id(proxy: Proxy, path: str) -> None:
    for method in ("PUT", "POST", "HEAD", "GET", "DELETE", "OPTIONS"):
        answer = await proxy.call(method, path, {"X-Newest": "true"})
        moment = parsedate_to_datetime(answer.headers["Date"])
        assert abs((datetime.now(UTC) - moment).total_seconds()) < 60
        assert answer.headers["X-Trans-Id"] == answer.headers["X-Openstack-Request-Id"]


POLICY_TOTALS = (
    "X-Account-Storage-Policy-name-Container-Count",
    "X-Account-Storage-Policy-name-Object-Count",
    "X-Account-Storage-Policy-name-Bytes-Used",
)


async def by_policy(proxy: Proxy, method: str) -> dict[str, list[int]]:
    """Containers, objects and bytes that an account tells of, by the policy's name."""
    headers = (await proxy.call(method, "")).headers
    told = {name.lower() for name in headers if name.lower().startswith("x-account-storage-policy-")}
    found = {}
    for policy in ("gold", "silver"):
        names = [name.replace("name", policy) for name in POLICY_TOTALS]
        if names[0] in headers:
            found[policy] = [int(headers[name]) for name in names]
            told -= {name.lower() for name in names}
    assert not told
    return found


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_an_account_tells_its_totals_by_policy(proxy: Proxy, method: str) -> None:
    assert (await proxy.call("PUT", "s", {"X-Storage-Policy": "silver"})).status == 201
    assert (await proxy.call("PUT", "s2", {"X-Storage-Policy": "silver"})).status == 201
    for name, size in (("c/o", 3), ("s/o", 5), ("s/p", 7), ("s2/o", 11)):
        assert (await proxy.call("PUT", name, data=bytes(size))).status == 201
    reporters = connect_accounts(proxy.cluster)
    assert [await reporter.run_once() for reporter in reporters] == [0] * len(reporters)
    assert await by_policy(proxy, method) == {"gold": [1, 1, 3], "silver": [2, 3, 23]}
    # A policy without containers is not told of, neither is one that the proxy does not know.
    await report(proxy.cluster, [ContainerRow("x", at(1), object_count=1, bytes_used=1, policy=7)])
    for name in ("c/o", "c"):
        assert (await proxy.call("DELETE", name)).status == 204
    assert [await reporter.run_once() for reporter in reporters] == [0] * len(reporters)
    await asyncio.gather(*(reporter.stop() for reporter in reporters))
    assert await by_policy(proxy, method) == {"silver": [2, 3, 23]}
    assert (await proxy.call(method, "")).headers["X-Account-Container-Count"] == "3"


async def test_an_empty_account_has_no_policies(proxy: Proxy) -> None:
    assert (await proxy.call("DELETE", "c")).status == 204
    assert await by_policy(proxy, "HEAD") == await by_policy(proxy, "GET") == {}


async def test_full_disks_of_databases_are_503(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 is a server's answer to a proxy; to a client it is one more reason to come back later."""

    async def full(device: Device, request: object) -> None:
        raise DiskFull(f"{device.name} is full")

    monkeypatch.setattr(proxy.cluster.listing_transport, "_ask", full)
    answer = await proxy.call("PUT", "c2")
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)


@pytest.mark.parametrize("path", ["/crossdomain.xml", "/recon/load", "/__profile__", "/auth/v1.0/AUTH_test/auth"])
async def test_what_other_middlewares_serve_is_404(proxy: Proxy, path: str) -> None:
    async with proxy.client.get(path, headers=proxy.token) as answer:
        assert answer.status == 404


async def test_info_names_no_middleware_that_is_not_there(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as answer:
        told = set(await answer.json())
    absent = {"s3api", "s3token", "encryption", "etag_quoter", "container_sync", "crossdomain", "domain_remap"}
    assert not told & (absent | {"cname_lookup", "name_check", "read_only", "keystoneauth"})
    assert {"swift", "slo", "dlo", "tempauth", "symlink", "account_quotas", "container_quotas"} <= told


async def test_names_of_hosts_choose_no_account(proxy: Proxy) -> None:
    """No `domain_remap`, no `cname_lookup`, and no S3: the path alone says what is meant."""
    for host in ("c.AUTH_test.example.com", "c.s3.example.com"):
        async with proxy.client.get("/o", headers={"Host": host, **proxy.token}) as answer:
            assert answer.status == 404


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
        ("GET", "", "limit=10001", 412),
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


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["a-1", "a-2", "b"]),
        ("limit=2", ["a-1", "a-2"]),
        ("marker=a-1", ["a-2", "b"]),
        ("end_marker=b", ["a-1", "a-2"]),
        ("prefix=a", ["a-1", "a-2"]),
        ("delimiter=-", ["a-", "b"]),
        ("reverse=true&limit=2", ["b", "a-2"]),
        ("marker=b", []),
    ],
)
async def test_account_listing_queries(proxy: Proxy, query: str, expected: list[str]) -> None:
    names = ("b", "a-1", "a-2")
    await report(proxy.cluster, [ContainerRow(name, at(1), object_count=0, bytes_used=0) for name in names])
    plain = await proxy.call("GET", "", query=query)
    assert plain.status == (200 if expected else 204)
    assert plain.body.decode().split() == expected
    rows = await proxy.call("GET", "", query=f"format=json&{query}")
    assert rows.status == 200
    assert [row.get("name") or row["subdir"] for row in json.loads(rows.body)] == expected


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
