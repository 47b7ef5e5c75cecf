"""Decides how fast rounds go: it limits what they move, and compares fewer partitions at a time when devices are slow.

The time that answers take shows the load. When the last few answers took several times the median of the last few
hundred, half as many partitions are compared at a time, down to one; otherwise one more is, up to the limit. A device
that is always slow sets the median, and so slows nothing down.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from prometheus_client import Gauge

ALLOWED = Gauge("swiftlet_replicator_concurrency", "Partitions that are compared at a time, as load allows.")

WINDOW = 256
"""Number of answers whose median time is the measure."""
STEP = 16
"""Answers between two decisions; the median of these is compared with the measure."""
SLOW = 3.0
"""An answer is slow if it takes this many times the median."""
FLOOR_S = 0.005
"""Answers faster than this are never slow."""
BURST_S = 1.0
"""Seconds' worth of bytes that may go at once after a pause."""


_NONE: Mapping[str, int] = MappingProxyType({})


class LinkBudget:
    """The bytes that all rounds of this process may move between the own region and others."""

    def __init__(self, bytes_per_s: float = 0.0) -> None:
        """`bytes_per_s` is for all nodes of the own region together and each other region; 0 stands for no limit."""
        self._bytes_per_s = bytes_per_s
        self._paid_until: dict[str, float] = {}

    def pay(self, region: str, nodes: int, size_bytes: int, now: float) -> float:
        """Record that this many bytes pass the link to a region, and return from when on more may.

        `nodes` is how many nodes of the own region share the link, each as much.
        """
        if not self._bytes_per_s:
            return now
        paid_until = max(self._paid_until.get(region, now), now - BURST_S)
        paid_until += size_bytes * max(1, nodes) / self._bytes_per_s
        self._paid_until[region] = paid_until
        return paid_until


class Pace:
    """The pace of one kind of rounds of a replicator."""

    def __init__(
        self,
        concurrency: int = 4,
        bytes_per_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        links: LinkBudget | None = None,
    ) -> None:
        """At most `concurrency` partitions are compared at a time; `bytes_per_s` limits what is moved, 0 stands for no
        limit. `links` limit what passes between regions.
        """
        self.concurrency = concurrency
        self.allowed = concurrency
        """How many partitions may be compared at a time now."""
        self._bytes_per_s = bytes_per_s
        self._links = links or LinkBudget()
        self._clock = clock
        self._sleep = sleep
        self._paid_until = clock()
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._step: list[float] = []
        ALLOWED.set(concurrency)

    def answered(self, seconds: float) -> None:
        """Record that an answer took this long, in seconds."""
        self._step.append(seconds)
        if len(self._step) < STEP:
            return
        if self._window and statistics.median(self._step) > max(SLOW * statistics.median(self._window), FLOOR_S):
            self.allowed = max(1, self.allowed // 2)
        else:
            self.allowed = min(self.concurrency, self.allowed + 1)
        self._window.extend(self._step)
        self._step.clear()
        ALLOWED.set(self.allowed)

    async def moved(self, size_bytes: int, over: Mapping[str, int] = _NONE, nodes: int = 1) -> None:
        """Record that this many bytes were moved, and of them so many `over` the link to each other region, sent or
        fetched; returns when more may be moved. `nodes` is as for `LinkBudget.pay`.
        """
        paid_until = self._pay(size_bytes)
        for region, passed_bytes in over.items():
            paid_until = max(paid_until, self._links.pay(region, nodes, passed_bytes, self._clock()))
        await self._wait_until(paid_until)

    async def moved_over(self, region: str, nodes: int, size_bytes: int) -> None:
        """Record that this many bytes were moved, all of them over the link to one region."""
        await self.moved(size_bytes, {region: size_bytes}, nodes)

    def _pay(self, size_bytes: int) -> float:
        if self._bytes_per_s:
            self._paid_until = max(self._paid_until, self._clock() - BURST_S) + size_bytes / self._bytes_per_s
        return self._paid_until

    async def _wait_until(self, moment: float) -> None:
        now = self._clock()
        if moment > now:
            await self._sleep(moment - now)
