"""What is remembered of containers: how old it may be, who asks, and what is forgotten while somebody asks."""

from __future__ import annotations

import asyncio
import math

import pytest

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.context.shared_changes import SharedChanges
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
        self.metadata: dict[str, str] = {}
        self.changes = SharedChanges()
        self.told: list[str] = []
        self.cache = ContainerCache(
            self.fetch, self.fetch, ttl_s=60.0, clock=lambda: self.now_s, changes=self.changes, changed=self.told.append
        )

    async def fetch(self, account: str, container: str) -> ContainerInfo:
        self.asked += 1
        count = self.asked
        await self.held.wait()
        if self.error is not None:
            raise self.error
        return ContainerInfo(account, container, Timestamp(1), Timestamp(1), count, 0, 0, self.metadata)

    async def count(self, max_age_s: float = math.inf) -> int:
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


async def test_what_another_process_has_changed_is_asked_for_again(cluster: Cluster) -> None:
    other = Cluster()
    other.cache = ContainerCache(
        other.fetch, other.fetch, ttl_s=60.0, clock=lambda: other.now_s, changes=cluster.changes
    )
    assert await cluster.count(60.0) == 1
    other.cache.forget("a", "c")
    assert cluster.cache.known("a", "c") is None
    assert await cluster.count(60.0) == 2
    assert await cluster.count(60.0) == 2
    for account, container in (("a", "d"), ("b", "c")):
        other.cache.forget(account, container)
    assert await cluster.count(60.0) == 2, "another container has changed"
    cluster.held.clear()
    before = asyncio.create_task(cluster.count(0.0))
    await cluster.quiet()
    other.cache.forget("a", "c")
    after = asyncio.create_task(cluster.count(60.0))
    await cluster.quiet()
    cluster.held.set()
    assert [await before, await after] == [3, 4], "who asks after the change does not take the older answer"
    assert await cluster.count(60.0) == 4


class TestFresh:
    """What is used all the time is asked for once a second; while nobody answers, what is known counts."""

    async def test_asked_for_ahead(self, cluster: Cluster) -> None:
        for _ in range(100):
            await cluster.cache.fresh("a", "c")
            await cluster.quiet()
            cluster.now_s += 0.1
        assert 10 <= cluster.asked <= 15

    async def test_older_than_a_second_is_not_taken(self, cluster: Cluster) -> None:
        assert (await cluster.cache.fresh("a", "c")).object_count == 1
        cluster.now_s += 1.0
        assert (await cluster.cache.fresh("a", "c")).object_count == 2

    async def test_while_nobody_answers(self, cluster: Cluster) -> None:
        await cluster.cache.fresh("a", "c")
        cluster.error = Unavailable("nobody is there")
        cluster.now_s += 5.0
        assert (await cluster.cache.fresh("a", "c")).object_count == 1
        cluster.held.clear()
        assert (await cluster.cache.fresh("a", "c")).object_count == 1, "without waiting again"
        cluster.held.set()
        cluster.error = None
        await cluster.quiet()
        assert (await cluster.cache.fresh("a", "c")).object_count == 3
        cluster.error = NotFound("it was deleted")
        cluster.now_s += 5.0
        with pytest.raises(NotFound):
            await cluster.cache.fresh("a", "c")
        cluster.error = Unavailable("nobody is there")
        with pytest.raises(Unavailable):
            await cluster.cache.fresh("a", "c")

    async def test_who_is_silent_is_waited_for_for_a_moment(self, cluster: Cluster) -> None:
        await cluster.cache.fresh("a", "c")
        cluster.held.clear()
        cluster.now_s += 5.0
        assert (await cluster.cache.fresh("a", "c")).object_count == 1
        assert (await cluster.cache.fresh("a", "c")).object_count == 1
        cluster.held.set()

    async def test_a_change_elsewhere_is_told(self, cluster: Cluster) -> None:
        await cluster.cache.fresh("a", "c")
        cluster.now_s += 1.0
        await cluster.cache.fresh("a", "c")
        assert cluster.told == [], "totals are none"
        cluster.metadata = {"X-Container-Read": ".r:*"}
        cluster.now_s += 1.0
        await cluster.cache.fresh("a", "c")
        assert cluster.told == ["a"]


class Confirmed(Cluster):
    """Somebody knows until when nothing has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed_s = 0.0
        self.confirms_s = 0.0
        """Until when the next confirmation is."""
        self.heard_of = 0
        self.cache = ContainerCache(
            self.fetch,
            self.fetch,
            ttl_s=10.0,
            clock=lambda: self.now_s,
            changes=self.changes,
            confirmations=self,
        )

    def confirmed(self, _place: tuple[str, str], asked_at: float, /) -> float:
        return max(asked_at, self.confirmed_s)

    async def heard(self) -> None:
        self.heard_of += 1
        self.confirmed_s = max(self.confirmed_s, self.confirms_s)

    async def facts(self, max_age_s: float) -> int:
        return (await self.cache.facts("a", "c", max_age_s)).object_count


async def test_facts_that_nobody_has_changed_are_not_asked_for_again() -> None:
    cluster = Confirmed()
    for _ in range(50):
        assert await cluster.facts(0.5) == 1
        assert (await cluster.cache.fresh("a", "c")).object_count == 1
        cluster.now_s += 1.0
        cluster.confirmed_s = cluster.now_s - 0.1
        assert cluster.cache.age_s("a", "c") == pytest.approx(0.1)
    await cluster.quiet()
    assert cluster.asked == 1
    cluster.now_s += 11.0
    cluster.confirmed_s = cluster.now_s
    assert await cluster.facts(0.5) == 2, "nothing is remembered for longer than a minute"


async def test_facts_are_asked_for_where_nothing_is_confirmed() -> None:
    cluster = Confirmed()
    assert await cluster.facts(0.5) == 1
    cluster.now_s += 0.5
    assert await cluster.facts(0.5) == 2
    cluster.now_s += 0.4
    assert await cluster.facts(0.5) == 2, "and before that in the background"
    await cluster.quiet()
    assert await cluster.facts(0.1) == 3


async def test_totals_are_as_old_as_they_are() -> None:
    cluster = Confirmed()
    assert await cluster.count(1.0) == 1
    cluster.now_s = cluster.confirmed_s = cluster.now_s + 1.0
    assert await cluster.facts(0.5) == 1
    assert await cluster.count(1.0) == 2
    cluster.now_s = cluster.confirmed_s = cluster.now_s + 10.0
    assert await cluster.facts(0.5) == 2
    assert await cluster.count() == 3, "its time to live has passed"


async def test_a_change_by_this_proxy_counts_whatever_is_confirmed() -> None:
    cluster = Confirmed()
    assert await cluster.facts(0.5) == 1
    cluster.confirmed_s = cluster.now_s
    cluster.changes.container_changed("a", "c")
    assert await cluster.facts(0.5) == 2


async def test_a_late_confirmation_is_waited_for() -> None:
    cluster = Confirmed()
    assert await cluster.facts(0.5) == 1
    cluster.confirmed_s = cluster.now_s + 1.0
    cluster.now_s += 2.0
    cluster.confirms_s = cluster.now_s
    assert await cluster.facts(0.5) == 1
    assert (cluster.heard_of, cluster.asked) == (1, 1)
    cluster.now_s += 1.0
    assert await cluster.facts(0.5) == 2, "which does not come, so the container is asked for"
    assert cluster.heard_of == 2
    cluster.confirmed_s = cluster.now_s + 0.1
    cluster.now_s += 10.0
    assert await cluster.facts(0.5) == 3, "and at once when there was none for long"
    assert cluster.heard_of == 2


async def test_settled_is_what_nobody_has_to_ask_for() -> None:
    cluster = Confirmed()

    def settled(max_age_s: float = 0.5) -> int | None:
        found = cluster.cache.settled("a", "c", max_age_s)
        return None if found is None else found.object_count

    assert settled() is None
    assert await cluster.facts(0.5) == 1
    assert settled() == 1
    cluster.now_s += 0.4
    assert settled() is None, "it will be asked for soon"
    assert settled(1.0) == 1
    cluster.confirmed_s = 100.01
    assert settled() == 1, "somebody will say that it holds"
    cluster.now_s += 0.2
    assert settled() is None, "and has not"
    cluster.confirmed_s = 100.6
    assert settled() == 1
    assert cluster.asked == 1
    cluster.changes.container_changed("a", "c")
    assert settled() is None, "another process has changed it"
    assert await cluster.facts(0.5) == 2
    assert settled() == 2
    cluster.cache.forget("a", "c")
    assert settled() is None
    assert cluster.asked == 2
