"""Reading request bodies: frames and short JSON, with limits in size and in patience.

Fault model: a sender may stop in the middle and keep the connection open, close it after any byte, or send
lengths and bytes that mean nothing. All of these become a WireError; a sender that stands still, after
`idle_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from swiftlet.transport.wire import LENGTH_SIZE, MAX_DATA_FRAME, WireError, frame_length

BATCH_BYTES = 512 * 1024
"""Bytes of a streamed upload that go to the device's thread at once."""

_DISCARD_S = 2.0
_BROKEN = (ConnectionError, aiohttp.ClientError, web.RequestPayloadError, HttpProcessingError)


class BodyReader:
    """A request's body, read in order."""

    def __init__(self, request: web.Request, idle_s: float) -> None:
        """Nothing is read yet."""
        self._content = request.content
        self._idle_s = idle_s

    async def exactly(self, size: int) -> bytes:
        """The next `size` bytes; WireError when there are fewer."""
        async with self._sender():
            return await self._content.readexactly(size)

    async def frame(self, limit: int) -> bytes:
        """The next whole frame of at most `limit` bytes."""
        return await self.exactly(frame_length(await self.exactly(LENGTH_SIZE), limit))

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """The data frames up to the empty one, as pieces of about BATCH_BYTES together, as they came."""
        batch: list[bytes] = []
        size = 0
        while length := frame_length(await self.exactly(LENGTH_SIZE), MAX_DATA_FRAME):
            while length:
                async with self._sender():
                    piece = await self._content.read(min(length, BATCH_BYTES))
                if not piece:
                    raise WireError("the body ends in the middle of a frame")
                length -= len(piece)
                size += len(piece)
                batch.append(piece)
                if size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    async def end(self) -> None:
        """WireError unless the body ends here."""
        async with self._sender():
            if await self._content.read(1):
                raise WireError("there are bytes behind the end of the message")

    async def all(self, limit: int) -> bytes:
        """The whole body, which must be short."""
        pieces: list[bytes] = []
        size = 0
        while True:
            async with self._sender():
                piece = await self._content.readany()
            if not piece:
                return b"".join(pieces)
            size += len(piece)
            if size > limit:
                raise WireError(f"the message is over the limit of {limit} bytes")
            pieces.append(piece)

    async def discard(self, request: web.Request) -> None:
        """After a refusal: read what is still on its way, so that the connection can serve again or end cleanly.

        Closing with unread bytes would reset the connection, and the sender might never see the answer.
        """
        try:
            async with asyncio.timeout(_DISCARD_S):
                while await self._content.readany():
                    pass
        except (TimeoutError, *_BROKEN):
            request.protocol.force_close()

    @asynccontextmanager
    async def _sender(self) -> AsyncIterator[None]:
        """Turn what a sender can do wrong into WireErrors."""
        try:
            async with asyncio.timeout(self._idle_s):
                yield
        except TimeoutError as error:
            raise WireError(f"the sender stood still for {self._idle_s:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise WireError("the message is cut off") from error
        except _BROKEN as error:
            raise WireError(f"the connection broke off: {error or type(error).__name__}") from error
