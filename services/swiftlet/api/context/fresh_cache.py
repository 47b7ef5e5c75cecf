"""Descriptions that a proxy process caches, with a limit on their age whoever has changed them.

Where somebody knows that an entry has not changed since (`Confirmations`), its facts count as just requested, and it is
requested again only every `CONFIRMED_AT_MOST_S`. Its numbers are as old as they are. When the next confirmation is late
it is waited for: on a machine that has too much to do, requesting every entry again would only add to that.

Changes by a process of the same proxy count at once, through counters (`shared_changes`). Changes by another proxy
count within `FRESH_S`: entries in use are requested again before that, once for all who need them, so that nobody
waits. While no server can be asked, cached entries are used for at most `ttl_s`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from swiftlet.api.context.bounded_cache import BoundedCache
from swiftlet.errors import NotFound, SwiftletError

CONFIRMED_AT_MOST_S = 60.0
"""Seconds after which a description is requested again although nobody has told of a change."""
LATE_S = 2.0
"""Seconds after its last confirmation for which the next one is waited for, in place of requesting the entry."""
FRESH_S = 1.0
"""Rights, keys and limits that another proxy has changed count within so many seconds."""
_SOON = 0.7
"""The part of its greatest age after which a description is requested again."""
_PATIENCE_S = 0.5
"""A server that does not answer within so many seconds is not asked again before `FRESH_S` is over, if an answer is
cached.
"""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
C = TypeVar("C", bound=Hashable, contravariant=True)


class Confirmations(Protocol[C]):
    """Knows which entries have not changed. Times are in seconds by the cache's clock."""

    def confirmed(self, key: C, asked_at: float, /) -> float:
        """Return until when nothing has changed of an entry that was requested at a time; that time itself where
        nothing is known.
        """
        ...

    async def heard(self) -> None:
        """Wait until more is known, if that may be soon."""
        ...


@dataclass(frozen=True, slots=True)
class _Known(Generic[V]):
    """A description, and the value of its counter of changes before it was requested."""

    value: V
    seen: int


@dataclass(frozen=True, slots=True)
class _Asking(Generic[V]):
    """A request in progress."""

    begun_s: float
    seen: int
    task: asyncio.Future[V]


class FreshCache(Generic[K, V]):
    """Descriptions by key; `fetch` may raise NotFound, which is not cached."""

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[V]],
        seen: Callable[[K], int],
        ttl_s: float,
        max_entries: int,
        differs: Callable[[K, V, V], None],
        clock: Callable[[], float] = time.monotonic,
        confirmations: Confirmations[K] | None = None,
    ) -> None:
        """Start with an empty cache.

        `seen` returns the value of a key's counter of changes; `clock` is in monotonic seconds. `differs` is called
        with the old and the new description.
        """
        self._fetch = fetch
        self._seen = seen
        self._clock = clock
        self._ttl_s = ttl_s
        kept_s = ttl_s if confirmations is None else max(ttl_s, CONFIRMED_AT_MOST_S)
        self._known: BoundedCache[K, _Known[V]] = BoundedCache(kept_s, max_entries, clock)
        self._confirmations = confirmations
        self._silent: BoundedCache[K, bool] = BoundedCache(FRESH_S, max_entries, clock)
        self._asking: dict[K, _Asking[V]] = {}
        self._differs = differs

    def known(self, key: K, max_age_s: float = math.inf) -> V | None:
        """Return the cached entry, at most `ttl_s` and `max_age_s` old; None when it would have to be requested.

        An entry that will soon be too old is requested in the background, once for all.
        """
        known = self._remembered(key, max_age_s)
        if known is None:
            return None
        if max_age_s != math.inf and key not in self._asking and self._remembered(key, _SOON * max_age_s) is None:
            self._ask(key)
        return known.value

    def _remembered(self, key: K, max_age_s: float) -> _Known[V] | None:
        known = self._known.get(key, min(self._ttl_s, max_age_s))
        return known if known is not None and known.seen == self._seen(key) else None

    def age_s(self, key: K) -> float:
        """Return how many seconds ago the facts of an entry are known to have held; infinite for what is not cached."""
        asked_at = self._known.since(key)
        if asked_at is None:
            return math.inf
        now = self._clock()
        if self._confirmations is None or now - asked_at >= CONFIRMED_AT_MOST_S:
            return now - asked_at
        return now - self._confirmations.confirmed(key, asked_at)

    async def facts(self, key: K, max_age_s: float) -> V:
        """Return the entry as it was at most `max_age_s` ago, apart from numbers, which may be older. Raises NotFound
        and Unavailable.
        """
        known = self._known_facts(key, max_age_s)
        if known is None and self._confirmations is not None and self._is_confirmed(key):
            await self._confirmations.heard()
            known = self._known_facts(key, max_age_s)
        return await self.get(key, max_age_s) if known is None else known

    def _is_confirmed(self, key: K) -> bool:
        """Return whether the entry was confirmed lately, so that it may be again."""
        asked_at = self._known.since(key)
        if self._confirmations is None or asked_at is None:
            return False
        until = self._confirmations.confirmed(key, asked_at)
        return until > asked_at and self._clock() - until < LATE_S

    def _known_facts(self, key: K, max_age_s: float) -> V | None:
        """Return facts that are cached; those that will soon be too old are requested in the background."""
        known = self._known.get(key)
        if known is None or known.seen != self._seen(key) or (age_s := self.age_s(key)) >= max_age_s:
            return None
        if age_s >= _SOON * max_age_s and key not in self._asking and not self._is_confirmed(key):
            self._ask(key)
        return known.value

    def settled(self, key: K, max_age_s: float) -> V | None:
        """Return facts that are cached, and neither older than this nor to be requested soon; None for others.

        Nothing is requested.
        """
        known = self._known.get(key)
        if known is None or known.seen != self._seen(key) or (age_s := self.age_s(key)) >= max_age_s:
            return None
        return known.value if age_s < _SOON * max_age_s or self._is_confirmed(key) else None

    def recent(self, key: K, max_age_s: float) -> V | None:
        """Return the cached entry if it was requested less than so many seconds ago, otherwise None. Nothing is
        requested.
        """
        known = self._remembered(key, max_age_s)
        return None if known is None else known.value

    async def get(self, key: K, max_age_s: float = math.inf) -> V:
        """Return the entry as `known` does, and request it if need be. Raises NotFound and Unavailable."""
        known = self.known(key, max_age_s)
        if known is not None:
            return known
        asking = self._asking.get(key)
        if asking is not None and self._clock() - asking.begun_s < max_age_s and asking.seen == self._seen(key):
            return await asyncio.shield(asking.task)
        return await self.refresh(key)

    async def fresh(self, key: K) -> V:
        """Return facts at most `FRESH_S` old, or up to `ttl_s` while no server can be asked.

        Raises NotFound and Unavailable.
        """
        known = self._known_facts(key, FRESH_S)
        if known is not None:
            return known
        older = self._remembered(key, math.inf)
        if older is None:
            return await self.get(key, FRESH_S)
        if self._silent.get(key):
            if key not in self._asking:
                self._ask(key)
            return older.value
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self.get(key, FRESH_S)
        except NotFound:
            raise
        except (TimeoutError, SwiftletError):
            self._silent.put(key, True)
            return older.value

    async def refresh(self, key: K) -> V:
        """Request the present entry; the cached one stays when no server can be reached."""
        return await asyncio.shield(self._ask(key))

    def _ask(self, key: K) -> asyncio.Future[V]:
        begun_s, seen = self._clock(), self._seen(key)
        task = asyncio.ensure_future(self._fetch(key))
        self._asking[key] = asking = _Asking(begun_s, seen, task)
        task.add_done_callback(lambda _: self._answered(key, asking))
        return task

    def _answered(self, key: K, asking: _Asking[V]) -> None:
        """Cache the answer, unless the entry was forgotten or requested again since."""
        if self._asking.get(key) is not asking:
            if not asking.task.cancelled():
                asking.task.exception()  # Those who wait for the answer see the error; perhaps nobody does.
            return
        del self._asking[key]
        error = None if asking.task.cancelled() else asking.task.exception()
        if isinstance(error, NotFound):
            self._known.forget(key)
        elif error is None and not asking.task.cancelled():
            before, now = self._known.get(key), asking.task.result()
            self._known.put(key, _Known(now, asking.seen), asking.begun_s)
            self._silent.forget(key)
            if before is not None:
                self._differs(key, before.value, now)

    def remember(self, key: K, value: V) -> None:
        """Cache what was just received in another way."""
        self._known.put(key, _Known(value, self._seen(key)))

    def forget(self, key: K) -> None:
        """Drop the entry; a request in progress counts as older than this."""
        self._asking.pop(key, None)
        self._known.forget(key)
        self._silent.forget(key)
