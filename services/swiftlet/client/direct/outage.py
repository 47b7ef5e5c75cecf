"""When the direct way is not tried: after it did not work, for a while that grows. Said once, until it works again.

Fault model: a network may let a client through to proxies but not to devices, so that each attempt costs the time to
find out; or metadata servers may be gone, or have direct access switched off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("swiftlet.client")
FIRST_S = 1.0
"""Seconds of the first pause; each further one is twice as long."""
LONGEST_S = 60.0
"""Seconds that no pause exceeds."""


class Outage:
    """Something that can't be reached; `clock` returns monotonic seconds."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`what` names it in the message, such as `the devices`."""
        self._what = what
        self._clock = clock
        self._until = 0.0
        self._pause_s = 0.0

    @property
    def lasts(self) -> bool:
        """Whether it is not to be tried now."""
        return self._clock() < self._until

    def failed(self, why: object) -> None:
        """Note that it did not work; the first time that is told."""
        if self._pause_s == 0:
            _log.warning("%s can't be used directly, objects go over HTTP until that works: %s", self._what, why)
        self._pause_s = min(LONGEST_S, max(FIRST_S, self._pause_s * 2))
        self._until = self._clock() + self._pause_s

    def worked(self) -> None:
        """Note that it has worked."""
        if self._pause_s:
            _log.warning("%s can be used directly again", self._what)
            self._pause_s = self._until = 0.0
