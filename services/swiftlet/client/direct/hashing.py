"""Digests of bodies that are sent at the same time, side by side and beside their sending.

MD5 of eight streams takes little longer than that of one where the processor has lanes for it. What comes while pieces
are being digested is digested next, together; a single upload does not wait for others. One thread goes from piece to
piece without the event loop, so that a body whose bytes are there is digested without a pause, and wakes the loop only
when somebody waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

from swiftlet_native import Hasher

from swiftlet.client.digests import Buffer

TOGETHER = 8
"""Pieces that are digested at a time: as many as a processor has lanes."""
AHEAD_BYTES = 4 << 20
"""Bytes of one body that may wait to be digested before its sender has to wait."""
PIECE_BYTES = 1 << 20
"""Bytes that are digested at a time: who comes meanwhile is digested together with what comes next."""


class Digesting:
    """The digesting of one body; it belongs to an event loop."""

    def __init__(self, hashing: Hashing, hasher: Hasher) -> None:
        """Continue with the state of `hasher`, which nothing else may feed until `close` has returned."""
        self.hasher = hasher
        self._hashing = hashing
        self._loop = asyncio.get_running_loop()
        # What follows is looked at and changed by who holds the lock of `hashing`.
        self.pieces: deque[memoryview] = deque()
        self.bytes_left = 0
        self.is_under_way = False
        self.error: Exception | None = None
        self._wakes_at = 0
        self._waiting: asyncio.Future[None] | None = None

    def add(self, data: Buffer) -> None:
        """Begin to digest the next bytes; they stay as they are until `finish`."""
        self._hashing.add(self, data)

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._until(AHEAD_BYTES)

    async def finish(self) -> None:
        """Return when all bytes are digested. Raises the error by which they could not be."""
        await self._until(0)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Drop what waits, and return when nobody reads the bytes any more."""
        self._hashing.drop(self)
        await self._until(0)

    async def _until(self, most: int) -> None:
        """Return when no more bytes are left than `most`."""
        with self._hashing.lock:
            if self.bytes_left <= most:
                return
            self._wakes_at, self._waiting = most, self._loop.create_future()
        await self._waiting

    def wake(self) -> None:
        """Wake who waits for this, from the thread that holds the lock."""
        if self._waiting is not None and self.bytes_left <= self._wakes_at:
            # A loop that has been closed has nobody who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set, self._waiting)
            self._waiting = None


def _set(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Hashing:
    """Digests the bodies of one event loop, in one of its threads."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self.lock = threading.Lock()
        self._ready: deque[Digesting] = deque()
        """Bodies with pieces that wait, none of which is under way."""
        self._is_running = False

    def begin(self, hasher: Hasher) -> Digesting:
        """Return the digesting of a body by this hasher."""
        return Digesting(self, hasher)

    def add(self, body: Digesting, data: Buffer) -> None:
        """Add the next piece of a body."""
        with self.lock:
            if not body.pieces and not body.is_under_way:
                self._ready.append(body)
            view = memoryview(data)
            body.bytes_left += len(view)
            body.pieces.extend(view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES))
            begins, self._is_running = not self._is_running, True
        if begins:
            asyncio.get_running_loop().run_in_executor(None, self._run)

    def drop(self, body: Digesting) -> None:
        """Forget the pieces of a body that wait."""
        with self.lock:
            body.bytes_left -= sum(map(len, body.pieces))
            body.pieces.clear()
            if body in self._ready:
                self._ready.remove(body)

    def _run(self) -> None:
        while taken := self._take():
            error: Exception | None = None
            try:
                Hasher.update_each([(body.hasher, data) for body, data in taken])
            except Exception as raised:  # whatever it is, it is the error of those who wait
                error = raised
            with self.lock:
                for body, data in taken:
                    body.bytes_left -= len(data)
                    # Who is told may change the bytes, or let go of them.
                    data.release()
                    body.is_under_way = False
                    body.error = body.error or error
                    if body.pieces:
                        self._ready.append(body)
                    body.wake()

    def _take(self) -> list[tuple[Digesting, memoryview]]:
        """Return the next piece of each of several bodies; none when there is nothing to do any more."""
        with self.lock:
            bodies = [self._ready.popleft() for _ in range(min(TOGETHER, len(self._ready)))]
            for body in bodies:
                body.is_under_way = True
            self._is_running = bool(bodies)
            return [(body, body.pieces.popleft()) for body in bodies]
