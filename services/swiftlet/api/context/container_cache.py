"""Containers cached by a proxy process, so that most object requests need not ask for them.

Only existing containers are cached, for `ttl_s` seconds and up to a number. An object written into a container that
another proxy has deleted meanwhile is noticed when the listing refuses its row, and deleted again. Concurrent requests
for the same container share one question.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from swiftlet.api.context.fresh_cache import Confirmations, FreshCache
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.model import ContainerInfo

FetchContainer: TypeAlias = Callable[[str, str], Awaitable[ContainerInfo]]
"""Requests a container by account and name; raises NotFound and Unavailable."""

_Place = tuple[str, str]


class ContainerCache:
    """Container descriptions by (account, container). Their totals may lack rows of the last half a minute, since
    servers merge rows later where many containers are written to; `totals` has all.
    """

    def __init__(
        self,
        fetch: FetchContainer,
        fetch_totals: FetchContainer,
        ttl_s: float,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
        changes: SharedChanges | None = None,
        changed: Callable[[str], None] | None = None,
        confirmations: Confirmations[_Place] | None = None,
    ) -> None:
        """Start with an empty cache.

        `fetch` returns a container, `fetch_totals` one with all rows in its totals; both raise NotFound, which is not
        cached. `changes` are those of the processes that share them; `clock` is in monotonic seconds. `changed` is
        called with an account when one of its entries is forgotten, or turns out to be different.
        """
        self._fetch = fetch
        self._fetch_totals = fetch_totals
        self._changes = changes or SharedChanges(1)
        self._cache: FreshCache[_Place, ContainerInfo] = FreshCache(
            lambda place: self._fetch(*place),
            lambda place: self._changes.of_container(*place),
            ttl_s,
            max_entries,
            self._differs,
            clock,
            confirmations,
        )
        self._changed = changed

    async def get(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo:
        """Return the container, at most `ttl_s` and `max_age_s` old. Raises NotFound and Unavailable."""
        return await self._cache.get((account, container), max_age_s)

    async def totals(self, account: str, container: str) -> ContainerInfo:
        """Request the container with all rows in its totals, and cache it. Raises NotFound and Unavailable."""
        found = await self._fetch_totals(account, container)
        self.remember(found)
        return found

    async def facts(self, account: str, container: str, max_age_s: float) -> ContainerInfo:
        """Return the container as it was at most `max_age_s` ago, apart from its totals, which may be older. Raises
        NotFound and Unavailable.
        """
        return await self._cache.facts((account, container), max_age_s)

    def settled(self, account: str, container: str, max_age_s: float) -> ContainerInfo | None:
        """Return what `facts` would return without any request, now or soon; None where there is no such entry."""
        return self._cache.settled((account, container), max_age_s)

    async def fresh(self, account: str, container: str) -> ContainerInfo:
        """Return the container as it was at most a second ago, apart from its totals, or the cached one while no server
        can be asked.

        Raises NotFound and Unavailable.
        """
        return await self._cache.fresh((account, container))

    def known(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo | None:
        """Return the cached entry as `get` does; None when it would have to be requested."""
        return self._cache.known((account, container), max_age_s)

    def age_s(self, account: str, container: str) -> float:
        """Return the age in seconds of what `facts` returns."""
        return self._cache.age_s((account, container))

    async def refresh(self, account: str, container: str) -> ContainerInfo:
        """Request the present state of the container; the cached one stays when no server can be asked."""
        return await self._cache.refresh((account, container))

    def remember(self, info: ContainerInfo) -> None:
        """Cache a container that was just received in another way."""
        self._cache.remember((info.account, info.container), info)

    def forget(self, account: str, container: str) -> None:
        """Invalidate the entry in every process that shares the changes; a request in progress for it
        counts as older.
        """
        self._changes.container_changed(account, container)
        self._cache.forget((account, container))
        self._tell(account)

    def _differs(self, place: _Place, before: ContainerInfo, now: ContainerInfo) -> None:
        if (before.metadata, before.policy, before.move) != (now.metadata, now.policy, now.move):
            self._tell(place[0])

    def _tell(self, account: str) -> None:
        if self._changed is not None:
            self._changed(account)
