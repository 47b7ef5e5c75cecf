"""Room for PUTs of the front where quotas apply: how much is taken ahead, lent to the front, and brought back.

For each database with a limit the front has a pool. While PUTs take of it, a slice of room is held at the database
before the last one is used up; the front uses a slice for `USE_S` at most. What becomes of the parts is in
`swiftlet.front.settling`; PUTs that find no room are Python's, and take a claim each.

Fault model: databases may be away, or have no room: then nothing is lent, and Python decides about each PUT. This
process may die: its slices expire (`swiftlet.front.slices`). See `docs/design/2026-11-26-front-quotas.md`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from prometheus_client import Counter
from swiftlet_native import Front

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.writing.quota_checks import Limited
from swiftlet.errors import SwiftletError
from swiftlet.front.settling import Settling
from swiftlet.front.slices import LIFE_S, NOTHING, PreciseReserve, RememberedReserve, Reserve, Slice
from swiftlet.model import Amounts, Claim, DatabaseName
from swiftlet.native_values import text
from swiftlet.placement.rows.row_updates import StoredRows
from swiftlet.quota.excess import total
from swiftlet.quota.shares import share
from swiftlet.timestamp import Timestamp

USE_S = 1.0
"""Seconds for which the front takes parts of a slice at most, from before it was asked for."""
TURN_S = 0.05
"""Seconds between two looks at what the front has taken."""
AHEAD_S = 0.5
"""A slice is as large as what is taken in so many seconds."""
TELL_S = 0.2
"""Seconds between two messages about a slice, if it still holds something."""
UNUSED_S = 2.0
"""Seconds after which a pool is dropped that no grant has named."""
REFUSED_S = 0.1
AWAY_S = 0.5
"""Seconds until the next attempt when there is too little room, and when the databases can't be asked."""
KNOWN_S = 1.0
"""How old the totals may be, in seconds, by which the sizes of slices are chosen."""
LEAST = Amounts(0, 64, 1 << 20)
MOST = Amounts(0, 10_000, 256 << 20)
"""What a slice has at least and at most, where there is enough room."""
FINISH_S = 1.0
"""Seconds at shutdown for letting go of what is held."""
SHORT = Counter(
    "swiftlet_front_quota_short_total",
    "Times that a PUT was left to Python because the front had no room for it where a quota applies.",
)
_Both = tuple[int, int]
_log = structlog.get_logger("front")


@dataclass(slots=True)
class _Pool:
    """Room of one database for the front."""

    number: int
    limited: Limited
    named_at: float
    want: Amounts = LEAST
    wanted: bool = False
    """Whether PUTs have taken of it since the last slice was asked for."""
    left: Amounts = NOTHING
    size: Amounts = LEAST
    """The size of the last slice."""
    short: bool = False
    """Whether a PUT found too little since the last slice was asked for."""
    filling: bool = False
    refused: bool = False
    not_before: float = 0.0

    def learn(self, left: _Both, taken: _Both, short: int) -> None:
        """Note what is left, what was taken in a turn, and how many PUTs found too little."""
        self.left = Amounts(0, *left)
        self.short = self.short or short > 0
        self.wanted = self.wanted or taken[0] > 0
        factor = AHEAD_S / TURN_S
        now = [int(factor * amount) for amount in taken]
        before = [self.want.objects, self.want.bytes]
        if short:
            now = [2 * amount for amount in before]
        elif not taken[0]:
            return
        kept = [max(new, old * 9 // 10) for new, old in zip(now, before, strict=True)]
        least, most = (LEAST.objects, LEAST.bytes), (MOST.objects, MOST.bytes)
        self.want = Amounts(0, *(min(max(one, low), high) for one, low, high in zip(kept, least, most, strict=True)))

    def is_low(self) -> bool:
        """Whether the next slice should be asked for."""
        enough = [min(self.want.objects, self.size.objects), min(self.want.bytes, self.size.bytes)]
        is_half = 2 * self.left.objects < enough[0] or 2 * self.left.bytes < enough[1]
        return self.short or (self.wanted and is_half)


class Lending:
    """Lends room to one front; runs in one event loop. `clock` returns monotonic seconds."""

    def __init__(self, front: Front, api: SwiftApi, clock: Callable[[], float] = time.monotonic) -> None:
        """Lend nothing before `run`; `api` says who holds claims, usage and quotas."""
        self._front = front
        self._api = api
        self._clock = clock
        self._settling = Settling(api.listings.claims)
        self._precise = PreciseReserve(api.listings.claims, api.usage)
        self._remembered = RememberedReserve(api.usage, api.quotas)
        self._pools: dict[DatabaseName, _Pool] = {}
        self._slices: dict[int, Slice] = {}
        self._told_at: dict[int, float] = {}
        """When those who hold a slice were last told of it; infinity while they are."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._woken = asyncio.Event()
        self._leaving = False

    def pools(self, limits: Sequence[Limited]) -> list[int]:
        """Return the pools that a grant names: one for each database with a limit."""
        return [self._pool(limited).number for limited in limits]

    def _pool(self, limited: Limited) -> _Pool:
        now = self._clock()
        pool = self._pools.get(limited.name)
        if pool is not None and pool.limited != limited:
            # What is held within other limits must not be used any more.
            self._drop(pool)
            pool = None
        if pool is None:
            pool = self._pools[limited.name] = _Pool(self._number(), limited, now)
            # Nothing, so that the front knows the pool, and counts the PUTs that find too little.
            self._front.lend(pool.number, self._number(), 0, 0, USE_S)
            self._woken.set()
        pool.named_at = now
        return pool

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _drop(self, pool: _Pool) -> None:
        self._front.recall(pool.number)
        del self._pools[pool.limited.name]

    async def run(self) -> None:
        """Lend room while there are grants that need it, until cancelled."""
        while True:
            if not self._pools and not self._slices:
                self._woken.clear()
                await self._woken.wait()
            self.turn()
            await asyncio.sleep(TURN_S)

    def turn(self) -> None:
        """Take note of what the front has done, and begin what follows from it."""
        now = self._clock()
        levels, listed, returned = self._front.spent()
        pools = {pool.number: pool for pool in self._pools.values()}
        for number, left, taken, short in levels:
            SHORT.inc(short)
            if number in pools:
                pools[number].learn(left, taken, short)
        for number, (objects, size), ended in returned:
            slice = self._slices.get(number)
            if slice is not None:
                slice.give_back(Amounts(0, objects, size))
                slice.ended = slice.ended or ended
        for container, parts, row, at in listed:
            known = {self._slices[one]: Amounts(0, *both) for one, both in parts if one in self._slices}
            self._settling.all_list(_database(container), text(row), Timestamp(at), known)
        for pool in pools.values():
            self._look_after(pool, now)
        for slice in list(self._slices.values()):
            self._look_at(slice, now)

    def _look_after(self, pool: _Pool, now: float) -> None:
        if now - pool.named_at > UNUSED_S:
            self._drop(pool)
        elif pool.is_low() and not pool.filling and now >= pool.not_before and not self._leaving:
            pool.filling, pool.wanted, pool.short = True, False, False
            self._begin(self._fill(pool))

    def _look_at(self, slice: Slice, now: float) -> None:
        told_at = self._told_at[slice.number]
        is_over = slice.ended and slice.rest == NOTHING
        if slice.changed and (now - told_at >= TELL_S or (is_over and told_at <= now)):
            slice.changed = False
            self._told_at[slice.number] = float("inf")
            self._begin(self._tell(slice))
        elif (is_over and told_at <= now) or now >= slice.expires:
            self._reserve(slice.precise).forget(slice)
            del self._slices[slice.number], self._told_at[slice.number]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reserve(self, precise: bool) -> Reserve:
        return self._precise if precise else self._remembered

    async def _tell(self, slice: Slice) -> None:
        slice.expires = self._clock() + LIFE_S
        try:
            await self._reserve(slice.precise).tell(slice)
        finally:
            if slice.number in self._slices:
                self._told_at[slice.number] = self._clock()

    async def _fill(self, pool: _Pool) -> None:
        try:
            await self._borrow(pool)
        except SwiftletError as error:
            _log.info("no room is lent to the front; Python asks for each PUT", error=str(error))
            pool.not_before = self._clock() + AWAY_S
        finally:
            pool.filling = False

    async def _borrow(self, pool: _Pool) -> None:
        """Hold a slice and lend it; nothing is lent where too little room is left."""
        limited = pool.limited
        reserve = self._reserve(limited.precise)
        used = await reserve.used(limited.name, REFUSED_S if pool.refused else KNOWN_S)
        sized = None if used is None else share(pool.want, limited.bounds, used)
        if sized is not None:
            asked, within = sized
            slice = Slice(self._number(), Claim(os.urandom(16).hex(), asked), limited.name, limited.precise)
            begun = self._clock()
            excess = await reserve.take(slice, within)
            if excess is None:
                pool.refused = False
                self._lend(pool, slice, begun)
                return
        pool.refused = True
        pool.not_before = self._clock() + REFUSED_S

    def _lend(self, pool: _Pool, slice: Slice, begun: float) -> None:
        now, asked = self._clock(), slice.claim.asked
        pool.size = asked
        self._slices[slice.number], self._told_at[slice.number] = slice, now
        slice.expires = begun + LIFE_S
        use_s = begun + USE_S - now
        if use_s > 0 and self._pools.get(pool.limited.name) is pool and not self._leaving:
            self._front.lend(pool.number, slice.number, asked.objects, asked.bytes, use_s)
        else:
            slice.give_back(asked)
            slice.ended = True

    def delivered(self, stored: StoredRows, parts: Sequence[Sequence[int]]) -> None:
        """Note that Python has delivered rows, whose objects took parts of these slices."""
        rows: dict[str, Timestamp] = {}
        sums: dict[Slice, Amounts] = {}
        for row, numbers in zip(stored.rows, parts, strict=True):
            known = [self._slices[one] for one in numbers if one in self._slices]
            if known:
                rows[row.name] = row.timestamp
            for slice in known:
                sums[slice] = total([sums.get(slice, NOTHING), Amounts(0, 1, row.size)])
        self._settling.delivered(DatabaseName(stored.account, stored.container), rows, sums)

    async def finish(self, patience_s: float = FINISH_S) -> None:
        """Lend no more, and let go of what is held as far as that is possible within this time."""
        self._leaving = True
        for pool in list(self._pools.values()):
            self._drop(pool)
        ends = self._clock() + patience_s
        self.turn()
        while (self._tasks or self._slices) and self._clock() < ends:
            await asyncio.sleep(TURN_S)
            self.turn()
        await self._settling.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _database(container: bytes) -> DatabaseName:
    account, _, name = text(container)[1:-1].partition("/")
    return DatabaseName(account, name)
