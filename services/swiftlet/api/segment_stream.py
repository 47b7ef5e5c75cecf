"""The bytes of many pieces as one stream: the next piece is opened while the tail of the last one is on its way.

Fault model: any piece may be gone, changed or break off at any time. The stream then ends with an error, never
early: its reader counts on the length that was promised. Memory is bounded by two open pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol

from swiftlet.api.segments import Piece

TAIL_BYTES = 1 << 20
"""How many bytes before the end of a piece the next one is opened: early enough to be ready, late enough that its
connection does not stand idle for long."""


class Source(Protocol):
    """Bytes on their way."""

    def chunks(self) -> AsyncIterator[bytes]:
        """All bytes asked for, in order; an error when they can't all be had."""
        ...

    async def close(self) -> None:
        """Let go of connections; harmless a second time."""
        ...


class Bytes:
    """Bytes at hand."""

    def __init__(self, data: bytes) -> None:
        """The whole of it."""
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        """In one."""
        if self._data:
            yield self._data

    async def close(self) -> None:
        """Nothing is open."""


class SegmentStream:
    """Pieces one after the other; `begin` opens the first, so that what is wrong with it is known before any byte."""

    def __init__(self, pieces: AsyncGenerator[Piece, None], open_piece: Callable[[Piece], Awaitable[Source]]) -> None:
        """`open_piece` raises what is wrong with a piece."""
        self._pieces = pieces
        self._open_piece = open_piece
        self._current: tuple[Piece, Source] | None = None
        self._ahead: asyncio.Task[tuple[Piece, Source] | None] | None = None

    async def begin(self) -> None:
        """Open the first piece."""
        self._current = await self._open_next()

    async def _open_next(self) -> tuple[Piece, Source] | None:
        piece = await anext(self._pieces, None)
        return None if piece is None else (piece, await self._open_piece(piece))

    async def chunks(self) -> AsyncIterator[bytes]:
        """All bytes in order."""
        while self._current is not None:
            piece, source = self._current
            rest = piece.stop - piece.start
            if rest <= TAIL_BYTES:
                self._look_ahead()
            async for chunk in source.chunks():
                yield chunk
                rest -= len(chunk)
                if rest <= TAIL_BYTES:
                    self._look_ahead()
            await source.close()
            self._current = None
            self._look_ahead()
            assert self._ahead is not None
            self._current = await self._ahead
            self._ahead = None

    def _look_ahead(self) -> None:
        if self._ahead is None:
            self._ahead = asyncio.ensure_future(self._open_next())

    async def close(self) -> None:
        """Close what is open, and what is just being opened."""
        ahead, self._ahead = self._ahead, None
        opened = [self._current]
        self._current = None
        if ahead is not None:
            ahead.cancel()
            (outcome,) = await asyncio.gather(ahead, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                opened.append(outcome)
        for one in opened:
            if one is not None:
                await one[1].close()
        await self._pieces.aclose()
