"""Clocks of different proxies, writes that overtake each other, and containers that change behind the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet.api.tests.proxy import SMALL, Proxy, proxy_of
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, PATH, MemoryCluster, at

LARGE = b"x" * (SMALL * 200)
SIZES = pytest.mark.parametrize("body", [b"small", LARGE], ids=["small", "large"])


async def body_of(proxy: Proxy) -> bytes:
    return (await proxy.call("GET", "c/o", {"X-Newest": "true"})).body


@SIZES
async def test_a_write_beats_one_whose_clock_is_ahead(proxy: Proxy, body: bytes) -> None:
    await proxy.cluster.put(proxy.clock.now + 59, b"from the future")
    answer = await proxy.call("PUT", "c/o", data=body)
    assert answer.status == 201
    assert await body_of(proxy) == body
    stored = proxy.cluster.info(proxy.cluster.primaries()[0])
    assert stored is not None
    assert stored.timestamp > at(proxy.clock.now + 59)
    assert answer.headers["Last-Modified"] == stored.timestamp.http_date


@SIZES
async def test_a_clock_too_far_ahead_is_not_believed(proxy: Proxy, body: bytes) -> None:
    await proxy.cluster.put(proxy.clock.now + 61, b"from the future")
    assert (await proxy.call("PUT", "c/o", data=body)).status == 409
    assert (await proxy.call("DELETE", "c/o")).status == 409
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-A": "1"})).status == 409
    assert await body_of(proxy) == b"from the future"


async def test_post_and_delete_beat_a_clock_that_is_ahead(proxy: Proxy) -> None:
    await proxy.cluster.put(proxy.clock.now + 30)
    assert (await proxy.call("POST", "c/o", {"X-Object-Meta-A": "1"})).status == 202
    assert (await proxy.call("HEAD", "c/o")).headers["X-Object-Meta-A"] == "1"
    await proxy.cluster.put(proxy.clock.now + 50)
    assert (await proxy.call("DELETE", "c/o")).status == 204
    assert (await proxy.call("GET", "c/o")).status == 404


async def test_containers_and_accounts_beat_a_clock_that_is_ahead(proxy: Proxy) -> None:
    await proxy.cluster.listings.put_container(ACCOUNT, CONTAINER, at(proxy.clock.now + 20), {}, None, 0)
    assert (await proxy.call("DELETE", "c")).status == 204
    await proxy.cluster.make_container("d", proxy.clock.now)
    await proxy.cluster.listings.delete_container(ACCOUNT, "d", at(proxy.clock.now + 40))
    assert (await proxy.call("PUT", "d")).status == 201
    await proxy.cluster.listings.delete_container(ACCOUNT, "d", at(proxy.clock.now + 120))
    assert (await proxy.call("PUT", "d")).status == 409


@SIZES
async def test_a_concurrent_overwrite_is_answered_201(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """The other write begins later and ends earlier: this one counts as having happened just before it."""
    name = "put" if body != LARGE else "begin_upload"
    original = getattr(proxy.cluster.objects, name)

    async def overtaken(*arguments: object) -> object:
        result = None
        if name == "begin_upload":
            result = await original(*arguments)
            # Else it would be found while devices are asked, and this write would begin again after the other one.
            await result.opened()
        proxy.clock.now += 5
        for device in proxy.cluster.primaries():
            proxy.cluster.place(device, proxy.clock.now - 1, b"the other")
        return result or await original(*arguments)

    monkeypatch.setattr(proxy.cluster.objects, name, overtaken)
    answer = await proxy.call("PUT", "c/o", data=body)
    assert answer.status == 201
    assert await body_of(proxy) == b"the other"


@SIZES
async def test_a_container_deleted_elsewhere_is_404_and_the_object_is_gone(
    proxy: Proxy, tmp_path: Path, body: bytes
) -> None:
    async with proxy_of(proxy.cluster, tmp_path) as other:
        assert (await proxy.call("PUT", "c/first")).status == 201
        proxy.clock.now += 1
        assert (await proxy.call("DELETE", "c/first")).status == 204
        other.clock.now = proxy.clock.now + 1
        assert (await other.call("DELETE", "c")).status == 204
        answer = await proxy.call("PUT", "c/o", data=body)
        assert answer.status == 404
        assert b"container 'c' does not exist" in answer.body
        assert proxy.cluster.holders() == set()
        assert (await proxy.call("PUT", "c/o", data=body)).status == 404


async def test_a_container_that_was_recreated_with_another_policy_is_found_again(proxy: Proxy, tmp_path: Path) -> None:
    async with proxy_of(proxy.cluster, tmp_path) as other:
        assert (await proxy.call("HEAD", "c/o")).status == 404
        other.clock.now = proxy.clock.now + 1
        assert (await other.call("DELETE", "c")).status == 204
        other.clock.now += 1
        assert (await other.call("PUT", "c", {"X-Storage-Policy": "Silver"})).status == 201
        assert (await other.call("PUT", "c/o", data=b"silver")).status == 201
        proxy.clock.now = other.clock.now + 1
        assert (await proxy.call("GET", "c/o")).body == b"silver"
        assert (await proxy.call("HEAD", "c")).headers["X-Storage-Policy"] == "silver"
    async with proxy_of(proxy.cluster, tmp_path) as third:
        third.clock.now = proxy.clock.now + 1
        info = await proxy.cluster.listings.container_info(ACCOUNT, CONTAINER)
        outdated = type(info)(ACCOUNT, "c", at(1), at(1), 0, 0, 0, {})
        third.api.containers.remember(outdated)
        assert (await third.call("DELETE", "c/o")).status == 204
        assert (await third.call("GET", "c/o")).status == 404
        assert proxy.cluster.info(proxy.cluster.primaries()[0], PATH, policy=1) is None


async def test_a_deletion_in_this_process_is_known_at_once(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object request may have asked for the container again while it was being deleted."""
    delete = proxy.cluster.listings.delete_container

    async def meanwhile(*arguments: object) -> None:
        await proxy.call("HEAD", "c/o")
        await delete(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(proxy.cluster.listings, "delete_container", meanwhile)
    assert (await proxy.call("DELETE", "c")).status == 204
    assert proxy.api.containers.known(ACCOUNT, CONTAINER) is None


async def test_ranges_of_an_object_that_is_replaced_meanwhile(proxy: Proxy, cluster: MemoryCluster) -> None:
    """All replicas get another version between the first look and the reading of the ranges."""
    await cluster.put(2, b"0123456789")
    head = cluster.objects.head

    async def then_replaced(*arguments: object) -> object:
        info = await head(*arguments)  # type: ignore[arg-type]
        for device in cluster.primaries():
            cluster.place(device, 3, b"9876543210")
        return info

    cluster.objects.head = then_replaced  # type: ignore[method-assign,assignment]
    answer = await proxy.call("GET", "c/o", {"Range": "bytes=-3"})
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    cluster.objects.head = head  # type: ignore[method-assign]
    assert (await proxy.call("GET", "c/o", {"Range": "bytes=-3"})).body == b"210"


async def test_ranges_skip_replicas_of_another_version(proxy: Proxy, cluster: MemoryCluster) -> None:
    for index, device in enumerate(cluster.primaries()):
        cluster.place(device, 3 - (index == 2), b"0123456789" if index == 2 else b"abcdefghij")
    whole = {b"0123456789": "old", b"abcdefghij": "new"}
    for _ in range(30):
        answer = await proxy.call("GET", "c/o", {"Range": "bytes=0-4,5-9"})
        assert answer.status == 206
        lines = [line for line in answer.body.split(b"\r\n") if len(line) == 5]
        assert b"".join(lines) in whole


async def test_an_upload_behind_a_newer_post_keeps_that_posts_metadata(proxy: Proxy) -> None:
    for device in proxy.cluster.primaries():
        proxy.cluster.place(device, proxy.clock.now - 5)
        proxy.cluster.place_post(device, proxy.clock.now + 5, {"X-Object-Meta-A": "later"})
    assert (await proxy.call("PUT", "c/o", data=b"data")).status == 201
    assert (await proxy.call("HEAD", "c/o")).headers["X-Object-Meta-A"] == "later"
