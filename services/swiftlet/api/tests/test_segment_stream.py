"""Pieces that are open while a stream of them is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import pytest

from swiftlet.api.reading.segment_stream import SegmentStream


@dataclass
class Piece:
    bytes: int = 1000


class Opened:
    """A source that takes a moment to close."""

    def __init__(self) -> None:
        self.is_closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for _ in range(10):
            yield bytes(100)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


async def pieces() -> AsyncGenerator[Piece, None]:
    for _ in range(5):
        yield Piece()


@pytest.mark.parametrize("turns", range(8))
async def test_a_reader_that_is_cancelled_while_it_closes_leaves_nothing_open(turns: int) -> None:
    """As one whose client goes away just when the server ends."""
    opened: list[Opened] = []

    async def open_piece(_piece: Piece) -> Opened:
        opened.append(Opened())
        return opened[-1]

    stream = SegmentStream(pieces(), open_piece)
    await stream.begin()
    chunks = stream.chunks()
    await anext(chunks)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(opened) == 5
    closing = asyncio.ensure_future(stream.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    for _ in range(20):
        await asyncio.sleep(0)
    left = [one for one in opened if not one.is_closed]
    # One that is cancelled before its first step has not begun to close.
    assert not left or turns == 0
    await stream.close()
    assert all(one.is_closed for one in opened)
