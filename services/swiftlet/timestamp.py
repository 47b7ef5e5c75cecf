"""Version timestamps: a total order over writes that every node agrees on.

A timestamp is one 64-bit integer: the time in ticks of 10 microseconds since the epoch in the upper 50 bits and a
14-bit nonce of the issuing process in the lower 14. The Swift API shows the ticks as `X-Timestamp: 1700000000.12345`;
the nonce makes it very unlikely that two processes issue the same timestamp for two writes to one object. Two writes
with equal timestamps count as the same write. Times from the year 2286 on, when seconds need an eleventh digit and text
would no longer sort, are refused.

A `TimestampClock` never issues the same or an older value twice, even when the wall clock steps back. It can be moved
forward by timestamps from peers, so that the writes of a proxy whose clock is behind are not silently lost to older
ones.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

TICKS_PER_SECOND = 100_000
NONCE_BITS = 14
_NONCE_MASK = (1 << NONCE_BITS) - 1
MAX_VALUE = (10**10 * TICKS_PER_SECOND << NONCE_BITS) - 1
"""The largest value that a `Timestamp` has."""
_NS_PER_TICK = 1_000_000_000 // TICKS_PER_SECOND
_TEXT = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,5}))?(?:_([0-9a-f]{4}))?", re.ASCII)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, order=True, slots=True)
class Timestamp:
    """One version's place in time: ordered, hashable, 8 bytes on disk and wire (`value`, unsigned)."""

    value: int

    def __post_init__(self) -> None:
        """Raise ValueError for times before 1970 or after 2286."""
        if not 0 <= self.value <= MAX_VALUE:
            raise ValueError(f"timestamp {self.value} is out of range (0 to {MAX_VALUE})")

    @classmethod
    def at(cls, seconds: float, nonce: int = 0) -> Timestamp:
        """Return the timestamp of a moment in seconds since the epoch (for tests and for times that clients send)."""
        return cls(round(seconds * TICKS_PER_SECOND) << NONCE_BITS | (nonce & _NONCE_MASK))

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Parse `1700000000`, `1700000000.12345` or the internal `1700000000.12345_01ff`. Raises ValueError
        otherwise.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a timestamp such as 1700000000.12345")
        whole, fraction, nonce = match.groups()
        ticks = int(whole) * TICKS_PER_SECOND + int((fraction or "0").ljust(5, "0"))
        low = int(nonce or "0", 16)
        if low > _NONCE_MASK:
            raise ValueError(f"{text!r} has a nonce of more than {NONCE_BITS} bits")
        return cls(ticks << NONCE_BITS | low)

    @property
    def ticks(self) -> int:
        """Return the time in ticks of 10 microseconds since the epoch."""
        return self.value >> NONCE_BITS

    @property
    def seconds(self) -> float:
        """Return the time in seconds since the epoch."""
        return self.ticks / TICKS_PER_SECOND

    @property
    def normal(self) -> str:
        """Return the form of the API's `X-Timestamp`: ten digits, a point, five digits."""
        whole, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        return f"{whole:010d}.{fraction:05d}"

    @property
    def internal(self) -> str:
        """Return the lossless text form; it sorts like the timestamps themselves."""
        return f"{self.normal}_{self.value & _NONCE_MASK:04x}"

    @property
    def isoformat(self) -> str:
        """Return the form of `last_modified` in listings: UTC, microseconds, no zone."""
        whole, fraction = divmod(self.ticks, TICKS_PER_SECOND)
        at = time.gmtime(whole)
        day = f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}"
        return f"{day}T{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{fraction:05d}0"

    @property
    def http_seconds(self) -> int:
        """Return whole seconds for `Last-Modified`, rounded up, as the API's conditional requests expect."""
        return math.ceil(self.ticks / TICKS_PER_SECOND)

    @property
    def http_date(self) -> str:
        """Return the `Last-Modified` header's value."""
        at = time.gmtime(self.http_seconds)
        day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d}"
        return f"{day} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"

    def __str__(self) -> str:
        """Return the lossless text form."""
        return self.internal


ZERO = Timestamp(0)
"""Older than every write."""


class TimestampClock:
    """Issues strictly increasing timestamps for one process.

    `now_ns` is the wall clock in nanoseconds since the epoch; `nonce` defaults to 14 random bits.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns, nonce: int | None = None) -> None:
        """Start at the wall clock's now."""
        self._now_ns = now_ns
        self._nonce = (random.getrandbits(NONCE_BITS) if nonce is None else nonce) & _NONCE_MASK
        self._last_ticks = 0
        self._followed: Callable[[], int] | None = None

    def follow(self, newest: Callable[[], int] | None) -> None:
        """Stay ahead of another clock of this process: `newest` returns the newest value that it has issued, or 0."""
        self._followed = newest

    def _passed_ticks(self) -> int:
        """Return the newest ticks that this clock has issued or observed, or the one that it follows has issued."""
        followed = 0 if self._followed is None else self._followed() >> NONCE_BITS
        return max(self._last_ticks, followed)

    def next(self) -> Timestamp:
        """Return a timestamp newer than all that this clock has issued or observed."""
        self._last_ticks = max(self._now_ns() // _NS_PER_TICK, self._passed_ticks() + 1)
        return Timestamp(self._last_ticks << NONCE_BITS | self._nonce)

    def now(self) -> Timestamp:
        """Return the latest moment that this clock knows of, without issuing it."""
        return Timestamp(max(self._now_ns() // _NS_PER_TICK, self._passed_ticks()) << NONCE_BITS | _NONCE_MASK)

    def observe(self, other: Timestamp, max_ahead_s: float = 60.0) -> bool:
        """Move past a peer's timestamp unless it lies more than `max_ahead_s` ahead of the wall clock.

        Returns whether the next timestamp will be newer than `other`.
        """
        limit = self._now_ns() // _NS_PER_TICK + int(max_ahead_s * TICKS_PER_SECOND)
        if other.ticks > limit:
            return False
        self._last_ticks = max(self._last_ticks, other.ticks)
        return True
