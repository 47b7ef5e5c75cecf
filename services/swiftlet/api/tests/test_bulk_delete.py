"""Lists of names to delete over HTTP: what goes, what the report says, and lists that are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path as Directory
from typing import Any
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings.bulk import BulkSection

HEADERS = {"Accept": "application/json", "Content-Type": "text/plain"}


async def delete(
    proxy: Proxy,
    lines: Any,
    headers: Mapping[str, str] | None = None,
    path: str = "",
    method: str = "POST",
    query: str = "bulk-delete",
) -> dict[str, Any]:
    data = "\n".join(lines).encode() if isinstance(lines, list) else lines
    answer = await proxy.call(method, path, {**HEADERS, **(headers or {})}, data, query)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def report(
    deleted: int, missing: int = 0, status: str = "200 OK", body: str = "", errors: Sequence[Any] = ()
) -> dict[str, Any]:
    return {
        "Number Deleted": deleted,
        "Number Not Found": missing,
        "Response Status": status,
        "Response Body": body,
        "Errors": [list(error) for error in errors],
    }


async def fill(proxy: Proxy, *names: str, container: str = "c") -> None:
    for name in names:
        assert (await proxy.call("PUT", f"{container}/{quote(name).replace('.', '%2E')}", data=b"1")).status == 201


async def names(proxy: Proxy, container: str = "c") -> list[str]:
    return [row["name"] for row in json.loads((await proxy.call("GET", container, query="format=json")).body)]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("query", ["bulk-delete", "bulk-delete=true"])
async def test_objects(proxy: Proxy, method: str, query: str) -> None:
    odd = "\u00e9 %2F\n/.."
    await fill(proxy, "a", "b/", odd, "stays")
    lines = ["/c/a", "c/b/", "", "   ", "/c/" + quote(odd), "/c/absent\r", "/absent/a"]
    assert await delete(proxy, lines, method=method, query=query) == report(3, 2)
    assert await names(proxy) == ["stays"]


async def test_objects_go_before_their_containers(proxy: Proxy) -> None:
    await fill(proxy, "a", "b")
    assert await delete(proxy, ["/c", "/c/a", "c/b", "/other/"]) == report(3, 1)
    assert (await proxy.call("HEAD", "c")).status == 404


async def test_a_container_with_objects_stays(proxy: Proxy) -> None:
    await fill(proxy, "a")
    assert await delete(proxy, ["c"]) == report(0, 0, "400 Bad Request", errors=[("c", "409 Conflict")])
    assert await names(proxy) == ["a"]


async def test_twice_the_same(proxy: Proxy) -> None:
    await fill(proxy, "a")
    found = await delete(proxy, ["c/a", "c/a", "c/a"])
    assert found["Number Deleted"] + found["Number Not Found"] == 3
    assert found["Number Deleted"] >= 1


async def test_names_are_of_the_account_whatever_the_path(proxy: Proxy) -> None:
    await fill(proxy, "a")
    assert await delete(proxy, ["c/a"], path="c") == report(1)


async def test_names_that_are_none(proxy: Proxy) -> None:
    lines = [b"c/%ff", b"c/a%00b", b"c/" + b"n" * 1025, b"k" * 257 + b"/a", b"/"]
    found = await delete(proxy, b"\n".join(lines))
    assert (found["Number Deleted"], found["Response Status"]) == (0, "400 Bad Request")
    assert sorted(found["Errors"]) == sorted(
        [
            ["c/%FF", "412 Precondition Failed"],
            ["c/a%00b", "412 Precondition Failed"],
            ["c/" + "n" * 1025, "400 Bad Request"],
            ["k" * 257 + "/a", "400 Bad Request"],
            ["/", "412 Precondition Failed"],
        ]
    )


@pytest.mark.parametrize("lines", [b"", b"\n\n \n"])
async def test_nothing_to_delete(proxy: Proxy, lines: bytes) -> None:
    assert await delete(proxy, lines) == report(0, 0, "400 Bad Request", "Invalid bulk delete.")


async def test_a_line_without_end(proxy: Proxy) -> None:
    await fill(proxy, "a")
    found = await delete(proxy, b"c/a\n" + b"x" * 100_000)
    assert found == report(0, 0, "400 Bad Request", "Invalid File Name")
    assert await names(proxy) == ["a"], "nothing half-done"


async def test_another_content_type(proxy: Proxy) -> None:
    found = await delete(proxy, ["c/a"], {"Content-Type": "application/json"})
    assert found["Response Status"] == "406 Not Acceptable"


async def test_too_many_names(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, bulk=BulkSection(max_deletes_per_request=2)) as proxy:
        await fill(proxy, "a", "b", "d")
        found = await delete(proxy, ["c/a", "c/b", "c/d"])
        assert found == report(0, 0, "413 Request Entity Too Large", "Maximum Bulk Deletes: 2 per request")
        assert await names(proxy) == ["a", "b", "d"]
        assert await delete(proxy, ["c/a", "c/b"]) == report(2)


async def test_too_many_failures(cluster: MemoryCluster, tmp_path: Directory) -> None:
    section = BulkSection(max_failed_deletes=2, delete_concurrency=1)
    async with proxy_of(cluster, tmp_path, bulk=section) as proxy:
        await fill(proxy, "z")
        found = await delete(proxy, [b"c/%ff".decode()] * 5 + ["c/z"])
        assert (found["Response Status"], found["Response Body"]) == ("400 Bad Request", "Max delete failures exceeded")
        assert len(found["Errors"]) == 2
        assert await names(proxy) == ["z"]


async def test_rights_are_those_at_each_name(proxy: Proxy) -> None:
    await proxy.call("PUT", "open", {"X-Container-Write": "other:friend"})
    await fill(proxy, "a")
    await fill(proxy, "a", container="open")
    found = await delete(proxy, ["c/a", "open/a", "open", "none/a"], proxy.token_of("other:friend", Role.USER))
    assert (found["Number Deleted"], found["Response Status"]) == (1, "400 Bad Request")
    refused = [["c/a", "403 Forbidden"], ["none/a", "403 Forbidden"], ["open", "403 Forbidden"]]
    assert sorted(found["Errors"]) == refused
    assert await names(proxy) == ["a"]
    assert await names(proxy, "open") == []


async def test_without_a_token(proxy: Proxy) -> None:
    for method in ("POST", "DELETE"):
        answer = await proxy.anonymous(method, "", HEADERS, b"c/a", "bulk-delete")
        assert answer.status == 401
        assert "WWW-Authenticate" in answer.headers


async def test_devices_away(proxy: Proxy) -> None:
    await fill(proxy, "a")
    with proxy.cluster.down(*proxy.cluster.devices):
        found = await delete(proxy, ["c/a"])
    assert found == report(0, 0, "502 Bad Gateway", errors=[("c/a", "503 Service Unavailable")])


async def test_no_more_at_a_time_than_allowed(
    cluster: MemoryCluster, tmp_path: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = most = 0

    async def remove(*_: object) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1

    monkeypatch.setattr("swiftlet.api.requests.bulk_delete.delete_one", remove)
    async with proxy_of(cluster, tmp_path, bulk=BulkSection(delete_concurrency=3)) as proxy:
        assert await delete(proxy, [f"c/{number}" for number in range(50)]) == report(50)
    assert most == 3


async def test_formats_of_reports(proxy: Proxy) -> None:
    text = await proxy.call("POST", "", {"Content-Type": "text/plain"}, b"c/x", "bulk-delete")
    assert text.headers["Content-Type"].startswith("text/plain")
    assert text.body.decode().strip().split("\n") == [
        "Number Deleted: 0",
        "Number Not Found: 1",
        "Response Body: ",
        "Response Status: 200 OK",
        "Errors:",
    ]
    xml = await proxy.call("POST", "", {**HEADERS, "Accept": "application/xml"}, b"c/%ff<", "bulk-delete")
    assert b"<delete>\n<number_deleted>0</number_deleted>" in xml.body
    assert b"<object><name>c/%FF%3C</name><status>412 Precondition Failed</status></object>" in xml.body
    assert (await proxy.call("POST", "", {**HEADERS, "Accept": "image/png"}, b"c/x", "bulk-delete")).status == 406


async def test_a_client_that_waits_to_be_asked(proxy: Proxy) -> None:
    await fill(proxy, "a")

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"c", b"/", b"a\nc/", b"b"):
            yield piece

    assert await delete(proxy, pieces(), {"Expect": "100-continue"}) == report(1, 1)


async def test_info(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as response:
        shown = await response.json()
    assert shown["bulk_delete"] == {"max_deletes_per_request": 10000, "max_failed_deletes": 1000}


async def test_ordinary_requests_are_not_taken_for_bulk_ones(proxy: Proxy) -> None:
    await fill(proxy, "a")
    assert (await proxy.call("GET", "c/a", query="bulk-delete")).status == 200
    assert (await proxy.call("POST", "c", {"X-Container-Meta-A": ACCOUNT})).status == 204
