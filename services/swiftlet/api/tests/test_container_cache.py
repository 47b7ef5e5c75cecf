"""What is remembered of containers: how old it may be, who asks, and what is forgotten while somebody asks."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.api.container_cache import ContainerCache
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ContainerInfo
from swiftlet.timestamp import Timestamp


class Cluster:
    """Containers that are asked for, one answer a question; a question waits while `held`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked = 0
        self.held = asyncio.Event()
        self.held.set()
        self.error: Exception | None = None
        self.cache = ContainerCache(self.fetch, ttl_s=60.0, clock=lambda: self.now_s)

    async def fetch(self, account: str, container: str) -> ContainerInfo:
        self.asked += 1
        count = self.asked
        await self.held.wait()
        if self.error is not None:
            raise self.error
        return ContainerInfo(account, container, Timestamp(1), Timestamp(1), count, 0, 0, {})

    async def count(self, max_age_s: float) -> int:
        return (await self.cache.get("a", "c", max_age_s)).object_count

    async def quiet(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_those_who_need_it_at_one_time_ask_once(cluster: Cluster) -> None:
    cluster.held.clear()
    asking = [asyncio.create_task(cluster.count(1.0)) for _ in range(5)]
    await cluster.quiet()
    cluster.held.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert cluster.asked == 1


async def test_one_that_goes_away_does_not_take_the_answer_from_the_others(cluster: Cluster) -> None:
    cluster.held.clear()
    first, second = (asyncio.create_task(cluster.count(1.0)) for _ in range(2))
    await cluster.quiet()
    first.cancel()
    cluster.held.set()
    assert await second == 1


async def test_a_question_that_is_older_than_the_answer_may_be_is_not_waited_for(cluster: Cluster) -> None:
    cluster.held.clear()
    first = asyncio.create_task(cluster.count(1.0))
    await cluster.quiet()
    cluster.now_s += 1.0
    second = asyncio.create_task(cluster.count(1.0))
    at_once = asyncio.create_task(cluster.count(0.0))
    await cluster.quiet()
    cluster.held.set()
    assert [await first, await second, await at_once] == [1, 2, 3]
    assert await cluster.count(60.0) == 3, "the newest question's answer is kept"


async def test_what_is_soon_too_old_is_asked_for_meanwhile(cluster: Cluster) -> None:
    assert await cluster.count(1.0) == 1
    cluster.now_s += 0.8
    cluster.held.clear()
    assert [await cluster.count(1.0) for _ in range(3)] == [1, 1, 1], "nobody waits"
    await cluster.quiet()
    assert cluster.asked == 2
    cluster.held.set()
    await cluster.quiet()
    cluster.now_s += 0.8
    assert await cluster.count(1.0) == 2
    cluster.now_s += 50.0
    assert await cluster.count(float("inf")) >= 2
    await cluster.quiet()
    assert cluster.asked == 3, "nobody asks ahead for those who take any age"


async def test_nothing_stays_too_old_when_nobody_answers(cluster: Cluster) -> None:
    assert await cluster.count(1.0) == 1
    cluster.error = Unavailable("nobody is there")
    cluster.now_s += 0.8
    assert await cluster.count(1.0) == 1
    await cluster.quiet()
    cluster.now_s += 0.3
    with pytest.raises(Unavailable):
        await cluster.count(1.0)
    assert await cluster.count(60.0) == 1, "but it is still known"
    cluster.error = NotFound("it was deleted")
    with pytest.raises(NotFound):
        await cluster.cache.refresh("a", "c")
    assert cluster.cache.known("a", "c") is None


async def test_what_was_forgotten_while_it_was_asked_for_is_not_remembered(cluster: Cluster) -> None:
    cluster.held.clear()
    before = asyncio.create_task(cluster.count(1.0))
    await cluster.quiet()
    cluster.cache.forget("a", "c")
    after = asyncio.create_task(cluster.count(1.0))
    await cluster.quiet()
    cluster.held.set()
    assert [await before, await after] == [1, 2]
    assert await cluster.count(1.0) == 2
