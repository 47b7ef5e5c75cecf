"""Finds the accounts that hold most, for the status report, in walks over the account databases of this server.

`AccountUsage` shows the busiest accounts; this shows the largest, busy or not. Their limits are not known here: whoever
reads the report compares them. Each of an account's replicas reports it, so readers take the largest number.

Fault model: a database that can't be read, and a device that can't be listed, is left out until the next walk. Clients
choose the names: the report has room for `LISTED` of the longest ones by each measure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from heapq import nlargest

from swiftlet.errors import SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import AccountInfo, DatabaseKind
from swiftlet.web.logs import get_logger

LISTED = 25
"""The number of accounts that are reported by each of the three measures."""
PAUSE_S = 0.002
"""Seconds of pause between two databases, so that a walk delays no request."""
HIDDEN = "."
"""The beginning of the names of accounts that no user has."""
_KEPT = 4 * LISTED
_MEASURES: tuple[Callable[[AccountInfo], int], ...] = (
    lambda info: info.bytes_used,
    lambda info: info.object_count,
    lambda info: info.container_count,
)

_log = get_logger("account_tally")


class AccountTally:
    """The accounts that hold most on this server's devices."""

    def __init__(
        self, stores: Mapping[str, ListingStore], interval_s: float, now_s: Callable[[], float] = time.time
    ) -> None:
        """`stores` by the devices' names; walks are `interval_s` seconds apart, `now_s` returns seconds since the
        epoch.
        """
        self._stores = stores
        self._interval_s = interval_s
        self._now_s = now_s
        self._most: Mapping[str, AccountInfo] | None = None
        self._counted_at_s = 0.0

    async def run(self) -> None:
        """Walk over the databases repeatedly, until cancelled."""
        while True:
            await self.walk()
            await asyncio.sleep(self._interval_s)

    async def walk(self) -> None:
        """Read all account databases; from then on those that hold most are reported."""
        began_s, found = self._now_s(), dict[str, AccountInfo]()
        for device, store in self._stores.items():
            try:
                async for info in _accounts(store):
                    found[info.account] = info
                    if len(found) > _KEPT:
                        found = _largest(found)
            except SwiftletError as error:
                _log.info("the accounts of a device could not be counted", device=device, error=str(error))
        self._most, self._counted_at_s = _largest(found), began_s

    def report(self) -> Mapping[str, object] | None:
        """Return when accounts were counted, and their containers, objects and bytes; None before the first walk."""
        if self._most is None:
            return None
        held = {
            account: [info.container_count, info.object_count, info.bytes_used]
            for account, info in sorted(self._most.items())
        }
        return {"countedAt": self._counted_at_s, "held": held}


async def _accounts(store: ListingStore) -> AsyncIterator[AccountInfo]:
    for partition in await store.partitions(DatabaseKind.ACCOUNT):
        for id in await store.databases(DatabaseKind.ACCOUNT, partition):
            await asyncio.sleep(PAUSE_S)
            try:
                info: AccountInfo = await store.read(id, lambda database: database.info())
            except SwiftletError as error:
                _log.debug("an account could not be counted", database=str(id), error=str(error))
                continue
            if not info.account.startswith(HIDDEN):
                yield info


def _largest(found: Mapping[str, AccountInfo]) -> dict[str, AccountInfo]:
    """Return the accounts that are among the first by any measure."""
    largest = {info.account for measure in _MEASURES for info in nlargest(LISTED, found.values(), key=measure)}
    return {account: found[account] for account in largest}
