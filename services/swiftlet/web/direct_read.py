"""A long request body, read from its connection straight into memory that it can be sent on from.

For as long as the body lasts the connection belongs to this module, and its bytes bypass the HTTP server, which would
copy each of them three times. Exactly the body is read: whatever follows stays in the kernel for the server, which gets
the connection back with a new parser at the body's end.

Fault model: the client may stop, send at any pace, or close the connection at any byte: what has arrived is passed on
after a moment, a client that sends nothing holds no memory, a wait has a limit, and the server is told of the end.
Memory may be short: then no more than a few bytes are read. A body that nobody wants any more is read and dropped, for
as long as the server waits for that before it closes the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http import HttpRequestParser
from aiohttp.web_protocol import MAX_MSG_QUEUE_SIZE, RequestHandler, RequestPayloadError

from swiftlet.boundaries.bodies import Bodies, BodyBuffer, Piece
from swiftlet.errors import NodeBusy
from swiftlet.web.front_listener import BegunByFront

LEAST_BYTES = 256 * 1024
"""When fewer bytes of a body than these remain, the server may read the rest."""
_SMALLEST_BYTES, _LARGEST_BYTES = 64 * 1024, 1024 * 1024
"""The smallest and the largest size of buffers in bytes; they grow while they are filled quickly."""
_PATIENCE_S = 0.2
"""Seconds after which a buffer is passed on as full as it is, because one that waits for a slow client
blocks memory.
"""
_BLOCK = 4096
"""Devices write bytes from where they are that begin at a block both in memory and in the object."""
_AHEAD = 2
"""The number of full buffers, not yet taken, at which no more is read."""
_SPARE_BYTES = 16 * 1024
"""Bytes that are read without memory of their own: of unwanted bodies, or before memory is waited for."""


class DirectRead(asyncio.BufferedProtocol):
    """A connection while the rest of one request's body arrives. `begin_direct_read` creates it."""

    def __init__(
        self, handler: Any, content: StreamReader, begun: int, left: int, bodies: Bodies, patience_s: float
    ) -> None:
        """`begun` bytes of the body have arrived, and `left` are to come; memory is waited for up to `patience_s`
        seconds.
        """
        self._handler = handler
        self._transport: asyncio.Transport = handler.transport
        self._content = content
        self._left = left
        self._bodies = bodies
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._full: deque[tuple[BodyBuffer, int] | bytes] = deque()
        self._filling: BodyBuffer | None = None
        self._filled = 0
        # The buffer is handed on with so many bytes, though it has room for more.
        self._enough: int | None = None
        # Of the body, with what had arrived before.
        self._handed_on = begun
        self._size = _SMALLEST_BYTES
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_memory = False
        self._wanted = True
        self._error: Exception | None = None
        self._lost = False
        self._is_back = False
        self._news: asyncio.Future[None] | None = None
        self._spare = memoryview(b"")

    def begin(self) -> None:
        """Take the connection from aiohttp, and read its body from here on."""
        self._transport.pause_reading()
        self._transport.set_protocol(self)
        self._go_on()

    def begin_with(self, beginning: bytes) -> bool:
        """Put what has arrived at the beginning of the first buffer; return False when there is no memory for it."""
        while self._size < 2 * len(beginning):
            self._size *= 2
        if self._size > _LARGEST_BYTES:
            self._size = _SMALLEST_BYTES
            return False
        buffer = self._bodies.buffer(min(self._size, len(beginning) + self._left))
        if buffer is None:
            return False
        with memoryview(buffer) as room:
            room[: len(beginning)] = beginning
        buffer.advance(len(beginning))
        self._handed_on = 0
        self._fill(buffer)
        self._filled = len(beginning)
        return True

    def _read(self, on: bool) -> None:
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def piece(self, timeout_s: float) -> Piece | None:
        """Return the next bytes; None at the end.

        Raises TimeoutError, ConnectionResetError, and NodeBusy when there is no memory.
        """
        while not self._full:
            if self._error is not None:
                raise self._error
            if self._left == 0 and not self._filled:
                self._give_back()
                return None
            if self._lost:
                raise ConnectionResetError("the connection was closed in the middle of a body")
            await self._hear(timeout_s)
        first = self._full.popleft()
        data = first if isinstance(first, bytes) else memoryview(first[0].freeze(first[1]))
        self._go_on()
        return data

    async def _hear(self, timeout_s: float) -> None:
        self._news = self._loop.create_future()
        # A wait for memory is not the client's fault, and has a limit of its own.
        async with asyncio.timeout(None if self._waits_for_memory else timeout_s):
            await self._news

    def leave(self) -> None:
        """Drop the rest of the body; a second call does nothing."""
        if not self._wanted or self._is_back:
            return
        self._wanted = False
        self._full.clear()
        self._stop_timer()
        self._filling, self._filled = None, 0
        if self._lost:
            return
        if self._left == 0:
            self._give_back()
        else:
            self._read(True)

    def _go_on(self) -> None:
        """Read on if there is room."""
        if self._lost or not self._wanted or self._left == 0 or self._waits_for_memory:
            return
        self._read(self._filling is not None or len(self._full) < _AHEAD)

    def _wait_for_memory(self) -> None:
        self._read(False)
        self._waits_for_memory = True
        self._bodies.wait_for_buffer(min(self._size, self._left), self._patience_s, self._got)

    def _got(self, buffer: BodyBuffer | None) -> None:
        """Take the memory that was waited for, or note that the wait has ended without it."""
        self._waits_for_memory = False
        if self._lost or not self._wanted:
            return
        if buffer is None:
            self._error = NodeBusy("no memory for a body: too many are on their way")
        else:
            self._fill(buffer)
            self._go_on()
        # The wait for memory is over, and the one for the client begins.
        self._tell()

    def _fill(self, buffer: BodyBuffer) -> None:
        """Fill this buffer next. Behind an odd number of bytes it takes those up to the next block alone, so that the
        buffers after it begin at one.
        """
        self._filling = buffer
        odd = self._handed_on % _BLOCK
        self._enough = _BLOCK - odd if odd else None
        self._timer = self._loop.call_later(_PATIENCE_S, self._late)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def get_buffer(self, sizehint: int) -> Any:
        """Return the place for the next bytes; it is called when there are some, so a client that sends nothing holds
        no memory.
        """
        if self._wanted and self._filling is None:
            buffer = self._bodies.buffer(min(self._size, self._left))
            if buffer is not None:
                self._fill(buffer)
        if self._wanted and self._filling is not None:
            room = memoryview(self._filling)
            return room if self._enough is None else room[: self._enough - self._filled]
        self._spare = memoryview(bytearray(min(_SPARE_BYTES, self._left)))
        return self._spare

    def buffer_updated(self, nbytes: int) -> None:
        """Note that so many bytes have arrived."""
        self._left -= nbytes
        # The handler counts there what has arrived.
        self._content.total_bytes += nbytes
        if isinstance(self._handler, BegunByFront):
            self._handler.apart += nbytes
        if not self._wanted:
            if self._left == 0:
                self._read(False)
                self._loop.call_soon(self._give_back)
        elif self._filling is None:
            self._full.append(bytes(self._spare[:nbytes]))
            self._handed_on += nbytes
            self._tell()
            if self._left:
                self._wait_for_memory()
            else:
                self._read(False)
        else:
            self._filled += nbytes
            if self._filling.advance(nbytes) == 0:
                self._size = min(_LARGEST_BYTES, 2 * self._size)
                self._hand_on()
            elif self._filled == self._enough:
                self._hand_on()

    def _late(self) -> None:
        """Pass on what has arrived, because the client is slow or has stopped; in the middle of a block once more so
        many seconds later at the latest.
        """
        self._timer = None
        if self._enough is None:
            self._size = max(_SMALLEST_BYTES, min(self._size, self._filled))
            if self._filled % _BLOCK:
                self._enough = self._filled + -self._filled % _BLOCK
                self._timer = self._loop.call_later(_PATIENCE_S, self._late)
                return
        self._hand_on()

    def _hand_on(self) -> None:
        """Make the filled part of the buffer available; an empty buffer is returned."""
        self._stop_timer()
        if self._filling is not None and self._filled:
            # The taker freezes it: during this call the event loop may still hold the buffer.
            self._full.append((self._filling, self._filled))
            self._handed_on += self._filled
        self._filling, self._filled, self._enough = None, 0, None
        if self._left:
            self._go_on()
        else:
            self._read(False)
        self._tell()

    def _give_back(self) -> None:
        """Give the connection back to the server after the end of the body."""
        if self._is_back or self._lost:
            return
        self._is_back = True
        handler = self._handler
        self._content.feed_eof()
        self._read(False)
        self._transport.set_protocol(handler)
        handler._parser = _parser_for(handler, self._loop)
        # This makes the handler check the state of the connection, as it does itself before it goes on reading.
        handler.resume_reading()

    def eof_received(self) -> None:
        """Note that the client sends no more; the connection is closed."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server that the connection has ended."""
        self._lost = True
        self._stop_timer()
        self._handler.connection_lost(exc)
        if not self._wanted and not self._is_back:
            # The server waits a while for the rest after its answer, of which there is none now.
            self._content.set_exception(ConnectionResetError("the connection was closed in the middle of a body"))
        self._tell()

    def pause_writing(self) -> None:
        """Tell the handler that it may not write now."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Tell the handler that it may write again."""
        self._handler.resume_writing()


def _parser_for(handler: Any, loop: asyncio.AbstractEventLoop) -> HttpRequestParser:
    """Make the parser of a new connection as the server does; it never decompresses."""
    return HttpRequestParser(
        handler,
        loop,
        handler._read_bufsize,
        max_line_size=handler.max_line_size,
        max_field_size=handler.max_field_size,
        max_headers=handler.max_headers,
        payload_exception=RequestPayloadError,
        auto_decompress=False,
        max_msg_queue_size=MAX_MSG_QUEUE_SIZE,
    )


def begin_direct_read(
    request: web.BaseRequest, size: int, bodies: Bodies, patience_s: float
) -> tuple[bytes, DirectRead | None]:
    """Return what has arrived of a body of `size` bytes, and the reader of the rest; None where the server has to read
    it.

    Where possible the reader begins with what has arrived. The server has to read with TLS, when it still holds bytes
    that it has read, and when little is left.
    """
    handler: Any = request.protocol
    transport, content = request.transport, request.content
    if not isinstance(handler, RequestHandler) or transport is None or transport.is_closing():
        return b"", None
    if transport.get_extra_info("sslcontext") is not None or type(content) is not StreamReader:
        return b"", None
    come = []
    while piece := content.read_nowait():
        come.append(piece)
    beginning = b"".join(come)
    left = size - len(beginning)
    held = handler._reading_paused or handler._buffer_paused or handler._upgraded
    if content.is_eof() or content.exception() is not None or held or left < LEAST_BYTES:
        return beginning, None
    read = DirectRead(handler, content, len(beginning), left, bodies, patience_s)
    if beginning and read.begin_with(beginning):
        beginning = b""
    read.begin()
    return beginning, read
