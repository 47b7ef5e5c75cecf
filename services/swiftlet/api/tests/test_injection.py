"""Names and values that would be more than that somewhere else: header lines, paths, addresses, internal headers.

Fault model: a client chooses every byte of a name, a header's value and a parameter. None of them becomes a line of
an answer's head, a step up in a path, an address that is asked, or a header that only servers send each other.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import Answer, Proxy
from swiftlet.api.tests.signing import KEY, temp_url
from swiftlet.api.tests.test_form_post import TYPE, encode, signed
from swiftlet.placement.tests.cluster import ACCOUNT

EVIL = "a\r\nEvil: yes\r\n\r\n<script>"
QUOTED = quote(EVIL, safe="")


async def raw(proxy: Proxy, method: str, path: str, headers: Mapping[str, str | bytes] | None = None) -> bytes:
    """All bytes of the answer to a request below the account whose path is sent as it is."""
    lines = [f"{method} /v1/{ACCOUNT}/{path} HTTP/1.1".encode("latin-1"), b"Host: x", b"Connection: close"]
    for name, value in {**proxy.token, **(headers or {})}.items():
        lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"\r\n".join([*lines, b"Content-Length: 0", b"", b""]))
    async with asyncio.timeout(20):
        answer = await reader.read(-1)
    writer.close()
    return answer


def harmless(answer: bytes, *statuses: int) -> dict[str, str]:
    """The head of an answer without a line of somebody else's making."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    assert int(head[0].split()[1]) in statuses, head
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    assert "evil" not in headers
    assert all(re.fullmatch(r"[A-Za-z0-9-]+: [^\r\n\0]*", line) for line in head[1:]), head
    return headers


async def test_names_in_the_head_of_an_answer_stay_encoded(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", f"c/{QUOTED}", data=b"x")).status == 201
    copied = harmless(await raw(proxy, "COPY", f"c/{QUOTED}", {"Destination": "c/copy"}), 201)
    assert copied["x-copied-from"] == f"c/{QUOTED}"
    harmless(await raw(proxy, "PUT", "c/copy2", {"X-Copy-From": f"c/{QUOTED}"}), 201)

    harmless(await raw(proxy, "PUT", "c/link", {"X-Symlink-Target": f"c/{QUOTED}"}), 201)
    shown = harmless(await raw(proxy, "GET", "c/link"), 200)
    assert shown["content-location"].endswith(QUOTED)
    harmless(await raw(proxy, "GET", "c/link?symlink=get"), 200)
    moved = harmless(await raw(proxy, "POST", "c/link", {"X-Object-Meta-A": "b"}), 307)
    assert moved["location"].endswith(QUOTED)

    harmless(await raw(proxy, "PUT", "c/dlo", {"X-Object-Manifest": f"c/{QUOTED}"}), 201)
    harmless(await raw(proxy, "HEAD", "c/dlo"), 200)
    assert (await proxy.call("POST", "c", {"X-Versions-Enabled": "true"})).status == 204
    harmless(await raw(proxy, "PUT", f"c/{QUOTED}"), 201)
    harmless(await raw(proxy, "GET", f"c/{QUOTED}"), 200)
    harmless(await raw(proxy, "DELETE", f"c/{QUOTED}"), 204)
    for missing in (
        f"{QUOTED}/o",
        f"c/{QUOTED}",
        f"c/{QUOTED}?version-id={QUOTED}",
        f"c?marker={QUOTED}&format={QUOTED}",
    ):
        harmless(await raw(proxy, "GET", missing), 200, 204, 400, 404, 412)


async def test_redirects_of_sites_and_forms(proxy: Proxy) -> None:
    web = {"X-Container-Read": ".r:*", "X-Container-Meta-Web-Listings": "true", "X-Container-Meta-Web-Index": "i"}
    assert (await proxy.call("POST", "c", web)).status == 204
    assert (await proxy.call("PUT", f"c/{QUOTED}/i", data=b"x")).status == 201
    hosts: tuple[bytes, ...] = (b"x", b"evil.org/\tx", b"a b", b"evil.org@x", "\u00e9".encode())
    for host in hosts:
        moved = await raw(proxy, "GET", f"c/{QUOTED}", {"X-Auth-Token": "", "X-Forwarded-Host": host})
        assert "evil.org" not in harmless(moved, 301)["location"]

    assert (await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})).status == 204
    data = encode(signed(redirect="https://a.org/\r\nEvil: yes"), [("f", b"x", "")])
    async with proxy.client.post(proxy.url("c/up/"), data=data, headers=TYPE, allow_redirects=False) as answer:
        assert answer.status < 500
        assert "Evil" not in answer.headers


async def test_dispositions(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    assert (await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})).status == 204
    url = temp_url("GET")
    for name in (QUOTED, "%22%3B%20filename%3Dx", "%00", "%e2%80%ae%0a", "a" * 3000):
        for more in (f"&filename={name}", f"&inline&filename={name}"):
            shown = harmless(await raw(proxy, "GET", f"c/o?{url}{more}", {"X-Auth-Token": ""}), 200, 400)
            assert shown.get("content-disposition", "").count(";") <= 2
    for value in (b'attachment; filename="a\rEvil: yes"', b"a\0b"):
        harmless(await raw(proxy, "PUT", "c/o", {"Content-Disposition": value}), 400)
        harmless(await raw(proxy, "POST", "c/o", {"X-Object-Meta-A": value}), 400)


@pytest.mark.parametrize(
    "path",
    [
        "c/../private/o",
        "c/./../private/o",
        "c/..%2Fprivate%2Fo",
        "c/%2e%2e/private/o",
        "c/%2e%2e%2fprivate%2fo",
        "c/..%252Fprivate%252Fo",
        "c/..\\private\\o",
        "c/..%5Cprivate%5Co",
        "c/..;/private/o",
        "c/%c0%ae%c0%ae/private/o",
        "c/..%c0%afprivate%c0%afo",
        "c/..%e0%80%afprivate/o",
        "c/..%f0%80%80%afprivate/o",
        "c/o%00/../private/o",
        "c%2F..%2Fprivate/o",
        "c%00/o",
        "%2e%2e/AUTH_other/private/o",
        "../AUTH_test/private/o",
        "..%2FAUTH_test/private/o",
        "c//private/o",
        "c/http://127.0.0.1/private/o",
    ],
)
async def test_paths_lead_nowhere_else(proxy: Proxy, path: str) -> None:
    """An object may be called that; it is never another one, for no method, header or parameter."""
    for name in ("private", "private/o"):
        assert (await proxy.call("PUT", name, data=None if name == "private" else b"PRIVATE")).status == 201
    assert (await proxy.call("POST", "c", {"X-Container-Read": ".r:*", "X-Container-Write": "*"})).status == 204
    eve = proxy.token_of("other:eve")
    for headers in ({"X-Auth-Token": ""}, eve):
        assert b"PRIVATE" not in await raw(proxy, "GET", path, headers)
    for header, method, target in (
        ("X-Copy-From", "PUT", "c/copy"),
        ("X-Symlink-Target", "PUT", "c/link"),
        ("X-Object-Manifest", "PUT", "c/manifest"),
        ("Destination", "COPY", "c/missing"),
    ):
        harmless(await raw(proxy, method, target, {**eve, header: path}), 201, 400, 403, 404, 412)
        assert b"PRIVATE" not in await raw(proxy, "GET", target, eve)
    for method in ("PUT", "DELETE", "POST"):
        harmless(await raw(proxy, method, path, eve), 201, 202, 204, 400, 403, 404, 412)
    assert (await proxy.call("GET", "private/o")).body == b"PRIVATE"


POINTING = (
    "X-Symlink-Target",
    "X-Symlink-Target-Account",
    "X-Copy-From",
    "X-Copy-From-Account",
    "Destination-Account",
    "X-Versions-Location",
    "X-History-Location",
    "X-Object-Manifest",
    "Host",
    "X-Forwarded-Host",
    "Via",
    "Origin",
    "X-Container-Meta-Web-Error",
    "X-Container-Meta-Web-Listings-CSS",
    "X-Container-Sync-To",
)


async def test_no_header_makes_the_proxy_ask_an_address(proxy: Proxy) -> None:
    visitors: list[object] = []
    trap = await asyncio.start_server(lambda reader, writer: visitors.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{trap.sockets[0].getsockname()[1]}"
    async with trap:
        for value in (f"http://{address}/x", address, f"//{address}/a/c/o", f"gopher://{address}/_x", f"x@{address}"):
            for header in POINTING:
                for method, path in (("PUT", "c/new"), ("POST", "c"), ("COPY", "c/o"), ("GET", "c/new")):
                    answer = await raw(proxy, method, path, {header: value})
                    assert int(answer.split()[1]) < 500 or b" 501 " in answer[:20], (header, answer)
        body = json.dumps([{"path": f"http://{address}/x"}, {"path": f"//{address}/x"}]).encode()
        assert (await proxy.call("PUT", "c/m", data=body, query="multipart-manifest=put")).status == 400
        login = json.dumps({"auth": {"passwordCredentials": {"username": f"http://{address}", "password": "x"}}})
        async with proxy.client.post("/v2.0/tokens", data=login.encode()) as response:
            assert response.status == 401
    assert visitors == []


INTERNAL = {
    "X-Timestamp": "1.00000",
    "X-Put-Timestamp": "1.00000",
    "X-Delete-Timestamp": "1.00000",
    "X-Backend-Timestamp": "1.00000",
    "X-Backend-Storage-Policy-Index": "1",
    "X-Backend-Replication": "true",
    "X-Backend-Allow-Reserved-Names": "true",
    "X-Backend-Container-Path": "/a/b",
    "X-Object-Sysmeta-Slo-Etag": "forged",
    "X-Object-Sysmeta-Symlink-Target": "private/o",
    "X-Object-Transient-Sysmeta-A": "forged",
    "X-Container-Sysmeta-Versions": "forged",
    "X-Account-Sysmeta-Core-Access-Control": '{"admin":["other:eve"]}',
    "X-Container-Host": "127.0.0.1:1",
    "X-Container-Device": "sda",
    "X-Container-Partition": "1",
    "X-Trans-Id": "forged",
    "X-Openstack-Request-Id": "forged",
    "X-Copied-From": "forged/o",
    "X-Object-Version-Id": "forged",
    "X-Manifest-Etag": "forged",
}


@pytest.mark.parametrize("path", ["", "c", "c/o"])
async def test_internal_headers_of_clients_are_dropped(proxy: Proxy, path: str) -> None:
    plain = await proxy.call("PUT" if path else "POST", path, data=b"x" if path == "c/o" else None)
    assert plain.status in {201, 202, 204}
    before = await proxy.call("HEAD", path)
    for method in ("PUT", "POST") if path else ("POST",):
        data = b"x" if (method, path) == ("PUT", "c/o") else None
        answer = await proxy.call(method, path, INTERNAL, data)
        assert answer.status in {201, 202, 204}, answer
        after = await proxy.call("HEAD", path, INTERNAL)
        assert set(after.headers) == set(before.headers)
        assert not [value for one in (answer, after) for value in one.headers.values() if "forged" in value]
        assert float(after.headers["X-Timestamp"]) >= float(before.headers["X-Timestamp"])
    assert_same_policy(before, after)
    if path == "c/o":
        assert (await proxy.call("GET", path, INTERNAL)).body == b"x"
    assert (await proxy.call("GET", "", proxy.token_of("other:eve"))).status == 403


def assert_same_policy(before: Answer, after: Answer) -> None:
    """Nobody has moved the container."""
    assert before.headers.get("X-Storage-Policy") == after.headers.get("X-Storage-Policy")
