"""Claims over all replicas: limits hold whichever replica is away, and whoever decides first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, Excess
from swiftlet.placement import claims as placement_claims
from swiftlet.placement.claims import ClusterClaims
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, HASH_PATH, PATH, MemoryCluster, at, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.servers.containers.claims import Claims
from swiftlet.testing.storage.memory_listing import Fault

NAME = DatabaseName(ACCOUNT, CONTAINER)
FIVE = Bounds(objects=5)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        await made.make_container()
        yield made


def claim(number: int) -> Claim:
    return Claim(f"{number:032x}", Amounts(objects=1))


async def granted(claims: ClusterClaims, numbers: range, bounds: Bounds = FIVE) -> list[int]:
    answers = await asyncio.gather(*(claims.take(NAME, claim(number), bounds, 60) for number in numbers))
    return [number for number, answer in zip(numbers, answers, strict=True) if answer is None]


def held(cluster: MemoryCluster) -> list[int]:
    return [cluster.listing_transport.claims[device.name].held() for device in cluster.container_devices()]


async def test_fifty_at_once_are_granted_what_fits_at_every_replica(cluster: MemoryCluster) -> None:
    assert len(await granted(cluster.listings.claims, range(50))) == 5
    assert held(cluster) == [5, 5, 5]


@pytest.mark.parametrize("away", [0, 1, 2])
@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.BUSY, Fault.TIMEOUT_BEFORE])
async def test_a_replica_that_is_away_changes_nothing(cluster: MemoryCluster, away: int, fault: Fault) -> None:
    with cluster.databases_down(cluster.container_devices()[away], fault=fault):
        assert len(await granted(cluster.listings.claims, range(50))) == 5


async def test_two_that_see_different_replicas_meet_in_the_third(cluster: MemoryCluster) -> None:
    first, second, third = cluster.container_devices()
    claims = cluster.listings.claims
    with cluster.databases_down(third):
        assert len(await granted(claims, range(5))) == 5
    with cluster.databases_down(first):
        # The second one has seen what the third one missed.
        assert await granted(claims, range(10, 60)) == []
    with cluster.databases_down(second):
        assert await granted(claims, range(70, 80)) == []
    assert held(cluster) == [5, 5, 0]


async def test_a_server_that_was_started_anew_has_forgotten_and_the_others_have_not(cluster: MemoryCluster) -> None:
    claims = cluster.listings.claims
    assert len(await granted(claims, range(5))) == 5
    name = cluster.container_devices()[0].name
    cluster.listing_transport.claims[name] = Claims(cluster.databases[name])
    assert await claims.take(NAME, claim(9), FIVE, 60) == Excess("objects", 5, 5, 1)
    assert held(cluster) == [0, 5, 5]


async def test_too_few_replicas_are_not_enough(cluster: MemoryCluster) -> None:
    with cluster.databases_down(*cluster.container_devices()[:2]), pytest.raises(Unavailable, match="too few replicas"):
        await cluster.listings.claims.take(NAME, claim(1), FIVE, 60)
    assert held(cluster) == [0, 0, 0]
    with pytest.raises(NotFound):
        await cluster.listings.claims.take(DatabaseName(ACCOUNT, "none"), claim(1), FIVE, 60)


async def test_a_lost_answer_holds_room_until_its_time_is_up(cluster: MemoryCluster) -> None:
    first = cluster.container_devices()[0]
    with cluster.databases_down(first, fault=Fault.TIMEOUT_AFTER):
        assert await cluster.listings.claims.take(NAME, claim(1), Bounds(objects=1), 60) is None
    assert held(cluster) == [1, 1, 1]
    await cluster.listings.claims.cancel(NAME, claim(1).id)
    assert held(cluster) == [0, 0, 0]


async def test_a_write_is_confirmed_once_all_replicas_list_it(cluster: MemoryCluster) -> None:
    claims = cluster.listings.claims
    await claims.take(NAME, claim(1), FIVE, 60)
    first = cluster.container_devices()[0]
    with cluster.databases_down(first):
        await cluster.put(second=9)
    assert not await claims.confirm(NAME, claim(1).id, PATH.obj or "", at(9))
    # The replica that has not heard of the row goes on counting the claim.
    assert held(cluster)[0] == 1
    assert held(cluster)[1:] == [0, 0]


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_slow_replica_hears_of_a_claims_end_later(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, confirmed: bool
) -> None:
    slow, go_on = cluster.container_devices()[0], asyncio.Event()
    transport = cluster.listing_transport
    claims = ClusterClaims(cluster.rings, transport, HASH_PATH, NodeHealth(), confirm_wait_s=0.05)
    await claims.take(NAME, claim(1), FIVE, 60)
    await cluster.put(second=9)
    name = "confirm_claim" if confirmed else "cancel_claim"
    told = getattr(transport, name)

    async def tell(device: Device, *rest: Any) -> Any:
        if device == slow:
            await go_on.wait()
        return await told(device, *rest)

    monkeypatch.setattr(transport, name, tell)
    if confirmed:
        assert await claims.confirm(NAME, claim(1).id, PATH.obj or "", at(9))
    else:
        await claims.cancel(NAME, claim(1).id)
    assert held(cluster) == [1, 0, 0]
    go_on.set()
    async with asyncio.timeout(5):
        while held(cluster) != [0, 0, 0]:  # noqa: ASYNC110 - a task of its own does it
            await asyncio.sleep(0.01)


async def test_only_so_many_ends_are_told_later(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_claims, "MAX_LATE", 4)
    claims = ClusterClaims(cluster.rings, cluster.listing_transport, HASH_PATH, NodeHealth(), confirm_wait_s=0.01)
    gone: list[int] = []

    async def hang(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            gone.append(1)
            raise

    monkeypatch.setattr(cluster.listing_transport, "cancel_claim", hang)
    await asyncio.gather(*(claims.cancel(NAME, claim(number).id) for number in range(3)))
    await asyncio.sleep(0)
    assert len(gone) == 5


async def test_one_that_fails_often_is_not_waited_for(cluster: MemoryCluster) -> None:
    health = NodeHealth(limit=1)
    claims = ClusterClaims(cluster.rings, cluster.listing_transport, HASH_PATH, health)
    first = cluster.container_devices()[0]
    with cluster.databases_down(first):
        await claims.take(NAME, claim(1), FIVE, 60)
        assert health.suppressed(first)
        assert await claims.take(NAME, claim(2), FIVE, 60) is None
