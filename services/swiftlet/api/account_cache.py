"""What a proxy process remembers of accounts' metadata: their ACLs and the keys of their temporary URLs.

An account that is not there has no metadata, and that is remembered too: asking for accounts that do not exist must
not cost more than asking for those that do. Nothing on the path of an account's own users asks in here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping

from swiftlet.api.remembered import Remembered
from swiftlet.errors import NotFound
from swiftlet.model import AccountInfo


class AccountCache:
    """Accounts' metadata by their names; `fetch` raises NotFound for one that is not there."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[AccountInfo]],
        ttl_s: float,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` in monotonic seconds."""
        self._fetch = fetch
        self._known: Remembered[str, Mapping[str, str]] = Remembered(ttl_s, max_entries, clock)
        self.changed: Callable[[str], None] | None = None
        """Told of an account that is forgotten, or turns out to be different."""

    async def metadata(self, account: str, max_age_s: float = math.inf) -> Mapping[str, str]:
        """The account's metadata, at most `ttl_s` and `max_age_s` old; Unavailable."""
        known = self._known.get(account, max_age_s)
        if known is not None:
            return known
        try:
            found = (await self._fetch(account)).metadata
        except NotFound:
            found = {}
        before = self._known.get(account)
        self._known.put(account, found)
        if before is not None and before != found:
            self._tell(account)
        return found

    def forget(self, account: str) -> None:
        """Ask again next time."""
        self._known.forget(account)
        self._tell(account)

    def _tell(self, account: str) -> None:
        if self.changed is not None:
            self.changed(account)
