"""The bytes of many pieces as one stream: the next pieces are opened while the tail of the last one is on its way.

Opening a piece takes a round trip to a device that may be busy, so several are on their way at once where pieces are
small. Fault model: any piece may be gone, changed or break off at any time. The stream then ends with an error when its
turn comes, never early: its reader counts on the length that was promised. Memory is bounded by `AHEAD_PIECES` open
pieces beside the current one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

AHEAD_BYTES = 8 << 20
"""How many bytes before the end of what is open the next piece, or run, is opened: as much as a run asks for ahead, so
that what is on its way does not become less towards its end; late enough that a connection does not stand idle for
long."""
AHEAD_PIECES = 6
"""Opened, or being opened, beside the current one."""


class Source(Protocol):
    """Bytes on their way."""

    def chunks(self) -> AsyncIterator[bytes]:
        """All bytes asked for, in order; an error when they can't all be had."""
        ...

    async def close(self) -> None:
        """Close the connections; a second call does nothing."""
        ...


class Bytes:
    """A source of bytes that are in memory."""

    def __init__(self, data: bytes) -> None:
        """The whole of it."""
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes as one chunk."""
        if self._data:
            yield self._data

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Sized(Protocol):
    """What is opened: a piece, or several."""

    @property
    def bytes(self) -> int:
        """Return the size in bytes."""
        ...


P = TypeVar("P", bound=Sized)


class SegmentStream(Generic[P]):
    """Pieces one after the other; `begin` opens the first, so that what is wrong with it is known before any byte."""

    def __init__(self, pieces: AsyncGenerator[P, None], open_piece: Callable[[P], Awaitable[Source]]) -> None:
        """`open_piece` raises what is wrong with a piece."""
        self._pieces = pieces
        self._open_piece = open_piece
        self._current: Source | None = None
        self._ahead: deque[asyncio.Task[Source | None]] = deque()
        self._rest = 0
        """Bytes of the open pieces that have not been handed on, as far as their sizes are known."""
        self._asking = False
        """Whether the next piece is just being asked for; before it is known nothing behind it is."""
        self._ended = False

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
        """All bytes in order."""
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
        """Close what is open, and what is just being opened."""
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
