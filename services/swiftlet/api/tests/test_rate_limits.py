"""Rate limits: whose turn it is by a clock that only moves when told to, and what clients are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as Directory
from typing import Any

import pytest
from pydantic import ValidationError

from swiftlet.api.context.rate_limits import RateLimits, RateSchedule, rate_for
from swiftlet.api.tests.proxy import ManualClock, Proxy, proxy_of
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.settings.access import RateLimitsSection, RateStep

STEPS = (RateStep(size=10, rate=100), RateStep(size=20, rate=50), RateStep(size=100, rate=10))


@asynccontextmanager
async def limited(cluster: MemoryCluster, root: Directory, **settings: Any) -> AsyncIterator[tuple[Proxy, list[float]]]:
    """A proxy with these limits, and how long it held requests back."""
    section = RateLimitsSection(**settings)
    slept: list[float] = []
    async with proxy_of(cluster, root, ttl_s=0, rate_limits=section) as proxy:

        async def sleep(seconds: float) -> None:
            slept.append(round(seconds, 6))

        rates = RateLimits(section, proxy.api.containers, proxy.clock, sleep)
        object.__setattr__(proxy.api, "rates", rates)
        yield proxy, slept


@pytest.mark.parametrize(
    ("size", "rate"),
    [(0, None), (9, None), (10, 100), (15, 75), (19, 55), (20, 50), (60, 30), (100, 10), (10**9, 10)],
)
def test_the_rate_by_size(size: int, rate: float | None) -> None:
    assert rate_for(STEPS, size) == rate
    assert rate_for((), size) is None


def test_an_empty_container_has_no_limit() -> None:
    assert rate_for((RateStep(size=0, rate=1),), 0) is None
    assert rate_for((RateStep(size=0, rate=1),), 1) == 1


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError, match="same size"):
        RateLimitsSection(container_ratelimits=(RateStep(size=1, rate=1), RateStep(size=1, rate=2)))
    with pytest.raises(ValidationError):
        RateStep(size=1, rate=0)
    assert RateLimitsSection(container_ratelimits=tuple(reversed(STEPS))).container_ratelimits == STEPS
    assert not RateLimitsSection().on


def test_turns_follow_the_rate_and_a_refused_one_takes_nothing() -> None:
    clock = ManualClock()
    schedule = RateSchedule(1.0, 5.0, 10, clock)
    taken = [schedule.take("a", 2) for _ in range(5)]
    assert taken == [(True, 0), (True, 0.5), (True, 1.0), (False, 1.5), (False, 1.5)]
    assert schedule.take("b", 2) == (True, 0)
    clock.now += 0.5
    assert schedule.take("a", 2) == (True, 1.0)


def test_unused_time_is_caught_up_with_only_for_a_while() -> None:
    clock = ManualClock()
    schedule = RateSchedule(0.0, 5.0, 10, clock)
    assert schedule.take("a", 1) == (True, 0)
    clock.now += 4
    assert [schedule.take("a", 1)[0] for _ in range(6)] == [True] * 4 + [False] * 2
    clock.now += 60
    assert [schedule.take("a", 1)[0] for _ in range(3)] == [True, False, False]


def test_memory_is_bounded_and_the_key_used_last_stays() -> None:
    clock = ManualClock()
    schedule = RateSchedule(0.0, 5.0, 100, clock)
    assert schedule.take("kept", 0.001)[0]
    for number in range(10_000):
        schedule.take(str(number), 1)
        if number == 50:
            clock.now += 1000
            assert schedule.take("kept", 0.001)[0]
    assert len(schedule) == 100


async def test_off_by_default(proxy: Proxy) -> None:
    for number in range(30):
        assert (await proxy.call("PUT", f"new{number}")).status == 201
    assert len(proxy.api.rates.schedule) == 0
    assert "ratelimit" not in await (await proxy.client.get("/info")).json()


@pytest.mark.parametrize(("refuse_with", "phrase"), [(498, "Rate Limited"), (429, "Too Many Requests")])
async def test_containers_of_an_account(
    cluster: MemoryCluster, tmp_path: Directory, refuse_with: int, phrase: str
) -> None:
    settings = {"account_ratelimit": 0.5, "max_sleep_time_s": 3, "refuse_with": refuse_with}
    async with limited(cluster, tmp_path, **settings) as (proxy, slept):
        for number in range(2):
            assert (await proxy.call("PUT", f"new{number}")).status == 201
        async with await proxy.open("PUT", "new2") as refused:
            assert (refused.status, refused.reason) == (refuse_with, phrase)
            assert refused.headers["Retry-After"] == "4"
            assert await refused.text() == "Slow down"
        assert (await proxy.call("DELETE", "new0")).status == refuse_with
        assert slept == [2.0]
        for method, path in (("GET", ""), ("POST", "c"), ("GET", "c"), ("HEAD", "c"), ("PUT", "c/o")):
            assert (await proxy.call(method, path)).status < 300
        other = proxy.token_of("other:x", Role.ADMIN)
        answer = await proxy.client.put("/v1/AUTH_other/c", headers=other)
        assert answer.status == 201
        proxy.clock.now += 4
        assert (await proxy.call("DELETE", "new0")).status == 204


async def test_objects_of_a_container(cluster: MemoryCluster, tmp_path: Directory) -> None:
    steps = ({"size": 2, "rate": 1},)
    async with limited(cluster, tmp_path, container_ratelimits=steps, max_sleep_time_s=0) as (proxy, slept):
        for name in ("a", "b"):
            assert (await proxy.call("PUT", f"c/{name}", data=b"x")).status == 201
        assert (await proxy.call("PUT", "c/a", data=b"x")).status == 201
        for method in ("PUT", "POST", "DELETE", "COPY"):
            answer = await proxy.call(method, "c/a", {"Destination": "c/z"})
            assert (answer.status, answer.headers["Retry-After"]) == (498, "1")
        for method, path in (("GET", "c/a"), ("HEAD", "c/a"), ("GET", "c")):
            assert (await proxy.call(method, path)).status < 300
        assert (await proxy.call("PUT", "missing/a")).status == 404
        proxy.clock.now += 1
        assert (await proxy.call("DELETE", "c/a")).status == 204
        assert slept == []


async def test_listings(cluster: MemoryCluster, tmp_path: Directory) -> None:
    steps = ({"size": 1, "rate": 1},)
    async with limited(cluster, tmp_path, container_listing_ratelimits=steps, max_sleep_time_s=0) as (proxy, _):
        for _ in range(3):
            assert (await proxy.call("GET", "c")).status == 204
        assert (await proxy.call("PUT", "c/a", data=b"x")).status == 201
        assert (await proxy.call("GET", "c")).status == 200
        assert (await proxy.call("GET", "c")).status == 498
        assert (await proxy.call("HEAD", "c")).status == 204
        assert (await proxy.call("PUT", "c/a", data=b"x")).status == 201


async def test_strangers_use_up_nothing(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with limited(cluster, tmp_path, account_ratelimit=1, max_sleep_time_s=0) as (proxy, _):
        for _ in range(5):
            assert (await proxy.anonymous("PUT", "new")).status == 401
            assert (await proxy.call("PUT", "new", proxy.token_of("other:x", Role.ADMIN))).status == 403
        assert (await proxy.call("PUT", "new")).status == 201


async def test_lists_of_accounts(cluster: MemoryCluster, tmp_path: Directory) -> None:
    settings = {"account_ratelimit": 0.001, "max_sleep_time_s": 0}
    async with limited(cluster, tmp_path, account_whitelist=["AUTH_test"], **settings) as (proxy, _):
        for number in range(3):
            assert (await proxy.call("PUT", f"new{number}")).status == 201
    async with limited(cluster, tmp_path, account_blacklist=["AUTH_test"]) as (proxy, slept):
        async with await proxy.open("GET", "c") as refused:
            assert (refused.status, refused.reason) == (497, "Blacklisted")
            assert await refused.text() == "Your account has been blacklisted"
        assert slept == [1.0]


async def test_info(cluster: MemoryCluster, tmp_path: Directory) -> None:
    settings = {"account_ratelimit": 5, "container_ratelimits": ({"size": 100, "rate": 50},)}
    async with limited(cluster, tmp_path, **settings) as (proxy, _):
        assert (await (await proxy.client.get("/info")).json())["ratelimit"] == {
            "account_ratelimit": 5,
            "max_sleep_time_seconds": 60,
            "container_ratelimits": [[100, 50]],
            "container_listing_ratelimits": [],
        }
