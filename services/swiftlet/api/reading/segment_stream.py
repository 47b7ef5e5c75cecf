"""The bytes of many pieces as one stream: the next pieces are opened while the last one is still being read.

Opening a piece takes a round trip to a device that may be busy, so several are opened at once where pieces are small.
Fault model: any piece may be missing, changed or break off at any time. The stream then ends with an error when the
piece's turn comes, never early, as its reader relies on the announced length. A reader may be cancelled at any moment,
also while it closes the stream; nothing stays open then. Memory is bounded by `AHEAD_PIECES` open pieces beside the
current one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

AHEAD_BYTES = 8 << 20
"""How many bytes before the end of what is open the next piece, or run, is opened: as much as a run asks for ahead, so
that the flow does not decrease towards its end; late enough that a connection is not idle for long.
"""
AHEAD_PIECES = 6
"""How many pieces are open, or being opened, beside the current one."""


class Source(Protocol):
    """A stream of bytes that is open."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes asked for, in order; raises when they are not available."""
        ...

    async def close(self) -> None:
        """Close the connections; a second call does nothing."""
        ...


class Bytes:
    """A source of bytes that are in memory."""

    def __init__(self, data: bytes) -> None:
        """Hold `data`, the whole content."""
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes as one chunk."""
        if self._data:
            yield self._data

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Sized(Protocol):
    """A piece or several, with a size."""

    @property
    def bytes(self) -> int:
        """Return the size in bytes."""
        ...


P = TypeVar("P", bound=Sized)


class SegmentStream(Generic[P]):
    """Reads pieces one after the other; `begin` opens the first, so that its errors are known before any
    byte is sent.
    """

    def __init__(self, pieces: AsyncGenerator[P, None], open_piece: Callable[[P], Awaitable[Source]]) -> None:
        """Start with nothing open; `open_piece` raises what is wrong with a piece."""
        self._pieces = pieces
        self._open_piece = open_piece
        self._current: Source | None = None
        self._ahead: deque[asyncio.Task[Source | None]] = deque()
        self._rest = 0
        """Bytes of the open pieces that were not yielded yet, as far as their sizes are known."""
        self._asking = False
        """Whether the next piece is being determined; until then no later one is known."""
        self._ended = False
        self._closing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Open the first piece."""
        self._current = await self._open_next()

    async def _open_next(self) -> Source | None:
        piece = await self._next()
        return None if piece is None else await self._open_piece(piece)

    async def _open_ahead(self) -> Source | None:
        piece = await self._next()
        self._asking = False
        self._look_ahead()
        return None if piece is None else await self._open_piece(piece)

    async def _next(self) -> P | None:
        piece = await anext(self._pieces, None)
        if piece is None:
            self._ended = True
        else:
            self._rest += piece.bytes
        return piece

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes in order."""
        while self._current is not None:
            source = self._current
            self._look_ahead()
            async for chunk in source.chunks():
                yield chunk
                self._rest -= len(chunk)
                self._look_ahead()
            await source.close()
            self._current = None
            if not self._ahead and not self._ended:
                self._ask()
            if self._ahead:
                self._current = await self._ahead[0]
                self._ahead.popleft()

    def _look_ahead(self) -> None:
        if not self._asking and not self._ended and len(self._ahead) < AHEAD_PIECES and self._rest <= AHEAD_BYTES:
            self._ask()

    def _ask(self) -> None:
        self._asking = True
        self._ahead.append(asyncio.ensure_future(self._open_ahead()))

    async def close(self) -> None:
        """Close what is open or being opened; if the caller is cancelled meanwhile, that goes on without it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        ahead, self._ended = list(self._ahead), True
        self._ahead.clear()
        opened = [self._current]
        self._current = None
        for task in ahead:
            task.cancel()
        for outcome in await asyncio.gather(*ahead, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                opened.append(outcome)
        for one in opened:
            if one is not None:
                await one.close()
        await self._pieces.aclose()
