"""PUTs that the front answers where quotas apply: never more than fits, and all that fits in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.quotas import connect_accounts, limit
from swiftlet.front.tests.conftest import BY_FRONT, BY_PYTHON, EACH_WAY, PATIENCE_S, FrontedProxy, fronted_proxy, until
from swiftlet.front.tests.test_writes import TYPE, listed, write
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.quota import shares
from swiftlet.servers.containers.claims import Claims

WRITERS, MOST = 50, 150
BOTH = pytest.mark.parametrize("cluster", [BY_PYTHON, BY_FRONT], indirect=True)
BY_FRONT_ALONE = pytest.mark.parametrize("cluster", [BY_FRONT], indirect=True)


@pytest.fixture
def scheme(request: pytest.FixtureRequest) -> str:
    """Both where answers are compared; room is the same whatever clients speak."""
    return str(getattr(request, "param", "http"))


@pytest.fixture(autouse=True)
def much_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits show as much as large ones, with few objects, if more of the room is held ahead."""
    monkeypatch.setattr(shares, "ALL_SLICES", 3)
    monkeypatch.setattr(shares, "ONE_SLICE", 8)
    monkeypatch.setattr(shares, "LEAST_OBJECTS", 2)


@pytest.fixture(autouse=True)
async def reports(cluster: MemoryCluster) -> AsyncIterator[None]:
    """Accounts learn of their containers."""
    reporters = connect_accounts(cluster)
    yield
    await asyncio.gather(*(reporter.stop() for reporter in reporters))


@asynccontextmanager
async def two_fronts(fronted: FrontedProxy, root: Directory) -> AsyncIterator[list[FrontedProxy]]:
    """Another proxy process of the same cluster beside the first."""
    root /= "second"
    root.mkdir()
    async with fronted_proxy(fronted.proxy.cluster, root, containers=fronted.containers) as second:
        yield [fronted, second]


def held(cluster: MemoryCluster) -> int:
    return sum(claims.held() for claims in cluster.listing_transport.claims.values())


async def objects(fronted: FrontedProxy) -> int:
    """As the replicas with the most of them say."""
    found = [await fronted.proxy.cluster.listed(device) for device in fronted.proxy.cluster.container_devices()]
    return max(map(len, found))


async def fill(fronts: list[FrontedProxy], most: int) -> None:
    """Many at once write until they are refused; then one alone fills what is left."""

    async def put(front: FrontedProxy, name: str) -> int:
        return (await front.proxy.call("PUT", f"c/{name}", TYPE, b"x")).status

    async def one(number: int) -> None:
        for count in range(most):
            status = await put(fronts[number % len(fronts)], f"{number}-{count}")
            assert status in {201, 413}
            if status == 413:
                return

    for front in fronts:
        await write(front)
    before = sum(front.answered for front in fronts)
    await asyncio.gather(*(one(number) for number in range(WRITERS)))
    assert await objects(fronts[0]) <= most
    # How many depends on how soon room was held for it.
    await until(lambda: sum(front.answered for front in fronts) > before)
    # Nobody competes any more, and nobody keeps what is left.
    await until(lambda: held(fronts[0].proxy.cluster) == 0)
    for number in range(most - await objects(fronts[0])):
        front, name = fronts[number % len(fronts)], f"last-{number}"
        async with asyncio.timeout(PATIENCE_S):
            while (status := await put(front, name)) != 201:
                assert status == 413
                await asyncio.sleep(0.02)
    assert await objects(fronts[0]) == most
    assert await put(fronts[-1], "over") == 413


@EACH_WAY
async def test_within_quotas(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Answered by the front, as by Python; what was held counts as rows, or is let go of."""
    limit(fronted.proxy, object_count=1_000_000, account_usage_bytes=1 << 40, container_count=5)
    before = fronted.answered
    answer = await write(fronted, b"some data", X_Object_Meta_Color="red")
    assert answer.status == 201
    await until(lambda: fronted.answered >= before + 2)
    assert (await listed(fronted))["o"]["bytes"] == 9
    for number in range(20):
        assert (await fronted.proxy.call("PUT", f"c/{number}", TYPE, bytes(number))).status == 201
        assert (await fronted.proxy.call("DELETE", f"c/{number}")).status == 204
    await until(lambda: held(cluster) == 0)
    count = len(await listed(fronted))
    account = await fronted.proxy.api.listings.account_info(ACCOUNT)
    assert account.object_count == count


@BOTH
@pytest.mark.parametrize("of_account", [False, True], ids=["container", "account"])
async def test_two_processes_and_fifty_writers(fronted: FrontedProxy, tmp_path: Directory, of_account: bool) -> None:
    async with two_fronts(fronted, tmp_path) as fronts:
        for front in fronts:
            if of_account:
                limit(front.proxy, account_object_count=MOST)
            else:
                limit(front.proxy, object_count=MOST)
        await fill(fronts, MOST)


@pytest.mark.parametrize("away", [0, 1, 2])
async def test_a_replica_that_is_away(
    fronted: FrontedProxy, cluster: MemoryCluster, tmp_path: Directory, away: int
) -> None:
    """Rows that it lacks the others have: all of them together have no more than fits."""
    devices = cluster.container_devices()
    async with two_fronts(fronted, tmp_path) as fronts:
        for front in fronts:
            limit(front.proxy, object_count=MOST)
            await write(front)
        with cluster.databases_down(devices[away]):
            for turn in range(3):
                names = [f"c/{turn}-{number}" for number in range(MOST // 3)]
                answers = await asyncio.gather(
                    *(
                        front.proxy.call("PUT", f"{name}-{n}", TYPE, b"x")
                        for name in names
                        for n, front in enumerate(fronts)
                    )
                )
                assert {answer.status for answer in answers} <= {201, 413}
        rows = [await cluster.listed(device) for device in devices]
        assert len(set().union(*rows)) <= MOST
        # How many depends on how soon room was held for it.
        assert sum(front.answered for front in fronts) > 0


@BY_FRONT_ALONE
async def test_a_container_server_is_started_anew(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    limit(fronted.proxy, object_count=MOST)
    running = asyncio.create_task(fill([fronted], MOST))
    for device in cluster.container_devices():
        enough = fronted.answered + 10
        await until(lambda enough=enough: running.done() or fronted.answered >= enough)  # type: ignore[misc]
        cluster.listing_transport.claims[device.name] = Claims(cluster.databases[device.name])
    await running


@BY_FRONT_ALONE
async def test_a_process_that_dies_keeps_its_slice_for_a_while(
    fronted: FrontedProxy, cluster: MemoryCluster, tmp_path: Directory
) -> None:
    async with two_fronts(fronted, tmp_path) as (living, dying):
        for front in (living, dying):
            limit(front.proxy, object_count=MOST)
        await write(dying)
        running = dying.front._running
        assert running is not None
        # As if it ran no more: its slices are neither used nor given back.
        running.lending.turn = lambda: None  # type: ignore[method-assign]
        running.front.withdraw(None)
        await until(lambda: not running.lending._tasks)  # What it has asked for before.
        assert held(cluster) > 0
        for claims in cluster.listing_transport.claims.values():
            claims._clock = lambda: time.monotonic() + 61
        stored = 0
        async with asyncio.timeout(PATIENCE_S):
            while await objects(living) < MOST:
                answer = await living.proxy.call("PUT", f"c/all-{stored}", TYPE, b"x", query="x=y")
                assert answer.status in {201, 413}
                stored += answer.status == 201
                # The living one may hold a slice, too, which comes back.
                await asyncio.sleep(0.05 if answer.status == 413 else 0)
        assert (await living.proxy.call("PUT", "c/over", TYPE, b"x")).status == 413
        rows = [await cluster.listed(device) for device in cluster.container_devices()]
        assert len(set().union(*rows)) == MOST
        del running.lending.turn


@BY_FRONT_ALONE
async def test_a_quota_that_is_lowered(fronted: FrontedProxy) -> None:
    limit(fronted.proxy, object_count=1_000_000)
    await write(fronted)
    count = await objects(fronted)
    # By this process: from the answer on.
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Meta-Quota-Count": str(count)})).status == 204
    assert (await fronted.proxy.call("PUT", "c/more", TYPE, b"x")).status == 413
    assert (await fronted.proxy.call("POST", "c", {"X-Container-Meta-Quota-Count": "1000000"})).status == 204
    await write(fronted)
    # By the file of quotas: when the grant has ended, whatever is left of the slice.
    limit(fronted.proxy, object_count=1)

    async with asyncio.timeout(PATIENCE_S):
        while (await fronted.proxy.call("PUT", "c/o", TYPE, b"x")).status != 413:  # noqa: ASYNC110 - grants end by time
            await asyncio.sleep(0.02)
    assert (await fronted.proxy.call("PUT", "c/never", TYPE, b"x")).status == 413


@BY_FRONT_ALONE
async def test_one_that_does_not_fit_is_pythons_to_refuse(fronted: FrontedProxy) -> None:
    """Room of the front is of no use to what is larger."""
    limit(fronted.proxy, container_usage_bytes=900_000)
    await write(fronted)
    refused = await fronted.proxy.call("PUT", "c/large", TYPE, bytes(1_000_000))
    assert (refused.status, b"may hold 900000 bytes" in refused.body) == (413, True)
    for number in range(10):
        assert (await fronted.proxy.call("PUT", f"c/{number}", TYPE, bytes(30_000))).status == 201


@BY_FRONT_ALONE
async def test_what_is_refused_gives_its_room_back(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    limit(fronted.proxy, object_count=1_000_000)
    await write(fronted)
    for _ in range(20):
        assert (await fronted.proxy.call("PUT", "c/o", {**TYPE, "ETag": "0" * 32}, b"x")).status == 422
    await until(lambda: held(cluster) == 0)


@BY_FRONT_ALONE
async def test_remembered_usage_is_never_passed_by_one_process(fronted: FrontedProxy) -> None:
    limit(fronted.proxy, False, object_count=MOST)
    await fill([fronted], MOST)


@BY_FRONT_ALONE
async def test_objects_of_an_account_in_many_containers(fronted: FrontedProxy) -> None:
    limit(fronted.proxy, account_object_count=1_000_000)
    for name in "de":
        assert (await fronted.proxy.call("PUT", name)).status == 201
    before = fronted.answered

    async def one(number: int) -> None:
        for count in range(20):
            name = f"{'cde'[number % 3]}/{number}-{count}"
            assert (await fronted.proxy.call("PUT", name, TYPE, b"xy")).status == 201

    await asyncio.gather(*(one(number) for number in range(12)))
    assert fronted.answered - before > 100
    await until(lambda: held(fronted.proxy.cluster) == 0)
    account = await fronted.proxy.api.listings.account_info(ACCOUNT)
    assert (account.object_count, account.bytes_used) == (240, 480)
