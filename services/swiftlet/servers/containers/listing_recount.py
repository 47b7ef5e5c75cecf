"""Counts totals and set hashes of listing databases anew from their rows.

Both are updated with each change of a row. If a row is changed without the server, or by a defect, they are wrong: a
container shows other totals than its listing adds up to, and replicas that differ may count as equal. So each database
is counted once in `interval_s`, and wrong numbers are corrected by another count within a transaction. The rows
themselves are proved by the listing audit.

Fault model: rows may change while a database is counted page by page: it is counted again, and left to the next pass
when it keeps changing. The process may be killed at any point.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Counter

from swiftlet.errors import NotFound, StoreFormatError, SwiftletError
from swiftlet.listing import sethash
from swiftlet.listing.head import Head, Totals
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.row_tables import TABLES, Counted
from swiftlet.listing.writer import AnyDb
from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.sync.audit.pace import AuditSettings, Pacer
from swiftlet.web.logs import get_logger

WRONG = Counter(
    "swiftlet_listing_recounts_wrong_total", "Databases whose totals or set hash were not those of their rows."
)
DONE = Counter("swiftlet_listing_recounts_total", "Databases that were counted.", ["result"])
PAGE_ROWS = 2000
"""The number of rows that are counted at a time."""
TRIES = 3
"""The number of attempts for a database that changes while it is counted."""
SHARE = 0.02
"""The largest share of the time that counting takes."""
_log = get_logger("listing-recount")


class Recount:
    """Counts the rows of the databases of a server's devices; runs in one event loop."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        interval_s: float,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`interval_s` is the least time between the beginnings of two passes."""
        self._stores = stores
        self._interval_s = interval_s
        self._sleep = sleep
        self._pacer = Pacer(AuditSettings(rows_per_s=0.0, share=SHARE), sleep=sleep)

    async def run(self) -> None:
        """Do passes until cancelled; the first one begins at a random moment within an interval."""
        await self._sleep(random.uniform(0.0, self._interval_s))  # noqa: S311 - spreads load
        while True:
            began_s = time.monotonic()
            await self.run_once()
            await self._sleep(max(0.0, self._interval_s - (time.monotonic() - began_s)))

    async def run_once(self) -> int:
        """Do one pass; return how many databases were wrong."""
        wrong = 0
        self._pacer.begin()
        for device, store in self._stores.items():
            try:
                wrong += await self._device(store)
            except SwiftletError as error:
                _log.warning("the recount of a device's databases ended early", device=device, error=str(error))
        return wrong

    async def _device(self, store: ListingStore) -> int:
        wrong = 0
        for kind in DatabaseKind:
            for partition in await store.partitions(kind):
                for id in await store.databases(kind, partition):
                    try:
                        wrong += await self._database(store, id)
                    except (NotFound, StoreFormatError) as error:
                        _log.info("a database could not be recounted", database=str(id), error=str(error))
        return wrong

    async def _database(self, store: ListingStore, id: DatabaseId) -> bool:
        """Count one database and correct it; return whether it was wrong."""
        for _ in range(TRIES):
            agrees = await self._agrees(store, id)
            if agrees is None:
                continue
            mended = not agrees and await store.write(id, lambda database: database.mend_counts(), grows=False)
            if mended:
                WRONG.inc()
                _log.warning(
                    "totals or set hash of a database did not match its rows and have been corrected", database=str(id)
                )
            DONE.labels("mended" if mended else "right").inc()
            return bool(mended)
        DONE.labels("changing").inc()
        return False

    async def _agrees(self, store: ListingStore, id: DatabaseId) -> bool | None:
        """Return whether totals and set hash of a database match its rows; None when the rows changed meanwhile."""
        first: Head | None = None
        totals, terms = Totals(), 0
        for table in TABLES:
            start = ""
            while True:
                head, counted = await store.read(id, lambda database: _page(database, table, start))  # noqa: B023
                await self._pacer.rest()
                first = first or head
                if (head.totals, head.rows_digest) != (first.totals, first.rows_digest):
                    return None
                totals, terms = totals.plus(counted.totals), terms + counted.terms
                start = counted.more
                if not start:
                    break
        assert first is not None
        return (totals, sethash.add(bytes(sethash.SIZE), terms)) == (first.totals, first.rows_digest)


def _page(database: AnyDb, table: str, start: str) -> tuple[Head, Counted]:
    return database.head, database.count(table, start, PAGE_ROWS)
