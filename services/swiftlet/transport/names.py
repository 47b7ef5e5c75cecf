"""Looks up the addresses of nodes, in threads of its own.

Fault model: name servers may be silent, for all names or for those of a part of the network that is cut off; the
system's lookup of such a name then takes several seconds, and can't be ended. So each name is looked up once at a time,
for all who ask. Names whose last lookup was slow have few threads, which no other name needs; so they keep neither
nodes waiting whose names are known, nor what else the process does in threads. Only names that are looked up for the
first time may have to wait for others, when `THREADS` of them are under way.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

THREADS, SLOW_THREADS = 64, 8
"""Names that are looked up at the same time: those that answer, and those that did not lately."""
SLOW_S = 1.0
"""Seconds after which a lookup counts as slow."""
MAX_SLOW = 4096
"""Names that are remembered as slow; of more, the oldest are forgotten."""

Lookup = Callable[[str, int], list[tuple[Any, ...]]]
"""Returns what `socket.getaddrinfo` returns for a name and a port. Raises OSError."""


def _by_system(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class Names:
    """Lookups of one process; `clock` returns monotonic seconds."""

    def __init__(self, lookup: Lookup = _by_system, clock: Callable[[], float] = time.monotonic) -> None:
        """No thread is started before the first lookup."""
        self._lookup = lookup
        self._clock = clock
        self._slow: OrderedDict[str, None] = OrderedDict()
        self._begin()

    def _begin(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "names")
        self._slow_threads = ThreadPoolExecutor(SLOW_THREADS, "slow-names")
        self._asking: dict[tuple[str, int], Future[list[tuple[Any, ...]]]] = {}

    def leave_to_parent(self) -> None:
        """In a process made by fork: look up with threads of its own, as those of the parent are not there."""
        self._begin()

    async def find(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Return what `socket.getaddrinfo` returns. Raises OSError.

        Who is cancelled while it waits does not end the lookup, which others may wait for.
        """
        asking = self._asking.get((host, port))
        if asking is None:
            threads = self._slow_threads if host in self._slow else self._threads
            asking = self._asking[host, port] = threads.submit(self._timed, host, port)
            asking.add_done_callback(lambda _: self._asking.pop((host, port), None))
        # Not cancelled with its waiter: a lookup that still waits for a thread would be lost for the others.
        return await asyncio.shield(asyncio.wrap_future(asking))

    def _timed(self, host: str, port: int) -> list[tuple[Any, ...]]:
        began = self._clock()
        try:
            return self._lookup(host, port)
        finally:
            self._note(host, is_slow=self._clock() - began >= SLOW_S)

    def _note(self, host: str, *, is_slow: bool) -> None:
        self._slow.pop(host, None)
        if is_slow:
            self._slow[host] = None
            if len(self._slow) > MAX_SLOW:
                self._slow.popitem(last=False)


NAMES = Names()
"""The lookups of this process, which all of its clients share."""
os.register_at_fork(after_in_child=NAMES.leave_to_parent)
