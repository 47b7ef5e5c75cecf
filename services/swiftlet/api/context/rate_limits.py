"""Rate limits: how often accounts and containers may be written to and listed; each proxy process counts for itself.

https://docs.openstack.org/swift/latest/ratelimit.html. A request that comes too early is delayed until its turn; one
that would wait too long is refused with 498 or 429 and Retry-After. Off by default, and then nothing is requested or
stored. A container's rate depends on its size, which the proxy caches anyway; a container that does not exist has no
limit. Limits are applied after authorisation, so refused requests use up no rate.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.http.problems import ApiError
from swiftlet.errors import NotFound
from swiftlet.names import Path
from swiftlet.settings.access import RateLimitsSection, RateStep

_BLACKLIST_SLEEP_S = 1.0
_WRITES = frozenset({"PUT", "POST", "DELETE", "COPY"})


def rate_for(steps: Sequence[RateStep], size: int) -> float | None:
    """Return the requests a second for a container of `size` objects: None below the first step, interpolated in
    between.
    """
    below = [step for step in steps if step.size <= size]
    if not below or not size:
        return None
    step = below[-1]
    if len(below) == len(steps):
        return step.rate
    following = steps[len(below)]
    return step.rate + (size - step.size) * (following.rate - step.rate) / (following.size - step.size)


class RateSchedule:
    """The time of each key's next request; `clock` is in monotonic seconds."""

    def __init__(self, max_wait_s: float, buffer_s: float, max_keys: int, clock: Callable[[], float]) -> None:
        """Remember at most `max_keys` keys, those used last."""
        self._max_wait_s = max_wait_s
        self._buffer_s = buffer_s
        self._max_keys = max_keys
        self._clock = clock
        self._next: OrderedDict[str, float] = OrderedDict()

    def take(self, key: str, rate: float) -> tuple[bool, float]:
        """Return whether there is a turn, and the seconds until it comes; without one nothing is taken.

        Unused time is kept for `buffer_s`; a key that was unused for longer starts anew.
        """
        now = self._clock()
        turn = self._next.get(key, now)
        if now - turn > self._buffer_s:
            turn = now
        wait_s = max(turn - now, 0.0)
        if wait_s > self._max_wait_s:
            return False, wait_s
        self._next[key] = turn + 1 / rate
        self._next.move_to_end(key)
        if len(self._next) > self._max_keys:
            self._next.popitem(last=False)
        return True, wait_s

    def __len__(self) -> int:
        """Return the number of keys that are remembered."""
        return len(self._next)


class RateLimits:
    """The limits of one proxy process."""

    def __init__(
        self,
        section: RateLimitsSection,
        containers: ContainerCache,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Start without history; `clock` is in monotonic seconds."""
        self._section = section
        self._containers = containers
        self._sleep = sleep
        self.schedule = RateSchedule(section.max_sleep_time_s, section.rate_buffer_s, section.max_tracked, clock)

    async def admit(self, method: str, path: Path) -> None:
        """Wait for the request's turn. Raises ApiError 498, 429 or 497."""
        section = self._section
        if not section.on or path.account in section.account_whitelist:
            return
        if path.account in section.account_blacklist:
            await self._sleep(_BLACKLIST_SLEEP_S)
            raise ApiError(497, "Your account has been blacklisted")
        limit = await self._limit(method, path)
        if limit is None:
            return
        admitted, wait_s = self.schedule.take(*limit)
        if not admitted:
            raise ApiError(section.refuse_with, "Slow down", {"Retry-After": str(math.ceil(wait_s))})
        if wait_s:
            await self._sleep(wait_s)

    async def _limit(self, method: str, path: Path) -> tuple[str, float] | None:
        """Return the counter of this request and its limit per second."""
        section = self._section
        if path.container is None:
            return None
        if path.obj is None and method in {"PUT", "DELETE"}:
            return (f"account {path.account}", section.account_ratelimit) if section.account_ratelimit else None
        if path.obj is None and method == "GET":
            return await self._by_size("listings", section.container_listing_ratelimits, path)
        if path.obj is not None and method in _WRITES:
            return await self._by_size("objects", section.container_ratelimits, path)
        return None

    async def _by_size(self, kind: str, steps: Sequence[RateStep], path: Path) -> tuple[str, float] | None:
        if not steps or path.container is None:
            return None
        try:
            size = (await self._containers.get(path.account, path.container)).object_count
        except NotFound:
            return None
        rate = rate_for(steps, size)
        return None if rate is None else (f"{kind} {path.account}/{path.container}", rate)
