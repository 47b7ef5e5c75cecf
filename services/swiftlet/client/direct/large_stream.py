"""The bytes of many parts of segments in their order, while the next parts are read as well.

Each part is at most `PART_BYTES` of one segment and has a request of its own, so that several devices give at a time.
Parts that come before their turn wait in memory. All large objects of one event loop share `AHEAD_BYTES` for that; a
stream that has no part waiting takes the next one in any case, so that no stream waits for the reader of another one.

Fault model: any part may be missing, be another object's, or break off. The error is raised when its turn comes, never
earlier. A segment that is read as a whole is compared with the checksum that its device has told before its last byte
is passed on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from swiftlet.client.digests import Digest, digest_for
from swiftlet.client.direct.errors import GoByHttp
from swiftlet.client.errors import ChecksumMismatch, ClientError, ConnectionFailed
from swiftlet.client.values import ObjectInfo
from swiftlet.client.way import Stream
from swiftlet.errors import SwiftletError
from swiftlet.segments import Piece

PART_BYTES = 8 << 20
"""The largest number of bytes that one request asks for."""
AT_ONCE = 4
"""Requests of one stream at a time: more cost processor time, as their bytes wait longer in memory."""
AHEAD_BYTES = 32 << 20
"""Memory for parts that wait for their turn, of all large objects that are read in an event loop."""
PROBLEMS = (ClientError, GoByHttp, SwiftletError)
"""Errors by which a part is not what the manifest says, or can't be had."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `[start, stop)` of the segment of a piece."""

    piece: Piece
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """Return how many bytes it has."""
        return self.stop - self.start

    @property
    def is_of_whole(self) -> bool:
        """Whether all of the segment's object is read, by this part and those beside it."""
        return (self.piece.start, self.piece.stop) == (0, self.piece.segment.size)


Open = Callable[[Part, bool], Awaitable[Stream]]
"""Opens a part; the flag says whether it is the first one of its stream."""


async def parts_of(pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Part, None]:
    """Yield pieces in parts of at most `PART_BYTES`."""
    async for piece in pieces:
        for start in range(piece.start, piece.stop, PART_BYTES):
            yield Part(piece, start, min(start + PART_BYTES, piece.stop))


class Ahead:
    """Memory for parts that wait for their turn."""

    def __init__(self, size: int = AHEAD_BYTES) -> None:
        """Begin with all of it."""
        self._left = size
        self._changed = asyncio.Event()

    async def take(self, size: int, may_exceed: Callable[[], bool], is_allowed: Callable[[], bool]) -> None:
        """Take memory once it is there, or the taker may exceed it, and the taker is allowed to have more."""
        while not (may_exceed() or (size <= self._left and is_allowed())):
            self._changed.clear()
            await self._changed.wait()
        self._left -= size

    def give(self, size: int) -> None:
        """Give memory back, and have all who wait look again."""
        self._left += size
        self._changed.set()


class _Fetch:
    """A part that is being read; its bytes are kept until they are taken."""

    def __init__(self, part: Part, opening: Callable[[], Awaitable[Stream]], may_read: asyncio.Event) -> None:
        self.part = part
        self.opened: asyncio.Future[ObjectInfo] = asyncio.get_running_loop().create_future()
        self._chunks: deque[bytes] = deque()
        self._more = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(opening, may_read))
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._more.set()
        if not self.opened.done():
            self.opened.cancel()
        if not task.cancelled():
            # Whoever takes the bytes is told; if nobody does any more, nobody needs to know.
            task.exception()

    async def _run(self, opening: Callable[[], Awaitable[Stream]], may_read: asyncio.Event) -> None:
        stream = await opening()
        try:
            self.opened.set_result(stream.info)
            await may_read.wait()
            left = self.part.bytes
            async for data in stream:
                left -= len(data)
                self._chunks.append(data)
                self._more.set()
            if left:
                raise ConnectionFailed(f"{self.part.piece.segment.path}: {left} bytes are missing, or too many")
        finally:
            await stream.close()

    async def begin(self) -> None:
        """Return once the part is open. Raises what is wrong with it."""
        waiting: list[asyncio.Future[Any]] = [self.opened, self.task]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            self.task.result()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they come. Raises what is wrong with them, after those that came before."""
        while True:
            while self._chunks:
                yield self._chunks.popleft()
            if self.task.done():
                self.task.result()
                return
            self._more.clear()
            await self._more.wait()


class LargeStream:
    """The body of a large object, or of a range of it."""

    def __init__(
        self,
        parts: AsyncGenerator[Part, None],
        open_part: Open,
        ahead: Ahead,
        at_once: int,
        info: ObjectInfo,
        name: str,
    ) -> None:
        """Read the parts by `open_part`, at most `at_once` at a time; `info` describes the large object."""
        self.info = info
        self.digest = None
        self._parts = parts
        self._open = open_part
        self._ahead = ahead
        self._at_once = at_once
        self._name = name
        self._may_read = asyncio.Event()
        self._fetches: deque[_Fetch] = deque()
        self._changed = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._digest: Digest | None = None
        self._expected = ""
        self._compared = True
        self._ended = False

    @property
    def is_compared(self) -> bool:
        """Whether all bytes have been read, and compared with checksums of whole segments."""
        return self._ended and self._compared

    async def begin(self) -> None:
        """Open the first part, so that what is wrong with it is known before any byte. Raises one of `PROBLEMS`."""
        self._feeding = asyncio.ensure_future(self._feed())
        first = await self._first()
        if first is not None:
            await first.begin()

    async def _feed(self) -> None:
        """Begin to read one part after the other; the second one when somebody reads the first."""
        number = 0
        async for part in self._parts:
            await self._ahead.take(part.bytes, lambda: not self._fetches, lambda: len(self._fetches) < self._at_once)
            self._fetches.append(_Fetch(part, partial(self._open, part, number == 0), self._may_read))
            self._changed.set()
            number += 1
            await self._may_read.wait()

    async def _first(self) -> _Fetch | None:
        """Return the part whose turn it is, None at the end."""
        assert self._feeding is not None
        while not self._fetches:
            if self._feeding.done():
                self._feeding.result()
                return None
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([changed, self._feeding], return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
        return self._fetches[0]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes in their order."""
        self._may_read.set()
        try:
            while (fetch := await self._first()) is not None:
                left = fetch.part.bytes
                async for data in fetch.chunks():
                    left -= len(data)
                    self._compare(fetch, data, left)
                    yield data
                self._done(self._fetches.popleft())
        except ChecksumMismatch:
            raise
        except PROBLEMS as error:
            raise ConnectionFailed(f"GET {self._name}: {error}") from error
        self._ended = True

    def _compare(self, fetch: _Fetch, data: bytes, left: int) -> None:
        """Hash the next bytes of a segment that is read as a whole; raises ChecksumMismatch at its end."""
        part = fetch.part
        if part.piece.segment.data is not None:
            return
        if part.start == part.piece.start and left + len(data) == part.bytes:
            self._expected = fetch.opened.result().checksum if part.is_of_whole else ""
            self._digest = digest_for(self._expected)
            self._compared = self._compared and self._digest is not None
        if self._digest is None:
            return
        self._digest.update(data)
        if not left and part.stop == part.piece.stop and self._digest.etag() != self._expected:
            raise ChecksumMismatch(f"{self._name}: what came of {part.piece.segment.path} is not what was stored")

    def _done(self, fetch: _Fetch) -> None:
        self._ahead.give(fetch.part.bytes)

    async def close(self) -> None:
        """Let go of what is left unread."""
        if self._feeding is not None:
            await _end(self._feeding)
        fetches = list(self._fetches)
        self._fetches.clear()
        await asyncio.gather(*(_end(fetch.task) for fetch in fetches))
        for fetch in fetches:
            self._done(fetch)
        await self._parts.aclose()


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and return when it has ended, however it did."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
