"""What a proxy process remembers of containers, so that most object requests need not ask for them.

Only what exists is remembered, for `ttl_s` seconds and for a bounded number of containers. An object written into
a container that was deleted meanwhile elsewhere is found out by the row that its listing refuses, and undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from swiftlet.api.remembered import Remembered
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
        self._known: Remembered[tuple[str, str], ContainerInfo] = Remembered(ttl_s, max_entries, clock)
        self.changed: Callable[[str], None] | None = None
        """Told of an account when something is forgotten of it, or turns out to be different."""

    async def get(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo:
        """The container, at most `ttl_s` and `max_age_s` old; NotFound, Unavailable."""
        known = self.known(account, container, max_age_s)
        return known if known is not None else await self.refresh(account, container)

    def known(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo | None:
        """As `get`, of what is remembered; None when it would have to be asked for."""
        return self._known.get((account, container), max_age_s)

    async def refresh(self, account: str, container: str) -> ContainerInfo:
        """The container as it is now; what was known stays when nobody can be asked."""
        try:
            info = await self._fetch(account, container)
        except NotFound:
            self.forget(account, container)
            raise
        before = self._known.get((account, container))
        self._known.put((account, container), info)
        if before is not None and (before.policy, before.metadata) != (info.policy, info.metadata):
            self._tell(account)
        return info

    def forget(self, account: str, container: str) -> None:
        """Ask again next time."""
        self._known.forget((account, container))
        self._tell(account)

    def _tell(self, account: str) -> None:
        if self.changed is not None:
            self.changed(account)
