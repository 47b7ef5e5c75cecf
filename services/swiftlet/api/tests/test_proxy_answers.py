"""Answers that only faults, slow clients and odd requests bring out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError

from swiftlet.api.tests.proxy import LOGIN, SECRET, SMALL, Proxy, proxy_of
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster, reading_order
from swiftlet.settings import LimitsSection

BIG = bytes(range(256)) * 1024


async def raw(proxy: Proxy, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection over which this much has been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    await writer.drain()
    return reader, writer


def head(proxy: Proxy, method: str, path: str, *lines: str) -> bytes:
    """A request's head."""
    token = f"X-Auth-Token: {proxy.token['X-Auth-Token']}"
    return "\r\n".join([f"{method} /v1/{ACCOUNT}/{path} HTTP/1.1", "Host: x", token, *lines, "", ""]).encode()


@pytest.mark.parametrize("sent", [b"", b"x" * (SMALL * 2)], ids=["small", "large"])
async def test_a_client_too_slow_is_answered_408_and_nothing_is_kept(
    cluster: MemoryCluster, tmp_path: Path, sent: bytes
) -> None:
    async with proxy_of(cluster, tmp_path, client_timeout_s=0.05) as proxy:
        request = head(proxy, "PUT", "c/o", f"Content-Length: {len(sent) + 10}")
        reader, writer = await raw(proxy, request + sent)
        assert b" 408 " in await reader.readline()
        writer.close()
    assert cluster.holders() == set()


async def test_a_client_that_goes_away_leaves_nothing(proxy: Proxy) -> None:
    ready, over = asyncio.Event(), asyncio.Event()
    upload = proxy.cluster.objects.begin_upload

    async def begun(*arguments: object) -> object:
        result = await upload(*arguments)  # type: ignore[arg-type]
        abort = result.abort

        async def aborted() -> None:
            await abort()
            over.set()

        result.abort = aborted  # type: ignore[method-assign]
        ready.set()
        return result

    proxy.cluster.objects.begin_upload = begun  # type: ignore[method-assign,assignment]
    _, writer = await raw(proxy, head(proxy, "PUT", "c/o", "Content-Length: 100000") + b"x" * 50_000)
    await asyncio.wait_for(ready.wait(), 10)
    writer.close()
    await asyncio.wait_for(over.wait(), 10)
    assert proxy.cluster.holders() == set()


@pytest.mark.parametrize("ranges", [None, "bytes=0-200000", "bytes=0-9,100000-250000"])
async def test_a_body_whose_rest_nobody_has_is_cut_and_not_short(
    cluster: MemoryCluster, tmp_path: Path, ranges: str | None
) -> None:
    # Without a front, which has links of its own to the devices.
    async with proxy_of(cluster, tmp_path) as proxy:
        await cluster.put(2, BIG)
        for device in cluster.primaries():
            cluster.transport.link(device).lose_after_bytes = 30_000
        headers = {"Range": ranges} if ranges else {}
        response = await proxy.open("GET", "c/o", headers)
        assert response.status == (206 if ranges else 200)
        with pytest.raises((ClientPayloadError, ConnectionError)):
            await response.read()


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1])
async def test_small_and_large_answers_have_the_same_head(proxy: Proxy, size: int) -> None:
    await proxy.cluster.put(2, BIG[:size])
    whole, head_only = await proxy.call("GET", "c/o"), await proxy.call("HEAD", "c/o")
    assert (whole.status, whole.body) == (200, BIG[:size])
    changing = {"Date", "X-Trans-Id", "X-Openstack-Request-Id"}
    assert {k: v for k, v in whole.headers.items() if k not in changing} == {
        k: v for k, v in head_only.headers.items() if k not in changing
    }


async def test_a_small_object_whose_bytes_nobody_has_is_503(cluster: MemoryCluster, tmp_path: Path) -> None:
    # Without a front, which has links of its own to the devices.
    async with proxy_of(cluster, tmp_path) as proxy:
        await cluster.put(2, BIG[:10_240])
        for device in cluster.primaries():
            cluster.transport.link(device).lose_after_bytes = 3_000
        assert (await proxy.call("GET", "c/o")).status == 503


async def test_a_read_goes_on_at_another_device(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await proxy.cluster.put(2, BIG)
    reading_order(monkeypatch, *proxy.cluster.primaries())
    proxy.cluster.transport.link(proxy.cluster.primaries()[0]).lose_after_bytes = 70_000
    assert (await proxy.call("GET", "c/o")).body == BIG


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["c/o", "c", ""])
async def test_too_few_replicas_are_503_with_retry_after(proxy: Proxy, method: str, path: str) -> None:
    if (method, path) in {("PUT", ""), ("DELETE", "")}:
        return  # for reseller admins
    await proxy.call("GET", "c/o")
    with proxy.cluster.down(*proxy.cluster.devices), proxy.cluster.databases_down(*proxy.cluster.devices):
        answer = await proxy.call(method, path)
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert (answer.body == b"") is (method == "HEAD")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("c/absent", {}, 404),
        ("absent", {}, 404),
        ("c/o", {"X-Auth-Token": "AUTH_tkwrong.x"}, 401),
        ("c/o", {"If-None-Match": "*"}, 304),
        ("c/o", {"If-Match": "other"}, 412),
        ("c/%ff", {}, 412),
    ],
)
async def test_answers_to_head_have_no_body(proxy: Proxy, path: str, headers: dict[str, str], status: int) -> None:
    await proxy.cluster.put(2)
    lines = [f"{name}: {value}" for name, value in headers.items() if name != "X-Auth-Token"]
    request = head(proxy, "HEAD", path, *lines, "Connection: close")
    if "X-Auth-Token" in headers:
        request = request.replace(proxy.token["X-Auth-Token"].encode(), headers["X-Auth-Token"].encode())
    reader, writer = await raw(proxy, request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.endswith(b"\r\n\r\n")
    assert answer.count(b"\r\n\r\n") == 1
    assert (b"WWW-Authenticate: " in answer) is (status == 401)


async def test_logins_are_limited_and_say_when_to_come_back(proxy: Proxy) -> None:
    async def login(secret: str) -> tuple[int, str | None]:
        headers = {"X-Auth-User": LOGIN, "X-Auth-Key": secret}
        async with proxy.client.get("/auth/v1.0", headers=headers) as answer:
            return answer.status, answer.headers.get("Retry-After")

    assert await login("wrong") == (401, None)
    proxy.clock.now += 10
    assert await login("wrong") == (401, None)
    proxy.clock.now += 10
    assert await login(SECRET) == (429, "40")
    proxy.clock.now += 39
    assert await login(SECRET) == (429, "1")
    proxy.clock.now += 1
    assert await login(SECRET) == (200, None)


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, "http://here:81/v1/AUTH_test"),
        ("https://objects.example.org", "https://objects.example.org/v1/AUTH_test"),
        ("https://example.org/swift/", "https://example.org/swift/v1/AUTH_test"),
    ],
)
async def test_the_storage_url_is_the_setting_or_the_hosts(
    cluster: MemoryCluster, tmp_path: Path, setting: str | None, shown: str
) -> None:
    async with proxy_of(cluster, tmp_path, storage_url=setting) as proxy:
        headers = {"X-Auth-User": LOGIN, "X-Auth-Key": SECRET, "Host": "here:81"}
        async with proxy.client.get("/auth/v1.0", headers=headers) as answer:
            assert answer.headers["X-Storage-Url"] == shown
            token = {"X-Auth-Token": answer.headers["X-Auth-Token"]}
        assert (await proxy.call("HEAD", "c", token)).status == 204


LIMITS = LimitsSection(
    max_meta_name_length=5, max_meta_value_length=10, max_meta_count=3, max_meta_overall_size=30, max_file_size=2000
)


@pytest.mark.parametrize("kind", ["Account", "Container", "Object"])
@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"abcde": "v"}, None),
        ({"abcdef": "v"}, "Metadata name too long"),
        ({"a": "0123456789"}, None),
        ({"a": "0123456789x"}, "Metadata value longer than 10"),
        ({"a": "\u00e9" * 5}, None),
        ({"a": "\u00e9" * 5 + "x"}, "Metadata value longer than 10"),
        ({"a": "1", "b": "2", "c": "3"}, None),
        ({"a": "1", "b": "2", "c": "3", "d": "4"}, "Too many metadata items"),
        ({"abcde": "0123456789", "bcdef": "0123456789"}, None),
        ({"abcde": "0123456789", "bcdef": "0123456789", "c": ""}, "Total metadata too large"),
        ({"": "v"}, "Metadata name cannot be empty"),
    ],
)
async def test_metadata_limits(
    cluster: MemoryCluster, tmp_path: Path, kind: str, items: dict[str, str], message: str | None
) -> None:
    path = {"Account": "", "Container": "c", "Object": "c/o"}[kind]
    await cluster.put(2)
    async with proxy_of(cluster, tmp_path, limits=LIMITS) as proxy:
        headers = {f"X-{kind}-Meta-{name}": value for name, value in items.items()}
        answer = await proxy.call("POST", path, headers)
        if message is not None:
            assert answer.status == 400
            assert message in answer.body.decode()
            return
        assert answer.status in {202, 204}
        kept = (await proxy.call("HEAD", path)).headers
        assert {name: kept[f"X-{kind}-Meta-{name}"] for name in items} == items


@pytest.mark.parametrize(("size", "status"), [(0, 201), (SMALL, 201), (SMALL + 1, 201), (2000, 201), (2001, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_object_sizes_at_the_limits(
    cluster: MemoryCluster, tmp_path: Path, size: int, status: int, chunked: bool
) -> None:
    async def pieces() -> object:  # an asynchronous generator makes aiohttp's client send chunks
        for _ in range(size):
            yield b"x"

    async with proxy_of(cluster, tmp_path, limits=LIMITS) as proxy:
        answer = await proxy.call("PUT", "c/o", data=pieces() if chunked else b"x" * size)
        assert answer.status == status
        assert bool(cluster.holders()) is (status == 201)
        if status == 201:
            assert (await proxy.call("GET", "c/o")).body == b"x" * size


class TestExpect:
    """`Expect` in a request's head."""

    async def test_an_upload_that_is_refused_is_never_sent(self, proxy: Proxy) -> None:
        request = head(proxy, "PUT", "absent/o", "Content-Length: 10", "Expect: 100-continue")
        reader, writer = await raw(proxy, request)
        assert b" 404 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()

    async def test_an_upload_that_is_welcome_is_asked_for(self, proxy: Proxy) -> None:
        request = head(proxy, "PUT", "c/o", "Content-Length: 4", "Expect: 100-Continue", "Connection: close")
        reader, writer = await raw(proxy, request)
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"data")
        assert b" 201 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        assert await proxy.cluster.read() == b"data"

    @pytest.mark.parametrize("method", ["PUT", "HEAD"])
    async def test_other_expectations_are_417(self, proxy: Proxy, method: str) -> None:
        request = head(proxy, method, "c/o", "Content-Length: 0", "Expect: 200-ok", "Connection: close")
        reader, writer = await raw(proxy, request)
        assert b" 417 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()


async def test_a_full_cluster_refuses_writes_and_takes_deletions(proxy: Proxy) -> None:
    await proxy.cluster.put(2)
    for device in proxy.cluster.devices:
        proxy.cluster.store(device).faults.full = True
    assert (await proxy.call("PUT", "c/o", data=b"new")).status == 503
    assert (await proxy.call("PUT", "c/o", data=BIG)).status == 503
    assert (await proxy.call("GET", "c/o")).body == b"data"
    assert (await proxy.call("DELETE", "c/o")).status == 204
