"""How fast the listing audit goes, and how old a row must be to be audited.

The time that answers take shows the load. A walk works only for a share of the time, so it rests for longer when
servers answer slowly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How fast one auditor works, and how old rows must be before it judges them."""

    rows_per_s: float = 100.0
    """The largest number of names that are checked in a second; 0 for no limit."""
    share: float = 0.1
    """The largest share of its time in which a walk works or waits for answers: above 0, up to 1 (no limit)."""
    min_age_s: float = 60.0
    """Seconds; rows and objects written more recently are left to their writer."""
    proved_for_s: float = 7 * 86_400.0
    """Seconds for which a database that has not changed since it was proved counts as right."""


def rest_s(names: int, worked_s: float, settings: AuditSettings) -> float:
    """Return for how long a walk has to rest after it has checked so many names in so much time."""
    for_rate = names / settings.rows_per_s - worked_s if settings.rows_per_s else 0.0
    return max(0.0, for_rate, worked_s * (1 / settings.share - 1))


class Pacer:
    """Makes one walk rest between its steps; all the time between two rests counts as work."""

    def __init__(
        self,
        settings: AuditSettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`clock` returns seconds, and `sleep` waits for so many."""
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._since = clock()

    def begin(self) -> None:
        """Begin a pass: the time since the last one does not count as work."""
        self._since = self._clock()

    async def rest(self, names: int = 0) -> None:
        """End a step that checked so many names; return when the next one may begin."""
        pause_s = rest_s(names, self._clock() - self._since, self._settings)
        if pause_s:
            await self._sleep(pause_s)
        self._since = self._clock()
