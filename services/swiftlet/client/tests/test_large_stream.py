"""Parts of segments as one stream: their order, the memory of those that wait, and errors when their turn comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
import xxhash

from swiftlet.client.digests import checksum_of
from swiftlet.client.direct.large_stream import Ahead, LargeStream, Part
from swiftlet.client.errors import ChecksumMismatch, ConnectionFailed
from swiftlet.client.values import ObjectInfo
from swiftlet.names import Path
from swiftlet.segments import Piece, Segment

SIZE = 10
PATH = Path("a", "c", "o")


class Source:
    """Segments of `SIZE` equal bytes, of which reads are counted."""

    def __init__(self, breaks_at: int | None = None, checksum: str | None = None) -> None:
        self.open = self.most = 0
        self.begun: list[int] = []
        self._breaks_at = breaks_at
        self._checksum = checksum

    async def parts(self, count: int) -> AsyncGenerator[Part, None]:
        """Yield parts of half a segment."""
        for number in range(count):
            piece = Piece(Segment(SIZE, path=PATH, size=SIZE, etag=str(number)), 0, SIZE)
            for start in (0, SIZE // 2):
                yield Part(piece, start, start + SIZE // 2)

    async def read(self, part: Part, is_first: bool) -> Opened:
        number = int(part.piece.segment.etag or "")
        assert is_first == ((number, part.start) == (0, 0))
        self.begun.append(number)
        self.open += 1
        self.most = max(self.most, self.open)
        whole = bytes([number]) * SIZE
        checksum = checksum_of(xxhash.xxh3_64_intdigest(whole)) if self._checksum is None else self._checksum
        return Opened(self, whole[part.start : part.stop], checksum, number == self._breaks_at)


class Opened:
    is_compared = False
    digest = None

    def __init__(self, source: Source, data: bytes, checksum: str, breaks: bool) -> None:
        self.info = ObjectInfo(size=SIZE, etag="", checksum=checksum)
        self._source, self._data, self._breaks = source, data, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield one byte after the other."""
        for at in range(len(self._data)):
            await asyncio.sleep(0)
            if self._breaks:
                raise ConnectionFailed("it broke")
            yield self._data[at : at + 1]

    async def close(self) -> None:
        self._source.open -= 1


async def opened(source: Source, ahead: Ahead, count: int, at_once: int = 4) -> LargeStream:
    stream = LargeStream(source.parts(count), source.read, ahead, at_once, ObjectInfo(size=None, etag=""), "it")
    await stream.begin()
    return stream


async def test_parts_come_in_order_and_not_too_many_wait() -> None:
    source, ahead = Source(), Ahead(SIZE * 100)
    stream = await opened(source, ahead, 6)
    assert source.begun == [0], "nobody has begun to read"
    assert b"".join([data async for data in stream]) == b"".join(bytes([n]) * SIZE for n in range(6))
    assert stream.is_compared
    assert 1 < source.most <= 4
    await stream.close()
    assert (source.open, ahead._left) == (0, SIZE * 100)


async def test_streams_that_share_memory_do_not_wait_for_each_other() -> None:
    """One is read to its end while the other one holds all the memory."""
    ahead = Ahead(SIZE)
    sources = Source(), Source()
    first, second = [await opened(source, ahead, 4) for source in sources]
    chunks = aiter(first)
    await anext(chunks)
    async with asyncio.timeout(30):
        assert len([data async for data in second]) == 4 * SIZE
        assert len([data async for data in chunks]) == 4 * SIZE - 1
    assert sources[1].most <= 2
    for stream in (first, second):
        await stream.close()
    assert ahead._left == SIZE


async def test_an_error_is_raised_when_its_turn_comes() -> None:
    source = Source(breaks_at=2)
    stream = await opened(source, Ahead(), 4)
    got: list[bytes] = []

    async def reads() -> None:
        async for data in stream:
            got.append(data)

    with pytest.raises(ConnectionFailed, match="it broke"):
        await reads()
    assert b"".join(got) == b"\0" * SIZE + b"\1" * SIZE
    assert not stream.is_compared
    await stream.close()
    assert source.open == 0


async def test_segments_are_compared_where_devices_tell_their_checksums() -> None:
    stream = await opened(Source(checksum=""), Ahead(), 2)
    assert len([data async for data in stream]) == 2 * SIZE
    assert not stream.is_compared
    await stream.close()
    stream = await opened(Source(checksum=checksum_of(1)), Ahead(), 2)
    with pytest.raises(ChecksumMismatch):
        [data async for data in stream]
    await stream.close()
