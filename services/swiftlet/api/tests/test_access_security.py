"""Hostile requests to whatever decides who may do what: nothing is fetched, no error of ours, nothing slow, no leak."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Any

import pytest

from swiftlet.api.tests.proxy import Proxy
from swiftlet.api.tests.signing import KEY, temp_url
from swiftlet.api.tests.test_form_post import TYPE, encode, signed
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT

POINTING = (
    "Referer",
    "Origin",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "Forwarded",
    "X-Container-Sync-To",
    "X-Container-Read",
    "X-Account-Access-Control",
    "X-Container-Meta-Access-Control-Allow-Origin",
    "Destination",
    "X-Copy-From",
    "X-Object-Manifest",
)


async def with_keys(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})).status == 204
    await proxy.cluster.put(2)


async def raw(proxy: Proxy, method: str, path: str, *lines: bytes) -> int:
    """The status of a request whose headers are these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    head = [f"{method} /v1/{ACCOUNT}/{path} HTTP/1.1".encode(), b"Host: x", b"Connection: close", *lines, b"", b""]
    writer.write(b"\r\n".join(head))
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def test_urls_in_headers_and_fields_are_never_fetched(proxy: Proxy) -> None:
    await with_keys(proxy)
    visitors: list[object] = []
    trap = await asyncio.start_server(lambda reader, writer: visitors.append(writer), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/x"
    async with trap:
        for header in POINTING:
            for method, path in (("GET", "c/o"), ("PUT", "c/new"), ("POST", "c"), ("COPY", "c/o"), ("OPTIONS", "c/o")):
                assert (await proxy.call(method, path, {header: url})).status not in {500, 503}
                assert (await proxy.anonymous(method, path, {header: url})).status not in {500, 503}
        data = encode(signed(redirect=url), [("f", b"x", "")])
        async with proxy.client.post(proxy.url("c/up/"), data=data, headers=TYPE, allow_redirects=False) as response:
            assert response.status == 303
    assert visitors == []


@pytest.mark.parametrize("name", ["Origin", "Referer", "X-Container-Read", "X-Account-Access-Control"])
@pytest.mark.parametrize("value", [b"\xff\xfe", b"\xc3\x28", b'{"admin":["\xff"]}', b"a:\xed\xa0\x80"])
async def test_bytes_that_are_no_text_are_no_error_of_ours(proxy: Proxy, name: str, value: bytes) -> None:
    every = {"X-Container-Meta-Access-Control-Allow-Origin": "*", "X-Container-Read": ".r:*"}
    assert (await proxy.call("POST", "c", every)).status == 204
    token = f"X-Auth-Token: {proxy.token['X-Auth-Token']}".encode()
    ask = b"Access-Control-Request-Method: GET"
    for method, path in (("GET", "c"), ("POST", "c"), ("POST", ""), ("OPTIONS", "c"), ("GET", "c/missing")):
        assert await raw(proxy, method, path, token, ask, name.encode() + b": " + value) < 500
        assert await raw(proxy, method, path, ask, name.encode() + b": " + value) < 500
    assert (await proxy.call("HEAD", "")).status == 204
    assert (await proxy.call("HEAD", "c")).status == 204


async def test_secrets_are_only_compared_in_constant_time(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_keys(proxy)
    compared: list[Any] = []
    real = hmac.compare_digest

    def compare(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert (await proxy.anonymous("GET", "c/o", query=temp_url("GET"))).status == 200
    assert (await proxy.anonymous("GET", "c/o", query=temp_url("GET", key="other"))).status == 401
    data = encode(signed(), [("f", b"x", "")])
    async with proxy.client.post(proxy.url("c/up/"), data=data, headers=TYPE) as response:
        assert response.status == 201
    assert len(compared) >= 3
    assert all(len(a) == len(b) == 32 for a, b in compared)


@pytest.mark.parametrize(
    "path", ["c/..%2F..%2Fprivate%2Fo", "c%2F..%2Fprivate/o", "c/../private/o", "%2e%2e/private/o"]
)
async def test_a_signature_or_acl_reaches_no_other_container_by_dots(proxy: Proxy, path: str) -> None:
    await with_keys(proxy)
    assert (await proxy.call("PUT", "private")).status == 201
    assert (await proxy.call("PUT", "private/o", data=b"private")).status == 201
    assert (await proxy.call("POST", "c", {"X-Container-Read": ".r:*"})).status == 204
    target = f"/v1/{ACCOUNT}/{path}"
    for query in ("", "?" + temp_url("GET", prefix="")):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"GET {target}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert int(answer.split()[1]) in {400, 401, 404, 412}
        assert b"private\n" not in answer.partition(b"\r\n\r\n")[2]


async def test_internal_headers_do_not_make_an_owner(proxy: Proxy) -> None:
    forged = {
        "X-Backend-Owner": "true",
        "Swift-Owner": "true",
        "X-Identity-Status": "Confirmed",
        "X-Roles": "admin",
        "Remote-User": f"{ACCOUNT},{ACCOUNT}:tester",
        "X-Account-Sysmeta-Core-Access-Control": '{"admin":["other"]}',
    }
    assert (await proxy.anonymous("GET", "c", forged)).status == 401
    stranger = proxy.token_of("other:eve", Role.ADMIN)
    assert (await proxy.call("POST", "c", {**forged, **stranger})).status == 403
    assert (await proxy.call("POST", "", forged)).status == 204
    assert (await proxy.call("GET", "", stranger)).status == 403


async def test_long_headers_are_judged_in_no_time(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    acl = ",".join([".r:-" + ".a" * 40] * 90)
    assert (await proxy.call("POST", "c", {"X-Container-Read": acl + ",.r:*"})).status == 204
    origins = " ".join(["https://" + "a" * 20] * 8)
    assert (await proxy.call("POST", "c", {"X-Container-Meta-Access-Control-Allow-Origin": origins})).status == 204
    began = time.perf_counter()
    for _ in range(20):
        headers = {"Referer": "http://" + "a." * 3500, "Origin": "https://" + "a" * 7000}
        assert (await proxy.anonymous("GET", "c/o", headers)).status == 200
    assert time.perf_counter() - began < 5


async def test_no_key_leaves_by_a_listing_or_an_error(proxy: Proxy) -> None:
    await with_keys(proxy)
    secret = "a-key-that-nobody-sees"
    keys = {"X-Container-Meta-Temp-URL-Key": secret, "X-Container-Meta-Temp-URL-Key-2": secret}
    assert (await proxy.call("POST", "c", {**keys, "X-Container-Read": ".r:*,.rlistings"})).status == 204
    assert (await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key-2": secret})).status == 204
    user = proxy.token_of("test:user", Role.USER)
    for headers in ({}, {"Origin": "https://a.org"}):
        for path, query in (("c", ""), ("c/o", ""), ("c/missing", ""), ("c/o", temp_url("GET", key="wrong"))):
            answer = await proxy.anonymous("GET", path, headers, query=query)
            assert secret not in str(answer)
        for path in ("", "c"):
            assert secret not in str(await proxy.call("GET", path, {**user, **headers}))
