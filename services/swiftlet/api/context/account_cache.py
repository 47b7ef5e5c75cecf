"""Accounts' metadata cached by a proxy process: their ACLs and the keys of their temporary URLs.

An account that does not exist has no metadata, and that is cached too: requests for accounts that do not exist must not
cost more than those for existing ones. Requests of an account's own users never look here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping

from swiftlet.api.context.fresh_cache import FreshCache
from swiftlet.api.context.shared_changes import SharedChanges
from swiftlet.errors import NotFound
from swiftlet.model import AccountInfo


class AccountCache:
    """Accounts' metadata by name; `fetch` raises NotFound for an account that does not exist."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[AccountInfo]],
        ttl_s: float,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
        changes: SharedChanges | None = None,
        changed: Callable[[str], None] | None = None,
    ) -> None:
        """Start with an empty cache.

        `changes` are those of the processes that share them; `clock` is in monotonic seconds. `changed` is called with
        an account that is forgotten, or turns out to be different.
        """
        self._fetch = fetch
        self._changes = changes or SharedChanges(1)
        self._cache: FreshCache[str, Mapping[str, str]] = FreshCache(
            self._ask, self._changes.of_account, ttl_s, max_entries, self._differs, clock
        )
        self._changed = changed

    async def _ask(self, account: str) -> Mapping[str, str]:
        try:
            return (await self._fetch(account)).metadata
        except NotFound:
            return {}

    async def metadata(self, account: str, max_age_s: float = math.inf) -> Mapping[str, str]:
        """Return the account's metadata, at most `ttl_s` and `max_age_s` old. Raises Unavailable."""
        return await self._cache.get(account, max_age_s)

    def recent(self, account: str, max_age_s: float) -> Mapping[str, str] | None:
        """Return the metadata if they were requested less than so many seconds ago, otherwise None. Nothing is
        requested.
        """
        return self._cache.recent(account, max_age_s)

    async def fresh(self, account: str) -> Mapping[str, str]:
        """Return the metadata at most a second old, or the cached one while no server can be asked. Raises
        Unavailable.
        """
        return await self._cache.fresh(account)

    def age_s(self, account: str) -> float:
        """Return the seconds since the cached metadata was requested."""
        return self._cache.age_s(account)

    def forget(self, account: str) -> None:
        """Invalidate the entry in every process that shares the changes; a request in progress for it
        counts as older.
        """
        self._changes.account_changed(account)
        self._cache.forget(account)
        self._tell(account)

    def _differs(self, account: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        if before != now:
            self._tell(account)

    def _tell(self, account: str) -> None:
        if self._changed is not None:
            self._changed(account)
