"""Usage as a proxy process remembers it, when quotas need not hold exactly.

Usage is read once in a while; what this process has let in since is added to it. So one process alone never exceeds a
limit by what it lets in itself. Several may, together: each may fill the room that it saw when it last read the usage.
With P processes the overshoot is at most P - 1 times that room, until they read it again.

Fault model: the servers may be away. Then the known usage stays; if none is known, nothing is refused, and `UNKNOWN`
counts it: a proxy that can't ask must not refuse every write.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prometheus_client import Counter

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, Excess
from swiftlet.placement.listings import ClusterListings
from swiftlet.quota.excess import excess_of, total

UNKNOWN = Counter(
    "swiftlet_quota_unknown_usage_total", "Writes let in without a quota check: nobody could say what is used."
)
FRESH_S = 1.0
"""Seconds after which counted usage refuses nobody: what others deleted meanwhile makes room at once."""

Fetch = Callable[[DatabaseName], Awaitable[Amounts]]


def usage_source(listings: ClusterListings) -> Callable[[DatabaseName], Awaitable[Amounts]]:
    """Return a source of the totals of accounts and containers, which reads them from their databases."""

    async def fetch(name: DatabaseName) -> Amounts:
        if name.container is None:
            account = await listings.account_info(name.account)
            return Amounts(account.container_count, account.object_count, account.bytes_used)
        container = await listings.container_info(name.account, name.container)
        return Amounts(0, container.object_count, container.bytes_used)

    return fetch


@dataclass(slots=True)
class _Entry:
    known: Amounts | None = None
    at: float = 0.0
    since: Amounts = field(default_factory=Amounts)
    """Written by this process since `known` was counted."""
    held: dict[str, Amounts] = field(default_factory=dict)
    """Amounts of writes that are in progress."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RememberedUsage:
    """Usage of accounts and containers; used from one event loop. `clock` returns monotonic seconds."""

    def __init__(self, fetch: Fetch, max_entries: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        """`fetch` returns the current usage, or raises NotFound; the `max_entries` that were used last are kept."""
        self._fetch = fetch
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[DatabaseName, _Entry] = OrderedDict()

    async def take(self, name: DatabaseName, claim: Claim, bounds: Bounds, ttl_s: float) -> Excess | None:
        """Count a write that is in progress, or change one; return the reason when it does not fit."""
        entry = self._entry(name)
        excess = None
        for max_age_s in (ttl_s, min(FRESH_S, ttl_s)):
            await self._refresh(name, entry, max_age_s)
            if entry.known is None:
                UNKNOWN.inc()
                excess = None
                break
            others = [amounts for id, amounts in entry.held.items() if id != claim.id]
            excess = excess_of(total([entry.known, entry.since, *others]), claim.asked, bounds)
            if excess is None:
                break
        if excess is None:
            entry.held[claim.id] = claim.asked
        return excess

    def end(self, name: DatabaseName, claim_id: str, stored: bool) -> None:
        """End a write; one that was (or may have been) stored counts until usage is read again."""
        entry = self._entries.get(name)
        amounts = entry.held.pop(claim_id, None) if entry is not None else None
        if entry is not None and amounts is not None and stored:
            entry.since = total([entry.since, amounts])

    async def used(self, name: DatabaseName, max_age_s: float) -> Amounts | None:
        """Return what is stored, without writes in progress; None when nobody knows."""
        entry = self._entry(name)
        await self._refresh(name, entry, max_age_s)
        return None if entry.known is None else total([entry.known, entry.since])

    def lower(self, name: DatabaseName, claim_id: str, rest: Amounts, stored: Amounts) -> None:
        """Count only the rest of a write that is in progress, and the other part as stored until usage is read."""
        entry = self._entries.get(name)
        if entry is None or claim_id not in entry.held:
            return
        entry.since = total([entry.since, stored])
        if rest == Amounts():
            del entry.held[claim_id]
        else:
            entry.held[claim_id] = rest

    def _entry(self, name: DatabaseName) -> _Entry:
        entry = self._entries.setdefault(name, _Entry())
        self._entries.move_to_end(name)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return entry

    async def _refresh(self, name: DatabaseName, entry: _Entry, max_age_s: float) -> None:
        async with entry.lock:
            now = self._clock()
            if entry.known is not None and now - entry.at < max_age_s:
                return
            before = entry.since
            try:
                known = await self._fetch(name)
            except NotFound:
                known = Amounts()
            except SwiftletError:
                return
            entry.known, entry.at = known, now
            # A write that ended while the usage was read may not be in the answer yet.
            after = entry.since
            entry.since = Amounts(
                after.containers - before.containers, after.objects - before.objects, after.bytes - before.bytes
            )
