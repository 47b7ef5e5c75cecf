"""Removes markers of removed rows, and deleted databases as a whole, once they are old enough.

All replicas do so in step: the age is rounded down to whole periods of the clock. Until the last of them is through,
sync would bring back what the first has forgotten, if stores did not refuse it (`ListingStore.forgotten_before`).

Fault model: a node that was away for longer than the age brings removed rows back; the age has to be longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from swiftlet.errors import NotFound, StoreFormatError, SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseKind
from swiftlet.timestamp import ZERO, Timestamp
from swiftlet.web.logs import get_logger

PERIOD_S = 3600.0
"""The period in seconds to which ages are rounded down."""
_LOOK_S = 30.0
_log = get_logger("listing_upkeep")


class ListingUpkeep:
    """Reclaims what was removed more than `reclaim_age_s` ago on all devices of this server."""

    def __init__(
        self, stores: Mapping[str, ListingStore], reclaim_age_s: float, now_s: Callable[[], float] = time.time
    ) -> None:
        """`now_s` returns seconds since the epoch."""
        self._stores = stores
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s

    def boundary(self) -> Timestamp:
        """Return the time before which removed rows may be forgotten."""
        return Timestamp.at(max(0.0, (self._now_s() - self._reclaim_age_s) // PERIOD_S * PERIOD_S))

    async def run(self) -> None:
        """Reclaim whenever a period has passed, until cancelled."""
        done = ZERO
        while True:
            boundary = self.boundary()
            if boundary > done:
                await self.run_once()
                done = boundary
            await asyncio.sleep(_LOOK_S)

    async def run_once(self) -> int:
        """Reclaim on all devices; return how many rows were removed."""
        total, before = 0, self.boundary()
        for device, store in self._stores.items():
            store.forget_before(before)
            try:
                total += await _reclaim_device(store, before)
            except SwiftletError as error:
                _log.warning(
                    "reclaiming old tombstones of a device's databases ended early", device=device, error=str(error)
                )
        return total


async def _reclaim_device(store: ListingStore, before: Timestamp) -> int:
    total = 0
    for kind in DatabaseKind:
        for partition in await store.partitions(kind):
            for id in await store.databases(kind, partition):
                try:
                    total += await store.reclaim(id, before)
                except (NotFound, StoreFormatError) as error:
                    _log.info("old tombstones of a database could not be reclaimed", database=str(id), error=str(error))
    return total
