"""What a proxy process remembers of accounts' metadata: their ACLs and the keys of their temporary URLs.

An account that is not there has no metadata, and that is remembered too: asking for accounts that do not exist must
not cost more than asking for those that do. Nothing on the path of an account's own users asks in here.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

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
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Mapping[str, str]]] = OrderedDict()

    async def metadata(self, account: str, max_age_s: float = math.inf) -> Mapping[str, str]:
        """The account's metadata, at most `ttl_s` and `max_age_s` old; Unavailable."""
        entry = self._entries.get(account)
        if entry is not None and self._clock() - entry[0] < min(self._ttl_s, max_age_s):
            return entry[1]
        try:
            found = (await self._fetch(account)).metadata
        except NotFound:
            found = {}
        self.forget(account)
        self._entries[account] = (self._clock(), found)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return found

    def forget(self, account: str) -> None:
        """Ask again next time."""
        self._entries.pop(account, None)
