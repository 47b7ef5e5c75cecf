"""Slows down guessing: limits the logins that may fail, per user at an address and per address.

A login counts before its secret is checked, so that many at the same time are not more guesses than the limit allows.
It no longer counts once it has succeeded. Somebody who guesses one user's secret uses up the failures that this user
has at the guesser's address; that user at other addresses, and other users at the same address, keep theirs. The table
is bounded: when it is full, the entry that was counted longest ago is removed.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.errors import TooManyFailures

ADDRESS_FACTOR = 20
"""An address may have this many times the failures of one user there, as there may be many users behind it."""
_IPV6_PREFIX = 64
"""The length of IPv6 prefixes that count as one address, because usually one person has all of such a prefix."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login that has been counted."""

    subjects: tuple[str, ...]
    began_s: float


class LoginLimit:
    """At most `limit` failures of one user at one address within `window_s`; `clock` returns monotonic seconds."""

    def __init__(
        self,
        limit: int = 10,
        window_s: float = 60.0,
        max_subjects: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_subjects` is the largest number of addresses, and of pairs of users and addresses, that are
        remembered.
        """
        self._limit = limit
        self._window_s = window_s
        self._max_subjects = max_subjects
        self._clock = clock
        self._counted: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, user: str, address: str) -> Attempt:
        """Count a login. Raises TooManyFailures when as many as are allowed have failed or are being checked."""
        now_s, where = self._clock(), subject_of(address)
        limits = {f"{where} {user}": self._limit, where: self._limit * ADDRESS_FACTOR}
        for subject, limit in limits.items():
            self._admit(subject, limit, now_s)
        for subject in limits:
            self._counted.setdefault(subject, deque()).append(now_s)
            self._counted.move_to_end(subject)
        while len(self._counted) > self._max_subjects:
            self._counted.popitem(last=False)
        return Attempt(tuple(limits), now_s)

    def _admit(self, subject: str, limit: int, now_s: float) -> None:
        times = self._counted.get(subject)
        if times is None:
            return
        while times and times[0] <= now_s - self._window_s:
            times.popleft()
        if not times:
            del self._counted[subject]
        elif len(times) >= limit:
            wait_s = max(1, math.ceil(times[0] + self._window_s - now_s))
            raise TooManyFailures(f"too many failed logins; try again in {wait_s} s", wait_s)

    def forgive(self, attempt: Attempt) -> None:
        """Stop counting a login that succeeded, or whose secret was never checked."""
        for subject in attempt.subjects:
            times = self._counted.get(subject)
            if times is not None and attempt.began_s in times:
                times.remove(attempt.began_s)
                if not times:
                    del self._counted[subject]


def subject_of(address: str) -> str:
    """Return what is counted for an address: itself, or its network if it is one of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return str(found)
