"""Limits how many connections from the front may be new to aiohttp at a time.

The front accepts connections as fast as clients come. If all their requests are begun at once, all end late, when
clients and timeouts have given them up; if some are begun at a time, most end soon. So a connection that is handed over
takes a place until its first request is answered. A connection that does not need the processor keeps no place: one
whose request has not arrived completely, one whose client is waited for while the event loop is in time, and one with a
long request, as large objects have. There are more places while the event loop is in time.

Fault model: clients may send slowly, or nothing. A place becomes free after a while, whatever happens to it, so waiting
connections are served in their order and at a known pace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

FEW = 8
"""The least number of places."""
MANY = 24
"""The number of places while the event loop is not late."""
STEP = 2
"""The number of places that each check of the loop adds."""
LOOK_S = 0.01
"""Seconds between two checks while all places are taken."""
LATE_S = 0.01
"""When a check is late by so many seconds, the loop has enough to do, and only `FEW` places are left."""
PATIENCE_S = 1.0
"""Seconds after which a place becomes free although its request has not been answered."""


class Place:
    """The place of a connection."""

    def __init__(self, pace: Pace, ends: float) -> None:
        """Take the place until `ends` on the loop's clock."""
        self._pace = pace
        self.ends = ends
        self._waits: Callable[[], bool] | None = None

    def give_to(self, waits: Callable[[], bool]) -> None:
        """Give the place to a connection; `waits` returns whether the connection waits for its client."""
        self._waits = waits

    def waits(self) -> bool:
        """Whether the connection in this place waits for its client; False before there is a connection."""
        return self._waits is not None and self._waits()

    def leave(self) -> None:
        """Free the place if it is taken."""
        self._pace.left(self)


class Pace:
    """The places of one event loop."""

    def __init__(self, free: Callable[[], None]) -> None:
        """`free` is called whenever places have become free."""
        self._free = free
        self._loop = asyncio.get_running_loop()
        self._taken: dict[Place, None] = {}
        self._places = FEW
        self._ending: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """The number of free places."""
        return max(0, self._places - len(self._taken))

    def take(self) -> Place:
        """Take a place, even when none is free."""
        place = Place(self, self._loop.time() + PATIENCE_S)
        self._taken[place] = None
        if self._ending is None:
            self._ending = self._loop.call_at(place.ends, self._end)
        if not self.room and self._looking is None:
            self._look_at(self._loop.time() + LOOK_S)
        return place

    def left(self, place: Place) -> None:
        """Note that a place was left; see `Place.leave`."""
        if place in self._taken:
            del self._taken[place]
            if not self._taken:
                self._places = FEW
            self._free()

    def _end(self) -> None:
        """Free the places that have been taken for too long, the oldest first."""
        now, before = self._loop.time(), len(self._taken)
        while self._taken and (first := next(iter(self._taken))).ends <= now:
            del self._taken[first]
        self._ending = self._loop.call_at(first.ends, self._end) if self._taken else None
        if len(self._taken) < before:
            self._free()

    def _look_at(self, due: float) -> None:
        self._looking = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        """Allow more places if the event loop is not late, and none if it is."""
        now = self._loop.time()
        self._looking = None
        if self.room:
            return
        self._look_at(now + LOOK_S)
        if now - due >= LATE_S:
            self._places = FEW
            return
        waiting = [place for place in self._taken if place.waits()]
        if not waiting and self._places == MANY:
            return
        for place in waiting:
            del self._taken[place]
        self._places = min(self._places + STEP, MANY)
        self._free()

    def close(self) -> None:
        """Stop the checks and call `free` no more."""
        for timer in (self._ending, self._looking):
            if timer is not None:
                timer.cancel()
        self._free = lambda: None
