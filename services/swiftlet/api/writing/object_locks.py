"""A lock on an object for writers that replace it, where no replaced version may be lost.

A lock is a claim of one object on a name that no account has, of which only one may be held: the account servers'
replicas grant it like room within a quota (`swiftlet.placement.claims`), in memory, for some time. Two writers never
hold it.

Fault model: the holder of a lock may die, and then the lock expires. Account servers may be away: without a quorum of
an object's three nobody gets a lock (Unavailable). A writer that takes long renews its lock, and learns before it
changes anything if that failed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.model import Amounts, Bounds, Claim, DatabaseName
from swiftlet.names import Path

LIFE_S = 30
"""How many seconds a lock lasts that is not renewed."""
RENEW_S = 8.0
SAFE_S = 20.0
"""A writer that has not renewed its lock for so many seconds changes nothing any more."""
_PAUSES_S = (0.01, 0.3)
"""Seconds between two attempts to get a lock: the first pause, and the longest."""
_ONE = Bounds(objects=1)


class ObjectLock:
    """The right to replace an object."""

    def __init__(self, api: SwiftApi, path: Path) -> None:
        self._claims = api.listings.claims
        # The hash has no secret: the ring's own hash spreads the names, and no account can have this name.
        self._name = DatabaseName(f".turn-{hashlib.sha256(str(path).encode()).hexdigest()}")
        self._claim = Claim(os.urandom(16).hex(), Amounts(objects=1))
        self._path = path
        self._held_at = 0.0

    async def wait(self, within_s: float) -> None:
        """Wait for the lock. Raises Unavailable when others hold it for too long."""
        deadline, pause_s = time.monotonic() + within_s, _PAUSES_S[0]
        while not await self._ask():
            if time.monotonic() + pause_s > deadline:
                raise Unavailable(f"{self._path} is being replaced by other requests; try again")
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311
            pause_s = min(2 * pause_s, _PAUSES_S[1])

    async def _ask(self) -> bool:
        asked_at = time.monotonic()
        granted = await self._claims.take(self._name, self._claim, _ONE, LIFE_S) is None
        if granted:
            self._held_at = asked_at
        return granted

    async def keep(self) -> None:
        """Renew it until cancelled, as far as that works."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._ask()
            except SwiftletError:
                # If the next attempt comes too late, `check` will raise.
                continue

    def check(self) -> None:
        """Raise Unavailable when the lock may have expired."""
        if time.monotonic() - self._held_at > SAFE_S:
            raise Unavailable(f"the account servers could not be asked while {self._path} was replaced; try again")

    async def end(self) -> None:
        """Release the lock, so that the next writer can have it."""
        await self._claims.cancel(self._name, self._claim.id)


@asynccontextmanager
async def locked(api: SwiftApi, path: Path) -> AsyncIterator[ObjectLock]:
    """Hold the lock of `path` within the block. Raises Unavailable."""
    mine = ObjectLock(api, path)
    try:
        await mine.wait(api.options.client_timeout_s)
        keeping = asyncio.create_task(mine.keep())
        try:
            yield mine
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    finally:
        await asyncio.shield(mine.end())
