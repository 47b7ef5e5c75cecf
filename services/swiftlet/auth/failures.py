"""Slows down guessing: counts failed logins per user and per address within a sliding window.

The table is bounded: when it is full the entry that failed longest ago makes room. Two counters make it
expensive to guess one user's secret from many addresses, or many users' from one.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from swiftlet.errors import TooManyFailures


class FailureLimit:
    """At most `limit` failures per subject within `window_s` seconds; `clock` in monotonic seconds."""

    def __init__(
        self,
        limit: int = 10,
        window_s: float = 60.0,
        max_subjects: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember `max_subjects` users and addresses at the most."""
        self._limit = limit
        self._window_s = window_s
        self._max_subjects = max_subjects
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def admit(self, *subjects: str) -> None:
        """TooManyFailures while any of the subjects is over the limit."""
        now = self._clock()
        for subject in subjects:
            times = self._failures.get(subject)
            while times and times[0] <= now - self._window_s:
                times.popleft()
            if times is not None and not times:
                del self._failures[subject]
            elif times and len(times) >= self._limit:
                wait_s = math.ceil(times[0] + self._window_s - now)
                raise TooManyFailures(f"too many failed logins; try again in {wait_s} s", wait_s)

    def failed(self, *subjects: str) -> None:
        """Count a failed login against each subject."""
        for subject in subjects:
            times = self._failures.setdefault(subject, deque(maxlen=self._limit))
            times.append(self._clock())
            self._failures.move_to_end(subject)
        while len(self._failures) > self._max_subjects:
            self._failures.popitem(last=False)
