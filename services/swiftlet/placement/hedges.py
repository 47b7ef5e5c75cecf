"""When a second device is asked for a read: once the first has let it wait for longer than 95 of 100 answers of that
device took, and for at most one read in twenty.

A second request costs the devices as much as the first. However slow they are, no more than that share is added; and
the latency from which it is added follows the device's. The native front does the same for the reads that it answers.

Fault model: the second device may fail, or be slower; then the first one's answer counts, or its error. A device that
is never heard of again is counted as having taken as long as it was waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device

T = TypeVar("T")
WINDOW = 128
"""Answers of a device that are remembered."""
LEAST_KNOWN = 20
"""With fewer nobody knows how long answers take."""
RENEWED = 8
"""After so many further answers the latency is determined anew."""
LEAST_S = 0.005
"""Seconds before which nothing is too late."""
PART = 0.05
"""The share of reads for which a second device may be asked."""
MOST_SAVED = 5.0
"""The number of second requests that may be saved up for later."""


@dataclass(slots=True)
class _Answers:
    """How long the last answers of a device took."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    count: int = 0
    late_s: float | None = None

    def add(self, took_s: float) -> None:
        self.recent.append(took_s)
        self.count += 1
        if self.count >= LEAST_KNOWN and (self.late_s is None or self.count % RENEWED == 0):
            known = sorted(self.recent)
            self.late_s = max(LEAST_S, known[len(known) * 95 // 100])


class Hedges:
    """The second requests of one process's reads; `asked` is called for each."""

    def __init__(self, asked: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic) -> None:
        """Know no device yet. `clock` returns monotonic seconds."""
        self._asked = asked
        self._clock = clock
        self._answers: dict[str, _Answers] = {}
        """By the device's address: there are no more than in rings."""
        self._saved = 1.0

    async def first(
        self,
        operation: Callable[[Device], Awaitable[T]],
        device: Device,
        others: Callable[[], Device | None],
        discard: Callable[[T], Awaitable[None]],
    ) -> tuple[Device, T]:
        """Return what a read of `device` returns, or of the next of the `others` when it is late and that one answers
        before; and which of them it was. Raises the error of the first one.

        `discard` gets what an answer that came too late returns.
        """
        self._saved = min(MOST_SAVED, self._saved + PART)
        late_s = self._late_s(device)
        if late_s is None:
            return device, await self._timed(operation, device)
        reads = [_Read(device, asyncio.ensure_future(self._timed(operation, device)))]
        try:
            await asyncio.wait([reads[0].task], timeout=late_s)
            if not reads[0].task.done() and self._saved >= 1 and (other := others()) is not None:
                self._saved -= 1
                self._asked()
                reads.append(_Read(other, asyncio.ensure_future(self._timed(operation, other))))
            taken = await _first_good(reads)
            return taken.device, taken.task.result()
        finally:
            await _let_go(reads, discard)

    def _late_s(self, device: Device) -> float | None:
        known = self._answers.get(device.address)
        return None if known is None else known.late_s

    async def _timed(self, operation: Callable[[Device], Awaitable[T]], device: Device) -> T:
        begun = self._clock()
        try:
            return await operation(device)
        finally:
            self._answers.setdefault(device.address, _Answers()).add(self._clock() - begun)


@dataclass(frozen=True, slots=True)
class Hedged(Generic[T]):
    """How reads of one object are hedged."""

    hedges: Hedges
    others: Sequence[Device]
    """The devices of which one is asked when another is late, the nearest first."""
    discard: Callable[[T], Awaitable[None]]

    async def first(
        self, operation: Callable[[Device], Awaitable[T]], device: Device, asked: Collection[int]
    ) -> tuple[Device, T]:
        """Return what `Hedges.first` returns; devices with the ids in `asked` are not asked again."""

        def other() -> Device | None:
            return next((one for one in self.others if one.id != device.id and one.id not in asked), None)

        return await self.hedges.first(operation, device, other, self.discard)


@dataclass(slots=True)
class _Read(Generic[T]):
    """A read of one device."""

    device: Device
    task: asyncio.Future[T]

    @property
    def is_good(self) -> bool:
        """Whether it has returned something."""
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None


async def _first_good(reads: Sequence[_Read[T]]) -> _Read[T]:
    """Return the first read that returns something; the first of all when none does, or one ends with a bug."""
    waiting = {read.task for read in reads}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for read in reads:
            if read.task in done and (read.is_good or not isinstance(read.task.exception(), SwiftletError)):
                return read
    return reads[0]


async def _let_go(reads: Sequence[_Read[T]], discard: Callable[[T], Awaitable[None]]) -> None:
    """End what is under way, and discard what came beside the answer that was taken."""
    taken = next((read for read in reads if read.is_good), None)
    others = [read for read in reads if read is not taken]
    for read in others:
        read.task.cancel()
    for result in await asyncio.gather(*(read.task for read in others), return_exceptions=True):
        if not isinstance(result, BaseException):
            await discard(result)
