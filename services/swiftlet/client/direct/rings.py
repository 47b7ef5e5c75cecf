"""Rings of a client: fetched when they are first needed, and again when an object server has a newer one.

Object servers tell their ring's version with each answer. A ring is fetched with the ETag of the one that there is,
beside the requests, which go on with that one: a write by an older ring counts, as a proxy's does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from swiftlet.client.errors import ClientError, ConnectionFailed
from swiftlet.errors import Unavailable
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import RingError

PAUSE_S = 2.0
"""Seconds between two questions about one ring: servers that are ahead of metadata servers tell of it until then."""
Fetch = Callable[[int, str | None], Awaitable[tuple[bytes, str] | None]]
"""Returns the ring of a policy in the form of its file, and its ETag; None when it still is the one of this ETag."""
FetchOf = Callable[[str, str], Awaitable[tuple[bytes, str, int]]]
"""Returns the ring of the policy of a container (account and name) likewise, and the policy's index."""


@dataclass(slots=True)
class _Known:
    ring: Ring
    etag: str
    asked_at: float


@dataclass(slots=True)
class DirectRings:
    """The object rings of one client in one event loop; `clock` returns monotonic seconds."""

    fetch: Fetch
    fetch_of: FetchOf
    clock: Callable[[], float] = time.monotonic
    _known: dict[int, _Known] = field(default_factory=dict)
    _fetching: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _expected: asyncio.Future[None] | None = None
    """The first one, while it is fetched."""

    def objects(self, policy: int) -> Ring:
        """Return the ring of a policy. Raises Unavailable before `have`."""
        known = self._known.get(policy)
        if known is None:
            raise Unavailable(f"the ring of policy {policy} has not been fetched")
        return known.ring

    async def have(self, policy: int) -> Ring:
        """Return the ring of a policy, fetched if need be. Raises the ClientError of the metadata server."""
        if policy not in self._known and self._expected is not None:
            # If that fails, it is asked for again, and who needs it is told why it can't be had.
            await asyncio.wait([self._expected])
        if policy not in self._known:
            await asyncio.shield(self._fetch(policy))
        return self.objects(policy)

    def expect(self, account: str, container: str) -> None:
        """Fetch the ring of a container's policy beside a grant, which tells the policy; not when there is any ring."""
        if not self._known and not self._fetching and self._expected is None:
            self._expected = asyncio.ensure_future(self._fetched_of(account, container))
            self._expected.add_done_callback(self._expected_came)

    def _expected_came(self, fetching: asyncio.Future[None]) -> None:
        self._expected = None
        _note_failure(fetching)

    def told(self, policy: int, version: int) -> None:
        """Note the version of a ring at an object server; 0 if it does not know."""
        known = self._known.get(policy)
        if known is not None and version > known.ring.version and self.clock() >= known.asked_at + PAUSE_S:
            self._fetch(policy).add_done_callback(_note_failure)

    async def newer(self, policy: int, version: int) -> bool:
        """Return whether there is another ring than that of `version`, after waiting for one that is being fetched."""
        fetching = self._fetching.get(policy)
        if fetching is not None:
            await asyncio.wait([fetching])
        return self.objects(policy).version != version

    async def close(self) -> None:
        """Stop fetching; the rings that are here stay."""
        fetching = [*self._fetching.values(), *([] if self._expected is None else [self._expected])]
        for one in fetching:
            one.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    def _fetch(self, policy: int) -> asyncio.Future[None]:
        fetching = self._fetching.get(policy)
        if fetching is None:
            fetching = self._fetching[policy] = asyncio.ensure_future(self._fetched(policy))
            fetching.add_done_callback(lambda _: self._fetching.pop(policy, None))
        return fetching

    async def _fetched(self, policy: int) -> None:
        known = self._known.get(policy)
        if known is not None:
            known.asked_at = self.clock()
        found = await self.fetch(policy, None if known is None else known.etag)
        if found is not None:
            await self._take(policy, *found)

    async def _fetched_of(self, account: str, container: str) -> None:
        data, etag, policy = await self.fetch_of(account, container)
        await self._take(policy, data, etag)

    async def _take(self, policy: int, data: bytes, etag: str) -> None:
        try:
            # A large ring takes a while to decode.
            ring = await asyncio.to_thread(codec.decode, data)
        except RingError as error:
            raise ConnectionFailed(f"the ring of policy {policy} that came can't be used: {error}") from error
        known = self._known.get(policy)
        if known is None or ring.version > known.ring.version:
            self._known[policy] = _Known(ring, etag, self.clock())


def _note_failure(fetching: asyncio.Future[None]) -> None:
    """Take note of how fetching beside requests has ended; the next answer of an object server begins it again."""
    if not fetching.cancelled():
        error = fetching.exception()
        if error is not None and not isinstance(error, ClientError):
            raise error
