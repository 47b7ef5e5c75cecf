"""What a proxy process remembers of containers, so that most object requests need not ask for them.

Only what exists is remembered, for `ttl_s` seconds and for a bounded number of containers. An object written into
a container that was deleted meanwhile elsewhere is found out by the row that its listing refuses, and undone.
Requests that need to know the same of one container at one time ask once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from swiftlet.api.context.fresh_cache import FreshCache
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.model import ContainerInfo

_Place = tuple[str, str]


class ContainerCache:
    """Container descriptions by (account, container); `fetch` raises NotFound, which is not remembered."""

    def __init__(
        self,
        fetch: Callable[[str, str], Awaitable[ContainerInfo]],
        ttl_s: float,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
        changes: SharedChanges | None = None,
        changed: Callable[[str], None] | None = None,
    ) -> None:
        """`changes` are those of the processes that share them; `clock` in monotonic seconds.

        `changed` is told of an account when something is forgotten of it, or turns out to be different.
        """
        self._fetch = fetch
        self._changes = changes or SharedChanges(1)
        self._cache: FreshCache[_Place, ContainerInfo] = FreshCache(
            lambda place: self._fetch(*place),
            lambda place: self._changes.of_container(*place),
            ttl_s,
            max_entries,
            self._differs,
            clock,
        )
        self._changed = changed

    async def get(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo:
        """The container, at most `ttl_s` and `max_age_s` old; NotFound, Unavailable."""
        return await self._cache.get((account, container), max_age_s)

    async def fresh(self, account: str, container: str) -> ContainerInfo:
        """The container as others have changed it a second ago, or as it is remembered while nobody can be asked;
        NotFound, Unavailable.
        """
        return await self._cache.fresh((account, container))

    def known(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo | None:
        """Return the cached entry as `get` does; None when it would have to be requested."""
        return self._cache.known((account, container), max_age_s)

    def age_s(self, account: str, container: str) -> float:
        """How long ago what is remembered was asked for."""
        return self._cache.age_s((account, container))

    async def refresh(self, account: str, container: str) -> ContainerInfo:
        """The container as it is now; what was known stays when nobody can be asked."""
        return await self._cache.refresh((account, container))

    def remember(self, info: ContainerInfo) -> None:
        """Know a container that was just asked for in another way."""
        self._cache.remember((info.account, info.container), info)

    def forget(self, account: str, container: str) -> None:
        """Invalidate the entry in every process that shares the changes; a request for it that is in progress counts as
        older.
        """
        self._changes.container_changed(account, container)
        self._cache.forget((account, container))
        self._tell(account)

    def _differs(self, place: _Place, before: ContainerInfo, now: ContainerInfo) -> None:
        if (before.metadata, before.policy) != (now.metadata, now.policy):
            self._tell(place[0])

    def _tell(self, account: str) -> None:
        if self._changed is not None:
            self._changed(account)
