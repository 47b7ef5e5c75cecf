"""Revoked tokens, shared by all processes of all proxies: rows of a container that no user owns.

A row's name has all the data (`swiftlet.auth.revocation`). It is written to a quorum of the container's replicas before
a revocation is answered; the process that wrote it knows it at once, the others when they read the list next.

Fault model: while the list can't be read, what was known stays in force, and `FAILED` counts it: a proxy goes on
serving. A revocation that reaches no quorum is refused with 503, not forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter

from swiftlet.auth.revocation import Revocation, Revoked, parse_revocation
from swiftlet.auth.tokens import Token
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.placement.listings import ClusterListings
from swiftlet.timestamp import TimestampClock

ACCOUNT, CONTAINER = ".swiftlet", "revoked-tokens"
"""The place of the list; storage accounts of users begin with `AUTH_`, so none has this name."""
PAGE = 10_000
MAX_PAGES = 20
FAILED = Counter("swiftlet_revocations_unread_total", "Looks at the list of revoked tokens that failed.")
_log = structlog.get_logger("auth")


class Revocations:
    """The list in one process; `now` is in seconds since the epoch."""

    def __init__(self, listings: ClusterListings, clock: TimestampClock, now: Callable[[], float] = time.time) -> None:
        """Start with an empty list, before the first `refresh`."""
        self._listings = listings
        self._clock = clock
        self._now = now
        self.revoked = Revoked()

    def check(self, token: Token) -> None:
        """Raise Unauthorized for a token that was revoked."""
        self.revoked.check(token)

    async def revoke(self, token: Token, life_s: int) -> None:
        """Revoke a token, or all that its user has when many of them were revoked already. Raises Unavailable."""
        now = int(self._now())
        one = self.revoked.revoking(token, now, life_s)
        needless = self.revoked.needless(one, now)
        at = self._clock.next()
        rows = [ObjectRow(one.name, at), *(ObjectRow(old.name, at, deleted=True) for old in needless)]
        try:
            await self._listings.update_rows(ACCOUNT, CONTAINER, rows)
        except NotFound:
            await self._listings.put_container(ACCOUNT, CONTAINER, self._clock.next(), {}, None, 0)
            await self._listings.update_rows(ACCOUNT, CONTAINER, rows)
        self.revoked.drop(needless)
        self.revoked.add(one)

    async def refresh(self) -> None:
        """Read the revocations of other processes."""
        try:
            self.revoked.use(await self._read())
        except NotFound:
            self.revoked.use([])
        except SwiftletError as error:
            FAILED.inc()
            _log.warning(
                "the list of revoked tokens can't be read; the tokens known to be revoked stay revoked",
                error=str(error),
            )

    async def _read(self) -> list[Revocation]:
        found: list[Revocation] = []
        marker, now = "", self._now()
        for _ in range(MAX_PAGES):
            _, rows = await self._listings.list_objects(ACCOUNT, CONTAINER, ListingQuery(PAGE, marker))
            parsed = (parse_revocation(row.name) for row in rows)
            found += [one for one in parsed if one is not None and one.expires > now]
            if len(rows) < PAGE:
                break
            marker = rows[-1].name
        return found

    async def keep_current(self, interval_s: float) -> None:
        """Read the list of revocations every `interval_s` seconds, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(interval_s)
