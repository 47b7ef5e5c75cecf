"""When the rows that native code has taken for a device's containers are merged into their databases.

A database is folded at its next moment by the clock (`due_in_s`), at once when it has many rows, and by whoever reads
or writes it. These moments are the same for all replicas of a database, as far as clocks agree: replicas that fold at
different times differ for as long, and replicators have to look closer. They are `after_s` apart; where many databases
wait they are 2, 4, ... times as far apart, so that a device folds some `FOLDS_A_DEVICE` databases in each `after_s`,
since a transaction costs much the same for one row and for fifty. What a start finds in the journal is folded in the
background, and so is what could not be merged when it was tried (a full disk): every `SWEEP_S` all databases with rows
are looked at.

A journal file may go when its rows are durable in the databases. They are committed without a sync, and synced a little
later (`swiftlet.listing.late_sync`); so every `SWEEP_S` the rows that were folded by then are waited for.

Fault model: the process may be killed at any point: the journal has all rows that were taken. A sync that fails, or a
journal that can't be written or synced, takes the device out of service; the journal stays. A database that can't be
folded keeps its rows, and the journal files that have them.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable

from swiftlet.folds import FOLD_AFTER_S, FOLDS_A_DEVICE
from swiftlet.listing.updates import Place, UpdateTable

LONGEST = 32
"""The longest time that a database waits for its fold, in units of `after_s`."""
SWEEP_S = 5.0
"""Seconds between two looks at what is left."""


def due_in_s(place: Place, waiting: int, after_s: float, now_s: float) -> float:
    """Return the seconds from `now_s` (Unix time) to the next moment at which a database is folded by the clock, above
    0.

    `waiting` databases of the device have rows. The moments of a longer wait are among those of a shorter one, so that
    replicas on devices that have unlike much to do meet at the later ones.
    """
    period_s = after_s
    while period_s < after_s * LONGEST and waiting * after_s > period_s * FOLDS_A_DEVICE:
        period_s *= 2
    _, account, container = place
    offset_s = zlib.crc32(f"{account}/{container}".encode()) / 2**32 * after_s * LONGEST
    return period_s - (now_s - offset_s) % period_s


class Folding:
    """The clock of one device's folds. Used from one event loop."""

    def __init__(
        self,
        table: UpdateTable,
        fold: Callable[[Place], None],
        failed: Callable[[str], None],
        after_s: float = FOLD_AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`fold` begins to merge the rows of a database; `failed` gets the reason when the journal has failed;
        `after_s` is as at the top of this module. `clock` returns Unix time in seconds.
        """
        self._table = table
        self._fold = fold
        self._failed = failed
        self._after_s = after_s
        self._clock = clock
        self._timers: dict[Place, asyncio.TimerHandle] = {}
        self._watching: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Fold what is there, and from now on what becomes due."""
        if self._watching is None:
            self._watching = asyncio.get_running_loop()
            self._watching.add_reader(self._table.fileno(), self._due)
            self.sweep()

    def stop(self) -> None:
        """Fold nothing more by the clock."""
        if self._watching is not None:
            self._watching.remove_reader(self._table.fileno())
            self._watching = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def sweep(self) -> None:
        """Fold all databases with rows, except those that will be folded soon."""
        for place in self._table.databases():
            if place not in self._timers:
                self._fold(place)

    def _due(self) -> None:
        reason = self._table.failed()
        if reason is not None:
            self._failed(reason)
        for place, many in self._table.due():
            if many:
                self._now(place)
            elif place not in self._timers:
                self._later(place)

    def folded(self, place: Place) -> None:
        """Note that the rows of a database were merged, and begin anew with those that came meanwhile."""
        timer = self._timers.pop(place, None)
        if timer is not None:
            timer.cancel()
        if self._watching is not None and self._table.has(*place):
            self._later(place)

    def _later(self, place: Place) -> None:
        assert self._watching is not None
        after_s = due_in_s(place, len(self._timers), self._after_s, self._clock())
        self._timers[place] = self._watching.call_later(after_s, self._now, place)

    def _now(self, place: Place) -> None:
        timer = self._timers.pop(place, None)
        if timer is not None:
            timer.cancel()
        self._fold(place)
