"""What a proxy process remembers of containers, so that most object requests need not ask for them.

Only what exists is remembered, for `ttl_s` seconds and for a bounded number of containers. An object written into
a container that was deleted meanwhile elsewhere is found out by the row that its listing refuses, and undone.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from swiftlet.errors import NotFound
from swiftlet.model import ContainerInfo


class ContainerCache:
    """Container descriptions by (account, container); `fetch` raises NotFound, which is not remembered."""

    def __init__(
        self,
        fetch: Callable[[str, str], Awaitable[ContainerInfo]],
        ttl_s: float,
        max_entries: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` in monotonic seconds."""
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, ContainerInfo]] = OrderedDict()

    async def get(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo:
        """The container, at most `ttl_s` and `max_age_s` old; NotFound, Unavailable."""
        entry = self._entries.get((account, container))
        if entry is not None and self._clock() - entry[0] < min(self._ttl_s, max_age_s):
            return entry[1]
        return await self.refresh(account, container)

    async def refresh(self, account: str, container: str) -> ContainerInfo:
        """The container as it is now; what was known stays when nobody can be asked."""
        try:
            info = await self._fetch(account, container)
        except NotFound:
            self.forget(account, container)
            raise
        self.forget(account, container)
        self._entries[account, container] = (self._clock(), info)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return info

    def forget(self, account: str, container: str) -> None:
        """Ask again next time."""
        self._entries.pop((account, container), None)
