"""Reads a request's body in pieces, never faster than it is stored, within the client's time and size limits.

Fault model: a client may announce less or more than it sends, stop sending, close the connection at any byte, or send
broken chunked encoding. All of these end in an error before anything is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import BadHttpMessage

from swiftlet.api.http.problems import CLIENT_GONE, ApiError


async def defer_continue(request: web.Request) -> None:
    """Send no `100 Continue` yet, so that the body of a refused upload is never sent."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise ApiError(417, f"Expect: {request.headers.get('Expect')} is not supported; only 100-continue is")


class Body:
    """The body of a request, which is read piece by piece."""

    def __init__(self, request: web.Request, max_size: int, timeout_s: float) -> None:
        """Check the announced size: 411 without a length or chunked encoding, 413 over `max_size` bytes."""
        self.request = request
        self._max_size = max_size
        self.timeout_s = timeout_s
        self.announced = request.content_length
        self.size = 0
        self._has_asked = False
        coding = request.headers.get("Transfer-Encoding", "").strip().lower()
        chunked = coding == "chunked"
        if "," in coding:
            raise ApiError(501, "Unsupported Transfer-Coding header value specified in Transfer-Encoding header")
        if coding and not chunked:
            raise ApiError(400, "Invalid Transfer-Encoding header value")
        if self.announced is None and not chunked:
            raise ApiError(411, "Missing Content-Length header.")
        if self.announced is not None and self.announced > max_size:
            raise self._too_large(self.announced)

    def _too_large(self, size: int) -> ApiError:
        return ApiError(
            413, f"Your request is too large. Its body has at least {size} bytes, the limit is {self._max_size} bytes"
        )

    async def say_continue(self) -> None:
        """Send `100 Continue` once, if the client waits for that."""
        if "Expect" in self.request.headers and not self._has_asked:
            self._has_asked = True
            await self.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.request.writer.output_size = 0

    def stands_still(self) -> ApiError:
        """Return 408: the client sent nothing for too long."""
        return ApiError(408, f"the client sent no data for {self.timeout_s:g} seconds")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield pieces as they arrive; ends after the last byte or raises: 408, 413, 400, or 499 when the client is
        gone.
        """
        await self.say_continue()
        while True:
            piece = await self._next()
            if not piece:
                break
            self.size += len(piece)
            if self.size > self._max_size:
                raise self._too_large(self.size)
            yield piece
        if self.announced is not None and self.size != self.announced:
            raise ApiError(CLIENT_GONE, f"the client announced {self.announced} bytes and sent {self.size}")

    async def _next(self) -> bytes:
        content = self.request.content
        try:
            # Data that has arrived needs no timer.
            piece = content.read_nowait()
            if piece or content.at_eof():
                return piece
            async with asyncio.timeout(self.timeout_s):
                return await content.readany()
        except TimeoutError as error:
            raise self.stands_still() from error
        except (ClientPayloadError, BadHttpMessage) as error:
            if self.request.transport is None or self.request.transport.is_closing():
                raise ApiError(CLIENT_GONE, "the client closed the connection in the middle of the body") from error
            raise ApiError(400, f"the body is malformed: {error}") from error
        except ConnectionError as error:
            raise ApiError(CLIENT_GONE, "the client closed the connection in the middle of the body") from error
