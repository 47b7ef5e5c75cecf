"""Grants of one client: asked for when they are first needed, renewed while they are used, counted down.

A grant is for a container, and for reading or for writing: who may only read gets that with the first question. One
that has lived for half of its time is renewed beside the requests that use it, so that none of them waits. What a
quota leaves is counted here as well as at the devices, so that a PUT that would be refused is not sent.

Fault model: metadata servers may be gone; grants in hand go on until they end, and nobody waits for new ones again and
again. Rights may be taken away at any moment: a grant that devices refuse is dropped (`drop`). What a metadata server
does not grant is not asked for again for `REFUSED_S`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from swiftlet.client.direct.errors import GoByHttp
from swiftlet.client.errors import ClientError, StatusError

T = TypeVar("T")
_log = logging.getLogger("swiftlet.client")
REFUSED_S = 10.0
"""Seconds for which what was refused is not asked for again."""
CHANGING_S = 0.5
"""Seconds for which that is so after devices have refused a grant that was new."""
MAX_GRANTS = 1024
"""Grants that are kept; of more, those that were used least recently are dropped."""
_MARGIN_S = 1.0
"""Seconds before its end from which a grant is not used any more: the request has to arrive before."""


class Kind(Enum):
    """What is going to be done in a container."""

    READ = ("get", "head")
    WRITE = ("put", "delete")


@dataclass(slots=True)
class Granted(Generic[T]):
    """What may be done until it ends; `rights` is what requests need of it."""

    rights: T
    ends: float
    """When it ends, on this client's monotonic clock."""
    renew_at: float
    objects_left: int | None = None
    """Objects that may be stored by it; None: as many as one likes."""
    bytes_left: int | None = None

    def take(self, size: int) -> bool:
        """Count an object that is going to be stored; False if there is no room for it."""
        if self.objects_left is not None and self.objects_left < 1:
            return False
        if self.bytes_left is not None and self.bytes_left < size:
            return False
        if self.objects_left is not None:
            self.objects_left -= 1
        if self.bytes_left is not None:
            self.bytes_left -= size
        return True


@dataclass(slots=True)
class _Entry(Generic[T]):
    """What is known about one container and kind."""

    granted: Granted[T] | None = None
    asking: asyncio.Future[Granted[T]] | None = None
    refused_until: float = 0.0
    why: str = ""


Ask = Callable[[Mapping[str, object]], Awaitable[Granted[T]]]
"""Asks a metadata server; raises ClientError."""


@dataclass(slots=True)
class Grants(Generic[T]):
    """The grants of one client in one event loop; `clock` returns monotonic seconds."""

    ask: Ask[T]
    clock: Callable[[], float] = time.monotonic
    _entries: dict[tuple[str, Kind], _Entry[T]] = field(default_factory=dict)

    async def of(self, container: str, kind: Kind, size: int | None = None) -> Granted[T]:
        """Return a grant that counts now, with room for one object of `size` bytes if one is going to be stored.

        Raises GoByHttp when there is none, and the ConnectionFailed or ServerError of a metadata server.
        """
        entry = self._entry(container, kind)
        granted = self._current(entry)
        if granted is not None:
            if granted.renew_at <= self.clock() and entry.asking is None:
                self._begin(entry, container, kind).add_done_callback(_note_failure)
            if size is None or granted.take(size):
                return granted
        if self.clock() < entry.refused_until:
            raise GoByHttp(entry.why)
        # Who is cancelled does not take the question from others who wait for its answer.
        granted = await asyncio.shield(entry.asking or self._begin(entry, container, kind))
        if size is not None and not granted.take(size):
            raise GoByHttp("a quota leaves too little room to store it by a grant")
        return granted

    def drop(self, container: str, kind: Kind, granted: Granted[T]) -> None:
        """Use a grant no more: devices have refused it."""
        entry = self._entries.get((container, kind))
        if entry is not None and entry.granted is granted:
            entry.granted = None

    def refused(self, container: str, kind: Kind, why: str) -> None:
        """Ask for no grant for a moment: devices refuse what has just been granted, as rights are changing."""
        entry = self._entry(container, kind)
        entry.granted, entry.refused_until, entry.why = None, self.clock() + CHANGING_S, why

    def in_use(self) -> list[T]:
        """Return the rights of grants that have not ended."""
        return [known.rights for entry in self._entries.values() if (known := self._current(entry)) is not None]

    async def close(self) -> None:
        """Stop asking; who still waits for an answer is cancelled."""
        asking = [entry.asking for entry in self._entries.values() if entry.asking is not None]
        self._entries.clear()
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _entry(self, container: str, kind: Kind) -> _Entry[T]:
        place = container, kind
        entry = self._entries.pop(place, None) or _Entry[T]()
        self._entries[place] = entry
        if len(self._entries) > MAX_GRANTS:
            oldest = next((one for one, known in self._entries.items() if known.asking is None), None)
            if oldest is not None:
                del self._entries[oldest]
        return entry

    def _current(self, entry: _Entry[T]) -> Granted[T] | None:
        granted = entry.granted
        return granted if granted is not None and self.clock() < granted.ends - _MARGIN_S else None

    def _begin(self, entry: _Entry[T], container: str, kind: Kind) -> asyncio.Future[Granted[T]]:
        entry.asking = asyncio.ensure_future(self._renewed(entry, container, kind))
        return entry.asking

    async def _renewed(self, entry: _Entry[T], container: str, kind: Kind) -> Granted[T]:
        try:
            entry.granted = granted = await self.ask({"container": container, "operations": list(kind.value)})
        except StatusError as error:
            if error.status >= 500:
                raise
            # A proxy says to the request itself what is wrong, or carries it out.
            before, entry.why = entry.why, f"no grant for {container}: {error}"
            entry.refused_until = self.clock() + REFUSED_S
            if entry.why != before:
                _log.info("%s; its objects go over HTTP", entry.why)
            raise GoByHttp(entry.why) from error
        finally:
            entry.asking = None
        return granted


def _note_failure(asking: asyncio.Future[Granted[T]]) -> None:
    """Take note of how a renewal beside requests has ended; they ask themselves when the grant has ended."""
    if not asking.cancelled():
        error = asking.exception()
        if error is not None and not isinstance(error, (ClientError, GoByHttp)):
            raise error
