"""A cache of a bounded number of values, which drops the oldest first."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, each good for `ttl_s` seconds after it was put."""

    def __init__(self, ttl_s: float, max_entries: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache; `clock` is in monotonic seconds."""
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K, max_age_s: float = math.inf) -> V | None:
        """Return the value if it is at most `ttl_s` and `max_age_s` old."""
        entry = self._entries.get(key)
        if entry is not None and self._clock() - entry[0] < min(self._ttl_s, max_age_s):
            return entry[1]
        return None

    def since(self, key: K) -> float | None:
        """Return when the value was put, by the clock; None when it is not cached."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: K, value: V, since_s: float | None = None) -> None:
        """Cache a value from now on, or as of `since_s` by the clock; the oldest value makes room for it."""
        self.forget(key)
        self._entries[key] = (self._clock() if since_s is None else since_s, value)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def forget(self, key: K) -> None:
        """Drop the value of a key, if there is one, so that the next request asks for it."""
        self._entries.pop(key, None)
