"""Quotas: who sets them, what is refused and with which words, and that precise limits hold against many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.api.tests import test_form_post as form
from swiftlet.api.tests.proxy import Answer, Proxy
from swiftlet.api.tests.quotas import limit, proxies, reseller
from swiftlet.api.writing import quota_checks
from swiftlet.auth.identity import Role
from swiftlet.errors import Unavailable
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster
from swiftlet.quota import parse_quotas
from swiftlet.testing.storage.memory_listing import Fault


@pytest.fixture
async def pair(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[list[Proxy]]:
    async with proxies(cluster, tmp_path, 2) as made:
        assert (await made[0].call("PUT", "c")).status == 202
        yield made


@pytest.fixture
def proxy(pair: list[Proxy]) -> Proxy:
    return pair[0]


async def chunked(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


async def usage(proxy: Proxy, container: str = CONTAINER) -> tuple[int, int]:
    info = await proxy.api.listings.container_info(ACCOUNT, container)
    return info.object_count, info.bytes_used


def by_mode(precise: bool) -> str:
    return "precise" if precise else "cached"


both_modes = pytest.mark.parametrize("precise", [True, False], ids=by_mode)


# What is refused, and how.


@both_modes
async def test_objects_of_a_container(proxy: Proxy, precise: bool) -> None:
    limit(proxy, precise, object_count=3)
    statuses = [(await proxy.call("PUT", f"c/{n}", data=b"x")).status for n in range(4)]
    assert statuses == [201, 201, 201, 413]
    refused = await proxy.call("PUT", "c/more", data=b"x")
    assert refused.body == (
        b"Upload exceeds quota. container 'c' may hold 3 objects (object_count of level default), "
        b"3 are used, 1 more were asked for"
    )
    assert (await proxy.call("DELETE", "c/0")).status == 204
    assert (await usage(proxy))[0] == 2
    if precise:
        assert (await proxy.call("PUT", "c/more", data=b"x")).status == 201


@both_modes
async def test_bytes_of_a_container(proxy: Proxy, precise: bool) -> None:
    limit(proxy, precise, container_usage_bytes=5000)
    assert (await proxy.call("PUT", "c/a", data=bytes(3000))).status == 201
    refused = await proxy.call("PUT", "c/b", data=bytes(2001))
    assert refused.status == 413
    assert b"may hold 5000 bytes (container_usage_bytes of level default), 3000 are used, 2001 more" in refused.body
    assert (await proxy.call("PUT", "c/b", data=bytes(2000))).status == 201
    # Nothing is left for bytes, but for objects without any.
    assert (await proxy.call("PUT", "c/empty", data=b"")).status == 201
    assert await usage(proxy) == (3, 5000)


@both_modes
async def test_older_versions_count_as_bytes_of_their_container(proxy: Proxy, precise: bool) -> None:
    limit(proxy, precise)
    headers = {
        "X-Versions-Enabled": "true",
        "X-Container-Meta-Quota-Bytes": "5000",
        "X-Container-Meta-Quota-Count": "3",
    }
    assert (await proxy.call("POST", "c", headers)).status == 204
    for size in (3000, 1500):
        assert (await proxy.call("PUT", "c/o", data=bytes(size))).status == 201
    refused = await proxy.call("PUT", "c/o", data=bytes(501))
    assert (refused.status, b"container 'c' may hold 5000 bytes" in refused.body) == (413, True)
    if not precise:
        return  # What is remembered of the objects counts each version as one more.
    assert b"4500 are used, 501 more" in refused.body
    # Versions are no objects of the container, so three objects may have more of them.
    for _ in range(4):
        assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    # What is written without a version counts beside the versions that are there.
    assert (await proxy.call("POST", "c", {"X-Versions-Enabled": "false"})).status == 204
    refused = await proxy.call("PUT", "c/plain", data=bytes(497))
    assert (refused.status, b"container 'c' may hold 5000 bytes" in refused.body) == (413, True)
    assert (await proxy.call("PUT", "c/plain", data=bytes(496))).status == 201


@both_modes
async def test_objects_and_bytes_of_an_account(proxy: Proxy, precise: bool) -> None:
    assert (await proxy.call("PUT", "d")).status == 201
    limit(proxy, precise, account_object_count=4, account_usage_bytes=100)
    for name in ("c/1", "d/1", "c/2"):
        assert (await proxy.call("PUT", name, data=bytes(30))).status == 201
    refused = await proxy.call("PUT", "d/2", data=bytes(11))
    assert (refused.status, b"account 'AUTH_test' may hold 100 bytes" in refused.body) == (413, True)
    assert b"90 are used, 11 more" in refused.body
    assert (await proxy.call("PUT", "d/2", data=bytes(10))).status == 201
    refused = await proxy.call("PUT", "c/3", data=b"")
    assert (refused.status, b"(account_object_count of level default), 4 are used" in refused.body) == (413, True)


@both_modes
async def test_containers_of_an_account(proxy: Proxy, precise: bool) -> None:
    limit(proxy, precise, container_count=3)
    assert [(await proxy.call("PUT", name)).status for name in ("d", "e", "f")] == [201, 201, 413]
    # One that is there can be changed.
    assert (await proxy.call("PUT", "d", {"X-Container-Meta-Color": "red"})).status == 202
    assert b"container_count of level default" in (await proxy.call("PUT", "f")).body
    assert (await proxy.call("DELETE", "e")).status == 204
    if precise:
        assert (await proxy.call("PUT", "f")).status == 201


@both_modes
async def test_an_upload_of_unknown_size_is_cut_off(proxy: Proxy, precise: bool) -> None:
    limit(proxy, precise, container_usage_bytes=10_000)
    assert (await proxy.call("PUT", "c/fits", data=chunked(bytes(5000), bytes(4000)))).status == 201
    refused = await proxy.call("PUT", "c/large", data=chunked(*[bytes(600)] * 1000))
    assert (refused.status, b"Upload exceeds quota." in refused.body) == (413, True)
    assert await usage(proxy) == (1, 9000)
    # To the last byte.
    assert (await proxy.call("PUT", "c/rest", data=chunked(bytes(900), bytes(100)))).status == 201
    assert await usage(proxy) == (2, 10_000)
    assert (await proxy.call("PUT", "c/one", data=chunked(b"x"))).status == 413


async def test_copies_and_manifests_pass_the_same_check(proxy: Proxy) -> None:
    assert (await proxy.call("PUT", "c/o", data=bytes(100))).status == 201
    limit(proxy, container_usage_bytes=150, object_count=10)
    assert (await proxy.call("COPY", "c/o", {"Destination": "c/copy"})).status == 413
    assert (await proxy.call("PUT", "c/copy", {"X-Copy-From": "c/o", "Content-Length": "0"})).status == 413
    manifest = json.dumps([{"path": "c/o"}]).encode()
    assert (await proxy.call("PUT", "c/slo", data=manifest, query="multipart-manifest=put")).status == 413
    assert (await proxy.call("PUT", "c/dlo", {"X-Object-Manifest": "c/o"}, data=b"")).status == 201
    limit(proxy, object_count=2)
    assert (await proxy.call("PUT", "c/dlo2", {"X-Object-Manifest": "c/o"}, data=b"")).status == 413
    assert (await proxy.call("DELETE", "c/o")).status == 204


@both_modes
async def test_forms_pass_the_same_check(proxy: Proxy, precise: bool) -> None:
    await form.prepare(proxy)
    limit(proxy, precise, object_count=2, container_usage_bytes=10)
    answer = await form.submit(proxy, form.signed(), *((name, b"xxx", "") for name in "abc"))
    assert (answer.status, b"object_count of level default" in answer.body) == (413, True)
    assert await usage(proxy) == (2, 6)
    assert (await proxy.call("DELETE", "c/up/a")).status == 204
    limit(proxy, precise, object_count=5, container_usage_bytes=10)
    answer = await form.submit(proxy, form.signed(), ("large", bytes(50_000), ""))
    assert (answer.status, b"container_usage_bytes of level default" in answer.body) == (413, True)


async def test_versions_have_room_of_their_own_and_deletions_are_never_refused(
    proxy: Proxy, cluster: MemoryCluster
) -> None:
    assert (await proxy.call("PUT", "v", {"X-Versions-Enabled": "true"})).status == 201
    limit(proxy, object_count=2, account_object_count=50)
    for body in (b"one", b"two"):
        assert (await proxy.call("PUT", "v/o", data=body)).status == 201
    assert (await proxy.call("PUT", "v/o", data=b"three")).status == 413
    assert (await proxy.call("GET", "v/o")).body == b"two"
    # In the account each of the two counts, and so does the link that is listed as the object.
    limit(proxy, account_object_count=4)
    await asyncio.gather(*quota_checks._later)
    assert (await proxy.call("PUT", "c/a", data=b"")).status == 201
    assert (await proxy.call("PUT", "c/b", data=b"")).status == 413
    limit(proxy, object_count=2, account_object_count=50)
    assert (await proxy.call("DELETE", "v/o")).status == 204
    assert (await proxy.call("GET", "v/o")).status == 404
    await asyncio.gather(*quota_checks._later)
    assert sum(claims.held() for claims in cluster.listing_transport.claims.values()) == 0


@both_modes
async def test_what_comes_to_nothing_takes_no_room(proxy: Proxy, cluster: MemoryCluster, precise: bool) -> None:
    limit(proxy, precise, object_count=1)
    for _ in range(3):
        assert (await proxy.call("PUT", "c/o", {"ETag": "0" * 32}, data=b"x")).status == 422
    assert (await proxy.call("PUT", "c/o", data=b"x")).status == 201
    assert sum(claims.held() for claims in cluster.listing_transport.claims.values()) == 0


# Who sets quotas.


async def test_info_says_so(proxy: Proxy) -> None:
    shown = await (await proxy.client.get("/info")).json()
    assert (shown["account_quotas"], shown["container_quotas"]) == ({}, {})


async def test_a_level_is_set_by_reseller_admins_alone(proxy: Proxy) -> None:
    limit(proxy)
    level = {"X-Account-Meta-Quota": "L1"}
    assert (await proxy.call("POST", "", level)).status == 403
    assert (await proxy.call("POST", "", {"X-Remove-Account-Meta-Quota": "x"})).status == 403
    assert (await proxy.call("POST", "", level | reseller(proxy))).status == 204
    assert (await proxy.call("HEAD", "")).headers["X-Account-Meta-Quota"] == "L1"
    assert [(await proxy.call("PUT", f"c/{n}", data=b"")).status for n in range(2)] == [201, 413]
    assert b"object_count of level L1" in (await proxy.call("PUT", "c/2", data=b"")).body
    unknown = await proxy.call("POST", "", {"X-Account-Meta-Quota": "L9"} | reseller(proxy))
    assert (unknown.status, b"the levels here are: L1, default" in unknown.body) == (400, True)
    assert (await proxy.call("POST", "", {"X-Account-Meta-Quota": ""} | reseller(proxy))).status == 204
    assert (await proxy.call("PUT", "c/2", data=b"")).status == 201


async def test_what_the_file_assigns_wins(proxy: Proxy) -> None:
    proxy.api.quotas.quotas = parse_quotas(
        "levels: {default: {}, L1: {object_count: 1}, L2: {object_count: 2}}\nassignments: {test: L1}", "f"
    )
    refused = await proxy.call("POST", "", {"X-Account-Meta-Quota": "L2"} | reseller(proxy))
    assert (refused.status, b"'L1'" in refused.body) == (409, True)
    assert (await proxy.call("POST", "", {"X-Account-Meta-Quota": "L1"} | reseller(proxy))).status == 204
    assert [(await proxy.call("PUT", f"c/{n}", data=b"")).status for n in range(2)] == [201, 413]


@pytest.mark.parametrize("header", ["X-Account-Meta-Quota-Bytes", "X-Account-Quota-Bytes"])
async def test_bytes_of_an_account_by_header(proxy: Proxy, header: str) -> None:
    assert (await proxy.call("POST", "", {header: "100"})).status == 403
    assert (await proxy.call("POST", "", {header: "many"} | reseller(proxy))).status == 400
    assert (await proxy.call("POST", "", {header: "100"} | reseller(proxy))).status == 204
    assert (await proxy.call("HEAD", "")).headers[header] == "100"
    refused = await proxy.call("PUT", "c/o", data=bytes(101))
    assert (refused.status, f"({header})".encode() in refused.body) == (413, True)
    assert (await proxy.call("PUT", "c/o", data=bytes(100))).status == 201
    remove = {header.replace("X-", "X-Remove-"): "x"}
    assert (await proxy.call("POST", "", remove)).status == 403
    assert (await proxy.call("POST", "", remove | reseller(proxy))).status == 204
    assert header not in (await proxy.call("HEAD", "")).headers
    assert (await proxy.call("PUT", "c/p", data=bytes(100))).status == 201


async def test_objects_of_an_account_by_header(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "", {"X-Account-Quota-Count": "1"} | reseller(proxy))).status == 204
    statuses = [(await proxy.call("PUT", f"c/{n}", data=b"")).status for n in range(2)]
    assert statuses == [201, 413]


async def test_quotas_by_policy_are_not_supported(proxy: Proxy) -> None:
    header = {"X-Account-Quota-Bytes-Policy-Gold": "5"}
    assert (await proxy.call("POST", "", header)).status == 403
    assert (await proxy.call("POST", "", header | reseller(proxy))).status == 501


async def test_a_container_by_header(proxy: Proxy) -> None:
    for header, word in (("X-Container-Meta-Quota-Bytes", b"bytes"), ("X-Container-Meta-Quota-Count", b"count")):
        for method in ("PUT", "POST"):
            refused = await proxy.call(method, "c", {header: "-1"})
            assert (refused.status, b"Invalid " + word + b" quota." in refused.body) == (400, True)
    user = proxy.token_of("test:writer", Role.USER)
    quota = {"X-Container-Meta-Quota-Bytes": "100", "X-Container-Meta-Quota-Count": "2"}
    assert (await proxy.call("POST", "c", quota | user)).status == 204
    assert (await proxy.call("PUT", "c/o", data=bytes(101))).status == 413
    assert [(await proxy.call("PUT", f"c/{n}", data=b"")).status for n in range(3)] == [201, 201, 413]


async def test_the_smallest_limit_wins(proxy: Proxy) -> None:
    limit(proxy, object_count=3, container_usage_bytes=10)
    await proxy.call("POST", "c", {"X-Container-Meta-Quota-Count": "1", "X-Container-Meta-Quota-Bytes": "100"})
    assert (await proxy.call("PUT", "c/o", data=bytes(11))).status == 413
    assert [(await proxy.call("PUT", f"c/{n}", data=b"")).status for n in range(2)] == [201, 413]
    assert b"X-Container-Meta-Quota-Count" in (await proxy.call("PUT", "c/2", data=b"")).body


async def test_limits_count_for_reseller_admins_too(proxy: Proxy) -> None:
    limit(proxy, object_count=0)
    assert (await proxy.call("PUT", "c/o", reseller(proxy), data=b"")).status == 413


# Many at once.


async def put_all(pair: list[Proxy], count: int, size: int = 1, containers: tuple[str, ...] = ("c",)) -> list[Answer]:
    names = [f"{containers[n % len(containers)]}/{n}" for n in range(count)]
    calls = [pair[n % len(pair)].call("PUT", name, data=bytes(size)) for n, name in enumerate(names)]
    return await asyncio.gather(*calls)


@pytest.mark.parametrize("away", [None, 0, 1, 2])
async def test_fifty_writers_never_pass_a_precise_limit(
    pair: list[Proxy], cluster: MemoryCluster, away: int | None
) -> None:
    for proxy in pair:
        limit(proxy, object_count=7, container_usage_bytes=20_000)
    down = [] if away is None else [cluster.container_devices()[away]]
    with cluster.databases_down(*down):
        for _ in range(2):
            # Not streamed: devices in memory have no patience with streams on a machine that is busy.
            answers = await put_all(pair, 50, size=900)
            assert {answer.status for answer in answers} <= {201, 413}
            assert (await usage(pair[0]))[0] <= 7
        # A row that came before its claim ended counted twice for a moment; now nobody competes for the last room.
        for number in range(7 - (await usage(pair[0]))[0]):
            assert (await pair[0].call("PUT", f"c/last-{number}", data=bytes(900))).status == 201
        assert await usage(pair[0]) == (7, 6300)
        assert (await pair[1].call("PUT", "c/over", data=b"x")).status == 413


async def test_replicas_that_come_and_go_do_not_lift_the_quota(pair: list[Proxy], cluster: MemoryCluster) -> None:
    for proxy in pair:
        limit(proxy, object_count=9)
    devices = cluster.container_devices()
    stopped = False

    async def trouble() -> None:
        turn = 0
        while not stopped:
            with cluster.databases_down(devices[turn % 3], fault=[Fault.UNREACHABLE, Fault.TIMEOUT_AFTER][turn % 2]):
                await asyncio.sleep(0.02)
            turn += 1

    troubled = asyncio.create_task(trouble())
    for _ in range(4):
        answers = await put_all(pair, 25)
        assert {answer.status for answer in answers} <= {201, 413, 503}
    stopped = True
    await troubled
    listed = [await cluster.listed(device) for device in devices]
    assert len(set().union(*listed)) <= 9


async def test_fifty_writers_never_pass_a_precise_limit_of_an_account(pair: list[Proxy]) -> None:
    for name in ("d", "e"):
        assert (await pair[0].call("PUT", name)).status == 201
    for proxy in pair:
        limit(proxy, account_object_count=8)
    for _ in range(3):
        answers = await put_all(pair, 50, containers=("c", "d", "e"))
        assert {answer.status for answer in answers} <= {201, 413}
        assert sum([(await usage(pair[0], name))[0] for name in ("c", "d", "e")]) <= 8
    # Nobody competes any more: the last room can be used.
    left = 8 - sum([(await usage(pair[0], name))[0] for name in ("c", "d", "e")])
    for number in range(left):
        assert (await pair[0].call("PUT", f"c/last-{number}", data=b"")).status == 201
    assert (await pair[0].call("PUT", "c/over", data=b"")).status == 413


async def test_fifty_who_make_containers_never_pass_a_precise_limit(pair: list[Proxy]) -> None:
    for proxy in pair:
        limit(proxy, container_count=6)
    answers = await asyncio.gather(*(pair[n % 2].call("PUT", f"new-{n}") for n in range(50)))
    assert sorted({answer.status for answer in answers}) == [201, 413]
    made = (await pair[0].api.listings.account_info(ACCOUNT)).container_count
    assert made <= 6
    # Nobody competes any more: the last room can be used.
    for number in range(6 - made):
        assert (await pair[0].call("PUT", f"last-{number}")).status == 201
    assert (await pair[0].call("PUT", "over")).status == 413


async def test_in_cached_mode_the_overshoot_is_bounded_by_the_room_that_each_process_saw(pair: list[Proxy]) -> None:
    for proxy in pair:
        limit(proxy, False, object_count=5)
        # Each has seen the container empty.
        assert (await proxy.call("PUT", "c/first", data=b"")).status == 201
    for proxy in pair:
        await put_all([proxy], 30)
    objects = (await usage(pair[0]))[0]
    assert 5 <= objects <= 5 * len(pair)


async def test_one_process_alone_passes_no_limit_in_cached_mode(proxy: Proxy) -> None:
    limit(proxy, False, object_count=5)
    await put_all([proxy], 50)
    assert await usage(proxy) == (5, 5)


# What fails.


async def test_precise_mode_refuses_what_nobody_can_judge(proxy: Proxy, cluster: MemoryCluster) -> None:
    limit(proxy, object_count=5)
    devices = cluster.container_devices()
    with cluster.databases_down(devices[0], devices[1]):
        assert (await proxy.call("PUT", "c/o", data=b"")).status == 503
    assert (await proxy.call("PUT", "c/o", data=b"")).status == 201


async def test_cached_mode_lets_in_what_nobody_can_judge(proxy: Proxy, cluster: MemoryCluster) -> None:
    limit(proxy, False, account_object_count=0)
    partition = cluster.ring.partition_of(proxy.api.listings._hash_path(ACCOUNT))
    devices = [*cluster.ring.primaries(partition), *cluster.ring.handoffs(partition)]
    container = await proxy.api.containers.get(ACCOUNT, "c")
    proxy.api.containers._cache._ttl_s = proxy.api.containers._cache._known._ttl_s = 1000
    proxy.api.containers.remember(container)
    with cluster.databases_down(*devices):
        assert (await proxy.call("PUT", "c/o", data=b"")).status == 201


async def test_an_account_that_has_not_heard_yet_is_looked_at_again(
    proxy: Proxy, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(proxy, account_object_count=5)
    claims = proxy.api.listings.claims
    confirm, left = claims.confirm, [False, False]

    async def slow(*args: Any, **kwargs: Any) -> bool:
        known = await confirm(*args, **kwargs)
        return left.pop() if left else known

    monkeypatch.setattr(claims, "confirm", slow)
    assert (await proxy.call("PUT", "c/o", data=b"")).status == 201

    def held() -> int:
        return sum(one.held() for one in cluster.listing_transport.claims.values())

    assert held() == 3
    await asyncio.gather(*quota_checks._later)
    assert held() == 0


async def test_a_process_that_ends_checks_no_more(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(proxy, account_object_count=5)
    asked: list[object] = []

    async def never(*args: object, **kwargs: object) -> bool:
        asked.append(args)
        return False

    monkeypatch.setattr(proxy.api.listings.claims, "confirm", never)
    assert (await proxy.call("PUT", "c/o", data=b"")).status == 201
    assert len(quota_checks._later) == 1
    await quota_checks.stop_checking()
    before = len(asked)
    await asyncio.sleep(quota_checks._PAUSES_S[0] * 2)
    assert (len(asked), quota_checks._later) == (before, set())


async def test_a_write_of_unknown_outcome_keeps_its_room(
    proxy: Proxy, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(proxy, object_count=1)

    async def lost(*args: Any) -> None:
        raise Unavailable("nobody knows whether it is there")

    with monkeypatch.context() as patched:
        patched.setattr(proxy.api.objects, "put", lost)
        assert (await proxy.call("PUT", "c/o", data=b"")).status == 503
    assert (await proxy.call("PUT", "c/p", data=b"")).status == 413
