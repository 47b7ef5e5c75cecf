"""Parts of quotas that are held for who has a grant to store objects.

Where a quota applies, a grant says how much may be stored by it, and so much is held until the rows of what was stored
must have been delivered. What is held is not let go of earlier: nobody says here what was stored. Until then objects
count twice, an error to the safe side. As with the front's slices, all together hold a small part of the room that is
left (`swiftlet.quota.shares`).

Fault model: as in `swiftlet.api.writing.quota_checks`. When this process ends, claims at databases expire by
themselves; what it held in its memory, in cached mode, is forgotten, and counts when it is listed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from swiftlet.api.http.problems import ApiError
from swiftlet.api.writing.quota_checks import Limited
from swiftlet.model import Amounts, Claim
from swiftlet.placement.claims import ClusterClaims
from swiftlet.quota import QuotaFile
from swiftlet.quota.shares import share
from swiftlet.quota.usage import RememberedUsage

ROWS_S = 60
"""Seconds after the end of a grant for which its slices are held: devices deliver rows that nobody has delivered after
10 s.
"""
UNLIMITED = (1 << 64) - 1
USAGE_AGE_S = 1.0
"""The greatest age in seconds of the totals by which the size of a slice is reckoned."""
_REFUSED = "the quota of {name} leaves too little room for direct access; store through a proxy"


class GrantSlices:
    """Holds slices for the grants of one process."""

    def __init__(self, claims: ClusterClaims, usage: RememberedUsage, quotas: QuotaFile) -> None:
        """Claims hold what has to be exact, the memory of this process the rest."""
        self._claims = claims
        self._usage = usage
        self._quotas = quotas

    async def hold(self, limits: Sequence[Limited], want: Amounts, life_s: float) -> Amounts:
        """Hold room in these quotas for a grant of this life, as much as is wanted or less; return how much.

        Raises ApiError 413 when too little is left, NotFound and Unavailable.
        """
        claim_id = os.urandom(16).hex()
        held: list[Limited] = []
        amounts = want
        try:
            for limited in limits:
                amounts = await self._take(limited, amounts, claim_id, life_s)
                held.append(limited)
        except BaseException:
            await self._give_back(held, claim_id)
            raise
        self._forget_later([one for one in held if not one.precise], claim_id, life_s)
        return amounts

    async def _take(self, limited: Limited, want: Amounts, claim_id: str, life_s: float) -> Amounts:
        cache_s = self._quotas.quotas.cache_s
        used = await self._usage.used(limited.name, USAGE_AGE_S if limited.precise else max(USAGE_AGE_S, cache_s))
        part = None if used is None else share(want, limited.bounds, used)
        if part is None:
            raise ApiError(413, _REFUSED.format(name=limited.name))
        amounts, within = part
        claim = Claim(claim_id, amounts)
        if limited.precise:
            excess = await self._claims.take(limited.name, claim, within, round(life_s) + ROWS_S)
        else:
            excess = await self._usage.take(limited.name, claim, within, cache_s)
        if excess is not None:
            raise ApiError(413, _REFUSED.format(name=limited.name))
        return amounts

    async def _give_back(self, held: Sequence[Limited], claim_id: str) -> None:
        for limited in held:
            if limited.precise:
                await self._claims.cancel(limited.name, claim_id)
            else:
                self._usage.end(limited.name, claim_id, stored=False)

    def _forget_later(self, held: Sequence[Limited], claim_id: str, life_s: float) -> None:
        """Let go of what this process holds when the rows must be listed."""
        loop = asyncio.get_running_loop()
        for limited in held:
            loop.call_later(life_s + ROWS_S, self._usage.end, limited.name, claim_id, True)
