"""CORS: pre-flights, what actual answers say, and that what is echoed can't be used to inject anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.api.tests.signing import temp_url
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings.access import CorsSection

SITE = "https://www.example.org"
ORIGIN, MAX_AGE, EXPOSE = (
    f"X-Container-Meta-Access-Control-{n}" for n in ("Allow-Origin", "Max-Age", "Expose-Headers")
)
ALLOWED = "Access-Control-Allow-Origin"


async def allow(proxy: Proxy, origins: str, more: Mapping[str, str] | None = None) -> None:
    assert (await proxy.call("POST", "c", {ORIGIN: origins, **(more or {})})).status == 204


async def preflight(proxy: Proxy, path: str, origin: str = SITE, method: str = "PUT", **more: str) -> Answer:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    return await proxy.anonymous("OPTIONS", path, {**headers, **{k.replace("_", "-"): v for k, v in more.items()}})


@pytest.mark.parametrize(("path", "copies"), [("", False), ("c", False), ("c/o", True), ("missing", False)])
async def test_options_without_an_origin(proxy: Proxy, path: str, copies: bool) -> None:
    answer = await proxy.anonymous("OPTIONS", path)
    assert answer.status == 200
    methods = answer.headers["Allow"].split(", ")
    assert {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"} <= set(methods)
    assert ("COPY" in methods) is copies
    assert ALLOWED not in answer.headers


async def test_an_account_has_no_rules(proxy: Proxy) -> None:
    answer = await preflight(proxy, "")
    assert answer.status == 200
    assert ALLOWED not in answer.headers


@pytest.mark.parametrize("path", ["c", "c/o"])
async def test_a_preflight(proxy: Proxy, path: str) -> None:
    await allow(proxy, f"http://other.org {SITE}", {MAX_AGE: "600"})
    asked = "X-Auth-Token, content-type,x-object-meta-a"
    answer = await preflight(proxy, path, Access_Control_Request_Headers=asked)
    assert answer.status == 200
    assert answer.headers[ALLOWED] == SITE
    assert answer.headers["Access-Control-Max-Age"] == "600"
    assert answer.headers["Access-Control-Allow-Methods"] == answer.headers["Allow"]
    assert answer.headers["Access-Control-Allow-Headers"] == "X-Auth-Token, content-type, x-object-meta-a"
    assert answer.headers["Vary"] == "Origin, Access-Control-Request-Headers"


async def test_all_origins(proxy: Proxy) -> None:
    await allow(proxy, "*")
    answer = await preflight(proxy, "c/o", Access_Control_Request_Headers="a")
    assert (answer.headers[ALLOWED], answer.headers["Vary"]) == ("*", "Access-Control-Request-Headers")
    answer = await proxy.call("GET", "c", {"Origin": "null"})
    assert answer.headers[ALLOWED] == "*"
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize(
    ("origins", "origin", "method"),
    [
        ("", SITE, "GET"),
        ("http://www.example.org", SITE, "GET"),
        (SITE, SITE + ".evil.com", "GET"),
        (SITE, SITE.upper(), "GET"),
        (SITE, SITE, "PATCH"),
        (SITE, SITE, "get"),
        (SITE, SITE, ""),
        ("*", "a" * 600, "GET"),
        ("*", "a b", "GET"),
        ("*", "\u00e9", "GET"),
    ],
)
async def test_a_preflight_that_is_refused(proxy: Proxy, origins: str, origin: str, method: str) -> None:
    await allow(proxy, origins)
    answer = await preflight(proxy, "c/o", origin, method)
    assert answer.status == 401
    assert "GET" in answer.headers["Allow"]
    assert answer.headers["WWW-Authenticate"] == f'Swift realm="{ACCOUNT}"'
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


async def test_a_container_that_is_not_there_allows_nobody(proxy: Proxy) -> None:
    assert (await preflight(proxy, "missing/o")).status == 401


async def test_an_actual_request(proxy: Proxy) -> None:
    await allow(proxy, SITE, {EXPOSE: "X-Foo, x-bar  x-baz bad\u00e9", "X-Container-Meta-A": "b"})
    assert (await proxy.call("PUT", "c/o", {"X-Object-Meta-Color": "red", "Origin": SITE}, b"x")).headers[
        ALLOWED
    ] == SITE
    for method in ("GET", "HEAD"):
        answer = await proxy.call(method, "c/o", {"Origin": SITE})
        assert (answer.headers[ALLOWED], answer.headers["Vary"]) == (SITE, "Origin")
        exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
        usual = {"etag", "x-timestamp", "x-trans-id", "x-openstack-request-id", "last-modified", "content-type"}
        assert usual | {"x-foo", "x-bar", "x-baz", "x-object-meta-color"} <= set(exposed)
        assert exposed == sorted(set(exposed))
        assert "bad\u00e9" not in exposed
    listing = await proxy.call("GET", "c", {"Origin": SITE})
    assert "x-container-meta-a" in listing.headers["Access-Control-Expose-Headers"]


async def test_refusals_can_be_read_by_the_script_too(proxy: Proxy) -> None:
    await allow(proxy, SITE)
    answer = await proxy.anonymous("GET", "c/o", {"Origin": SITE})
    assert (answer.status, answer.headers[ALLOWED]) == (401, SITE)
    answer = await proxy.call("GET", "c/o", {"Origin": SITE})
    assert (answer.status, answer.headers[ALLOWED]) == (404, SITE)
    answer = await proxy.anonymous("GET", "c/o", {"Origin": SITE}, query=temp_url("GET"))
    assert (answer.status, answer.headers[ALLOWED]) == (401, SITE)


@pytest.mark.parametrize("origin", ["https://evil.org", "a" * 600, "\u00e9", "x y"])
async def test_origins_that_are_not_allowed_get_a_plain_answer(proxy: Proxy, origin: str) -> None:
    await allow(proxy, SITE if origin == "https://evil.org" else "*")
    answer = await proxy.call("GET", "c", {"Origin": origin})
    assert answer.status == 204
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


async def test_what_is_echoed_is_only_what_a_header_can_carry(proxy: Proxy) -> None:
    await allow(proxy, "*")
    asked = ", ".join(["ok", "ok", "b\u00e9d", "sp ace", "", "x" * 200, *(f"h{n}" for n in range(200))])
    answer = await preflight(proxy, "c/o", Access_Control_Request_Headers=asked)
    echoed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert echoed[0] == "ok"
    assert echoed.count("ok") == 1
    assert len(echoed) <= 100
    assert all(name.isascii() and " " not in name and len(name) <= 128 for name in echoed)


async def test_the_clusters_own_rules(cluster: MemoryCluster, tmp_path: Directory) -> None:
    section = CorsSection(allow_origin=(SITE,), expose_headers=("X-Cluster",))
    async with proxy_of(cluster, tmp_path, cors=section) as proxy:
        assert (await preflight(proxy, "c/o")).headers[ALLOWED] == SITE
        assert (await preflight(proxy, "c/o", "https://other.org")).status == 401
        answer = await proxy.call("GET", "c", {"Origin": SITE})
        assert "x-cluster" in answer.headers["Access-Control-Expose-Headers"].split(", ")
        assert (await (await proxy.client.get("/info")).json())["swift"]["strict_cors_mode"] is True


async def test_when_not_strict_every_answer_is_marked_and_preflights_are_not(
    cluster: MemoryCluster, tmp_path: Directory
) -> None:
    async with proxy_of(cluster, tmp_path, cors=CorsSection(strict=False)) as proxy:
        assert (await proxy.call("GET", "c", {"Origin": SITE})).headers[ALLOWED] == SITE
        assert (await preflight(proxy, "c/o")).status == 401
        assert (await (await proxy.client.get("/info")).json())["swift"]["strict_cors_mode"] is False


async def test_rules_come_from_what_is_remembered(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await allow(proxy, SITE)
    asked: list[str] = []
    container_info = proxy.cluster.listings.container_info

    async def counted(account: str, container: str) -> object:
        asked.append(container)
        return await container_info(account, container)

    monkeypatch.setattr(proxy.api.containers, "_fetch", counted)
    for _ in range(3):
        assert (await proxy.call("PUT", "c/o", {"Origin": SITE}, b"x")).status == 201
    assert asked == ["c"]
