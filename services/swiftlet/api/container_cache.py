"""What a proxy process remembers of containers, so that most object requests need not ask for them.

Only what exists is remembered, for `ttl_s` seconds and for a bounded number of containers. An object written into
a container that was deleted meanwhile elsewhere is found out by the row that its listing refuses, and undone.
Requests that need to know the same of one container at one time ask once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from swiftlet.api.remembered import Remembered
from swiftlet.errors import NotFound
from swiftlet.model import ContainerInfo

_SOON = 0.7
"""The part of its greatest age after which a description is asked for anew."""
_Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Asking:
    """A question that is under way."""

    begun_s: float
    task: asyncio.Future[ContainerInfo]


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
        self._clock = clock
        self._known: Remembered[_Place, ContainerInfo] = Remembered(ttl_s, max_entries, clock)
        self._asking: dict[_Place, _Asking] = {}
        self.changed: Callable[[str], None] | None = None
        """Told of an account when something is forgotten of it, or turns out to be different."""

    async def get(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo:
        """The container, at most `ttl_s` and `max_age_s` old; NotFound, Unavailable."""
        known = self.known(account, container, max_age_s)
        if known is not None:
            return known
        asking = self._asking.get((account, container))
        if asking is not None and self._clock() - asking.begun_s < max_age_s:
            return await asyncio.shield(asking.task)
        return await self.refresh(account, container)

    def known(self, account: str, container: str, max_age_s: float = math.inf) -> ContainerInfo | None:
        """As `get`, of what is remembered; None when it would have to be asked for.

        What will soon be too old for those who ask is asked for meanwhile, once for all of them.
        """
        place = account, container
        known = self._known.get(place, max_age_s)
        if known is None or max_age_s == math.inf or place in self._asking:
            return known
        if self._known.get(place, _SOON * max_age_s) is None:
            self._ask(place)
        return known

    async def refresh(self, account: str, container: str) -> ContainerInfo:
        """The container as it is now; what was known stays when nobody can be asked."""
        return await asyncio.shield(self._ask((account, container)))

    def _ask(self, place: _Place) -> asyncio.Future[ContainerInfo]:
        begun_s = self._clock()
        task = asyncio.ensure_future(self._fetch(*place))
        self._asking[place] = asking = _Asking(begun_s, task)
        task.add_done_callback(lambda _: self._answered(place, asking))
        return task

    def _answered(self, place: _Place, asking: _Asking) -> None:
        """Remember the answer, unless what was known was forgotten or asked for again since."""
        if self._asking.get(place) is asking:
            del self._asking[place]
            error = None if asking.task.cancelled() else asking.task.exception()
            if isinstance(error, NotFound):
                self._known.forget(place)
            elif error is None and not asking.task.cancelled():
                self._known.put(place, asking.task.result())
        elif not asking.task.cancelled():
            asking.task.exception()  # Those who wait for it learn it; perhaps nobody does.

    def forget(self, account: str, container: str) -> None:
        """Ask again next time; what is being asked for now counts as older than this."""
        self._asking.pop((account, container), None)
        self._known.forget((account, container))
        self._tell(account)

    def _tell(self, account: str) -> None:
        if self.changed is not None:
            self.changed(account)
